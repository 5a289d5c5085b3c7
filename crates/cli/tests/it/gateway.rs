//! Gateway in `portolan up`, as `examples/gateway/README.md` shows it: HTTP through a real Envoy.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::up::Up;
use crate::{Ran, portolan, until};

fn ask(up: &Up, line: &str) -> Ran {
    portolan(&format!("{line} --kubeconfig {}", up.folder().join("kubeconfig").display()))
}

/// A pod: it answers each request with its name, as long as this process runs.
fn pod(name: &'static str) -> anyhow::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || answer(stream, name));
        }
    });
    Ok(port)
}

fn answer(mut stream: TcpStream, name: &str) -> std::io::Result<()> {
    let mut request = [0; 1024];
    let length = stream.read(&mut request)?;
    if length > 0 {
        write!(stream, "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{name}", name.len())?;
    }
    Ok(())
}

fn get(address: SocketAddr) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: web\r\nconnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| anyhow::anyhow!("no answer: {text:?}"))?;
    anyhow::ensure!(head.starts_with("HTTP/1.1 200"), "{text}");
    Ok(body.to_owned())
}

/// The objects of the example, with addresses and ports that no other test has.
fn example(up: &Up, file: &str, replaced: &[(&str, String)]) -> anyhow::Result<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/gateway");
    let mut text = std::fs::read_to_string(folder.join(file))?;
    for (from, to) in replaced {
        anyhow::ensure!(text.contains(from), "{file} has no {from}");
        text = text.replace(from, to);
    }
    let path = up.folder().join(file);
    std::fs::write(&path, text)?;
    Ok(path.display().to_string())
}

#[test]
fn requests_to_a_load_balancer_reach_its_endpoints_through_envoy_and_deletion_leaves_nothing() -> anyhow::Result<()> {
    let envoy = portolan_testkit::envoy::binary()?;
    let up = Up::start(tempfile::tempdir()?, &["--envoy-binary", &envoy.display().to_string()])?;
    let [first, second] = [pod("pod-1")?, pod("pod-2")?];
    let subnet = format!("127.78.{}.", std::process::id() % 200 + 20);
    let provider = example(&up, "provider.yaml", &[("127.78.0.", subnet.clone())])?;
    let ports = [("port: 8081", format!("port: {first}")), ("port: 8082", format!("port: {second}"))];
    let tenant = example(&up, "tenant.yaml", &ports)?;
    let address = SocketAddr::new(format!("{subnet}10").parse()?, 8080);

    up.kubectl(&format!("apply -f {provider}"))?;
    up.kubectl("-n egw wait --for=condition=Ready accounts.egw.acnodal.io/acme --timeout=60s")?;
    let planned = ask(&up, &format!("plan -f {tenant}"));
    assert_eq!(planned.exit, Some(1), "{planned:?}");
    assert!(planned.stdout.contains("65537") && planned.stdout.contains(&format!("{subnet}10")), "{planned:?}");
    up.kubectl(&format!("apply -f {tenant}"))?;
    up.kubectl("-n egw-acme wait --for=condition=Ready loadbalancers/web --timeout=60s")?;
    until("both endpoints answer", || {
        let answers: Vec<String> = (0..8).map(|_| get(address)).collect::<anyhow::Result<_>>()?;
        Ok(["pod-1", "pod-2"].iter().all(|pod| answers.iter().any(|answer| answer == pod)))
    })?;
    assert_eq!(ask(&up, "status gateway").exit, Some(0));
    assert_eq!(ask(&up, "doctor gateway").exit, Some(0));
    let why = ask(&up, "why lb acme/web");
    assert!(why.stdout.contains("account 1, service 1") && why.stdout.contains("in service"), "{why:?}");

    // an endpoint that is deleted gets no request any more, and none fails
    up.kubectl("-n egw-acme delete endpoints.egw.acnodal.io/web-1")?;
    until("only the other one answers", || {
        Ok((0..8).map(|_| get(address)).all(|got| got.is_ok_and(|pod| pod == "pod-2")))
    })?;

    up.kubectl("-n egw annotate accounts.egw.acnodal.io/acme portolan.dev/delete-with-contents=true")?;
    up.kubectl("-n egw delete accounts.egw.acnodal.io/acme --timeout=60s")?;
    assert!(get(address).is_err(), "nobody listens there any more");
    until("nothing is left of the account", || {
        Ok(up.kubectl("get loadbalancers,endpoints.egw.acnodal.io,servicegroups -A -o name")?.is_empty()
            && !up.kubectl("get namespaces -o name")?.contains("egw-acme")
            && up.children()?.is_empty())
    })?;
    up.stop()?;
    Ok(())
}

#[test]
fn without_an_envoy_a_load_balancer_says_how_to_get_one() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &["--envoy-binary", "/nowhere/envoy"])?;
    let provider = example(&up, "provider.yaml", &[])?;
    let tenant = example(&up, "tenant.yaml", &[])?;
    up.kubectl(&format!("apply -f {provider}"))?;
    up.kubectl("-n egw wait --for=condition=Ready accounts.egw.acnodal.io/acme --timeout=60s")?;
    up.kubectl(&format!("apply -f {tenant}"))?;
    until("its condition says what is missing", || {
        let why = ask(&up, "why lb acme/web");
        Ok(why.stdout.contains("EnvoyMissing") && why.stdout.contains("--envoy-binary"))
    })?;
    assert_eq!(ask(&up, "status gateway").exit, Some(1));
    up.stop()?;
    Ok(())
}
