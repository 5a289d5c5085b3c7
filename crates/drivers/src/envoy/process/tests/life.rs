//! Envoys start, end, and are started again.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use portolan_core::gateway::ports::Protocol;
use rustix::process::{Signal, kill_process};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::peers::{Server, ask_on, ask_until, refused};
use super::{LIMIT, Lab, id, port, public_address, unit};
use crate::envoy::contract::keeps_the_contract;
use crate::envoy::{Proxies as _, State};

#[tokio::test]
async fn processes_keep_the_contract() {
    let lab = Lab::start(Duration::ZERO);
    keeps_the_contract(&lab.proxies, public_address()).await;
    lab.stop().await;
}

#[tokio::test]
async fn a_killed_envoy_is_started_again() {
    let (lab, address) = (Lab::start(Duration::ZERO), public_address());
    let server = Server::tcp(b'k').await;
    let wanted = unit(address, [(port(Protocol::Tcp, 8010), "web", &[server.address])]);
    lab.serve(&id(), &wanted).await;
    ask_until((address, 8010).into(), b'k').await;
    let first = lab.envoy();
    kill_process(first, Signal::KILL).unwrap();
    lab.wait(&id(), "its end is noticed", |report| report.state != State::Running).await;
    lab.wait(&id(), "it runs again", |report| report.answered.as_deref() == Some(&wanted)).await;
    ask_until((address, 8010).into(), b'k').await;
    assert_ne!(lab.envoy(), first);
    lab.stop().await;
}

#[tokio::test]
async fn a_drained_envoy_goes_on_with_its_connections_and_ends() {
    let (lab, address) = (Lab::start(Duration::from_secs(3)), public_address());
    let server = Server::tcp(b'd').await;
    lab.serve(&id(), &unit(address, [(port(Protocol::Tcp, 8011), "web", &[server.address])])).await;
    ask_until((address, 8011).into(), b'd').await;
    let mut open = TcpStream::connect((address, 8011)).await.unwrap();
    assert_eq!(ask_on(&mut open).await.unwrap(), b'd');
    let unwanted = Instant::now();
    lab.want(&[]);
    refused((address, 8011).into()).await;
    // on a machine that is too busy to ask in time, it may have ended
    let answer = ask_on(&mut open).await;
    if unwanted.elapsed() < Duration::from_secs(3) {
        assert_eq!(answer.unwrap(), b'd', "a connection of before goes on");
    }
    let begun = Instant::now();
    while !lab.proxies.reports().expect("this replica leads").is_empty() {
        assert!(begun.elapsed() < LIMIT, "it does not end");
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(lab.find_envoy(), None);
    lab.stop().await;
}

#[tokio::test]
async fn a_unit_that_is_wanted_again_while_it_drains_goes_on() {
    let (lab, address) = (Lab::start(Duration::from_mins(10)), public_address());
    let server = Server::tcp(b'w').await;
    let wanted = unit(address, [(port(Protocol::Tcp, 8012), "web", &[server.address])]);
    lab.serve(&id(), &wanted).await;
    let first = lab.envoy();
    lab.want(&[]);
    lab.wait(&id(), "it drains", |report| report.state == State::Draining).await;
    refused((address, 8012).into()).await;
    lab.serve(&id(), &wanted).await;
    ask_until((address, 8012).into(), b'w').await;
    assert_eq!(lab.envoy(), first, "it is the same process");
    lab.stop().await;
}

#[tokio::test]
async fn admin_not_on_network() {
    let (lab, address) = (Lab::start(Duration::ZERO), public_address());
    lab.serve(&id(), &unit(address, [(port(Protocol::Tcp, 8013), "web", &[])])).await;
    refused_except(&lab, 8013).await;
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&lab.unit_folder()), 0o700);
    assert_eq!(mode(&lab.unit_folder().join("admin.sock")), 0o600);
    lab.stop().await;
}

/// Envoy listens on this TCP port and on no other.
async fn refused_except(lab: &Lab, port: u16) {
    let begun = Instant::now();
    loop {
        let ports = listening(lab.envoy().as_raw_nonzero().get());
        if ports == [port] {
            return;
        }
        assert!(ports.len() <= 1 && begun.elapsed() < LIMIT, "it listens on {ports:?}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// The TCP ports that a process listens on.
fn listening(process: i32) -> Vec<u16> {
    let sockets = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().flatten();
    let sockets = sockets.filter_map(|file| Some(std::fs::read_link(file.path()).ok()?.to_string_lossy().into_owned()));
    let own: Vec<String> =
        sockets.filter_map(|socket| Some(socket.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned())).collect();
    let mut ports = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in std::fs::read_to_string(table).unwrap_or_default().lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let is_listening = words.get(3) == Some(&"0A");
            let is_own = words.get(9).is_some_and(|inode| own.iter().any(|own| own == inode));
            let port = words.get(1).and_then(|local| u16::from_str_radix(local.rsplit(':').next()?, 16).ok());
            ports.extend(port.filter(|_| is_listening && is_own));
        }
    }
    ports
}

#[tokio::test]
async fn an_envoy_that_ends_at_once_is_shown_with_its_last_words() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("envoy");
    let text =
        "#!/bin/sh\ncase \"$1\" in --version) echo 'envoy  version: 0/1.40.0/Clean';; *) echo ouch; exit 3;; esac\n";
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let lab = Lab::with_binary(script, Duration::ZERO);
    lab.want(&[(&id(), &unit(public_address(), []))]);
    let is_shown = |state: &State| matches!(state, State::Crashed(why) if why.contains("ouch") && why.contains('3'));
    lab.wait(&id(), "it is shown", |report| is_shown(&report.state)).await;
    lab.stop().await;
}

#[tokio::test]
async fn without_envoy_a_unit_is_missing_it() {
    let lab = Lab::with_binary("/nowhere/envoy".into(), Duration::ZERO);
    lab.want(&[(&id(), &unit(public_address(), []))]);
    let is_shown = |state: &State| matches!(state, State::Missing(why) if why.contains("--envoy-binary"));
    lab.wait(&id(), "it is shown", |report| is_shown(&report.state)).await;
    lab.proxies.stand_by();
    assert_eq!(lab.proxies.reports(), None, "another replica leads");
    lab.stop().await;
}
