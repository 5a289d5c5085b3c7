//! Who listens where inside the namespace, and the configurations that say so.

use crate::contestant::Contestant;
use serde_json::{Value, json};

// sinks
pub(crate) const SINK: u16 = 9001;
pub(crate) const JOINED_SINK: u16 = 9002;
pub(crate) const BYTE_SINK: u16 = 9003;
pub(crate) const WS_SINK: u16 = 9004;
pub(crate) const SPLIT_SINK: u16 = 9005;
pub(crate) const ECHO: u16 = 9006;
// the first port of each contestant
pub(crate) const OURS: u16 = 1000;
pub(crate) const NGINX: u16 = 2000;
pub(crate) const ENVOY: u16 = 3000;
pub(crate) const BARE: u16 = 4000;
pub(crate) const SECOND: u16 = 5000;
// added to it: what comes in, and where it goes
pub(crate) const TO_SINK: u16 = 1;
pub(crate) const TO_JOINED_SINK: u16 = 2;
pub(crate) const TO_BYTE_SINK: u16 = 3;
pub(crate) const TO_WS_SINK: u16 = 4;
pub(crate) const WS_TO_SINK: u16 = 5;
pub(crate) const RULED_TO_SINK: u16 = 6;
pub(crate) const TO_SPLIT_SINK: u16 = 7;
pub(crate) const TO_ECHO: u16 = 8;
pub(crate) const REFRAMED: u16 = 9;

/// Our configuration: a listener for each kind of traffic.
pub(crate) fn config(first: u16) -> Value {
    let cluster = |protocol: &str, port: u16| {
        let endpoint = json!({ "spec": { "address": "127.0.0.1" } });
        json!({ "spec": { "protocol": protocol, "port": port }, "endpoints": [endpoint] })
    };
    let listener = |protocol: &str, port: u16, rules: Value| {
        let spec = json!({ "protocol": protocol, "port": first + port, "address": "127.0.0.1" });
        json!({ "name": format!("l{port}"), "spec": spec, "rules": rules })
    };
    let all_to = |destination: Value| json!([{ "action": { "route": { "destination": destination } } }]);
    let nobody = json!({ "op": "test", "path": "/IP/src_addr", "value": "10.0.0.1" });
    let these = json!({ "op": "and", "apply": [
        { "op": "starts", "path": "/IP/src_addr", "value": "127." },
        { "op": "more", "path": "/UDP/src_port", "value": 1 },
    ] });
    let labels = json!([{ "path": "/labels/app", "value": "bench" }, { "path": "/labels/tier", "value": "1" }]);
    let ruled = json!([
        { "match": nobody, "action": { "route": { "destination": cluster("UDP", JOINED_SINK) } } },
        { "match": these, "action": { "rewrite": labels, "route": { "destination": cluster("UDP", SINK) } } },
    ]);
    // a stage that counts messages, so that frames are opened and closed again
    let counting = json!({ "spec": { "protocol": "Metric" } });
    let reframed = json!({ "destination": cluster("WebSocket", WS_SINK), "ingress": [counting] });
    json!({ "listeners": [
        listener("UDP", TO_SINK, all_to(cluster("UDP", SINK))),
        listener("UDP", TO_JOINED_SINK, all_to(cluster("UDP", JOINED_SINK))),
        listener("TCP", TO_BYTE_SINK, all_to(cluster("TCP", BYTE_SINK))),
        listener("WebSocket", TO_WS_SINK, all_to(cluster("WebSocket", WS_SINK))),
        listener("WebSocket", WS_TO_SINK, all_to(cluster("UDP", SINK))),
        listener("UDP", RULED_TO_SINK, ruled),
        listener("UDP", TO_SPLIT_SINK, all_to(cluster("UDP", SPLIT_SINK))),
        listener("UDP", TO_ECHO, all_to(cluster("UDP", ECHO))),
        listener("WebSocket", REFRAMED, json!([{ "action": { "route": reframed } }])),
    ] })
}

pub(crate) fn nginx() -> anyhow::Result<Contestant> {
    let (udp, tcp, echo) = (NGINX + TO_SINK, NGINX + TO_BYTE_SINK, NGINX + TO_ECHO);
    Contestant::nginx(&format!(
        "stream {{
            proxy_timeout 60s;
            proxy_buffer_size 64k;
            server {{ listen 127.0.0.1:{udp} udp; proxy_pass 127.0.0.1:{SINK}; }}
            server {{ listen 127.0.0.1:{echo} udp; proxy_pass 127.0.0.1:{ECHO}; }}
            server {{ listen 127.0.0.1:{tcp}; proxy_pass 127.0.0.1:{BYTE_SINK}; tcp_nodelay on; }}
        }}"
    ))
}

pub(crate) fn envoy() -> anyhow::Result<Contestant> {
    let kind = |name: &str| format!("type.googleapis.com/envoy.extensions.filters.{name}");
    let socket = |protocol: &str, port: u16| json!({ "socket_address": { "protocol": protocol, "address": "127.0.0.1", "port_value": port } });
    let cluster = |name: &str, protocol: &str, port: u16| {
        let endpoint = json!({ "endpoint": { "address": socket(protocol, port) } });
        let assignment = json!({ "cluster_name": name, "endpoints": [{ "lb_endpoints": [endpoint] }] });
        json!({ "name": name, "type": "STATIC", "load_assignment": assignment })
    };
    let sockets = json!({ "max_rx_datagram_size": 9000 });
    let route = json!({ "@type": kind("udp.udp_proxy.v3.Route"), "cluster": "udp" });
    let udp_proxy = json!({
        "@type": kind("udp.udp_proxy.v3.UdpProxyConfig"),
        "stat_prefix": "udp",
        "matcher": { "on_no_match": { "action": { "name": "route", "typed_config": route } } },
        "upstream_socket_config": sockets,
    });
    let tcp_proxy = json!({ "@type": kind("network.tcp_proxy.v3.TcpProxy"), "stat_prefix": "tcp", "cluster": "tcp" });
    let listeners = [
        json!({
            "name": "udp",
            "address": socket("UDP", ENVOY + TO_SINK),
            "udp_listener_config": { "downstream_socket_config": sockets },
            "listener_filters": [{ "name": "envoy.filters.udp_listener.udp_proxy", "typed_config": udp_proxy }],
        }),
        json!({
            "name": "tcp",
            "address": socket("TCP", ENVOY + TO_BYTE_SINK),
            "filter_chains": [{ "filters": [{ "name": "envoy.filters.network.tcp_proxy", "typed_config": tcp_proxy }] }],
        }),
    ];
    Contestant::envoy(&listeners, &[cluster("udp", "UDP", SINK), cluster("tcp", "TCP", BYTE_SINK)])
}
