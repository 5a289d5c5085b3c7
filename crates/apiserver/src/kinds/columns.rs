//! Printer columns of built-in kinds, for `kubectl get`, besides name and age.

use serde_json::Value;

use super::ColumnValue::{Computed, Path};
use super::{Column, ColumnValue};
use crate::json::{list, number, text};

/// Kind, column, priority (1 is for `-o wide`), and the path of the value; `""` for those that are computed.
const COLUMNS: [(&str, &str, i32, &str); 21] = [
    ("Namespace", "Status", 0, ".status.phase"),
    ("Node", "Status", 0, ""),
    ("Node", "Version", 0, ".status.nodeInfo.kubeletVersion"),
    ("Pod", "Ready", 0, ""),
    ("Pod", "Status", 0, ".status.phase"),
    ("Pod", "IP", 1, ".status.podIP"),
    ("Pod", "Node", 1, ".spec.nodeName"),
    ("Service", "Type", 0, ".spec.type"),
    ("Service", "Cluster-IP", 0, ".spec.clusterIP"),
    ("Service", "External-IP", 0, ".status.loadBalancer.ingress[0].ip"),
    ("Service", "Port(s)", 0, ""),
    ("EndpointSlice", "AddressType", 0, ".addressType"),
    ("EndpointSlice", "Endpoints", 0, ""),
    ("Lease", "Holder", 0, ".spec.holderIdentity"),
    ("Deployment", "Ready", 0, ""),
    ("DaemonSet", "Desired", 0, ".status.desiredNumberScheduled"),
    ("DaemonSet", "Ready", 0, ".status.numberReady"),
    ("Event", "Type", 0, ".type"),
    ("Event", "Reason", 0, ".reason"),
    ("Event", "Object", 0, ".involvedObject.name"),
    ("Event", "Message", 0, ".message"),
];

/// The columns of a built-in kind.
pub(super) fn of(kind: &str) -> Vec<Column> {
    let column = |name: &str, priority: i32, value: ColumnValue| Column {
        name: name.to_owned(),
        type_: if name == "Age" { "date" } else { "string" }.to_owned(),
        format: if name == "Name" { "name" } else { "" }.to_owned(),
        description: String::new(),
        priority,
        value,
    };
    let own = COLUMNS.iter().filter(|row| row.0 == kind).map(|(_, name, priority, path)| match *path {
        "" => column(name, *priority, Computed(computed(kind))),
        path => column(name, *priority, Path(path.to_owned())),
    });
    let name = column("Name", 0, Path(".metadata.name".to_owned()));
    let age = column("Age", 0, Path(".metadata.creationTimestamp".to_owned()));
    [name].into_iter().chain(own).chain([age]).collect()
}

/// The cell of a kind that no path leads to.
fn computed(kind: &str) -> fn(&Value) -> Value {
    match kind {
        "Node" => |node| node_status(node).into(),
        "Pod" => |pod| {
            let ready = list(pod, "/status/containerStatuses").iter().filter(|each| each["ready"] == true).count();
            format!("{ready}/{}", list(pod, "/spec/containers").len()).into()
        },
        "Service" => |service| {
            let ports = list(service, "/spec/ports").iter();
            let ports = ports.map(|port| format!("{}/{}", number(port, "/port"), text(port, "/protocol")));
            ports.collect::<Vec<_>>().join(",").into()
        },
        "EndpointSlice" => |slice| addresses(slice).into(),
        _ => {
            |object| format!("{}/{}", number(object, "/status/readyReplicas"), number(object, "/spec/replicas")).into()
        }
    }
}

fn node_status(node: &Value) -> String {
    let ready = list(node, "/status/conditions").iter().find(|each| text(each, "/type") == "Ready");
    let status = match ready.map(|each| text(each, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let suffix = if node["spec"]["unschedulable"] == true { ",SchedulingDisabled" } else { "" };
    format!("{status}{suffix}")
}

/// The first three addresses and how many more there are.
fn addresses(slice: &Value) -> String {
    let addresses = list(slice, "/endpoints").iter().flat_map(|endpoint| list(endpoint, "/addresses"));
    let addresses: Vec<&str> = addresses.filter_map(Value::as_str).collect();
    let shown = addresses.iter().take(3).copied().collect::<Vec<_>>().join(",");
    if addresses.len() > 3 { format!("{shown} + {} more...", addresses.len() - 3) } else { shown }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cells(kind: &str, object: &Value) -> Vec<Value> {
        let computed = of(kind).into_iter().filter_map(|column| match column.value {
            Computed(compute) => Some(compute(object)),
            Path(_) => None,
        });
        computed.collect()
    }

    #[test]
    fn a_node_says_whether_it_is_ready() {
        for (status, shown) in [("True", "Ready"), ("False", "NotReady"), ("Unknown", "NotReady")] {
            let node = json!({ "status": { "conditions": [{ "type": "Ready", "status": status }] } });
            assert_eq!(cells("Node", &node), [shown]);
        }
        assert_eq!(cells("Node", &json!({ "spec": { "unschedulable": true } })), ["Unknown,SchedulingDisabled"]);
    }

    #[test]
    fn cells_that_no_path_leads_to_are_counted_and_joined() {
        let ports = json!([{ "port": 80, "protocol": "TCP" }, { "port": 53, "protocol": "UDP" }]);
        let four = json!([{ "addresses": ["a"] }, { "addresses": ["b", "c"] }, { "addresses": ["d"] }]);
        let pod = json!({ "spec": { "containers": [{}, {}] }, "status": { "containerStatuses": [{ "ready": true }] } });
        for (kind, object, shown) in [
            ("Pod", pod, json!("1/2")),
            ("Service", json!({ "spec": { "ports": ports } }), json!("80/TCP,53/UDP")),
            ("EndpointSlice", json!({ "endpoints": four }), json!("a,b,c + 1 more...")),
            ("Deployment", json!({ "spec": { "replicas": 2 }, "status": { "readyReplicas": 1 } }), json!("1/2")),
        ] {
            assert_eq!(cells(kind, &object), [shown], "{kind}");
        }
    }

    #[test]
    fn every_path_can_be_read() {
        for (kind, name, _, path) in COLUMNS {
            assert!(path.is_empty() || crate::rest::jsonpath::JsonPath::parse(path).is_some(), "{kind} {name}");
        }
    }
}
