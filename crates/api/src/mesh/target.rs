//! Target: how proxies reach what is at the end of a way.

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::parts::{anything, open_object, port, qos, selector, spec, tls};
use super::{MeshStatus, written};

/// A destination of sessions, and how proxies connect to it.
#[derive(CustomResource, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[kube(
    group = "l7mp.io",
    version = "v1",
    kind = "Target",
    plural = "targets",
    shortname = "tr",
    namespaced,
    status = "MeshStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Protocol", type_ = "string", json_path = ".spec.cluster.spec.protocol"),
    printcolumn(name = "Endpoints", type_ = "integer", json_path = ".status.endpoints"),
    printcolumn(name = "Balancer", type_ = "string", json_path = ".spec.cluster.loadbalancer.policy"),
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
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Selector", type_ = "string", json_path = ".spec.selector", priority = 1),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Programmed")].message"#,
        priority = 1
    )
)]
#[serde(transparent)]
pub struct TargetSpec(pub Map<String, Value>);

written!(
    TargetSpec,
    spec(
        "A destination of sessions, and how proxies connect to it.",
        &["selector"],
        &json!({
            "selector": selector("The pods whose proxies connect to the endpoints."),
            "cluster": cluster(),
            "linkedVirtualService": {
                "description": "Protocol, port and endpoints are those of this VirtualService. Not together with \
                                cluster.spec.",
                "type": "string",
            },
            "serviceName": { "description": "The older spelling of linkedVirtualService.", "type": "string" },
            "updateOwners": {
                "description": "Report in the status of the owners that are of an l7mp.io kind when this object is in effect.",
                "type": "boolean",
            },
        }),
    )
);

fn cluster() -> Value {
    let count = |description: &str| json!({ "description": description, "type": "integer", "minimum": 0 });
    open_object(
        "Protocol, endpoints and load balancing.",
        &json!({
            "spec": open_object(
                "The connection. Also accepted: the protocol's name as the only key.",
                &json!({
                    "protocol": {
                        "description": "UDP, TCP, WebSocket, UnixDomainSocket, JSONSocket, Echo, Discard, Logger, Stdio, \
                                        Sync, Metric, Prometheus, JSONEncap or JSONDecap.",
                        "type": "string",
                    },
                    "port": port("Port to connect to, 1 to 65535."),
                    "bind": open_object("Source of the connections.", &json!({
                        "address": { "description": "Source address.", "type": "string" },
                        "port": port("Source port."),
                    })),
                    "transport": anything("JSONSocket: the underlying connection."),
                    "header": anything("JSONSocket: the metadata that is sent in its header."),
                    "query": {
                        "description": "Sync: path to the value by which sessions are grouped. Required for Sync.",
                        "type": "string",
                    },
                    "log_file": { "description": "Logger: file to write to.", "type": "string" },
                    "log_prefix": { "description": "Logger: start of each line.", "type": "string" },
                    "filename": { "description": "UnixDomainSocket: path of the socket.", "type": "string" },
                }),
            ),
            "endpoints": {
                "description": "Static endpoints, {spec: {address}, weight}, and pods, {selector}.",
                "type": "array",
                "maxItems": 10000,
                "x-kubernetes-list-type": "atomic",
                "items": anything("An address, or a selector of pods."),
            },
            "loadbalancer": open_object("How an endpoint is chosen.", &json!({
                "policy": {
                    "description": "Trivial (default: always the first), ConsistentHash or HashRing; on our proxy also \
                                    RoundRobin, Random2, LeastSessions and Maglev.",
                    "type": "string",
                },
                "key": { "description": "Path to the value that is hashed.", "type": "string" },
            })),
            "linkedVirtualService": {
                "description": "The same as spec.linkedVirtualService.", "type": "string"
            },
            "serviceName": { "description": "The older spelling of linkedVirtualService.", "type": "string" },
            "tls": tls("Encryption towards endpoints. Stored; not in force yet."),
            "healthCheck": anything("Checks of endpoints from time to time. Stored; not in force yet."),
            "outlier": anything("Outlier detection: when failing endpoints are ejected, and for how long."),
            "circuitBreaker": open_object("Limits on the load of the endpoints.", &json!({
                "maxSessions": count("Concurrent sessions."),
                "maxPending": count("Concurrent sessions that are being set up."),
                "maxRetries": count("Concurrent retries."),
            })),
            "qos": qos("Rate limits and markings for traffic to endpoints."),
        }),
    )
}
