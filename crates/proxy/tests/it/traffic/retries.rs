//! The table of retries: each policy with each number of retries and each way in which an upstream can fail.

use super::lab::{Lab, echo, events, free_port, read_exact, serve, session_path, tcp_client, tcp_cluster};
use portolan_proxy::config::engine::Engine;
use serde::Deserialize;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// Between two attempts, and for each.
const TIMEOUT: u64 = 60;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    upstream: String,
    retry_on: Vec<String>,
    retries: Made,
    events: Vec<String>,
    /// Of the END event.
    #[serde(default)]
    content: Option<String>,
}

/// How many of the retries that are allowed are made.
#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Made {
    None,
    /// The first one does it, if there is one.
    One,
    All,
}

#[test]
fn sessions_retry_as_the_table_says() {
    let rows: Vec<Row> = serde_saphyr::from_str(include_str!("../cases/retry.yaml")).unwrap();
    std::thread::scope(|scope| {
        for row in &rows {
            for policy in &row.retry_on {
                scope.spawn(move || (0..=2).for_each(|allowed| tell(row, policy, allowed)));
            }
        }
    });
}

fn tell(row: &Row, policy: &str, allowed: u64) {
    let about = format!("upstream {}, {policy}, {allowed} retries", row.upstream);
    let lab = Lab::with_workers(1);
    let (port, far) = (free_port(), free_port());
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let cluster = if row.upstream == "says nothing" {
        let transport = json!({ "protocol": "UDP", "port": silent.local_addr().unwrap().port() });
        json!({ "name": "c", "spec": { "protocol": "JSONSocket", "transport": transport },
            "endpoints": [{ "spec": { "address": "127.0.0.1" } }] })
    } else {
        tcp_cluster("c", far)
    };
    start_upstream(&row.upstream, far);
    let retry = json!({ "retry_on": policy, "num_retries": allowed, "timeout": TIMEOUT });
    lab.listener_with(
        "l",
        json!({ "protocol": "TCP", "port": port }),
        json!({ "destination": cluster, "retry": retry }),
        json!({ "track": 60 }),
    );
    let began = Instant::now();
    let mut client = tcp_client(port);
    client.write_all(b"xy").unwrap();
    interfere(&lab, &row.upstream, &mut client);

    let expected = expected_events(row, allowed);
    let seen = || lab.sessions().first().map(events).unwrap_or_default();
    wait(&about, || seen() == expected, || format!("{:?} in place of {expected:?}", seen()));
    let sessions = lab.sessions();
    let [session] = &sessions[..] else { panic!("{about}: {sessions:?}") };
    if let Some(content) = &row.content {
        let end = session["events"].as_array().unwrap().iter().find(|event| event["event"] == "END").unwrap();
        assert_eq!(end["content"], json!(content), "{about}");
    }
    let retries = made(row.retries, allowed);
    assert_eq!(lab.plane.stats().retries, retries, "{about}");
    // what is lost is connected again at once for the first time
    let immediate = u64::from(expected.contains(&"DISCONNECT".to_owned()));
    let pauses = Duration::from_millis(TIMEOUT * retries.saturating_sub(immediate));
    assert!(began.elapsed() >= pauses, "{about}: attempts came without a pause");
    if session["status"] == "DESTROYED" {
        assert_eq!(client.read(&mut [0; 10]).unwrap_or(0), 0, "{about}: the client is told by the end");
    } else {
        client.write_all(b"z").unwrap();
        assert_eq!(read_exact(&mut client, 1), "z", "{about}");
    }
    if row.upstream == "says nothing" {
        assert_eq!(headers(&silent), 1 + retries, "{about}: a header for each attempt");
    }
}

const fn made(made: Made, allowed: u64) -> u64 {
    match made {
        Made::None => 0,
        Made::One => (allowed > 0) as u64,
        Made::All => allowed,
    }
}

/// Without a retry a lost upstream is the end, and not an error.
fn expected_events(row: &Row, allowed: u64) -> Vec<String> {
    if ["comes back", "goes away"].contains(&row.upstream.as_str()) && allowed == 0 {
        return ["INIT", "LOOKUP SUCCESS", "CONNECT", "DISCONNECT", "END", "DESTROY"].map(str::to_owned).to_vec();
    }
    row.events.clone()
}

fn start_upstream(what: &str, port: u16) {
    let bound = || TcpListener::bind(("127.0.0.1", port)).unwrap();
    match what {
        "refuses" | "says nothing" => {}
        "goes away" => {
            let listener = bound();
            std::thread::spawn(move || {
                let (stream, _) = listener.accept().unwrap();
                drop(listener);
                reset(stream);
            });
        }
        "comes back" => {
            let listener = bound();
            std::thread::spawn(move || {
                reset(listener.accept().unwrap().0);
                serve(listener, echo);
            });
        }
        _ => serve(bound(), echo),
    }
}

/// Closes a connection with bytes unread, which the other end sees as a reset.
fn reset(mut stream: TcpStream) {
    stream.read_exact(&mut [0]).unwrap();
}

fn interfere(lab: &Lab, what: &str, client: &mut TcpStream) {
    if !["answers", "loses its cluster", "loses its session"].contains(&what) {
        return;
    }
    assert_eq!(read_exact(client, 2), "xy");
    match what {
        "loses its cluster" => lab.delete("/clusters/c?recursive=true"),
        "loses its session" => lab.delete(&session_path(&lab.session_names()[0])),
        _ => {}
    }
}

fn headers(silent: &UdpSocket) -> u64 {
    silent.set_nonblocking(true).unwrap();
    let mut buffer = [0; 1000];
    let is_header = |n: usize, buffer: &[u8]| {
        serde_json::from_slice::<Value>(&buffer[..n]).is_ok_and(|header| header["JSONSocketVersion"] == json!(1))
    };
    let mut count = 0;
    while let Ok(n) = silent.recv(&mut buffer) {
        assert!(is_header(n, &buffer), "no data before an answer");
        count += 1;
    }
    count
}

fn wait(about: &str, holds: impl Fn() -> bool, told: impl Fn() -> String) {
    let end = Instant::now() + super::lab::LONG;
    while !holds() {
        assert!(Instant::now() < end, "{about}: {}", told());
        std::thread::sleep(Duration::from_millis(5));
    }
}
