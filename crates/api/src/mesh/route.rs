//! Route: a way through the mesh.

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::parts::{anything, open_object, spec};
use super::{MeshStatus, written};

/// A route: the destination of sessions, and the clusters that they pass through in each direction.
#[derive(CustomResource, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[kube(
    group = "l7mp.io",
    version = "v1",
    kind = "Route",
    plural = "routes",
    shortname = "rte",
    namespaced,
    status = "MeshStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Destination", type_ = "string", json_path = ".spec.destination"),
    printcolumn(name = "Hops", type_ = "integer", json_path = ".status.hops"),
    printcolumn(name = "Used-by", type_ = "string", json_path = ".status.usedBy"),
    printcolumn(
        name = "Accepted",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Accepted")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(transparent)]
pub struct RouteSpec(pub Map<String, Value>);

written!(
    RouteSpec,
    spec(
        "A route: the destination of sessions, and the clusters that they pass through in each direction. It is put on every proxy that holds a \
         VirtualService which uses it.",
        &[],
        &json!({
            "destination": anything(
                "Where it ends: the name of a Target, VirtualService or Service, looked for in this order, or a whole \
                 Target. Required."
            ),
            "cluster": anything("The older spelling of destination."),
            "destinationRef": { "description": "The name, as the shipped operator spells it.", "type": "string" },
            "ingress": hops("Targets on the path to the destination, in order."),
            "egress": hops("Targets on the path back, in order."),
            "retry": open_object("Retries when a connection fails.", &json!({
                "retry_on": {
                    "description": "never (default), connect-failure, disconnect or always.",
                    "type": "string",
                    "enum": ["never", "connect-failure", "disconnect", "always"],
                },
                "num_retries": { "description": "Number of retries. Empty means 1.", "type": "integer", "minimum": 0 },
                "timeout": {
                    "description": "Milliseconds between two attempts. Empty means 2000.", "type": "integer", "minimum": 0
                },
            })),
        }),
    )
);

fn hops(description: &str) -> Value {
    json!({
        "description": description,
        "type": "array",
        "maxItems": 16,
        "x-kubernetes-list-type": "atomic",
        "items": anything("A name or a whole Target."),
    })
}
