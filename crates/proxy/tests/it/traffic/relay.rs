//! Ends, pipelines and back pressure: nothing of a stream is lost, whenever its pieces and its end arrive.

use super::lab::{
    LONG, Lab, SHORT, ask, echo, free_port, read_exact, serve, tcp_client, tcp_cluster, tcp_server, udp_client,
    udp_cluster, until,
};
use super::program::Program;
use super::websocket::{Got, Peer, read_head, ws_cluster, ws_echo};
use portolan_proxy::proto::ws::handshake::Request;
use portolan_proxy::proto::ws::{Opcode, close_frame, write_frame};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// A route that keeps trying to connect.
fn patient(destination: &Value) -> Value {
    json!({ "destination": destination, "retry": { "retry_on": "connect-failure", "num_retries": 200, "timeout": 30 } })
}

/// Whether the only session has failed to connect, and tries again.
fn is_retrying(lab: &Lab) -> bool {
    lab.sessions().first().is_some_and(|session| session["destination"]["status"] == "RETRYING")
}

/// A TCP server that reports everything that a client sends up to its end, and then answers.
fn collector(listener: TcpListener, answer: &'static str) -> Receiver<Vec<u8>> {
    let (sender, collected) = channel();
    serve(listener, move |mut stream| {
        let mut all = Vec::new();
        if stream.read_to_end(&mut all).is_ok() {
            sender.send(all).ok();
        }
        stream.write_all(answer.as_bytes()).ok();
    });
    collected
}

fn listen() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

fn rest(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    stream.read_to_end(&mut all).expect("the end in time");
    String::from_utf8_lossy(&all).into_owned()
}

fn http(lab: &Lab, destination: Value) -> u16 {
    let port = free_port();
    lab.listener(&format!("http-{port}"), json!({ "protocol": "HTTP", "port": port }), destination);
    port
}

/// Sends so many requests while reading, and counts the answers.
fn pipeline(port: u16, requests: usize) -> usize {
    let mut client = tcp_client(port);
    let mut writer = client.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        let all = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx".repeat(requests);
        writer.write_all(&all).ok();
    });
    let (mut answers, mut carry, mut buffer) = (0, Vec::new(), vec![0; 1 << 16]);
    while answers < requests {
        match client.read(&mut buffer) {
            Ok(n) if n > 0 => carry.extend_from_slice(&buffer[..n]),
            _ => break,
        }
        let marks = carry.windows(12).filter(|window| *window == b"HTTP/1.1 200").count();
        answers += marks;
        // a mark that is cut stays; whole ones are not counted twice
        let keep = carry.len().min(11);
        carry.drain(..carry.len() - keep);
    }
    drop(client);
    writing.join().unwrap();
    answers
}

#[test]
fn pipelined_requests_are_all_answered_however_many_they_are() {
    let ports = [free_port(), free_port(), free_port()];
    let listeners = ["Echo", "Discard", "Metric"].iter().zip(ports).map(|(protocol, port)| {
        format!(
            "{{name: {protocol}, spec: {{protocol: HTTP, port: {port}}}, \
             rules: [{{action: {{route: {{destination: {{spec: {{protocol: {protocol}}}}}}}}}}}]}}"
        )
    });
    let listeners: Vec<String> = listeners.collect();
    let mut program = Program::start(&["--workers", "2"], &format!("listeners: [{}]", listeners.join(", ")));
    for (port, requests) in [(ports[0], 800), (ports[0], 100_000), (ports[1], 20_000), (ports[2], 20_000)] {
        assert_eq!(pipeline(port, requests), requests);
        assert_eq!(program.exit_code(), None, "the process lives");
    }
}

#[test]
fn requests_that_share_a_segment_are_all_answered() {
    let lab = Lab::new();
    let get = "GET /api/v1/admin HTTP/1.1\r\nHost: x\r\n\r\n";
    let post = "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";
    for (protocol, requests) in [
        ("L7mpController", [get, get, get]),
        ("Prometheus", [get, get, get]),
        ("Echo", [get, post, get]),
        ("Echo", [post, get, post]),
    ] {
        let port = http(&lab, json!({ "spec": { "protocol": protocol } }));
        for ends in [false, true] {
            let mut client = tcp_client(port);
            client.write_all(requests.concat().as_bytes()).unwrap();
            if ends {
                client.shutdown(Shutdown::Write).unwrap();
                assert_eq!(rest(&mut client).matches("HTTP/1.1 200 ").count(), 3, "{protocol}, with an end");
                continue;
            }
            let (mut answers, mut buffer) = (String::new(), vec![0; 1 << 16]);
            while answers.matches("HTTP/1.1 200 ").count() < 3 {
                let n = client.read(&mut buffer).unwrap_or_else(|error| panic!("{protocol}: {error}: {answers}"));
                assert!(n > 0, "{protocol}: closed after {answers}");
                answers += &String::from_utf8_lossy(&buffer[..n]);
            }
        }
    }
}

#[test]
fn a_client_that_ends_its_half_after_the_request_is_answered() {
    let lab = Lab::new();
    for (protocol, head) in [("Echo", ""), ("L7mpController", "")] {
        let port = http(&lab, json!({ "spec": { "protocol": protocol } }));
        let mut client = tcp_client(port);
        client.write_all(format!("GET /api/v1/admin HTTP/1.1\r\nHost: x\r\n{head}\r\n").as_bytes()).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        let answer = rest(&mut client);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{protocol}: {answer:?}");
    }
    let (upstream, port) = listen();
    let collected = collector(upstream, "answer");
    let port = http(&lab, tcp_cluster("c", port));
    let mut client = tcp_client(port);
    client.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(collected.recv_timeout(LONG).unwrap(), b"body");
    let answer = rest(&mut client);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("6\r\nanswer\r\n0\r\n\r\n"), "{answer:?}");
    until("all sessions to end", || lab.sessions().is_empty());
}

#[test]
fn a_request_cut_off_inside_its_body_is_refused() {
    let lab = Lab::new();
    let port = http(&lab, json!({ "spec": { "protocol": "L7mpController" } }));
    let mut client = tcp_client(port);
    client.write_all(b"POST /api/v1/clusters HTTP/1.1\r\nHost: x\r\nContent-Length: 40\r\n\r\n{").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let answer = rest(&mut client);
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer:?}");
    until("the session to end", || lab.sessions().is_empty());
}

#[test]
fn an_end_that_comes_before_the_upstream_stands_is_passed_on() {
    let lab = Lab::new();
    let (port, late) = (free_port(), free_port());
    let spec = json!({ "protocol": "TCP", "port": port });
    lab.listener_with("l", spec, patient(&tcp_cluster("c", late)), json!({}));
    let mut client = tcp_client(port);
    client.write_all(b"all of it").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    until("an attempt to have failed", || is_retrying(&lab));
    let collected = collector(TcpListener::bind(("127.0.0.1", late)).unwrap(), "done");
    assert_eq!(collected.recv_timeout(LONG).unwrap(), b"all of it");
    assert_eq!(rest(&mut client), "done");
    until("the session to end", || lab.sessions().is_empty());
}

#[test]
fn an_end_behind_a_json_socket_header_is_passed_on() {
    let lab = Lab::new();
    let (port, late) = (free_port(), free_port());
    let spec = json!({ "protocol": "JSONSocket", "transport": { "protocol": "TCP", "port": port } });
    lab.listener_with("l", spec, patient(&tcp_cluster("c", late)), json!({}));
    let mut client = tcp_client(port);
    client.write_all(br#"{"JSONSocketVersion":1}all of it"#).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    until("an attempt to have failed", || is_retrying(&lab));
    let collected = collector(TcpListener::bind(("127.0.0.1", late)).unwrap(), "done");
    assert_eq!(collected.recv_timeout(LONG).unwrap(), b"all of it");
    let answer = rest(&mut client);
    assert!(answer.starts_with('{') && answer.ends_with("}done"), "{answer}");
    until("the session to end", || lab.sessions().is_empty());
    let mut cut = tcp_client(port);
    cut.write_all(br#"{"JSONSocketVer"#).unwrap();
    cut.shutdown(Shutdown::Write).unwrap();
    assert_eq!(cut.read(&mut [0; 1]).unwrap_or(0), 0, "no header can follow any more");
    until("the session to end", || lab.sessions().is_empty());
}

#[test]
fn an_upstream_that_ends_first_still_gets_what_follows() {
    let lab = Lab::new();
    let (listener, upstream) = listen();
    let (sender, collected) = channel();
    serve(listener, move |mut stream| {
        stream.write_all(b"early").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        sender.send(all).unwrap();
    });
    let port = free_port();
    lab.listener("l", json!({ "protocol": "TCP", "port": port }), tcp_cluster("c", upstream));
    let mut client = tcp_client(port);
    assert_eq!(rest(&mut client), "early");
    client.write_all(b"late").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(collected.recv_timeout(LONG).unwrap(), b"late");
    until("the session to end", || lab.sessions().is_empty());
}

#[test]
fn an_answer_that_came_before_a_reset_reaches_the_client() {
    let ports = [free_port(), free_port()];
    let (listener, upstream) = listen();
    let cluster = tcp_cluster("c", upstream);
    let through = json!({ "destination": "c", "ingress": [{ "spec": { "protocol": "Metric" } }] });
    let listeners = [
        // bytes are moved inside the kernel
        json!({ "name": "moved", "spec": { "protocol": "TCP", "port": ports[0] },
                "rules": [{ "action": { "route": { "destination": "c" } } }] }),
        json!({ "name": "read", "spec": { "protocol": "TCP", "port": ports[1] },
                "rules": [{ "action": { "route": through } }] }),
    ];
    let config = json!({ "clusters": [cluster], "listeners": listeners });
    let program = Program::start(&["--workers", "1"], &config.to_string());
    for port in ports {
        let mut client = tcp_client(port);
        client.set_nodelay(true).unwrap();
        client.write_all(b"hello").unwrap();
        let (mut server, _) = listener.accept().unwrap();
        assert_eq!(read_exact(&mut server, 5), "hello");
        server.write_all(b"welcome").unwrap();
        assert_eq!(read_exact(&mut client, 7), "welcome");
        // never read, so that the server resets
        client.write_all(b"unread").unwrap();
        until("the server to have it", || server.peek(&mut [0]).is_ok());
        program.pause();
        client.write_all(b"more").unwrap();
        server.write_all(&b"a".repeat(20_000)).unwrap();
        drop(server);
        program.signal(Signal::CONT);
        assert_eq!(rest(&mut client).len(), 20_000);
    }
}

/// What a WebSocket client sends at once: its request, frames, and a close.
fn all_at_once(messages: &[&[u8]]) -> Vec<u8> {
    let request = Request { host: "x".into(), path: "/".into(), ..Request::default() };
    let mut bytes = request.to_bytes([9; 16]);
    for message in messages {
        write_frame(&mut bytes, Opcode::Binary, message, Some([1, 2, 3, 4]));
    }
    close_frame(&mut bytes, 1000, "bye", Some([1, 2, 3, 4]));
    bytes
}

#[test]
fn a_handshake_with_data_and_a_close_behind_it_loses_nothing() {
    let lab = Lab::new();
    let (listener, upstream) = listen();
    let collected = collector(listener, "done");
    let spec = |port: u16| json!({ "protocol": "WebSocket", "port": port });
    let to_tcp = free_port();
    lab.listener("tcp", spec(to_tcp), tcp_cluster("c", upstream));
    let mut client = tcp_client(to_tcp);
    client.write_all(&all_at_once(&[b"one ", b"two"])).unwrap();
    assert_eq!(collected.recv_timeout(LONG).unwrap(), b"one two");
    let mut peer = Peer::answered(client);
    assert_eq!(peer.next(), Got::Binary(b"done".to_vec()));
    assert_eq!(peer.next(), Got::Close(1000, "bye".into()));
    assert_eq!(peer.next(), Got::End);
    let (echoes, _heads) = ws_echo("E:");
    let [to_ws, own] = [free_port(), free_port()];
    lab.listener("ws", spec(to_ws), ws_cluster(echoes));
    lab.listener("own", spec(own), json!({ "spec": { "protocol": "Echo" } }));
    for (port, prefix) in [(to_ws, "E:"), (own, "")] {
        let mut client = tcp_client(port);
        client.write_all(&all_at_once(&[b"one", b"two"])).unwrap();
        let mut peer = Peer::answered(client);
        assert_eq!(peer.next(), Got::Binary(format!("{prefix}one").into_bytes()));
        assert_eq!(peer.next(), Got::Binary(format!("{prefix}two").into_bytes()));
        assert_eq!(peer.next(), Got::Close(1000, "bye".into()));
        assert_eq!(peer.next(), Got::End);
    }
    until("all sessions to end", || lab.sessions().is_empty());
}

#[test]
fn a_slow_reader_gets_all_that_came_before_a_close() {
    const MESSAGES: usize = 200;
    let lab = Lab::new();
    let (listener, upstream) = listen();
    serve(listener, |stream| {
        let mut peer = Peer::accept(stream);
        for number in 0..MESSAGES {
            peer.send(Opcode::Binary, &vec![number as u8; 100_000]);
        }
        peer.close(1000, "all");
        while !matches!(peer.next(), Got::End) {}
    });
    let port = free_port();
    // a TCP listener in front keeps frames from passing untouched
    let route = json!({ "ingress": [{ "spec": { "protocol": "Metric" } }], "destination": ws_cluster(upstream) });
    lab.listener_with("l", json!({ "protocol": "WebSocket", "port": port }), route, json!({}));
    let mut client = Peer::connect(port, "/", &[]);
    std::thread::sleep(Duration::from_millis(300));
    for number in 0..MESSAGES {
        assert_eq!(client.next(), Got::Binary(vec![number as u8; 100_000]), "message {number}");
    }
    assert_eq!(client.next(), Got::Close(1000, "all".into()));
}

#[test]
fn framing_is_kept_by_clusters_that_answer_at_once() {
    let lab = Lab::new();
    for protocol in ["Echo", "Metric"] {
        let port = free_port();
        let spec = json!({ "protocol": "TCP", "port": port, "framing": "len16" });
        lab.listener(protocol, spec, json!({ "spec": { "protocol": protocol } }));
        let mut client = tcp_client(port);
        client.write_all(b"\0\x02ab\0\x01c").unwrap();
        assert_eq!(read_exact(&mut client, 7).as_bytes(), b"\0\x02ab\0\x01c", "{protocol}");
    }
}

#[test]
fn echo_holds_a_client_back_that_reads_slowly() {
    const SENT: usize = 50 << 20;
    let lab = Lab::new();
    let port = free_port();
    lab.listener("l", json!({ "protocol": "TCP", "port": port }), json!({ "spec": { "protocol": "Echo" } }));
    let mut client = tcp_client(port);
    let mut writer = client.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        let piece: Vec<u8> = (0..1_u32 << 16).map(|i| (i % 251) as u8).collect();
        for _ in 0..SENT / piece.len() {
            writer.write_all(&piece).unwrap();
        }
        writer.shutdown(Shutdown::Write).unwrap();
    });
    std::thread::sleep(Duration::from_millis(300));
    let (mut got, mut buffer) = (0, vec![0; 1 << 16]);
    loop {
        let n = client.read(&mut buffer).unwrap();
        if n == 0 {
            break;
        }
        assert!(buffer[..n].iter().enumerate().all(|(i, byte)| *byte == ((got + i) % (1 << 16) % 251) as u8));
        got += n;
    }
    writing.join().unwrap();
    assert_eq!(got, SENT);
    assert_eq!(lab.metric("portolan_proxy_drops_total{cause=\"send\"}"), Some(0));
}

/// Writes until the other side takes no more for a while; how much it took.
fn write_until_blocked(stream: &mut TcpStream, piece: &[u8], most: usize) -> usize {
    stream.set_write_timeout(Some(Duration::from_millis(700))).unwrap();
    let mut written = 0;
    while written < most {
        match stream.write(&piece[written % piece.len()..]) {
            Ok(n) => written += n,
            Err(_) => break,
        }
    }
    written
}

#[test]
fn what_a_client_sends_behind_a_pending_request_is_bounded() {
    let upstream = tcp_server(|_stream| std::thread::sleep(6 * LONG));
    let [silent, api] = [free_port(), free_port()];
    let file = format!(
        "listeners: [{{name: s, spec: {{protocol: HTTP, port: {silent}}}, rules: [{{action: {{route: {{destination: \
         {{spec: {{protocol: TCP, port: {}}}, endpoints: [{{spec: {{address: 127.0.0.1}}}}]}}}}}}}}]}}, \
         {{name: a, spec: {{protocol: HTTP, port: {api}}}, rules: [{{action: {{route: {{destination: \
         {{spec: {{protocol: L7mpController}}}}}}}}}}]}}]",
        upstream.port()
    );
    let program = Program::start(&["--workers", "1"], &file);
    for port in [silent, api] {
        let before = program.resident();
        let mut client = tcp_client(port);
        client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nG").unwrap();
        let written = write_until_blocked(&mut client, &b"G".repeat(1 << 16), 100 << 20);
        // what follows the answer of the API is no request: it is discarded for a while, so that the refusal can be read
        assert!(port == api || written < 40 << 20, "{written} bytes were taken");
        let grown = program.resident().saturating_sub(before);
        assert!(grown < 4 << 20, "memory grew by {grown} bytes");
    }
}

#[test]
fn pongs_that_are_not_read_are_bounded() {
    // to an upstream that gets nothing, so that nothing but pongs can hold the client back
    let upstream = tcp_server(|_stream| std::thread::sleep(6 * LONG));
    let port = free_port();
    let file = format!(
        "listeners: [{{name: w, spec: {{protocol: WebSocket, port: {port}}}, rules: [{{action: {{route: {{destination: \
         {{spec: {{protocol: TCP, port: {}}}, endpoints: [{{spec: {{address: 127.0.0.1}}}}]}}}}}}}}]}}]",
        upstream.port()
    );
    let program = Program::start(&["--workers", "1"], &file);
    let mut client = Peer::connect(port, "/", &[]).stream;
    let before = program.resident();
    let mut pings = Vec::new();
    for _ in 0..500 {
        write_frame(&mut pings, Opcode::Ping, &[7; 120], Some([1, 2, 3, 4]));
    }
    let written = write_until_blocked(&mut client, &pings, 100 << 20);
    assert!(written < 100 << 20, "all pings were taken");
    let grown = program.resident().saturating_sub(before);
    assert!(grown < 4 << 20, "memory grew by {grown} bytes");
    // a pong has the bytes of its ping but for the mask
    let expected = written / (pings.len() / 500) * (pings.len() / 500 - 4);
    read_exact(&mut client, expected);
}

#[test]
fn messages_that_wait_do_not_keep_a_worker_busy_when_the_endpoint_is_lost_again() {
    let (lab, [port, echoing, closed]) = (Lab::with_workers(1), [free_port(), free_port(), free_port()]);
    let retry = json!({ "retry_on": "always", "num_retries": 100, "timeout": 300 });
    let route = json!({ "destination": udp_cluster("c", closed), "retry": retry });
    lab.listener_with("l", json!({ "protocol": "UDP", "port": port }), route, json!({}));
    lab.listener("e", json!({ "protocol": "UDP", "port": echoing }), json!({ "spec": { "protocol": "Echo" } }));
    let (client, other) = (udp_client(port), udp_client(echoing));
    // what comes between two attempts waits; the first of it is sent by the next attempt, and refused
    let (mut rounds, began) = (0, Instant::now());
    while began.elapsed() < Duration::from_secs(2) {
        client.send(b"waits").unwrap();
        assert_eq!(ask(&other, "still there"), "still there", "after {rounds} messages");
        rounds += 1;
    }
    let server = UdpSocket::bind(("127.0.0.1", closed)).unwrap();
    server.set_read_timeout(Some(SHORT)).unwrap();
    until("the endpoint that is back to get one", || {
        client.send(b"waits").unwrap();
        server.recv(&mut [0; 10]).is_ok()
    });
}

#[test]
fn a_body_over_the_limit_is_refused_and_nothing_is_applied() {
    let lab = Lab::new();
    lab.load(&json!({ "admin": { "limits": { "body": 1000 } } }));
    let port = http(&lab, json!({ "spec": { "protocol": "L7mpController" } }));
    let config = |tail: usize| format!("cluster: {{name: big, spec: {{protocol: Echo}}}}\n#{}", "x".repeat(tail));
    for chunked in [false, true] {
        let mut client = tcp_client(port);
        let body = config(5000);
        let length =
            if chunked { "Transfer-Encoding: chunked".to_owned() } else { format!("Content-Length: {}", body.len()) };
        let head = format!("POST /api/v1/clusters HTTP/1.1\r\nHost: x\r\nContent-Type: text/yaml\r\n{length}\r\n\r\n");
        client.write_all(head.as_bytes()).unwrap();
        let sent = if chunked { format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()) } else { body };
        client.write_all(sent.as_bytes()).ok();
        let (head, _) = read_head(&mut client);
        assert_eq!(head.status(), 413, "chunked: {chunked}");
        assert_eq!(lab.call("GET", "/clusters/big", None).0, 400, "nothing was added");
    }
    assert_eq!(lab.metric("portolan_proxy_limit_refusals_total{limit=\"body\"}"), Some(2));
}

#[test]
fn bytes_pass_unchanged_however_they_are_cut() {
    let lab = Lab::new();
    let (port, upstream) = (free_port(), tcp_server(echo));
    let route =
        json!({ "ingress": [{ "spec": { "protocol": "Metric" } }], "destination": tcp_cluster("c", upstream.port()) });
    lab.listener_with("l", json!({ "protocol": "TCP", "port": port }), route, json!({}));
    let mut client = tcp_client(port);
    client.set_nodelay(true).unwrap();
    for byte in 0..200_u8 {
        client.write_all(&[byte]).unwrap();
    }
    client.shutdown(Shutdown::Write).unwrap();
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    assert_eq!(all, (0..200).collect::<Vec<u8>>());
}
