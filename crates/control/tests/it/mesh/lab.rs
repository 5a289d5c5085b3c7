//! A test in a network of its own, where the addresses of a document are this machine's: it runs itself again there, with
//! everything it starts. A real API server takes no loopback addresses for endpoints, and others may use these.

use std::process::Stdio;

use anyhow::Context as _;
use tokio::process::Command;

use crate::harness::Backend;

/// Told to the inner run.
const MARK: &str = "PORTOLAN_TEST_LAB";

/// Pods, and the clients of the document. kube-apiserver wants some way out to find an address of its own.
const SETUP: &str = "ip link set lo up
for range in 10.77.0.0/16 10.0.0.0/24 192.168.0.0/24; do ip route add local $range dev lo; done
ip address add 172.30.0.1/24 dev lo && ip route add default dev lo
exec \"$@\"";

/// True inside of the lab. Outside of it the test is run there, and the outcome is its own.
pub(crate) async fn is_inside(module: &str, test: &str, backend: Backend) -> anyhow::Result<bool> {
    if std::env::var_os(MARK).is_some() {
        return Ok(true);
    }
    let server = match backend {
        Backend::Real => "on_the_real_server",
        Backend::Embedded => "on_the_embedded_server",
    };
    let name = format!("{module}::{test}::{server}");
    let mut command = Command::new("setpriv");
    // unshare becomes the shell, which becomes the test: all are one process, which dies with this one
    command.args(["--pdeathsig", "KILL", "--", "unshare", "--net"]);
    if !rustix::process::getuid().is_root() {
        command.arg("--map-root-user");
    }
    command.args(["--", "sh", "-ec", SETUP, "lab"]);
    command.arg(std::env::current_exe()?).args([&name, "--exact", "--nocapture"]);
    command.env(MARK, "1").stdin(Stdio::null()).kill_on_drop(true);
    let ran = command.output().await.context("starting setpriv failed: run cargo xtask setup")?;
    let said = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    anyhow::ensure!(ran.status.success() && said.contains("1 passed"), "{name} in its own network:\n{said}");
    Ok(false)
}
