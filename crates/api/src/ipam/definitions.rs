//! Definitions of OpenShift's kinds, for clusters without OpenShift.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

const ADDRESS: &str =
    r"^(([0-9]|[0-9]{2}|1[0-9]{2}|2[0-4][0-9]|25[0-5])\.){3}([0-9]|[0-9]{2}|1[0-9]{2}|2[0-4][0-9]|25[0-5])$";
const RANGE: &str = r"^(([0-9]|[0-9]{2}|1[0-9]{2}|2[0-4][0-9]|25[0-5])\.){3}([0-9]|[0-9]{2}|1[0-9]{2}|2[0-4][0-9]|25[0-5])/([0-9]|[12][0-9]|3[0-2])$";

pub(crate) fn net_namespace() -> CustomResourceDefinition {
    definition(
        "NetNamespace",
        &json!({
            "description": "The virtual network of the namespace of the same name, in OpenShift SDN.",
            "required": ["netname", "netid"],
            "properties": {
                "netname": { "description": "The namespace.", "type": "string", "pattern": "^[a-z0-9.-]+$" },
                "netid": {
                    "description": "Number of the virtual network.",
                    "type": "integer", "format": "int32", "minimum": 0, "maximum": 16_777_215,
                },
                "egressIPs": addresses("Addresses that pods of the namespace leave with."),
            },
        }),
        &[column("NetID", "integer", ".netid"), column("Egress IPs", "string", ".egressIPs")],
    )
}

pub(crate) fn host_subnet() -> CustomResourceDefinition {
    definition(
        "HostSubnet",
        &json!({
            "description": "The part of the cluster network on the node of the same name, in OpenShift SDN.",
            "required": ["host", "hostIP", "subnet"],
            "properties": {
                "host": { "description": "The node.", "type": "string", "pattern": "^[a-z0-9.-]+$" },
                "hostIP": { "description": "The node's address.", "type": "string", "pattern": ADDRESS },
                "subnet": { "description": "Range of the node's pods.", "type": "string", "pattern": RANGE },
                "egressIPs": addresses("Egress addresses that the node hosts."),
                "egressCIDRs": {
                    "description": "Ranges from which the SDN itself fills egressIPs. Empty: it does not.",
                    "type": "array",
                    "items": { "type": "string", "pattern": RANGE },
                },
            },
        }),
        &[
            column("Host", "string", ".host"),
            column("Host IP", "string", ".hostIP"),
            column("Subnet", "string", ".subnet"),
            column("Egress CIDRs", "string", ".egressCIDRs"),
            column("Egress IPs", "string", ".egressIPs"),
        ],
    )
}

fn addresses(description: &str) -> Value {
    json!({ "description": description, "type": "array", "items": { "type": "string", "pattern": ADDRESS } })
}

fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({ "name": name, "type": kind, "jsonPath": path })
}

fn definition(kind: &str, content: &Value, columns: &[Value]) -> CustomResourceDefinition {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let mut schema = content.clone();
    schema["type"] = json!("object");
    schema["properties"]["apiVersion"] = json!({ "type": "string" });
    schema["properties"]["kind"] = json!({ "type": "string" });
    schema["properties"]["metadata"] = json!({ "type": "object" });
    let definition = json!({
        "metadata": { "name": format!("{plural}.network.openshift.io") },
        "spec": {
            "group": "network.openshift.io",
            "scope": "Cluster",
            "names": { "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": singular },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": { "openAPIV3Schema": schema },
                "additionalPrinterColumns": columns,
            }],
        },
    });
    serde_json::from_value(definition).expect("the definition is written above")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipam::{HostSubnet, NetNamespace};

    #[test]
    fn objects_of_openshift_are_written_as_they_were_read() {
        let wire = json!({
            "apiVersion": "network.openshift.io/v1", "kind": "NetNamespace", "metadata": { "name": "shop" },
            "netname": "shop", "netid": 4711, "egressIPs": ["10.0.0.7"],
        });
        let read: NetNamespace = serde_json::from_value(wire.clone()).unwrap();
        assert_eq!((read.netid, &read.egress_ips[..]), (4711, &["10.0.0.7".to_owned()][..]));
        assert_eq!(serde_json::to_value(read).unwrap(), wire);
        let wire = json!({
            "apiVersion": "network.openshift.io/v1", "kind": "HostSubnet", "metadata": { "name": "node-1" },
            "host": "node-1", "hostIP": "10.0.0.4", "subnet": "10.128.0.0/23", "egressCIDRs": ["10.0.0.0/24"],
        });
        let read: HostSubnet = serde_json::from_value(wire.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), wire);
    }

    #[test]
    fn both_definitions_have_their_fields_at_top_level() {
        for (definition, field) in [(net_namespace(), "netid"), (host_subnet(), "hostIP")] {
            let schema = definition.spec.versions[0].schema.clone().unwrap().open_api_v3_schema.unwrap();
            assert!(schema.required.unwrap().iter().any(|required| required == field));
            assert!(definition.spec.versions[0].subresources.is_none(), "there is no status");
        }
    }
}
