//! A fault in this program costs the session it was in.

use super::lab::{Lab, UdpEcho, ask, free_port, tcp_client, udp_client, until};
use portolan_proxy::rest::exchange::{ApiHandler, Reply, Request};
use serde_json::json;
use std::io::{Read, Write};
use std::sync::Arc;

/// An API that breaks the worker that asks it.
struct Broken;

impl ApiHandler for Broken {
    fn submit(&self, _: Request, _: Reply) {
        panic!("a fault that a test made");
    }
}

#[test]
fn a_panic_in_a_session_ends_that_session_and_no_other() {
    let (lab, upstream) = (Lab::with_api_handler(1, |_| Arc::new(Broken)), UdpEcho::start(""));
    let (http, udp) = (free_port(), free_port());
    lab.listener(
        "api",
        json!({ "protocol": "HTTP", "port": http }),
        json!({ "name": "controller", "spec": { "protocol": "L7mpController" }, "options": { "max_sessions": 1 } }),
    );
    lab.listener("udp", json!({ "protocol": "UDP", "port": udp }), upstream.cluster("c"));
    let client = udp_client(udp);
    assert_eq!(ask(&client, "before"), "before");
    let sessions = lab.session_names();
    for round in 1..=3 {
        let mut broken = tcp_client(http);
        broken.write_all(b"GET /api/v1/admin HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert_eq!(broken.read(&mut [0; 100]).unwrap_or(0), 0, "closed, and never answered 503 for a count that leaks");
        let ended = || lab.metric("portolan_proxy_sessions_ended_total{reason=\"fault\"}");
        until("the fault to be counted", || ended() == Some(round));
        assert_eq!(ask(&client, "after"), "after");
    }
    assert_eq!(lab.session_names(), sessions, "the same session, and nothing is left of the others");
    assert_eq!(lab.metric("portolan_proxy_worker_restarts_total"), Some(0));
}
