//! Every way in with every way out: listeners and clusters of all protocols, one round of the same checks each.

use super::lab::{LONG, Lab, free_port, is_silent, tcp_client, udp_client, until};
use super::websocket::{Got, Peer};
use portolan_proxy::io::sys::{self, UnixKind};
use portolan_proxy::proto::http1::{Body, Chunks, HeadLimits, parse_head};
use portolan_proxy::proto::ws::Opcode;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};

const HEADER: &str = r#"{"labels":{"from":"client"},"JSONSocketVersion":1}"#;
const OK: &str = r#"{"JSONSocketVersion":1,"JSONSocketStatus":200,"JSONSocketMessage":"OK"}"#;

/// A protocol as a client meets it: how sessions are named, and what their metadata has.
struct Way {
    name: &'static str,
    session: &'static str,
    metadata: &'static [&'static str],
    /// A stream: its end is told to the next one.
    connected: bool,
    /// Frames that pass untouched, and are counted as they are, between two such.
    frames: bool,
    /// Clusters speak it too.
    both: bool,
}

const fn way(name: &'static str, session: &'static str, metadata: &'static [&'static str], connected: bool) -> Way {
    Way { name, session, metadata, connected, frames: false, both: true }
}

const WAYS: [Way; 11] = [
    way("udp", "UDP:127.0.0.1:", &["IP", "UDP"], false),
    way("tcp", "TCP:127.0.0.1:", &["IP", "TCP"], true),
    way("unix", "UNIX:", &["UNIX"], true),
    way("seqpacket", "UNIX:", &["UNIX"], false),
    Way { both: false, ..way("datagram", "UNIX:", &["UNIX"], false) },
    Way { frames: true, ..way("ws", "WS:127.0.0.1:", &["IP", "TCP", "HTTP"], true) },
    Way { both: false, ..way("http", "HTTP:127.0.0.1:", &["IP", "TCP", "HTTP"], true) },
    way("json-udp", "JSONSocket:", &["IP", "UDP", "JSONSocket", "labels"], false),
    way("json-tcp", "JSONSocket:", &["IP", "TCP", "JSONSocket", "labels"], true),
    way("json-seqpacket", "JSONSocket:", &["UNIX", "JSONSocket", "labels"], false),
    Way { frames: true, ..way("json-ws", "JSONSocket:", &["IP", "TCP", "HTTP", "JSONSocket", "labels"], true) },
];

fn socket_file(lab: &Lab, port: u16) -> String {
    lab.path(&format!("{port}.sock"))
}

fn spec(lab: &Lab, way: &str, port: u16) -> Value {
    let unix = |kind: &str| json!({ "protocol": "UnixDomainSocket", "type": kind, "filename": socket_file(lab, port) });
    match way {
        "udp" => json!({ "protocol": "UDP", "port": port }),
        "tcp" => json!({ "protocol": "TCP", "port": port }),
        "ws" => json!({ "protocol": "WebSocket", "port": port }),
        "http" => json!({ "protocol": "HTTP", "port": port }),
        "unix" => unix("stream"),
        "seqpacket" | "datagram" => unix(way),
        json => {
            let transport = json.strip_prefix("json-").expect("a way");
            json!({ "protocol": "JSONSocket", "transport": spec(lab, transport, port) })
        }
    }
}

/// The cluster that leads to a listener of [`spec`].
fn cluster(lab: &Lab, way: &str, port: u16) -> Value {
    let mut spec = spec(lab, way, port);
    let unix = way.ends_with("unix") || way.ends_with("seqpacket");
    let address = if unix { socket_file(lab, port) } else { "127.0.0.1".to_owned() };
    let named = if way.starts_with("json-") { &mut spec["transport"] } else { &mut spec };
    named.as_object_mut().unwrap().remove("filename");
    json!({ "spec": spec, "endpoints": [{ "spec": { "address": address } }] })
}

enum Client {
    Udp(UdpSocket),
    Tcp(TcpStream),
    Unix(UnixStream),
    Packets(OwnedFd),
    Datagrams(UnixDatagram),
    Ws(Box<Peer>),
    Http { stream: TcpStream, answer: Option<Body> },
}

impl Client {
    fn open(lab: &Lab, way: &str, port: u16) -> Self {
        let file = socket_file(lab, port);
        match way {
            "udp" => Self::Udp(udp_client(port)),
            "tcp" => Self::Tcp(tcp_client(port)),
            "ws" => Self::Ws(Box::new(Peer::connect(port, "/", &[]))),
            "unix" => {
                let stream = UnixStream::connect(file).unwrap();
                stream.set_read_timeout(Some(LONG)).unwrap();
                Self::Unix(stream)
            }
            "seqpacket" => Self::Packets(sys::unix_connected(file.as_ref(), UnixKind::SeqPacket).unwrap()),
            "datagram" => {
                let socket = UnixDatagram::bind(lab.path(&format!("client-{}", free_port()))).unwrap();
                socket.connect(file).unwrap();
                socket.set_read_timeout(Some(LONG)).unwrap();
                Self::Datagrams(socket)
            }
            "http" => {
                let mut stream = tcp_client(port);
                stream.write_all(b"POST /p HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
                Self::Http { stream, answer: None }
            }
            json => {
                let mut client = Self::open(lab, json.strip_prefix("json-").expect("a way"), port);
                client.say(HEADER);
                client
            }
        }
    }

    /// The same, past the JSONSocket header.
    fn greeted(lab: &Lab, way: &str, port: u16) -> Self {
        let mut client = Self::open(lab, way, port);
        if way.starts_with("json-") {
            assert_eq!(client.hear(OK.len()), OK, "{way}");
        }
        client
    }

    fn say(&mut self, text: &str) {
        let bytes = text.as_bytes();
        match self {
            Self::Udp(socket) => drop(socket.send(bytes).unwrap()),
            Self::Tcp(stream) => stream.write_all(bytes).unwrap(),
            Self::Unix(stream) => stream.write_all(bytes).unwrap(),
            Self::Packets(fd) => drop(sys::send(fd.as_raw_fd(), bytes).unwrap()),
            Self::Datagrams(socket) => drop(socket.send(bytes).unwrap()),
            Self::Ws(peer) => peer.send(Opcode::Binary, bytes),
            Self::Http { stream, .. } => write!(stream, "{:x}\r\n{text}\r\n", bytes.len()).unwrap(),
        }
    }

    /// What comes back, `n` bytes of it where there are no messages.
    fn hear(&mut self, n: usize) -> String {
        let mut buffer = vec![0; 2000];
        let heard = match self {
            Self::Udp(socket) => socket.recv(&mut buffer).map(|n| buffer[..n].to_vec()),
            Self::Datagrams(socket) => socket.recv(&mut buffer).map(|n| buffer[..n].to_vec()),
            Self::Tcp(stream) => stream.read_exact(&mut buffer[..n]).map(|()| buffer[..n].to_vec()),
            Self::Unix(stream) => stream.read_exact(&mut buffer[..n]).map(|()| buffer[..n].to_vec()),
            Self::Packets(fd) => {
                let mut heard = None;
                until("a packet", || {
                    heard = sys::receive(fd.as_raw_fd(), &mut buffer).ok();
                    heard.is_some()
                });
                Ok(buffer[..heard.unwrap_or(0)].to_vec())
            }
            Self::Ws(peer) => {
                let got = peer.next();
                let Got::Binary(data) = got else { panic!("{got:?} in place of data") };
                Ok(data)
            }
            Self::Http { stream, answer } => Ok(hear_http(stream, answer, n)),
        };
        String::from_utf8(heard.expect("an answer in time")).unwrap()
    }

    fn talks(&mut self, text: &str) -> bool {
        self.say(text);
        self.hear(text.len()) == text
    }
}

fn hear_http(stream: &mut TcpStream, answer: &mut Option<Body>, n: usize) -> Vec<u8> {
    let (mut head, mut heard, mut byte) = (Vec::new(), Vec::new(), [0]);
    while heard.len() < n {
        stream.read_exact(&mut byte).expect("an answer in time");
        if let Some(body) = answer {
            body.handle_bytes(&byte, |data| heard.extend_from_slice(data)).unwrap();
            continue;
        }
        head.push(byte[0]);
        if let Some((head, _)) = parse_head(&head, HeadLimits::default()).unwrap() {
            assert_eq!(head.status(), 200);
            *answer = Some(Body::Chunked(Chunks::default()));
        }
    }
    heard
}

fn of_listener<'a>(sessions: &'a [Value], listener: &str) -> Vec<&'a Value> {
    sessions.iter().filter(|session| session["source"]["origin"] == listener).collect()
}

#[test]
fn every_way_in_reaches_every_way_out() {
    let lab = Lab::new();
    let echo = json!({ "spec": { "protocol": "Echo" } });
    let outs: Vec<(&Way, u16)> = WAYS.iter().filter(|way| way.both).map(|way| (way, free_port())).collect();
    for (way, port) in &outs {
        lab.listener(&format!("echo-{}", way.name), spec(&lab, way.name, *port), echo.clone());
    }
    for inward in &WAYS {
        for (outward, far) in &outs {
            let (name, port) = (format!("{}-to-{}", inward.name, outward.name), free_port());
            lab.listener(&name, spec(&lab, inward.name, port), cluster(&lab, outward.name, *far));
            let mut client = Client::greeted(&lab, inward.name, port);
            assert!(client.talks("one") && client.talks("two"), "{name}");
            let sessions = lab.sessions();
            let [session] = of_listener(&sessions, &name)[..] else { panic!("{name}: {sessions:?}") };
            assert!(session["name"].as_str().unwrap().starts_with(inward.session), "{name}: {session}");
            for status in [&session["status"], &session["source"]["status"], &session["destination"]["status"]] {
                assert!(status == "CONNECTED" || status == "READY", "{name}: {session}");
            }
            let metadata = session["metadata"].as_object().unwrap();
            assert_eq!(metadata.keys().collect::<Vec<_>>(), sorted(inward.metadata), "{name}");
            let (bytes, passed) = (&session["stats"]["bytes"], inward.frames && outward.frames);
            assert!(bytes["in"].as_u64() >= Some(6), "{name}: {session}");
            assert!(passed || bytes["out"] == json!(6), "{name}: {session}");
            if inward.connected && outward.connected {
                drop(client);
            } else {
                lab.delete(&super::lab::session_path(session["name"].as_str().unwrap()));
            }
            until(&name, || of_listener(&lab.sessions(), &name).is_empty());
        }
    }
    // where both ends are connections, the far one has gone with the near one
    let connected: Vec<String> =
        outs.iter().filter(|(way, _)| way.connected).map(|(way, _)| format!("echo-{}", way.name)).collect();
    until("the far sessions to end", || {
        let sessions = lab.sessions();
        connected.iter().all(|listener| of_listener(&sessions, listener).is_empty())
    });
}

fn sorted(keys: &'static [&'static str]) -> Vec<&'static str> {
    let mut keys = keys.to_vec();
    keys.sort_unstable();
    keys
}

#[test]
fn many_clients_of_every_protocol_hear_themselves_alone() {
    let lab = Lab::new();
    for way in &WAYS {
        let port = free_port();
        lab.listener(way.name, spec(&lab, way.name, port), json!({ "spec": { "protocol": "Echo" } }));
        let mut clients: Vec<Client> = (0..30).map(|_| Client::greeted(&lab, way.name, port)).collect();
        for round in 0..3 {
            for (number, client) in clients.iter_mut().enumerate() {
                client.say(&format!("{} {number} {round}", way.name));
            }
            for (number, client) in clients.iter_mut().enumerate() {
                let said = format!("{} {number} {round}", way.name);
                assert_eq!(client.hear(said.len()), said);
            }
        }
        assert_eq!(of_listener(&lab.sessions(), way.name).len(), 30, "{}", way.name);
        lab.delete(&format!("/listeners/{}?recursive=true", way.name));
        assert_eq!(of_listener(&lab.sessions(), way.name).len(), 0, "{}", way.name);
    }
}

#[test]
fn who_fits_no_rule_is_told_in_his_protocol() {
    let lab = Lab::new();
    for way in &WAYS {
        let port = free_port();
        let rules = json!([{ "match": { "op": "test", "path": "/labels/from", "value": "nobody" },
            "action": { "route": { "destination": { "spec": { "protocol": "Echo" } } } } }]);
        lab.post(
            "/listeners",
            &json!({ "listener": { "name": way.name, "spec": spec(&lab, way.name, port), "rules": rules } }),
        );
        let mut client = if way.name == "ws" {
            // its handshake is answered all the same
            Client::Ws(Box::new(Peer::connect(port, "/", &[])))
        } else {
            Client::open(&lab, way.name, port)
        };
        match (way.name, &mut client) {
            ("udp", Client::Udp(socket)) => {
                socket.send(b"x").unwrap();
                assert!(is_silent(socket));
            }
            ("datagram", Client::Datagrams(socket)) => {
                socket.send(b"x").unwrap();
                socket.set_read_timeout(Some(super::lab::SHORT)).unwrap();
                assert!(socket.recv(&mut [0; 10]).is_err());
            }
            ("tcp", Client::Tcp(stream)) => assert_eq!(stream.read(&mut [0; 10]).unwrap_or(0), 0),
            ("unix", Client::Unix(stream)) => assert_eq!(stream.read(&mut [0; 10]).unwrap_or(0), 0),
            ("seqpacket", Client::Packets(fd)) => {
                until("the end", || sys::receive(fd.as_raw_fd(), &mut [0; 10]).is_ok_and(|n| n == 0));
            }
            ("ws", Client::Ws(peer)) => assert_eq!(peer.next(), Got::Close(1011, String::new())),
            ("http", Client::Http { stream, .. }) => {
                let mut start = [0; 22];
                stream.read_exact(&mut start).unwrap();
                assert_eq!(&start, b"HTTP/1.1 404 Not Found");
            }
            (json, client) => {
                let name = format!("JSONSocket:{json}-0");
                let told = format!(
                    r#"{{"JSONSocketVersion":1,"JSONSocketStatus":404,"JSONSocketMessage":"Not Found: No route for session \"{name}\""}}"#
                );
                assert_eq!(client.hear(told.len()), told);
            }
        }
        until("no session to be left", || lab.sessions().is_empty());
    }
}

#[test]
fn a_udp_listener_hears_whom_it_names() {
    let lab = Lab::new();
    let [one, other] = [free_port(), free_port()];
    // who sends from where, and which of them are answered
    let clients = [("127.0.0.1", one), ("127.0.0.1", other), ("127.0.0.5", one)];
    for (connect, mode, answered) in [
        (json!({}), "server", [true, true, true]),
        (json!({ "address": "127.0.0.1" }), "server", [true, true, false]),
        (json!({ "port": one }), "server", [true, false, true]),
        (json!({ "address": "127.0.0.1", "port": one }), "server", [true, false, false]),
        (json!({ "address": "127.0.0.1", "port": one }), "singleton", [true, false, false]),
    ] {
        let port = free_port();
        let spec = json!({ "protocol": "UDP", "port": port, "connect": connect, "options": { "mode": mode } });
        lab.listener("l", spec.clone(), json!({ "spec": { "protocol": "Echo" } }));
        for ((address, own), answered) in clients.iter().zip(answered) {
            let client = UdpSocket::bind((*address, *own)).unwrap();
            client.connect(("127.0.0.1", port)).unwrap();
            for _ in 0..2 {
                client.send(b"x").unwrap();
                assert_eq!(is_silent(&client), !answered, "{spec}: {address}:{own}");
            }
        }
        assert_eq!(lab.sessions().len(), answered.iter().filter(|yes| **yes).count(), "{spec}");
        lab.delete("/listeners/l?recursive=true");
    }
}

#[test]
fn messages_stay_apart_where_the_protocol_keeps_them() {
    let lab = Lab::new();
    for (outward, joined) in
        [("seqpacket", false), ("json-udp", false), ("json-ws", false), ("unix", true), ("tcp", true)]
    {
        let (near, far) = (free_port(), free_port());
        lab.listener(&format!("far-{outward}"), spec(&lab, outward, far), json!({ "spec": { "protocol": "Echo" } }));
        lab.listener(outward, spec(&lab, "udp", near), cluster(&lab, outward, far));
        let mut client = Client::open(&lab, "udp", near);
        for text in ["1", "2", "3"] {
            client.say(text);
        }
        let mut heard: Vec<String> = Vec::new();
        while heard.concat().len() < 3 {
            heard.push(client.hear(0));
        }
        assert_eq!(heard.concat(), "123", "{outward}");
        assert!(joined || heard.len() == 3, "{outward}: {heard:?}");
    }
}
