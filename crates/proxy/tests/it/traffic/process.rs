//! The program as it is started: flags, signals, exit codes.

use super::lab::{UdpEcho, ask, free_port, is_silent, tcp_client, udp_client, until};
use super::program::{Program, http, spawn, try_http};
use rustix::process::Signal;
use serde_json::json;
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

pub(super) fn udp_echo(name: &str, port: u16) -> String {
    format!(
        "{{name: {name}, spec: {{protocol: UDP, port: {port}}}, \
         rules: [{{action: {{route: {{destination: {{spec: {{protocol: Echo}}}}}}}}}}]}}"
    )
}

/// Runs to the end: its exit code and what it said.
pub(super) fn run(words: &[&str], file: &str) -> (i32, String) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("proxy.yaml"), file).unwrap();
    let mut child = spawn(dir.path(), words);
    let mut code = None;
    until("the process to end", || {
        code = child.try_wait().unwrap();
        code.is_some()
    });
    let said = std::fs::read_to_string(dir.path().join("log")).unwrap();
    (code.and_then(|status| status.code()).unwrap_or(-1), said)
}

#[test]
fn it_serves_its_file_its_api_and_its_metrics() {
    let port = free_port();
    let program = Program::start(&["--workers", "2"], &format!("listeners: [{}]", udp_echo("l", port)));
    let client = udp_client(port);
    assert_eq!(ask(&client, "hello"), "hello");
    assert_eq!(program.json("/sessions").as_array().unwrap().len(), 1);
    let ours = program.json("/admin")["portolan"].clone();
    assert_eq!((&ours["workers"], &ours["generation"]), (&json!(2), &json!(1)));
    assert_eq!(program.metric("listener_requests_total{listenerName=\"l\",protocol=\"UDP\"}"), 1);
    assert_eq!(program.metric("portolan_proxy_packets_total{direction=\"in\"}"), 1);
    let added = free_port();
    program.post("/listeners", &format!("listener: {}", udp_echo("more", added)));
    assert_eq!(ask(&udp_client(added), "over the API"), "over the API");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", program.id())).unwrap();
    let descriptors: Vec<&str> =
        limits.lines().find(|line| line.starts_with("Max open files")).unwrap().split_whitespace().collect();
    assert_eq!(descriptors[3], descriptors[4], "the soft limit of descriptors is the hard one");
}

#[test]
fn the_reference_has_every_metric_and_every_limit() {
    let reference = include_str!("../../../../../docs/reference/proxy.md");
    let port = free_port();
    let metric = "{ingress: [{spec: {protocol: Metric}}], destination: {spec: {protocol: Echo}}}";
    let listener =
        format!("{{name: l, spec: {{protocol: UDP, port: {port}}}, rules: [{{action: {{route: {metric}}}}}]}}");
    let program = Program::start(&[], &format!("listeners: [{listener}]"));
    let (_, text) = program.get("/metrics");
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(names.contains(&"session_byte_counter_total"), "{text}");
    let limits = format!("{:?}", portolan_proxy::config::types::Limits::default());
    let limits = limits.split([' ', '{', ',']).filter_map(|word| word.strip_suffix(':'));
    for name in names.into_iter().chain(limits) {
        assert!(reference.contains(&format!("`{name}`")), "docs/reference/proxy.md does not have `{name}`");
    }
}

#[test]
fn the_form_of_l7mps_charts_starts_unchanged() {
    let [api, metrics, rtp] = [free_port(), free_port(), free_port()];
    let dir = tempfile::tempdir().unwrap();
    let access = dir.path().join("access.json").display().to_string();
    let chart = include_str!("../cases/chart.yaml")
        .replace("1234", &api.to_string())
        .replace("8080", &metrics.to_string())
        .replace("19000", &rtp.to_string())
        .replace("/var/log/portolan/access.json", &access);
    let program = Program::start_in(dir, &[], &chart);
    let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let (status, body) = http(at(api), "GET /api/v1/config", "", "");
    assert_eq!(status, 200);
    let config: serde_json::Value = serde_json::from_str(&body).unwrap();
    let names: Vec<&str> =
        config["listeners"].as_array().unwrap().iter().map(|listener| listener["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["controller-listener", "prometheus_listener", "worker-rtp-listener"]);
    let (status, body) = http(at(metrics), "GET /metrics", "", "");
    assert_eq!(status, 200);
    assert!(body.contains("listener_requests_total{listenerName=\"controller-listener\",protocol=\"HTTP\"}"), "{body}");
    assert_eq!(http(at(metrics), "GET /other", "", "").0, 404);
    let rule = "{rule: {action: {route: {destination: {spec: {protocol: Echo}}}}}}";
    let added = http(at(api), "POST /api/v1/rulelists/worker-rtp-rulelist/rules/0", "text/yaml", rule);
    assert_eq!(added.0, 200, "{}", added.1);
    let client = udp_client(rtp);
    assert!(ask(&client, r#"{"JSONSocketVersion":1}"#).contains("\"JSONSocketStatus\":200"));
    assert_eq!(ask(&client, "rtp"), "rtp");
    until("the access log", || std::fs::read_to_string(&access).is_ok_and(|text| text.contains("prometheus_listener")));
    assert!(program.log().contains("proxy started"), "logs go to stdout as the file says: {}", program.log());
}

#[test]
fn sighup_puts_a_good_file_in_force_and_leaves_sessions_alone() {
    let [kept, gone, new] = [free_port(), free_port(), free_port()];
    let listeners = |ports: &[(&str, u16)]| {
        let all: Vec<String> = ports.iter().map(|(name, port)| udp_echo(name, *port)).collect();
        format!("admin: {{log_level: warn}}\nlisteners: [{}]", all.join(", "))
    };
    let program = Program::start(&[], &listeners(&[("kept", kept), ("gone", gone)]));
    program.post("/listeners", &format!("listener: {}", udp_echo("of-the-api", free_port())));
    let client = udp_client(kept);
    assert_eq!(ask(&client, "1"), "1");
    let sessions = program.json("/sessions")[0]["name"].clone();
    program.rewrite(&listeners(&[("kept", kept), ("new", new)]));
    program.signal(Signal::HUP);
    until("the new listener", || program.get("/api/v1/listeners/new").0 == 200);
    assert_eq!((ask(&client, "2"), ask(&udp_client(new), "3")), ("2".into(), "3".into()));
    assert_eq!(program.json("/sessions")[0]["name"], sessions);
    assert_eq!(program.get("/api/v1/listeners/gone").0, 400);
    assert_eq!(program.get("/api/v1/listeners/of-the-api").0, 200);
}

#[test]
fn sighup_with_a_bad_file_changes_nothing() {
    let (port, taken) = (free_port(), UdpEcho::start(""));
    let program = Program::start(&[], &format!("listeners: [{}]", udp_echo("l", port)));
    let client = udp_client(port);
    assert_eq!(ask(&client, "1"), "1");
    let before = program.json("/config");
    let bad = [
        ("listeners: [".to_owned(), "cannot parse"),
        ("listeners: [{name: x}]".to_owned(), "Property spec is required"),
        (format!("listeners: [{}, {}]", udp_echo("y", free_port()), udp_echo("x", taken.port)), "EADDRINUSE"),
        ("admin: {drain_timeout: soon}".to_owned(), "drain_timeout is invalid"),
    ];
    for (text, why) in bad {
        program.rewrite(&text);
        program.signal(Signal::HUP);
        until(why, || program.log().contains(why));
        let mut after = program.json("/config");
        after["sessions"] = before["sessions"].clone();
        assert_eq!(after, before, "{text}");
    }
    assert_eq!(ask(&client, "2"), "2");
    assert_eq!(program.json("/sessions").as_array().unwrap().len(), 1);
}

#[test]
fn a_signal_drains_and_the_last_session_ends_the_wait() {
    for signal in [Signal::TERM, Signal::INT] {
        let (port, udp) = (free_port(), free_port());
        let tcp = format!(
            "{{name: t, spec: {{protocol: TCP, port: {port}}}, \
             rules: [{{action: {{route: {{destination: {{spec: {{protocol: Echo}}}}}}}}}}]}}"
        );
        let config = format!("admin: {{drain_timeout: 60}}\nlisteners: [{tcp}, {}]", udp_echo("u", udp));
        let mut program = Program::start(&[], &config);
        let mut client = tcp_client(port);
        let mut echo = |text: &str| {
            use std::io::Write;
            client.write_all(text.as_bytes()).unwrap();
            super::lab::read_exact(&mut client, text.len())
        };
        assert_eq!(echo("before"), "before");
        program.signal(signal);
        until("the listener to be closed", || TcpStream::connect(("127.0.0.1", port)).is_err());
        assert_eq!(echo("while it drains"), "while it drains");
        let late = udp_client(udp);
        late.send(b"too late").unwrap();
        assert!(is_silent(&late), "no further sessions are taken");
        assert_eq!(program.get("/readyz").0, 503);
        assert!(program.exit_code().is_none(), "a session runs");
        drop(client);
        assert_eq!(program.ended(), 0, "{}", program.log());
    }
}

#[test]
fn the_drain_ends_after_its_time_and_a_second_signal_ends_it_at_once() {
    let start = |timeout: &str| {
        let port = free_port();
        let config = format!("admin: {{drain_timeout: {timeout}}}\nlisteners: [{}]", udp_echo("u", port));
        let program = Program::start(&[], &config);
        assert_eq!(ask(&udp_client(port), "x"), "x");
        program
    };
    let mut timed = start("0.3");
    let began = Instant::now();
    timed.signal(Signal::TERM);
    assert_eq!(timed.ended(), 0);
    assert!(began.elapsed().as_millis() >= 300, "sessions had their time");
    let mut hurried = start("600");
    hurried.signal(Signal::TERM);
    until("the drain to begin", || hurried.get("/readyz").0 == 503);
    hurried.signal(Signal::INT);
    assert_eq!(hurried.ended(), 0);
}

#[test]
fn exit_codes_tell_flags_from_configurations() {
    let taken = UdpEcho::start("");
    let bound = format!("listeners: [{}]", udp_echo("l", taken.port));
    let good = format!("listeners: [{}]", udp_echo("l", free_port()));
    let file = ["-c", "proxy.yaml"];
    let check = ["-c", "proxy.yaml", "--check"];
    for (words, text, code, said) in [
        (&[][..], "", 2, "error: neither a configuration nor --api is given\n\nhint: pass a file with -c"),
        (&["--api", "127.0.0.1:0", "--api-cert", "x"], "", 2, "--api-cert and --api-key must be given together"),
        (&["-l", "loud"], "", 2, "possible values: silly, verbose, info, notice, warn, error, silent"),
        (&["--workers", "0"], "", 2, "--workers"),
        (&["-c", "none.yaml"], "", 1, "error: cannot read none.yaml: No such file or directory"),
        (&file, "listeners: [", 1, "error: cannot parse proxy.yaml"),
        (&file, "listeners: [{name: x}]", 1, "Cannot add listener: Property spec is required"),
        (&file, &bound, 1, "EADDRINUSE"),
        (&["--inline", "{\"clusters\": 7}"], "", 1, "error: cannot apply --inline: clusters: expected a list"),
        (&check, &good, 0, ""),
        (&check, &bound, 0, ""),
        (&check, "listeners: [{name: x}]", 1, "cannot apply proxy.yaml: listeners[0]: Cannot add listener"),
        (
            &["-c", "proxy.yaml", "--check", "-s"],
            "listeners: [{name: x}]",
            1,
            "cannot apply proxy.yaml: listeners[0]: listener should have required property 'spec'",
        ),
        (&["--inline", "{clusters: [{name: c, spec: {protocol: Echo}}]}", "--check"], "", 0, ""),
        (&check, "admin: {log_level: loud}", 1, "admin: Property log_level is invalid"),
    ] {
        let (ended, log) = run(words, text);
        assert_eq!(ended, code, "{words:?} {text}: {log}");
        assert!(log.contains(said) && (log.is_empty() || !said.is_empty()), "{words:?} {text}: {log}");
    }
}

#[test]
fn the_address_of_the_api_is_taken_or_the_process_says_whose_it_is() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = holder.local_addr().unwrap().to_string();
    let (code, log) = run(&["--api", &address], "");
    assert_eq!(code, 1);
    assert!(log.contains(&format!("cannot serve the API on {address}: Address already in use")), "{log}");
}

#[test]
fn log_levels_are_l7mps_and_follow_the_api() {
    let port = free_port();
    let quiet = format!("admin: {{log_level: silly, log_file: proxy.log}}\nlisteners: [{}]", udp_echo("l", port));
    let program = Program::start(&["-l", "silent", "-o", "enabled", "-i"], &quiet);
    assert_eq!(program.log(), "", "a file takes the logs, and the flag silences them");
    let file = program.dir.path().join("proxy.log");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "");
    program.post("/admin", "{admin: {log_level: notice}}");
    assert_eq!(program.json("/admin")["log_level"], json!("notice"));
    program.rewrite("listeners: [");
    program.signal(Signal::HUP);
    until("the refusal in the log", || std::fs::read_to_string(&file).is_ok_and(|text| text.contains("reload failed")));
    let loud = Program::start(&["-o"], &format!("listeners: [{}]", udp_echo("l", free_port())));
    let warnings = loud.log().matches("kernel offload is not supported").count();
    assert_eq!(warnings, 1, "{}", loud.log());
}

#[test]
fn tokens_guard_the_api_and_no_api_leaves_health() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("tokens"), "secret write\n").unwrap();
    let controller = free_port();
    let metrics = free_port();
    let to = |name: &str, port: u16, protocol: &str| {
        format!(
            "{{name: {name}, spec: {{protocol: HTTP, port: {port}}}, \
             rules: [{{action: {{route: {{destination: {{spec: {{protocol: {protocol}}}}}}}}}}}]}}"
        )
    };
    let config =
        format!("listeners: [{}, {}]", to("api", controller, "L7mpController"), to("metrics", metrics, "Prometheus"));
    let guarded = Program::start_in(dir, &["--api-token-file", "tokens"], &config);
    let at = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    assert_eq!(guarded.get("/api/v1/admin").0, 401);
    assert_eq!(http(at(controller), "GET /api/v1/admin", "", "").0, 401);
    let (status, text) = http(at(metrics), "GET /metrics", "", "");
    assert_eq!(status, 200, "a Prometheus cluster asks for no token: {text}");
    assert!(text.contains("\nportolan_proxy_sessions"), "{text}");

    let port = free_port();
    let config = format!("listeners: [{}]", to("api", port, "L7mpController"));
    let mut child = spawn(guarded.dir.path(), &["--inline", &config, "--no-api"]);
    until("health", || try_http(at(port), "GET /livez", "", "").is_ok_and(|(status, _)| status == 200));
    assert_eq!(http(at(port), "GET /api/v1/admin", "", "").0, 404);
    child.kill().unwrap();
    child.wait().unwrap();
}
