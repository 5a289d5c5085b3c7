//! Definitions of OpenShift's kinds, for clusters without OpenShift.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceSubresourceStatus, CustomResourceSubresources,
};
use serde_json::{Value, json};

const ADDRESS: &str =
    r"^(([0-9]|[0-9]{2}|1[0-9]{2}|2[0-4][0-9]|25[0-5])\.){3}([0-9]|[0-9]{2}|1[0-9]{2}|2[0-4][0-9]|25[0-5])$";
const RANGE: &str = r"^(([0-9]|[0-9]{2}|1[0-9]{2}|2[0-4][0-9]|25[0-5])\.){3}([0-9]|[0-9]{2}|1[0-9]{2}|2[0-4][0-9]|25[0-5])/([0-9]|[12][0-9]|3[0-2])$";

const NETWORK: &str = "network.openshift.io";
const CLOUD_NETWORK: &str = "cloud.network.openshift.io";

pub(crate) fn net_namespace() -> CustomResourceDefinition {
    definition(
        NETWORK,
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
        NETWORK,
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

pub(crate) fn cloud_private_ip_config() -> CustomResourceDefinition {
    let node = |description: &str| json!({ "description": description, "type": "string" });
    let condition = json!({
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": { "type": "string", "format": "date-time" },
            "message": { "type": "string", "maxLength": 32_768 },
            "observedGeneration": { "type": "integer", "format": "int64", "minimum": 0 },
            "reason": {
                "type": "string", "minLength": 1, "maxLength": 1024,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            },
            "status": { "type": "string", "enum": ["True", "False", "Unknown"] },
            "type": { "type": "string", "maxLength": 316 },
        },
    });
    let mut definition = definition(
        CLOUD_NETWORK,
        "CloudPrivateIPConfig",
        &json!({
            "description": "An address on the primary interface of a node's instance; its name is the address.",
            "required": ["spec"],
            "properties": {
                "metadata": {
                    "type": "object",
                    "properties": { "name": {
                        "type": "string",
                        "anyOf": [{ "format": "ipv4" }, { "pattern": r"^[0-9a-f]{4}(\.[0-9a-f]{4}){7}$" }],
                    } },
                },
                "spec": { "type": "object", "properties": { "node": node("The node that should have the address.") } },
                "status": {
                    "type": "object",
                    "required": ["conditions"],
                    "properties": {
                        "node": node("The node that has the address, or is about to."),
                        "conditions": {
                            "description": "One condition, `Assigned`.", "type": "array", "items": condition,
                        },
                    },
                },
            },
        }),
        &[],
    );
    for version in &mut definition.spec.versions {
        let status = Some(CustomResourceSubresourceStatus(json!({})));
        version.subresources = Some(CustomResourceSubresources { status, ..CustomResourceSubresources::default() });
    }
    definition
}

pub(crate) fn egress_ip() -> CustomResourceDefinition {
    let expression = json!({
        "type": "object",
        "required": ["key", "operator"],
        "properties": {
            "key": { "type": "string" },
            "operator": { "type": "string" },
            "values": { "type": "array", "items": { "type": "string" } },
        },
    });
    let selector = |description: &str| {
        json!({
            "description": description,
            "type": "object",
            "properties": {
                "matchExpressions": { "type": "array", "items": expression },
                "matchLabels": { "type": "object", "additionalProperties": { "type": "string" } },
            },
        })
    };
    let item = json!({
        "type": "object",
        "required": ["egressIP", "node"],
        "properties": { "egressIP": { "type": "string" }, "node": { "type": "string" } },
    });
    let mut definition = definition(
        "k8s.ovn.org",
        "EgressIP",
        &json!({
            "description": "Addresses that the pods of selected namespaces leave with, in OVN-Kubernetes.",
            "required": ["spec"],
            "properties": {
                "spec": {
                    "type": "object",
                    "required": ["egressIPs", "namespaceSelector"],
                    "properties": {
                        "egressIPs": { "description": "The addresses.", "type": "array", "items": { "type": "string" } },
                        "namespaceSelector": selector("Namespaces whose pods leave with them."),
                        "podSelector": selector("Pods that leave with them. Empty: all of these namespaces."),
                    },
                },
                "status": {
                    "type": "object",
                    "required": ["items"],
                    "properties": {
                        "items": { "description": "Where addresses are.", "type": "array", "items": item },
                    },
                },
            },
        }),
        &[
            column("EgressIPs", "string", ".spec.egressIPs[*]"),
            column("Assigned Node", "string", ".status.items[*].node"),
            column("Assigned EgressIPs", "string", ".status.items[*].egressIP"),
        ],
    );
    definition.spec.names.short_names = Some(vec!["eip".to_owned()]);
    definition
}

fn addresses(description: &str) -> Value {
    json!({ "description": description, "type": "array", "items": { "type": "string", "pattern": ADDRESS } })
}

fn column(name: &str, kind: &str, path: &str) -> Value {
    json!({ "name": name, "type": kind, "jsonPath": path })
}

fn definition(group: &str, kind: &str, content: &Value, columns: &[Value]) -> CustomResourceDefinition {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    let mut schema = content.clone();
    schema["type"] = json!("object");
    schema["properties"]["apiVersion"] = json!({ "type": "string" });
    schema["properties"]["kind"] = json!({ "type": "string" });
    schema["properties"]["metadata"]["type"] = json!("object");
    let definition = json!({
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group,
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
    use crate::ipam::{CloudPrivateIpConfig, EgressIp, HostSubnet, NetNamespace};

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
    fn a_private_address_is_written_as_it_was_read() {
        let condition = json!({
            "type": "Assigned", "status": "True", "reason": "CloudResponseSuccess", "message": "",
            "observedGeneration": 1, "lastTransitionTime": "2026-11-17T12:00:00Z",
        });
        let wire = json!({
            "apiVersion": "cloud.network.openshift.io/v1", "kind": "CloudPrivateIPConfig",
            "metadata": { "name": "10.0.0.7" },
            "spec": { "node": "node-1" },
            "status": { "node": "node-1", "conditions": [condition] },
        });
        let read: CloudPrivateIpConfig = serde_json::from_value(wire.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), wire);
        let definition = cloud_private_ip_config();
        assert_eq!(definition.metadata.name.as_deref(), Some("cloudprivateipconfigs.cloud.network.openshift.io"));
        assert!(definition.spec.versions[0].subresources.as_ref().is_some_and(|found| found.status.is_some()));
    }

    #[test]
    fn an_egress_ip_is_written_as_it_was_read() {
        let wire = json!({
            "apiVersion": "k8s.ovn.org/v1", "kind": "EgressIP", "metadata": { "name": "shop" },
            "spec": {
                "egressIPs": ["10.0.0.7"],
                "namespaceSelector": { "matchLabels": { "kubernetes.io/metadata.name": "shop" } },
            },
            "status": { "items": [{ "node": "node-1", "egressIP": "10.0.0.7" }] },
        });
        let read: EgressIp = serde_json::from_value(wire.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), wire);
        assert!(egress_ip().spec.versions[0].subresources.is_none(), "its status is no subresource");
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
