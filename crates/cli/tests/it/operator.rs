//! `portolan operator` with some of its capabilities, and questions about the mesh on the command line.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use portolan_testkit::{Program, ReservedAddress, Signal};

use crate::up::Up;
use crate::{portolan, until};

#[test]
fn only_the_capabilities_that_are_asked_for_run() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &["--empty"])?;
    let file = up.folder().join("namespace.yaml");
    std::fs::write(&file, "{apiVersion: v1, kind: Namespace, metadata: {name: portolan}}")?;
    let webhooks = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/manifests/webhooks.yaml");
    up.kubectl(&format!("apply -f {} -f {}", file.display(), webhooks.display()))?;
    let bundle = |name: &str| {
        up.kubectl(&format!(
            "get validatingwebhookconfiguration portolan-{name} -o jsonpath={{.webhooks[0].clientConfig.caBundle}}"
        ))
    };
    for (asked, runs, rests) in
        [("mesh", "portolan_mesh_", "portolan_egress_"), ("egress", "portolan_egress_", "portolan_mesh_")]
    {
        assert_eq!(bundle(asked)?, "", "nobody serves it yet");
        let reserved = ReservedAddress::new()?;
        let admin = reserved.address();
        let flags = format!(
            "operator --capabilities {asked} --kubeconfig kubeconfig --admin-listen {admin} --identity {asked} --webhook-listen 127.0.0.1:0"
        );
        let arguments: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
        let portolan = Path::new(env!("CARGO_BIN_EXE_portolan"));
        let mut operator = Program::start(asked, portolan, &arguments, up.folder())?;
        let began = Instant::now();
        while get(admin, "/readyz").is_none_or(|answer| !answer.starts_with("HTTP/1.1 200")) {
            anyhow::ensure!(operator.ended()?.is_none(), "it ended: {}", operator.log_tail());
            anyhow::ensure!(began.elapsed() < Duration::from_mins(1), "it is not ready: {}", operator.log_tail());
            std::thread::sleep(Duration::from_millis(50));
        }
        let metrics = get(admin, "/metrics").unwrap_or_default();
        assert!(metrics.contains(runs) && !metrics.contains(rests), "--capabilities {asked}: {metrics}");
        assert_ne!(bundle(asked)?, "", "its webhook is served");
    }
    up.stop()?;
    Ok(())
}

#[test]
fn an_operator_without_its_lease_namespace_is_not_ready_and_says_what_to_do() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &["--empty"])?;
    let reserved = ReservedAddress::new()?;
    let admin = reserved.address();
    let flags =
        format!("operator --capabilities mirror --lease-namespace edge --kubeconfig kubeconfig --admin-listen {admin}");
    let arguments: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    let portolan = Path::new(env!("CARGO_BIN_EXE_portolan"));
    let _operator = Program::start("operator", portolan, &arguments, up.folder())?;
    let advice = "namespace `edge` does not exist: kubectl create namespace edge";
    until("it says why it is not ready", || {
        let answer = get(admin, "/readyz").unwrap_or_default();
        Ok(answer.starts_with("HTTP/1.1 503") && answer.contains(&format!("lease: {advice}")))
    })?;
    until("all that is left is the lease", || {
        Ok(get(admin, "/readyz").is_some_and(|answer| answer.ends_with(&format!("\r\n\r\nlease: {advice}\n"))))
    })?;
    let file = up.folder().join("namespace.yaml");
    std::fs::write(&file, "{apiVersion: v1, kind: Namespace, metadata: {name: edge}}")?;
    up.kubectl(&format!("apply -f {}", file.display()))?;
    until("it is ready", || Ok(get(admin, "/readyz").is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))))?;
    assert!(up.kubectl("get lease -n edge -o name")?.contains("portolan-operator"));
    let log = std::fs::read_to_string(up.folder().join("operator.log"))?;
    assert_eq!(log.matches(advice).count(), 1, "it is logged once: {log}");
    up.stop()?;
    Ok(())
}

#[test]
fn an_outage_of_the_api_server_is_logged_once_with_its_address_and_summed_up() -> anyhow::Result<()> {
    let kept = tempfile::tempdir()?;
    let data = kept.path().join("data").display().to_string();
    let (server, admin) = (ReservedAddress::new()?, ReservedAddress::new()?);
    let listen = server.address().to_string();
    let more = ["--empty", "--data-dir", data.as_str()];
    let up = Up::start_at(&listen, tempfile::tempdir()?, &more)?;
    let file = up.folder().join("namespace.yaml");
    std::fs::write(&file, "{apiVersion: v1, kind: Namespace, metadata: {name: portolan}}")?;
    up.kubectl(&format!("apply -f {}", file.display()))?;
    std::fs::copy(up.folder().join("kubeconfig"), kept.path().join("kubeconfig"))?;
    let flags = format!("operator --kubeconfig kubeconfig --admin-listen {}", admin.address());
    let arguments: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    let portolan = Path::new(env!("CARGO_BIN_EXE_portolan"));
    let _operator = Program::start("operator", portolan, &arguments, kept.path())?;
    let leads = || get(admin.address(), "/metrics").is_some_and(|text| text.contains("\nportolan_runtime_leads 1\n"));
    until("it leads", || Ok(leads()))?;
    up.kill()?;
    let began = "no answer from the API server";
    let log = || std::fs::read_to_string(kept.path().join("operator.log"));
    until("the outage is logged", || Ok(log()?.contains(began)))?;
    until("it no longer leads", || Ok(!leads()))?;
    let up = Up::start_at(&listen, tempfile::tempdir()?, &more)?;
    until("its end is logged", || Ok(log()?.contains("the API server responds again")))?;
    until("it leads again", || Ok(leads()))?;
    let log = log()?;
    assert_eq!(log.matches(began).count(), 1, "{log}");
    let first = log.lines().find(|line| line.contains(began)).unwrap_or_default();
    assert!(first.contains(&listen), "{first}");
    assert!(!log.contains("list failed") && !log.contains("keeps failing"), "{log}");
    let end = log.lines().find(|line| line.contains("responds again")).unwrap_or_default();
    assert!(end.contains("\"failed_requests\":"), "{end}");
    up.stop()?;
    Ok(())
}

/// An operator of the mirror that answers on its admin port.
fn mirror_operator(up: &Up, admin: SocketAddr) -> anyhow::Result<Program> {
    let flags = format!("operator --capabilities mirror -local-kubeconfig kubeconfig -listen-address {admin}");
    let arguments: Vec<String> = flags.split_whitespace().map(str::to_owned).collect();
    Program::start("operator", Path::new(env!("CARGO_BIN_EXE_portolan")), &arguments, up.folder())
}

#[test]
fn busy_port_exits() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &["--empty"])?;
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let mut operator = mirror_operator(&up, taken.local_addr()?)?;
    assert_eq!(operator.wait()?.code(), Some(1));
    let said = operator.log_tail();
    assert!(said.contains(&taken.local_addr()?.to_string()) && said.contains("choose another port"), "{said}");
    up.stop()?;
    Ok(())
}

#[test]
fn a_second_signal_ends_an_operator_at_once_that_waits_for_its_api_server() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &["--empty"])?;
    let file = up.folder().join("namespace.yaml");
    std::fs::write(&file, "{apiVersion: v1, kind: Namespace, metadata: {name: portolan}}")?;
    up.kubectl(&format!("apply -f {}", file.display()))?;
    let reserved = ReservedAddress::new()?;
    let mut operator = mirror_operator(&up, reserved.address())?;
    until("it is ready and alive as Barrelman's probes ask", || {
        anyhow::ensure!(operator.ended()?.is_none(), "it ended: {}", operator.log_tail());
        let answers =
            |path: &str| get(reserved.address(), path).is_some_and(|answer| answer.starts_with("HTTP/1.1 200"));
        Ok(answers("/readyz?verbose") && answers("/healthz"))
    })?;
    up.freeze(true)?;
    operator.signal(Signal::TERM)?;
    until("it stops", || Ok(operator.log_tail().contains("SIGTERM")))?;
    // Its lease cannot be given back, as nobody answers.
    assert!(operator.ended()?.is_none());
    operator.signal(Signal::TERM)?;
    let ended = operator.wait()?;
    assert_eq!(ended.code(), Some(1), "{}", operator.log_tail());
    assert!(operator.log_tail().contains("second signal"), "{}", operator.log_tail());
    up.freeze(false)?;
    up.stop()?;
    Ok(())
}

#[test]
fn questions_about_the_mesh_exit_as_others_do_and_the_old_spelling_is_named() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &["--empty"])?;
    let ask = |line: &str| portolan(&format!("{line} --kubeconfig {}", up.folder().join("kubeconfig").display()));
    let file = up.folder().join("route.yaml");
    std::fs::write(&file, "{apiVersion: l7mp.io/v1, kind: Route, metadata: {name: r}, spec: {destination: nobody}}")?;
    up.kubectl(&format!("apply -f {}", file.display()))?;
    let why = ask("why route r");
    assert_eq!(why.exit, Some(1), "{why:?}");
    let words: Vec<&str> = why.stdout.split_whitespace().collect();
    assert!(words.windows(3).any(|words| words == ["destination", "nobody", "4"]), "{why:?}");
    assert!(why.stdout.contains("Route default/r is not programmed: RefNotFound"), "{why:?}");
    let said = why.stdout.matches("does not exist in namespace").count();
    assert_eq!(said, 2, "a refusal is said once, and in the summary: {why:?}");
    let yaml = ask("why rte default/r -o yaml");
    assert!(yaml.stdout.contains("destination: nobody"), "the normal form: {yaml:?}");
    let absent = ask("why vsvc v");
    assert_eq!((absent.exit, absent.stdout.as_str()), (Some(1), ""));
    assert!(absent.stderr.starts_with("error: there is no VirtualService default/v\n"), "{absent:?}");
    std::fs::write(
        &file,
        "{apiVersion: l7mp.io/MSM/v1, kind: Route, metadata: {name: r}, spec: {destination: nobody}}",
    )?;
    let plan = ask(&format!("plan -f {}", file.display()));
    assert_eq!(plan.exit, Some(0), "{plan:?}");
    assert_eq!(plan.stderr, "warning: Route `r`: apiVersion `l7mp.io/MSM/v1` cannot be stored: write `l7mp.io/v1`\n");
    assert_eq!(plan.stdout, "nothing would change\n");
    up.stop()?;
    Ok(())
}

fn get(address: std::net::SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n").as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}
