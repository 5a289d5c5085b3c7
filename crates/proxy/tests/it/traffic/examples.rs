//! Both examples of the mesh document from end to end: a process per pod, programmed with the calls under
//! `examples/proxy`, real packets through all of them.
//!
//! Pods have addresses of 127.0.0.0/8. The files use 127.0.1.* and 127.0.2.*; a run has a second byte of its own.

use super::lab::{LONG, UdpEcho, ask, is_silent, receive, until};
use super::program::Program;
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

/// Addresses of one run.
struct Network(String);

impl Network {
    fn new() -> Self {
        Self(format!("127.{}.", 1 + std::process::id() % 254))
    }

    /// An address of the files as it is in this run.
    fn here(&self, text: &str) -> String {
        text.replace("127.0.", &self.0)
    }

    /// A user at an address and port, who talks to a gateway.
    fn user(&self, at: &str, gateway: &str) -> UdpSocket {
        let socket = UdpSocket::bind(self.here(at)).unwrap();
        socket.connect(self.here(gateway)).unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        socket
    }

    /// A pod's proxy.
    fn pod(&self) -> Pod<'_> {
        let dir = tempfile::tempdir().unwrap();
        let sockets = dir.path().display().to_string();
        let program = Program::start_in(dir, &["-s"], &format!("admin: {{uds_dirs: [\"{sockets}\"]}}"));
        Pod { program, network: self }
    }
}

struct Pod<'a> {
    program: Program,
    network: &'a Network,
}

impl Pod<'_> {
    /// Makes the call of a file; `edit` is for what differs from pod to pod.
    fn call(&self, file: &str, edit: impl Fn(String) -> String) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/proxy").join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let kind = text.lines().find_map(|line| line.strip_suffix(':')).expect("the first key is the kind");
        self.program.post(&format!("/{kind}s"), &edit(self.network.here(&text)));
    }

    fn sessions(&self) -> Vec<Value> {
        self.program.json("/sessions").as_array().unwrap().clone()
    }
}

/// An app behind a Unix socket that turns everything into capitals.
fn capitals(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(n) = stream.read(&mut buffer) {
                    buffer[..n].make_ascii_uppercase();
                    if n == 0 || stream.write_all(&buffer[..n]).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

#[test]
fn example_1_filters_transcodes_and_answers() {
    let network = Network::new();
    let (transcoder, gateway) = (network.pod(), network.pod());
    let _worker = UdpEcho::on(&network.here("127.0.1.3:9999"), "worker: ");
    capitals(&transcoder.program.dir.path().join("uds-echo.sock"));
    let sockets = transcoder.program.dir.path().display().to_string();
    transcoder.call("1-gateway/transcoder-listener.yaml", |text| text.replace("/var/run/sock", &sockets));
    for file in ["gateway-transcoder.yaml", "gateway-worker.yaml", "gateway-listener.yaml"] {
        gateway.call(&format!("1-gateway/{file}"), |text| text);
    }

    let user = network.user("127.0.1.9:9000", "127.0.1.1:9001");
    assert_eq!(ask(&user, "hello"), "worker: HELLO", "through the transcoder on the way in, not on the way back");
    assert_eq!(ask(&user, "again"), "worker: AGAIN");
    let last = network.user("127.0.1.9:9099", "127.0.1.1:9001");
    assert_eq!(ask(&last, "the last port"), "worker: THE LAST PORT");
    for stranger in ["127.0.1.9:8999", "127.0.1.9:9100", "127.0.1.8:9000"] {
        let stranger = network.user(stranger, "127.0.1.1:9001");
        stranger.send(b"let me in").unwrap();
        assert!(is_silent(&stranger));
    }
    let sessions = gateway.sessions();
    assert_eq!(sessions.len(), 2, "strangers leave none");
    let session = &sessions[0];
    let origin = |stage: &Value| stage["origin"].as_str().unwrap().to_owned();
    assert_eq!(
        (origin(&session["ingress"][0]), origin(&session["destination"])),
        ("transcoder-vsvc".into(), "worker-svc".into())
    );
    assert_eq!(session["egress"], json!([]));
    assert_eq!(transcoder.sessions().len(), 2);

    // a second worker is one more endpoint, and nothing is cut
    let names = |pod: &Pod<'_>| pod.sessions().iter().map(|s| s["name"].clone()).collect::<Vec<_>>();
    let before = names(&gateway);
    gateway.program.post("/clusters/worker-svc/endpoints", &network.here("{endpoint: {spec: {address: 127.0.1.4}}}"));
    assert_eq!(ask(&user, "still"), "worker: STILL");
    assert_eq!(names(&gateway), before);
}

/// A transcoder that speaks JSONSocket: it remembers what headers said and turns data into capitals.
struct Transcoder {
    labels: Arc<Mutex<Vec<Value>>>,
}

impl Transcoder {
    fn on(address: &str) -> Self {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(LONG * 6)).unwrap();
        let labels = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&labels);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok((n, from)) = socket.recv_from(&mut buffer) {
                let header = serde_json::from_slice::<Value>(&buffer[..n]).ok();
                let answer = match header.filter(|header| header["JSONSocketVersion"] == json!(1)) {
                    Some(header) => {
                        seen.lock().push(header["labels"].clone());
                        br#"{"JSONSocketVersion":1,"JSONSocketStatus":200,"JSONSocketMessage":"OK"}"#.to_vec()
                    }
                    None => buffer[..n].to_ascii_uppercase(),
                };
                socket.send_to(&answer, from).ok();
            }
        });
        Self { labels }
    }
}

#[test]
fn example_2_joins_two_users_at_one_worker() {
    let network = Network::new();
    let addresses = ["127.0.2.3", "127.0.2.4", "127.0.2.5"];
    let workers: BTreeMap<&str, Pod<'_>> = addresses.iter().map(|address| (*address, network.pod())).collect();
    let apps: Vec<Transcoder> =
        addresses.iter().map(|address| Transcoder::on(&network.here(&format!("{address}:19001")))).collect();
    for (address, worker) in &workers {
        let own = |text: String| text.replace(&network.here("127.0.2.3"), &network.here(address));
        for file in ["worker-sync.yaml", "worker-transcoder.yaml", "worker-listener.yaml"] {
            worker.call(&format!("2-rendezvous/{file}"), own);
        }
    }
    let gateways = [network.pod(), network.pod()];
    for gateway in &gateways {
        gateway.call("2-rendezvous/gateway-worker.yaml", |text| text);
        gateway.call("2-rendezvous/gateway-route.yaml", |text| text);
    }

    // calls 1 to 6: A and B of the document, and five more pairs at other ports
    let mut pairs = Vec::new();
    for call in 1..=6 {
        let [port_a, port_b] = [8001 + (call - 1) * 2, 8002 + (call - 1) * 2];
        let user =
            |at: &str, gateway: &str, port: u16| network.user(&format!("{at}:{port}"), &format!("{gateway}:{port}"));
        let (a, b) = (user("127.0.2.8", "127.0.2.1", port_a), user("127.0.2.9", "127.0.2.2", port_b));
        let edit = |text: String| {
            text.replace("-vsvc", &format!("-vsvc-{call}"))
                .replace("8001", &port_a.to_string())
                .replace("8002", &port_b.to_string())
                .replace("value: \"1\"", &format!("value: \"{call}\""))
        };
        gateways[0].call("2-rendezvous/gateway-user-a.yaml", edit);
        gateways[1].call("2-rendezvous/gateway-user-b.yaml", edit);
        pairs.push((a, b));
    }
    for (call, (a, b)) in pairs.iter().enumerate() {
        until("both ends at one worker", || workers.values().any(|worker| has_both(worker, call + 1)));
        a.send(format!("a to b of call {call}").as_bytes()).unwrap();
        assert_eq!(receive(b), format!("A TO B OF CALL {call}"));
        b.send(format!("b to a of call {call}").as_bytes()).unwrap();
        assert_eq!(receive(a), format!("B TO A OF CALL {call}"));
        assert!(is_silent(a) && is_silent(b), "nobody hears himself, and no other call");
    }
    let used = workers.values().filter(|worker| !worker.sessions().is_empty()).count();
    assert!(used > 1, "calls are spread over the workers");
    let labels: Vec<Value> = apps.iter().flat_map(|app| app.labels.lock().clone()).collect();
    assert_eq!(labels.len(), 12, "each stream passed a transcoder once");
    assert!((1..=6).all(|call: u32| labels.contains(&json!({ "session_id": call.to_string() }))), "{labels:?}");

    // the first call is over for A, and B and the other calls go on
    let (status, answer) = gateways[0].program.delete("/listeners/gateway-user-a-vsvc-1");
    assert_eq!(status, 200, "{answer}");
    until("A's session to end with its listener", || gateways[0].sessions().len() == 5);
    assert_eq!(gateways[1].sessions().len(), 6);
    let (a, b) = &pairs[1];
    a.send(b"others talk").unwrap();
    assert_eq!(receive(b), "OTHERS TALK");

    // their worker is lost: both ends meet again at another one, in the same sessions
    let mut workers = workers;
    let (lost, _) = workers.iter().find(|(_, worker)| has_both(worker, 2)).expect("they meet somewhere");
    let lost = *lost;
    drop(workers.remove(lost));
    for gateway in &gateways {
        let endpoints = gateway.program.json("/clusters/worker-target/endpoints");
        let at_lost = |endpoint: &&Value| endpoint["spec"]["address"] == json!(network.here(lost));
        let endpoint = endpoints.as_array().unwrap().iter().find(at_lost).expect("the lost worker is an endpoint");
        let path = format!("/endpoints/{}?recursive=true", endpoint["name"].as_str().unwrap());
        assert_eq!(gateway.program.delete(&path).0, 200);
    }
    until("both ends at another worker", || workers.values().any(|worker| has_both(worker, 2)));
    b.send(b"here again").unwrap();
    assert_eq!(receive(a), "HERE AGAIN");
    assert_eq!((gateways[0].sessions().len(), gateways[1].sessions().len()), (5, 6));
}

/// Whether both streams of a call stand at a worker.
fn has_both(worker: &Pod<'_>, call: usize) -> bool {
    let label = json!(call.to_string());
    let of_call = |s: &&Value| s["metadata"]["labels"]["session_id"] == label && s["status"] == "CONNECTED";
    worker.sessions().iter().filter(of_call).count() == 2
}
