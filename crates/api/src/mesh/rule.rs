//! Rule: one rule of a rulelist, as an object of its own.

use kube::CustomResource;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::parts::{open_object, selector, spec};
use super::{MeshStatus, written};
use crate::mesh::parts::anything;

/// One rule, inserted into a rulelist of the selected proxies.
#[derive(CustomResource, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[kube(
    group = "l7mp.io",
    version = "v1",
    kind = "Rule",
    plural = "rules",
    namespaced,
    status = "MeshStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "Rulelist", type_ = "string", json_path = ".spec.rulelist"),
    printcolumn(name = "Position", type_ = "integer", json_path = ".spec.position"),
    printcolumn(
        name = "Programmed",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Programmed")].status"#
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(transparent)]
pub struct RuleSpec(pub Map<String, Value>);

written!(
    RuleSpec,
    spec(
        "One rule, inserted into a rulelist of the selected proxies.",
        &["rulelist", "rule"],
        &json!({
            "selector": selector("The pods whose proxies get the rule."),
            "rulelist": { "description": "Name of the rulelist.", "type": "string", "minLength": 1 },
            "position": {
                "description": "Position in the rulelist; of several rules with the same position, the newest comes first. Empty means 0.",
                "type": "integer",
                "minimum": 0,
            },
            "rule": open_object("The match and the action.", &json!({
                "match": anything("A predicate on the metadata. Absent means that it always matches."),
                "action": anything("rewrite, and route or apply."),
            })),
            "updateOwners": {
                "description": "Report in the status of the owners that are of an l7mp.io kind when this object is in effect.",
                "type": "boolean",
            },
        }),
    )
);
