//! Sessions over the API while bytes flow: a TCP listener and two scripted upstreams.

use super::lab::{
    Lab, echo, events, free_port, read_exact, serve, session_path, tcp_client, tcp_cluster, tcp_server, until,
};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};

/// Two upstreams on one port, which say who they are and then echo, and a listener that leads to them.
fn two_upstreams(lab: &Lab, port: u16) {
    let far = free_port();
    for (address, name) in [("127.0.0.1", b"1"), ("127.0.0.2", b"2")] {
        serve(TcpListener::bind((address, far)).unwrap(), move |mut stream| {
            stream.write_all(name).ok();
            echo(stream);
        });
    }
    let cluster = json!({ "name": "c", "spec": { "protocol": "TCP", "port": far }, "endpoints": [
        { "name": "e1", "spec": { "address": "127.0.0.1" } }, { "name": "e2", "spec": { "address": "127.0.0.2" } }] });
    let retry = json!({ "retry_on": "always", "num_retries": 3, "timeout": 50 });
    let route = json!({ "destination": cluster, "retry": retry });
    lab.listener_with("l", json!({ "protocol": "TCP", "port": port }), route, json!({ "track": 60 }));
}

#[test]
fn a_session_is_listed_read_by_name_and_ended() {
    let (lab, port) = (Lab::new(), free_port());
    two_upstreams(&lab, port);
    let mut clients = [tcp_client(port), tcp_client(port)];
    for client in &mut clients {
        assert_eq!(read_exact(client, 1), "1");
        client.write_all(b"hello").unwrap();
        assert_eq!(read_exact(client, 5), "hello");
    }
    let own = clients[0].local_addr().unwrap().port();
    let name = format!("TCP:127.0.0.1:{own}-127.0.0.1:{port}");
    assert_eq!(lab.session_names().len(), 2);
    let mut one = lab.get(&session_path(&name));
    let listed = lab.sessions().into_iter().find(|session| session["name"] == json!(name)).unwrap();
    one["idle_ms"] = listed["idle_ms"].clone();
    assert_eq!(one, listed, "by name and in the list it is the same");
    assert_eq!(
        one["source"],
        json!({ "origin": "l", "listener": { "protocol": "TCP", "port": port }, "status": "READY" })
    );
    let endpoint = json!({ "name": "e1", "spec": { "address": "127.0.0.1" } });
    let destination = &one["destination"];
    assert_eq!((&destination["origin"], &destination["status"]), (&json!("c"), &json!("READY")));
    assert_eq!(
        (&destination["endpoint"]["name"], &destination["endpoint"]["spec"]),
        (&endpoint["name"], &endpoint["spec"])
    );
    assert_eq!((&one["ingress"], &one["egress"], &one["status"]), (&json!([]), &json!([]), &json!("CONNECTED")));
    assert_eq!(events(&one), ["INIT", "LOOKUP SUCCESS", "CONNECT"]);
    assert_eq!(one["stats"]["bytes"], json!({ "in": 5, "out": 6 }));

    for unknown in ["/sessions/nobody", "/sessions/TCP:1.2.3.4:5-6.7.8.9:10"] {
        for method in ["GET", "DELETE"] {
            let (status, answer) = lab.call(method, unknown, None);
            assert_eq!((status, &answer["content"]), (400, &json!("No such session")), "{method} {unknown}");
        }
    }
    lab.delete(&session_path(&name));
    assert_eq!(clients[0].read(&mut [0; 10]).unwrap_or(0), 0, "its client is let go");
    let ended = lab.get(&session_path(&name));
    assert_eq!((&ended["status"], events(&ended).last().unwrap().as_str()), (&json!("DESTROYED"), "DESTROY"));
    assert_eq!(lab.call("DELETE", &session_path(&name), None).0, 400, "once is enough");
    clients[1].write_all(b"other").unwrap();
    assert_eq!(read_exact(&mut clients[1], 5), "other");
}

#[test]
fn a_session_moves_between_endpoints_with_bytes_flowing() {
    let (lab, port) = (Lab::new(), free_port());
    two_upstreams(&lab, port);
    let mut client = tcp_client(port);
    assert_eq!(read_exact(&mut client, 1), "1");
    let name = lab.session_names();
    let destination = || lab.sessions()[0]["destination"]["endpoint"]["name"].clone();
    for (gone, next, address) in [("e1", "e2", "127.0.0.1"), ("e2", "e1", "127.0.0.2"), ("e1", "e2", "127.0.0.1")] {
        client.write_all(b"before").unwrap();
        assert_eq!(read_exact(&mut client, 6), "before");
        lab.delete(&format!("/endpoints/{gone}?recursive=true"));
        client.write_all(b"after").unwrap();
        let who = &next[1..];
        assert_eq!(read_exact(&mut client, 6), format!("{who}after"));
        assert_eq!(destination(), json!(next));
        lab.post("/clusters/c/endpoints", &json!({ "endpoint": { "name": gone, "spec": { "address": address } } }));
    }
    assert_eq!(lab.session_names(), name, "one session all the way");
    let events = events(&lab.sessions()[0]);
    assert_eq!(events.iter().filter(|event| *event == "DISCONNECT").count(), 3);
}

#[test]
fn a_half_open_session_is_listed_and_ends_with_its_second_half() {
    let (lab, port) = (Lab::new(), free_port());
    // answers only when its client has said all
    let upstream = tcp_server(|mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(b"go on").unwrap();
        std::thread::sleep(super::lab::SHORT);
        stream.write_all(&all).unwrap();
    });
    lab.listener("l", json!({ "protocol": "TCP", "port": port }), tcp_cluster("c", upstream.port()));
    let mut client = tcp_client(port);
    client.write_all(b"all of it").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_exact(&mut client, 5), "go on");
    let sessions: Vec<Value> = lab.sessions();
    assert_eq!((sessions.len(), &sessions[0]["source"]["origin"]), (1, &json!("l")));
    let mut rest = String::new();
    client.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "all of it");
    until("the session to end", || lab.sessions().is_empty());
}
