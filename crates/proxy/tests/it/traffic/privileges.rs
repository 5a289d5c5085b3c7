//! What is left of root's rights. These tests run as root, as all that open network namespaces do.

use super::lab::{ask, udp_client, until};
use super::process::{run, udp_echo};
use super::program::Program;
use rustix::process::Signal;
use std::fs::Permissions;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;

/// Ports that only root may open.
fn low_ports() -> [u16; 2] {
    let free =
        |port: &u16| UdpSocket::bind(("127.0.0.1", *port)).is_ok() && TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let mut ports = (600..1024).rev().filter(free);
    [(); 2].map(|()| ports.next().expect("a free port below 1024, and root's right to open it"))
}

#[test]
fn started_by_root_it_goes_on_as_a_user_who_may_open_low_ports_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let [first, later] = low_ports();
    let config = format!("listeners: [{}]", udp_echo("first", first));
    let program = Program::start_in(dir, &["--user", "nobody:65533", "--workers", "2"], &config);
    program.post("/listeners", &format!("listener: {}", udp_echo("later", later)));
    for port in [first, later] {
        assert_eq!(ask(&udp_client(port), "hello"), "hello");
    }
    let tasks: Vec<_> = std::fs::read_dir(format!("/proc/{}/task", program.id())).unwrap().collect();
    assert!(tasks.len() > 3, "workers, the API and the main thread");
    for task in tasks {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        for line in [
            "Uid:\t65534\t65534\t65534\t65534",
            "Gid:\t65533\t65533\t65533\t65533",
            "Groups:\t ",
            "CapInh:\t0000000000000000",
            "CapPrm:\t0000000000000400",
            "CapEff:\t0000000000000400",
            "CapAmb:\t0000000000000000",
            "NoNewPrivs:\t1",
        ] {
            assert!(status.lines().any(|other| other == line), "{line} is not in\n{status}");
        }
    }
    let file = program.dir.path().join("proxy.yaml");
    std::fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    program.signal(Signal::HUP);
    until("root's own file to be out of reach", || program.log().contains("reload failed"));
    assert_eq!(ask(&udp_client(first), "still there"), "still there");
}

#[test]
fn it_does_not_start_as_a_user_it_cannot_become() {
    for (who, why) in [("nowhere", "no such user: \"nowhere\""), ("root", "cannot switch to root")] {
        let (code, said) = run(&["--api", "127.0.0.1:0", "--user", who], "");
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(&format!("cannot switch to user {who}: {why}")) && said.contains("hint: "), "{said}");
    }
}
