//! TCP and Unix sockets.

use super::lab::{
    LONG, Lab, echo, events, free_port, read_exact, receive, tcp_client, tcp_cluster, tcp_server, udp_client, until,
};
use super::websocket::Peer;
use parking_lot::Mutex;
use portolan_proxy::proto::json_socket::ACCEPTED;
use portolan_proxy::proto::ws::{Opcode, write_frame};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

#[test]
fn the_rest_of_an_echo_arrives_after_half_close() {
    let lab = Lab::new();
    let upstream = tcp_server(echo);
    let [through, own] = [free_port(), free_port()];
    lab.listener("tcp", json!({ "protocol": "TCP", "port": through }), tcp_cluster("c", upstream.port()));
    lab.listener("echo", json!({ "protocol": "TCP", "port": own }), json!({ "spec": { "protocol": "Echo" } }));
    for port in [through, own] {
        let mut client = tcp_client(port);
        let sent: Vec<u8> = (0..3_000_000u32).map(|i| (i % 251) as u8).collect();
        let mut writer = client.try_clone().unwrap();
        let copy = sent.clone();
        let writing = std::thread::spawn(move || {
            writer.write_all(&copy).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        writing.join().unwrap();
        assert!(got == sent, "{} of {} bytes came back", got.len(), sent.len());
    }
    until("both sessions to end", || lab.sessions().is_empty());
}

#[test]
fn a_tcp_session_is_named_by_its_ends_without_v6_clothes() {
    let (lab, port) = (Lab::new(), free_port());
    lab.listener("l", json!({ "protocol": "TCP", "port": port }), json!({ "spec": { "protocol": "Echo" } }));
    let mut client = tcp_client(port);
    client.write_all(b"x").unwrap();
    read_exact(&mut client, 1);
    let own = client.local_addr().unwrap().port();
    assert_eq!(lab.session_names(), [format!("TCP:127.0.0.1:{own}-127.0.0.1:{port}")]);
    let metadata = &lab.sessions()[0]["metadata"];
    assert_eq!(metadata["IP"], json!({ "src_addr": "127.0.0.1", "dst_addr": "127.0.0.1" }));
    assert_eq!(metadata["TCP"], json!({ "src_port": own, "dst_port": port }));
}

#[test]
fn a_refusing_upstream_closes_the_client_at_once() {
    let (lab, port, dead) = (Lab::new(), free_port(), free_port());
    let route = json!({ "destination": tcp_cluster("c", dead) });
    lab.listener_with("l", json!({ "protocol": "TCP", "port": port }), route, json!({ "track": 60 }));
    let mut client = tcp_client(port);
    assert_eq!(client.read(&mut [0; 10]).unwrap_or(0), 0);
    until("the session to be listed", || lab.sessions().first().is_some_and(|s| s["status"] == "DESTROYED"));
    assert_eq!(events(&lab.sessions()[0]), ["INIT", "LOOKUP SUCCESS", "ERROR", "DESTROY"]);
}

#[test]
fn a_server_that_speaks_first_is_heard() {
    let lab = Lab::new();
    let upstream = tcp_server(|mut stream| {
        stream.write_all(b"hello").unwrap();
        echo(stream);
    });
    let port = free_port();
    lab.listener("l", json!({ "protocol": "TCP", "port": port }), tcp_cluster("c", upstream.port()));
    let mut client = tcp_client(port);
    assert_eq!(read_exact(&mut client, 5), "hello");
    client.write_all(b"you").unwrap();
    assert_eq!(read_exact(&mut client, 3), "you");
}

#[test]
fn framing_keeps_messages_apart_on_a_stream() {
    let lab = Lab::new();
    let (udp, tcp) = (free_port(), free_port());
    let upstream = tcp_server(echo);
    let cluster = json!({ "spec": { "protocol": "TCP", "port": upstream.port(), "framing": "len16" }, "endpoints": [{ "spec": { "address": "127.0.0.1" } }] });
    lab.listener("u", json!({ "protocol": "UDP", "port": udp }), cluster);
    let client = udp_client(udp);
    for message in ["one", "", "three"] {
        client.send(message.as_bytes()).unwrap();
    }
    assert_eq!([receive(&client), receive(&client), receive(&client)], ["one", "", "three"]);
    lab.listener(
        "t",
        json!({ "protocol": "TCP", "port": tcp, "framing": "len32" }),
        json!({ "spec": { "protocol": "Echo" } }),
    );
    let mut client = tcp_client(tcp);
    client.write_all(b"\0\0\0\x02ab\0\0\0\x01c").unwrap();
    assert_eq!(read_exact(&mut client, 11).as_bytes(), b"\0\0\0\x02ab\0\0\0\x01c");
}

#[test]
fn udp_into_a_unix_stream_is_joined() {
    let lab = Lab::new();
    let path = lab.path("upstream.sock");
    let server = UnixListener::bind(&path).unwrap();
    let port = free_port();
    let cluster = json!({ "spec": { "protocol": "UnixDomainSocket" }, "endpoints": [{ "spec": { "address": path } }] });
    lab.listener("l", json!({ "protocol": "UDP", "port": port }), cluster);
    let client = udp_client(port);
    for message in ["1", "2", "3"] {
        client.send(message.as_bytes()).unwrap();
    }
    let (mut stream, _) = server.accept().unwrap();
    assert_eq!(read_exact(&mut stream, 3), "123");
    stream.write_all(b"back").unwrap();
    assert_eq!(receive(&client), "back");
}

#[test]
fn unix_listeners_serve_stream_and_remove_their_file() {
    let lab = Lab::new();
    let path = lab.path("listen.sock");
    lab.listener(
        "l",
        json!({ "protocol": "UnixDomainSocket", "filename": path }),
        json!({ "spec": { "protocol": "Echo" } }),
    );
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"hello").unwrap();
    assert_eq!(read_exact(&mut client, 5), "hello");
    let session = &lab.sessions()[0];
    assert_eq!(session["name"], json!("UNIX:l-0"));
    assert_eq!(session["metadata"]["UNIX"]["filename"], json!(path));
    assert_eq!(session["metadata"]["UNIX"]["pid"], json!(std::process::id()));
    lab.delete("/listeners/l?recursive=true");
    until("the file to be removed", || !std::path::Path::new(&path).exists());
}

#[test]
fn seqpacket_keeps_messages_apart_both_ways() {
    let lab = Lab::new();
    let (inner, outer) = (lab.path("inner.sock"), lab.path("outer.sock"));
    let uds = |path: &str| json!({ "protocol": "UnixDomainSocket", "type": "seqpacket", "filename": path });
    lab.listener("inner", uds(&inner), json!({ "spec": { "protocol": "Echo" } }));
    let cluster = json!({ "spec": { "protocol": "UnixDomainSocket", "type": "seqpacket" }, "endpoints": [{ "spec": { "address": inner } }] });
    lab.listener("outer", uds(&outer), cluster);
    let client =
        portolan_proxy::io::sys::unix_connected(outer.as_ref(), portolan_proxy::io::sys::UnixKind::SeqPacket).unwrap();
    let fd = client.as_raw_fd();
    for message in ["1", "22", "333"] {
        portolan_proxy::io::sys::send(fd, message.as_bytes()).unwrap();
    }
    let mut buffer = [0; 100];
    let mut lens = Vec::new();
    until("three packets", || {
        if let Ok(n) = portolan_proxy::io::sys::receive(fd, &mut buffer) {
            lens.push(n);
        }
        lens.len() == 3
    });
    assert_eq!(lens, [1, 2, 3]);
}

#[test]
fn unix_datagram_clients_with_a_name_are_answered() {
    let lab = Lab::new();
    let path = lab.path("dgram.sock");
    let spec = json!({ "protocol": "UnixDomainSocket", "type": "datagram", "filename": path });
    lab.listener("l", spec, json!({ "spec": { "protocol": "Echo" } }));
    let client = |name: &str| {
        let socket = std::os::unix::net::UnixDatagram::bind(lab.path(name)).unwrap();
        socket.connect(&path).unwrap();
        socket.set_read_timeout(Some(super::lab::LONG)).unwrap();
        socket
    };
    let (a, b) = (client("a"), client("b"));
    for (socket, text) in [(&a, "from a"), (&b, "from b"), (&a, "again")] {
        socket.send(text.as_bytes()).unwrap();
        let mut buffer = [0; 100];
        let n = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..n], text.as_bytes());
    }
    assert_eq!(lab.session_names(), ["UNIX:l-0", "UNIX:l-1"]);
}

/// An upstream that takes its time before it accepts, then gives what it read.
fn slow_upstream(total: usize) -> (Value, Sender<()>, Receiver<Vec<u8>>) {
    let (accept, accepted) = channel();
    let (give, given) = channel();
    let accepted = Mutex::new(accepted);
    let upstream = tcp_server(move |mut stream| {
        let mut header = Vec::new();
        while !header.ends_with(b"\"JSONSocketVersion\":1}") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            header.extend(byte);
        }
        accepted.lock().recv().unwrap();
        stream.write_all(ACCEPTED.as_bytes()).unwrap();
        let mut all = vec![0; total];
        stream.read_exact(&mut all).unwrap();
        give.send(all).unwrap();
    });
    let transport = json!({ "protocol": "TCP", "port": upstream.port() });
    let endpoints = json!([{ "spec": { "address": "127.0.0.1" } }]);
    let cluster = json!({ "spec": { "protocol": "JSONSocket", "transport": transport }, "endpoints": endpoints });
    (cluster, accept, given)
}

#[test]
fn nothing_of_a_stream_is_missing_that_came_before_its_upstream_stood() {
    let (lab, port) = (Lab::new(), free_port());
    let sent: Vec<u8> = (0..600_000u32).map(|i| (i % 251) as u8).collect();
    let (cluster, accept, given) = slow_upstream(sent.len());
    lab.listener("l", json!({ "protocol": "TCP", "port": port }), cluster);
    let mut client = tcp_client(port);
    let (first, rest) = sent.split_at(70_000);
    // in pieces of which two are too much for what a session keeps, so that the second is not read too early
    for piece in first.chunks(35_000) {
        client.write_all(piece).unwrap();
        std::thread::sleep(Duration::from_millis(50));
    }
    let rest = rest.to_vec();
    let writing = std::thread::spawn(move || client.write_all(&rest).map(|()| client));
    std::thread::sleep(Duration::from_millis(50));
    accept.send(()).unwrap();
    let got = given.recv_timeout(LONG).unwrap();
    assert!(got == sent, "the bytes are others");
    drop(writing.join().unwrap().unwrap());
}

#[test]
fn no_frame_is_missing_that_came_before_the_upstream_stood() {
    let (lab, port) = (Lab::new(), free_port());
    let sent: Vec<u8> = (0..64_000u32).map(|i| (i % 251) as u8).collect();
    let (cluster, accept, given) = slow_upstream(sent.len());
    lab.listener("l", json!({ "protocol": "WebSocket", "port": port }), cluster);
    let mut client = Peer::connect(port, "/", &[]);
    let mut frames = Vec::new();
    for message in sent.chunks(64) {
        write_frame(&mut frames, Opcode::Binary, message, Some([1, 2, 3, 4]));
    }
    client.stream.write_all(&frames).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    accept.send(()).unwrap();
    let got = given.recv_timeout(LONG).unwrap();
    assert!(got == sent, "the bytes are others");
}
