//! Processes that stand in for pods: each at home on an address and in folders of its own.

use super::lab::{LONG, free_port, until};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A pod of two containers that share one volume: an app on localhost and on a socket file, and a sidecar before it.
struct Pod {
    address: [u8; 4],
    app: Child,
    sidecar: Child,
    folder: tempfile::TempDir,
}

impl Pod {
    fn start(last: u8, port: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "secret write\n").unwrap();
        let address = [127, 76, 0, last];
        let rules = |destination: &str| format!("rules: [{{action: {{route: {{destination: {destination}}}}}}}]");
        let echo = rules("{spec: {protocol: Echo}}");
        let app = format!(
            "{{listeners: [{{name: u, spec: {{protocol: UDP, port: {port}, address: 127.0.0.1}}, {echo}}}, \
             {{name: f, spec: {{protocol: UnixDomainSocket, filename: /var/run/app/echo.sock}}, {echo}}}]}}"
        );
        let (udp, file) = (
            rules(&format!("{{spec: {{protocol: UDP, port: {port}}}, endpoints: [{{spec: {{address: localhost}}}}]}}")),
            rules("{spec: {protocol: UnixDomainSocket, filename: /var/run/app/echo.sock}}"),
        );
        let sidecar = format!(
            "{{admin: {{log_file: /var/run/app/sidecar.log}}, \
             listeners: [{{name: u, spec: {{protocol: UDP, port: {}}}, {udp}}}, \
             {{name: f, spec: {{protocol: UDP, port: {}, address: 0.0.0.0}}, {file}}}]}}",
            port + 1,
            port + 2
        );
        let app = spawn(&folder, address, "app", &["--inline", &app]);
        ready(&folder, "app");
        let api = ["--inline", &sidecar, "--api", "0.0.0.0:1234", "--api-token-file", "/var/run/app/token"];
        let sidecar = spawn(&folder, address, "sidecar", &api);
        ready(&folder, "sidecar");
        Self { address, app, sidecar, folder }
    }

    fn ask(&self, port: u16, text: &str) -> String {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        client.connect(SocketAddr::from((self.address, port))).unwrap();
        client.send(text.as_bytes()).unwrap();
        let mut buffer = [0; 100];
        let length = client.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        for child in [&mut self.app, &mut self.sidecar] {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the test is about the program as it is started")]
fn spawn(folder: &tempfile::TempDir, address: [u8; 4], name: &str, words: &[&str]) -> Child {
    let address = std::net::Ipv4Addr::from(address).to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_portolan-proxy"));
    command.args(["--address", &address, "--localhost", &address, "--workers", "1", "--end-with-stdin"]);
    command.arg("--mount").arg(format!("/var/run/app={}", folder.path().display()));
    command.arg("--ready-file").arg(folder.path().join(format!("{name}.ready"))).args(words);
    command.env_clear().stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

fn ready(folder: &tempfile::TempDir, name: &str) {
    until("the process to be ready", || folder.path().join(format!("{name}.ready")).exists());
}

#[test]
fn pods_on_one_machine_have_ports_localhost_and_files_of_their_own() {
    let port = free_port();
    let pods = [Pod::start(1, port), Pod::start(2, port)];
    for (number, pod) in pods.iter().enumerate() {
        let text = format!("pod {number}");
        assert_eq!(pod.ask(port + 1, &text), text, "the app on localhost");
        assert_eq!(pod.ask(port + 2, &text), text, "the app on a socket file");
        let mut api = TcpStream::connect(SocketAddr::from((pod.address, 1234))).unwrap();
        let request =
            "GET /api/v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\nConnection: close\r\n\r\n";
        api.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        api.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        for file in ["echo.sock", "sidecar.log"] {
            assert!(pod.folder.path().join(file).exists(), "{file}");
        }
    }
    assert!(!Path::new("/var/run/app").exists());
}

#[test]
fn a_process_ends_with_its_standard_input() {
    let mut pod = Pod::start(3, free_port());
    drop(pod.app.stdin.take());
    until("the app to end", || pod.app.try_wait().unwrap().is_some());
    assert!(pod.sidecar.try_wait().unwrap().is_none(), "the other holds its own");
}
