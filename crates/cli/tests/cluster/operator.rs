//! The operator as the chart installs it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Stdio;

use anyhow::{Context as _, ensure};

use crate::audit::Audit;
use crate::installation::{Installation, portolan_on, until};
use crate::traffic::Application;

#[test]
fn the_webhook_answers_through_its_service() -> anyhow::Result<()> {
    let installation = Installation::shared()?;
    let refused = installation.kubectl_on(
        "create",
        r#"{"apiVersion":"egressgateway.spidernet.io/v1beta1","kind":"EgressGateway","metadata":{"name":"refused"},
            "spec":{"ippools":{"ipv4":["10.6.1.300"]},"nodeSelector":{"selector":{"matchLabels":{"a":"b"}}}}}"#,
    );
    let said = refused.err().map(|error| format!("{error:#}")).unwrap_or_default();
    ensure!(said.contains("admission webhook") && said.contains("10.6.1.300"), "{said}");
    Ok(())
}

#[test]
fn logs_exec_and_port_forward_reach_pods() -> anyhow::Result<()> {
    let installation = Installation::shared()?;
    let logs = installation.kubectl("logs --namespace portolan deployment/portolan-operator")?;
    ensure!(logs.contains("running"), "{logs}");
    let version = installation
        .kubectl("exec --namespace portolan deployment/portolan-operator -- /usr/bin/portolan --version")?;
    ensure!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");

    let mut kubectl = installation.cluster.kubectl();
    kubectl.args(["port-forward", "--namespace=portolan", "deployment/portolan-operator", ":9090"]);
    let mut forwarding = kubectl.stdout(Stdio::piped()).spawn()?;
    // Read from to the end: kubectl also tells of each connection, and ends if nobody listens.
    let mut lines = BufReader::new(forwarding.stdout.take().context("standard output is a pipe")?).lines();
    let said = lines.next().context("kubectl ended")??;
    // Forwarding from 127.0.0.1:PORT -> 9090
    let address = said.split_whitespace().nth(2).with_context(|| said.clone())?;
    let answered = TcpStream::connect(address).and_then(|mut stream| {
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_| answer)
    });
    forwarding.kill()?;
    forwarding.wait()?;
    drop(lines);
    let answer = answered?;
    ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}

#[test]
fn the_operator_may_do_nothing_that_its_roles_do_not_say() -> anyhow::Result<()> {
    let installation = Installation::shared()?;
    let may = |what: &str| -> anyhow::Result<bool> {
        let line = format!("auth can-i {what} --as=system:serviceaccount:portolan:portolan-operator --quiet");
        Ok(installation.cluster.kubectl().args(line.split_whitespace()).output()?.status.success())
    };
    for what in ["list egressgateways.egressgateway.spidernet.io", "update leases/portolan-operator -n portolan"] {
        ensure!(may(what)?, "it may not {what}");
    }
    for what in [
        "list secrets --all-namespaces",
        "get secrets -n kube-system",
        "delete secrets/portolan-webhook -n portolan",
        "create pods -n portolan",
        "delete nodes",
        "delete egressgateways.egressgateway.spidernet.io",
        "create clusterrolebindings",
        "escalate clusterroles",
        "impersonate users",
    ] {
        ensure!(!may(what)?, "it may {what}");
    }
    Ok(())
}

#[test]
fn a_leader_that_is_killed_is_replaced() -> anyhow::Result<()> {
    let installation = Installation::alone()?;
    let before = installation.leader()?;
    installation.kubectl(&format!("delete pod --namespace portolan {before} --grace-period=0 --force"))?;
    until("another replica leads", || {
        ensure!(installation.leader()? != before);
        Ok(())
    })?;
    installation.rolled_out()
}

#[test]
fn an_upgrade_under_writes_has_one_leader_at_any_time_and_loses_nothing() -> anyhow::Result<()> {
    let installation = Installation::alone()?;
    let application = Application::start(&installation, "upgrade", |objects| objects)?;
    let audit = Audit::begin(&installation)?;
    let mut ports = Vec::new();
    std::thread::scope(|scope| {
        let upgrade = scope.spawn(|| installation.install("upgrade", &["--set=podAnnotations.upgraded=once"]));
        // Each goes through the webhook, whose pods come and go meanwhile.
        while !upgrade.is_finished() || ports.len() < 10 {
            let port = 20_000 + ports.len();
            installation.kubectl_on("create --namespace upgrade", &virtual_service(port))?;
            ports.push(port);
        }
        upgrade.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    let names: Vec<String> = ports.iter().map(|port| format!("vsvc/port-{port}")).collect();
    installation.programmed("upgrade", &names.join(" "))?;
    for port in ports {
        let line = format!("send udp://{}:{port} hello --timeout 10", application.gateway());
        let answer = portolan_on(installation.cluster.outside(), &line)?;
        ensure!(answer.stdout == b"hello\n", "port {port} does not answer: {answer:?}");
    }
    audit.shows_one_writer_at_a_time()?;
    application.end()
}

/// A port of the application's gateway that sends back what it gets.
fn virtual_service(port: usize) -> String {
    format!(
        "{{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {{name: port-{port}}}, spec: {{\
         selector: {{matchLabels: {{app: gateway}}}}, listener: {{protocol: UDP, port: {port}}}, \
         rules: [{{action: {{route: {{destination: {{spec: {{protocol: Echo}}}}}}}}}}]}}}}"
    )
}
