use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use portolan_testkit::{Program, Signal};

use crate::{Ran, portolan};

const LONG: Duration = Duration::from_secs(30);

#[test]
fn the_proxy_runs_until_a_signal_and_serves_its_file() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let port = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port();
    let listener = format!(
        "listeners: [{{name: l, spec: {{protocol: UDP, port: {port}, address: 127.0.0.1}}, \
         rules: [{{action: {{route: {{destination: {{spec: {{protocol: Echo}}}}}}}}}}]}}]"
    );
    std::fs::write(folder.path().join("proxy.yaml"), format!("admin: {{drain_timeout: 0}}\n{listener}"))?;
    let arguments = ["proxy", "-c", "proxy.yaml"].map(str::to_owned);
    let mut program = Program::start("portolan", Path::new(env!("CARGO_BIN_EXE_portolan")), &arguments, folder.path())?;
    let client = UdpSocket::bind("127.0.0.1:0")?;
    client.connect(("127.0.0.1", port))?;
    client.set_read_timeout(Some(Duration::from_millis(50)))?;
    let (began, mut buffer) = (Instant::now(), [0; 10]);
    // until the listener is there, a packet is refused or lost
    while client.send(b"hello").and_then(|_| client.recv(&mut buffer)).is_err() {
        anyhow::ensure!(program.ended()?.is_none() && began.elapsed() < LONG, "no answer: {}", program.log_tail());
    }
    assert_eq!(&buffer[..5], b"hello");
    program.signal(Signal::TERM)?;
    assert!(program.wait()?.success(), "{}", program.log_tail());
    Ok(())
}

#[test]
fn a_configuration_that_cannot_be_put_in_force_is_told_and_exits_1() -> anyhow::Result<()> {
    let holder = TcpListener::bind("127.0.0.1:0")?;
    let address = holder.local_addr()?;
    let Ran { exit, stdout, stderr } = portolan(&format!("proxy --api {address}"));
    assert_eq!((exit, stdout.as_str()), (Some(1), ""));
    // root is warned before
    assert!(stderr.contains(&format!("error: cannot serve the API on {address}: ")), "{stderr}");
    assert!(stderr.contains("\n\nhint: "), "{stderr}");
    assert_eq!(portolan("proxy --inline {} --check").exit, Some(0));
    let broken = portolan("proxy --inline {\"listeners\":7} --check");
    assert_eq!(broken.exit, Some(1));
    assert!(broken.stderr.contains("cannot apply --inline: listeners: expected a list"), "{broken:?}");
    Ok(())
}
