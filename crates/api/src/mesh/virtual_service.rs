//! VirtualService: a server socket on some pods, and the rules that lead its clients on.

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::parts::{anything, open_object, port, qos, selector, spec, tls};
use super::{MeshStatus, written};

/// A server socket on the selected pods, and the rules that route its clients.
#[derive(CustomResource, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[kube(
    group = "l7mp.io",
    version = "v1",
    kind = "VirtualService",
    plural = "virtualservices",
    shortname = "vsvc",
    namespaced,
    status = "MeshStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Protocol", type_ = "string", json_path = ".spec.listener.protocol"),
    printcolumn(name = "Port", type_ = "string", json_path = ".spec.listener.port"),
    printcolumn(name = "Proxies", type_ = "string", json_path = ".status.proxies.summary"),
    printcolumn(name = "Generated", type_ = "string", json_path = r".metadata.labels.l7mp\.io/generated"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Accepted")].status"#
    ),
    printcolumn(
        name = "Programmed",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Programmed")].status"#
    ),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.status=="False")].reason"#),
    printcolumn(name = "Message", type_ = "string", json_path = r#".status.conditions[?(@.status=="False")].message"#),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Selector", type_ = "string", json_path = ".spec.selector", priority = 1)
)]
#[serde(transparent)]
pub struct VirtualServiceSpec(pub Map<String, Value>);

written!(
    VirtualServiceSpec,
    spec(
        "A server socket on the selected pods, and the rules that route its clients.",
        &["selector", "listener"],
        &json!({
            "selector": selector(
                "The pods. With rules, the listener is created on those that run a proxy; without rules, they are the endpoints that callers connect to."
            ),
            "listener": listener(),
            "rules": anything(
                "Tried in order when a client comes, the first match decides: a list of {match, action}, or one of \
                 them. Absent means a plain service without a proxy; an empty list refuses everything."
            ),
            "rulesRef": {
                "description": "Name of a rulelist in the proxy's own file. Not together with rules.",
                "type": "string",
            },
            "options": open_object("Options of the listener.", &json!({
                "track": {
                    "description": "Seconds for which a finished session stays listed. Empty means 0.",
                    "type": "integer",
                    "minimum": 0,
                },
                "removeOrphanSessions": {
                    "description": "Whether sessions end when this object is deleted. Empty means that they continue.",
                    "type": "boolean",
                },
            })),
            "updateOwners": {
                "description": "Report in the status of the owners that are of an l7mp.io kind when this object is in effect.",
                "type": "boolean",
            },
            "tls": tls("Encryption towards clients. Stored; not in force yet."),
            "limits": open_object("Limits on sessions.", &json!({
                "maxSessions": { "description": "Concurrent sessions.", "type": "integer", "minimum": 1 },
                "maxSessionsPerSource": {
                    "description": "Concurrent sessions of one client address.", "type": "integer", "minimum": 1
                },
                "idleTimeout": anything("Seconds without a packet until a session ends."),
                "setupTimeout": anything("Seconds until a session that is not set up ends."),
            })),
            "qos": qos("Rate limits and markings for traffic of clients."),
            "monitoring": open_object("Metrics and logs of its sessions.", &json!({
                "labels": {
                    "description": "Paths into the metadata whose values become labels of metrics, at most four.",
                    "type": "array",
                    "maxItems": 4,
                    "x-kubernetes-list-type": "atomic",
                    "items": { "type": "string" },
                },
                "accessLog": { "description": "Whether finished sessions are logged.", "type": "boolean" },
                "sampleRatio": {
                    "description": "Fraction of the sessions that is logged.", "type": "number", "minimum": 0, "maximum": 1
                },
            })),
        }),
    )
);

fn listener() -> Value {
    open_object(
        "The server socket. Also accepted: the same under `spec`, and the protocol's name as the only key.",
        &json!({
            "protocol": {
                "description": "UDP, TCP, WebSocket, HTTP, UnixDomainSocket or JSONSocket.",
                "type": "string",
            },
            "port": port("Port to listen on, 1 to 65535."),
            "address": { "description": "Address to listen on. Empty means all.", "type": "string" },
            "connect": open_object("UDP: the one client to serve.", &json!({
                "address": { "description": "Its address.", "type": "string" },
                "port": port("Its port."),
            })),
            "options": open_object("UDP: how clients are served.", &json!({
                "mode": {
                    "description": "server: every client gets a session. singleton: one session, to connect.",
                    "type": "string",
                },
            })),
            "path": { "description": "HTTP and WebSocket: path of the requests that are served.", "type": "string" },
            "filename": { "description": "UnixDomainSocket: path of the socket.", "type": "string" },
            "type": {
                "description": "UnixDomainSocket: stream (default), seqpacket or datagram.",
                "type": "string",
            },
            "transport": anything("JSONSocket: the underlying listener."),
            "name": { "description": "Ignored: a listener is named after its object.", "type": "string" },
        }),
    )
}
