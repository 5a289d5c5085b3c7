//! A proxy in this process, with peers around it.

use portolan_proxy::config::json::Json;
use portolan_proxy::io::{DataPlane, Lookup, Options};
use portolan_proxy::rest::exchange::{ApiHandler, Request};
use portolan_proxy::rest::server::{self, ApiQueue, Running};
use portolan_proxy::rest::{Access, Api, Settings};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

/// How long anything may take before a test fails.
pub(super) const LONG: Duration = Duration::from_secs(10);
/// How long silence is listened to.
pub(super) const SHORT: Duration = Duration::from_millis(150);

pub(super) struct Lab {
    pub plane: Arc<DataPlane>,
    pub(super) api: Arc<Api>,
    server: Option<Running>,
    pub dir: tempfile::TempDir,
}

impl Lab {
    pub(super) fn new() -> Self {
        Self::with_workers(2)
    }

    pub(super) fn with_workers(workers: usize) -> Self {
        Self::with_api_handler(workers, |api_handler| api_handler)
    }

    /// `change` puts something between the workers and the API.
    pub(super) fn with_api_handler(
        workers: usize,
        change: impl FnOnce(Arc<dyn ApiHandler>) -> Arc<dyn ApiHandler>,
    ) -> Self {
        let (api_handler, queue) = server::api_queue();
        let options = Options { workers, api_handler: Some(change(api_handler)), ..Options::default() };
        Self::around(DataPlane::start(options).unwrap(), queue)
    }

    /// Names of endpoints are looked up by a function of the test.
    pub(super) fn with_names(lookup: &Lookup) -> Self {
        let (api_handler, queue) = server::api_queue();
        let options = Options { workers: 2, api_handler: Some(api_handler), ..Options::default() };
        Self::around(DataPlane::start_with_names(options, lookup).unwrap(), queue)
    }

    fn around(plane: Arc<DataPlane>, queue: ApiQueue) -> Self {
        let access = Access::new(None, false, true).unwrap();
        let api = Arc::new(Api::new(Arc::clone(&plane) as _, access, Settings::default()));
        let server = Some(server::start(Arc::clone(&api), queue, None).unwrap());
        let dir = tempfile::tempdir().unwrap();
        let lab = Self { plane, api, server, dir };
        lab.load(&json!({}));
        lab
    }

    /// Puts a whole config in force; socket files and logs may lie in the lab's directory.
    pub(super) fn load(&self, config: &Value) {
        let mut config = config.clone();
        for field in ["uds_dirs", "log_dir"] {
            let dir = json!(self.dir.path());
            config["admin"][field] = if field == "uds_dirs" { json!([dir]) } else { dir };
        }
        self.api.load(&Json::from(&config)).unwrap_or_else(|refusal| panic!("{config}: {refusal}"));
    }

    pub(super) fn call(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        self.request(method, &format!("/api/v1{path}"), body)
    }

    pub(super) fn call_v2(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        self.request(method, &format!("/api/v2{path}"), Some(body))
    }

    fn request(&self, method: &str, target: &str, body: Option<&Value>) -> (u16, Value) {
        let request = Request {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body: body.map(|body| body.to_string().into_bytes()).unwrap_or_default(),
            ..Request::default()
        };
        let response = self.api.handle(&request);
        (response.status, serde_json::from_slice(&response.body).unwrap_or(Value::Null))
    }

    pub(super) fn get(&self, path: &str) -> Value {
        let (status, answer) = self.call("GET", path, None);
        assert_eq!(status, 200, "GET {path}: {answer}");
        answer
    }

    pub(super) fn post(&self, path: &str, body: &Value) {
        let (status, answer) = self.call("POST", path, Some(body));
        assert_eq!(status, 200, "POST {path} {body}: {answer}");
    }

    pub(super) fn delete(&self, path: &str) {
        let (status, answer) = self.call("DELETE", path, None);
        assert_eq!(status, 200, "DELETE {path}: {answer}");
    }

    /// A number of the metrics; nothing if it is not there.
    pub(super) fn metric(&self, series: &str) -> Option<u64> {
        let text = self.api.metrics();
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
    }

    pub(super) fn sessions(&self) -> Vec<Value> {
        self.get("/sessions").as_array().unwrap().clone()
    }

    pub(super) fn session_names(&self) -> Vec<String> {
        self.sessions().iter().map(|session| session["name"].as_str().unwrap().to_owned()).collect()
    }

    /// A listener with one rule that leads to one destination.
    pub(super) fn listener(&self, name: &str, spec: Value, destination: Value) {
        self.listener_with(name, spec, json!({ "destination": destination }), json!({}));
    }

    pub(super) fn listener_with(&self, name: &str, spec: Value, route: Value, options: Value) {
        let rules = json!([{ "action": { "route": route } }]);
        self.post(
            "/listeners",
            &json!({ "listener": { "name": name, "spec": spec, "rules": rules, "options": options } }),
        );
    }

    pub(super) fn path(&self, file: &str) -> String {
        self.dir.path().join(file).display().to_string()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.plane.stop();
        if let Some(server) = self.server.take() {
            server.stop();
        }
    }
}

/// Waits for a condition.
pub(super) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A port that nobody uses, below the range that the system hands out by itself.
pub(super) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let port = 10_000 + (std::process::id() as u16 % 97) * 200 + NEXT.fetch_add(1, Ordering::Relaxed) % 20_000;
        // the mesh document's examples have these
        let taken = [19_000, 19_001].contains(&port);
        if !taken && UdpSocket::bind(("127.0.0.1", port)).is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A UDP client of a port on loopback.
pub(super) fn udp_client(port: u16) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket
}

pub(super) fn receive(socket: &UdpSocket) -> String {
    let mut buffer = vec![0; 70_000];
    let n = socket.recv(&mut buffer).expect("an answer in time");
    String::from_utf8_lossy(&buffer[..n]).into_owned()
}

pub(super) fn ask(socket: &UdpSocket, text: &str) -> String {
    socket.send(text.as_bytes()).unwrap();
    receive(socket)
}

pub(super) fn is_silent(socket: &UdpSocket) -> bool {
    socket.set_read_timeout(Some(SHORT)).unwrap();
    let silent = socket.recv(&mut [0; 100]).is_err();
    socket.set_read_timeout(Some(LONG)).unwrap();
    silent
}

/// A UDP server that sends everything back, with a prefix.
pub(super) struct UdpEcho {
    pub port: u16,
    stop: UdpSocket,
}

impl UdpEcho {
    pub(super) fn start(prefix: &'static str) -> Self {
        Self::on("127.0.0.1:0", prefix)
    }

    pub(super) fn on(address: &str, prefix: &'static str) -> Self {
        let socket = UdpSocket::bind(address).unwrap();
        let port = socket.local_addr().unwrap().port();
        let stop = UdpSocket::bind("127.0.0.1:0").unwrap();
        stop.connect(socket.local_addr().unwrap()).unwrap();
        let stopper = stop.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut buffer = vec![0; 70_000];
            while let Ok((n, from)) = socket.recv_from(&mut buffer) {
                if from == stopper {
                    return;
                }
                let answer = [prefix.as_bytes(), &buffer[..n]].concat();
                socket.send_to(&answer, from).ok();
            }
        });
        Self { port, stop }
    }

    pub(super) fn cluster(&self, name: &str) -> Value {
        udp_cluster(name, self.port)
    }
}

impl Drop for UdpEcho {
    fn drop(&mut self) {
        self.stop.send(b"").ok();
    }
}

pub(super) fn udp_cluster(name: &str, port: u16) -> Value {
    json!({ "name": name, "spec": { "protocol": "UDP", "port": port }, "endpoints": [{ "spec": { "address": "127.0.0.1" } }] })
}

/// A TCP server that handles each connection on a thread.
pub(super) fn tcp_server(handle: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    serve(listener, handle);
    address
}

pub(super) fn serve(listener: TcpListener, handle: impl Fn(TcpStream) + Send + Sync + 'static) {
    let handle = Arc::new(handle);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let handle = Arc::clone(&handle);
            std::thread::spawn(move || handle(stream));
        }
    });
}

/// Sends back whatever comes, then ends its half too.
pub(super) fn echo(mut stream: TcpStream) {
    let mut buffer = vec![0; 65_536];
    while let Ok(n) = stream.read(&mut buffer) {
        if n == 0 || stream.write_all(&buffer[..n]).is_err() {
            return;
        }
    }
}

pub(super) fn tcp_client(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

pub(super) fn read_exact(stream: &mut impl Read, n: usize) -> String {
    let mut buffer = vec![0; n];
    stream.read_exact(&mut buffer).expect("an answer in time");
    String::from_utf8_lossy(&buffer).into_owned()
}

pub(super) fn tcp_cluster(name: &str, port: u16) -> Value {
    json!({ "name": name, "spec": { "protocol": "TCP", "port": port }, "endpoints": [{ "spec": { "address": "127.0.0.1" } }] })
}

pub(super) fn events(session: &Value) -> Vec<String> {
    session["events"].as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap().to_owned()).collect()
}

/// The path of a session in the API.
pub(super) fn session_path(name: &str) -> String {
    format!("/sessions/{}", name.replace('/', "%2F"))
}
