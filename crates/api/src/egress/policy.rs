//! EgressPolicy and EgressClusterPolicy: which pods leave the cluster with which address.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector};
use kube::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::schema;

/// Lets pods of this namespace leave the cluster with an address of a gateway.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[kube(
    group = "egressgateway.spidernet.io",
    version = "v1beta1",
    kind = "EgressPolicy",
    plural = "egresspolicies",
    shortname = "egp",
    category = "egresspolicy",
    namespaced,
    status = "EgressPolicyStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "gateway", type_ = "string", json_path = ".spec.egressGatewayName"),
    printcolumn(name = "ipv4", type_ = "string", json_path = ".status.eip.ipv4"),
    printcolumn(name = "ipv6", type_ = "string", json_path = ".status.eip.ipv6"),
    printcolumn(name = "egressNode", type_ = "string", json_path = ".status.node"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.status=="False")].reason"#),
    printcolumn(name = "Message", type_ = "string", json_path = r#".status.conditions[?(@.status=="False")].message"#)
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = immutable)]
pub struct EgressPolicySpec {
    /// The EgressGateway to leave through. Empty means the one that the namespace's label
    /// `spidernet.io/egressgateway-default` names, else the gateway with `clusterDefault`. Cannot change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_gateway_name: Option<String>,
    /// Which address to leave with. Empty means the gateway's default address.
    #[serde(default, rename = "egressIP", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "egress_ip")]
    pub egress_ip: Option<EgressIp>,
    /// Which pods.
    #[schemars(schema_with = "pods")]
    pub applied_to: AppliedTo,
    /// Destinations. Empty means every destination outside the cluster; otherwise exactly these, inside or outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::subnets")]
    pub dest_subnet: Vec<String>,
    /// Where policies overlap, the higher priority wins; then the longer destination prefix, then an EgressPolicy over
    /// an EgressClusterPolicy, then the older one. Empty means 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub priority: Option<i64>,
}

/// Lets pods of many namespaces leave the cluster with an address of a gateway.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[kube(
    group = "egressgateway.spidernet.io",
    version = "v1beta1",
    kind = "EgressClusterPolicy",
    plural = "egressclusterpolicies",
    shortname = "egcp",
    category = "egressclusterpolicy",
    status = "EgressPolicyStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(name = "gateway", type_ = "string", json_path = ".spec.egressGatewayName"),
    printcolumn(name = "ipv4", type_ = "string", json_path = ".status.eip.ipv4"),
    printcolumn(name = "ipv6", type_ = "string", json_path = ".status.eip.ipv6"),
    printcolumn(name = "egressTunnel", type_ = "string", json_path = ".status.node"),
    printcolumn(name = "Ready", type_ = "string", json_path = r#".status.conditions[?(@.type=="Ready")].status"#),
    printcolumn(name = "Reason", type_ = "string", json_path = r#".status.conditions[?(@.status=="False")].reason"#),
    printcolumn(name = "Message", type_ = "string", json_path = r#".status.conditions[?(@.status=="False")].message"#)
)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = immutable)]
pub struct EgressClusterPolicySpec {
    /// The EgressGateway to leave through. Empty means the gateway with `clusterDefault`. Cannot change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_gateway_name: Option<String>,
    /// Which address to leave with. Empty means the gateway's default address.
    #[serde(default, rename = "egressIP", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "egress_ip")]
    pub egress_ip: Option<EgressIp>,
    /// Which pods.
    #[schemars(schema_with = "cluster_pods")]
    pub applied_to: AppliedTo,
    /// Destinations. Empty means every destination outside the cluster; otherwise exactly these, inside or outside.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::subnets")]
    pub dest_subnet: Vec<String>,
    /// Where policies overlap, the higher priority wins; then the longer destination prefix, then an EgressPolicy over
    /// an EgressClusterPolicy, then the older one. Empty means 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub priority: Option<i64>,
}

/// Which address to leave with.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EgressIp {
    /// An address of the gateway's pool. Empty means that the allocator policy chooses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<String>,
    /// An IPv6 address of the gateway's pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<String>,
    /// Leave with the gateway node's own address.
    #[serde(default, rename = "useNodeIP", skip_serializing_if = "Option::is_none")]
    pub use_node_ip: Option<bool>,
    /// How an address is chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocator_policy: Option<String>,
    /// How many policies share an address, with allocator policy `Limit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u16>,
}

/// Which pods a policy is for. A selector without any term selects nothing.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AppliedTo {
    /// Pods by label.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_selector: Option<LabelSelector>,
    /// Pods by address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pod_subnet: Vec<String>,
    /// Namespaces by label; of an EgressClusterPolicy only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_selector: Option<LabelSelector>,
}

/// What a policy was granted.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct EgressPolicyStatus {
    /// The address. Empty until there is one, and with `useNodeIP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eip: Option<GrantedEip>,
    /// The gateway node. Empty while no gateway node is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Accepted, Programmed and Ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "schema::conditions")]
    pub conditions: Vec<Condition>,
}

/// A granted address, or a pair.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
pub struct GrantedEip {
    /// IPv4 half.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv4: Option<String>,
    /// IPv6 half.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6: Option<String>,
}

/// The gateway, and what kind of address is asked for, stay as they were created.
fn immutable(schema: &mut Schema) {
    let same = |field: &str, message: &str| {
        let path = field.rsplit_once('.');
        let has = |root: &str| match path {
            Some((parent, _)) => format!("has({root}.{parent}) && has({root}.{field})"),
            None => format!("has({root}.{field})"),
        };
        json_schema!({
            "rule": format!("({} ? self.{field} : '') == ({} ? oldSelf.{field} : '')", has("self"), has("oldSelf")),
            "message": message,
            "reason": "FieldValueForbidden"
        })
    };
    let mut rules = vec![same(
        "egressGatewayName",
        "egressGatewayName cannot change: delete the policy and create it for the other gateway",
    )];
    for field in ["egressIP.ipv4", "egressIP.ipv6", "egressIP.allocatorPolicy"] {
        let message = format!("{field} cannot change: delete the policy and create it anew");
        rules.push(same(field, &message));
    }
    rules.push(json_schema!({
        "rule": "(has(self.egressIP) && has(self.egressIP.useNodeIP) && self.egressIP.useNodeIP) == \
                 (has(oldSelf.egressIP) && has(oldSelf.egressIP.useNodeIP) && oldSelf.egressIP.useNodeIP)",
        "message": "egressIP.useNodeIP cannot change: delete the policy and create it anew",
        "reason": "FieldValueForbidden"
    }));
    schema.insert("x-kubernetes-validations".to_owned(), rules.into_iter().map(Schema::to_value).collect());
}

fn egress_ip(_: &mut SchemaGenerator) -> Schema {
    let address = |family: u8, other: &str| {
        json_schema!({
            "description": format!(
                "An IPv{family} address of the gateway's pool. Empty means that allocatorPolicy chooses{other}. Cannot change."
            ),
            "type": "string",
            "maxLength": 45,
            "x-kubernetes-validations": [{
                "rule": format!("self == '' || (isIP(self) && ip(self).family() == {family})"),
                "message": format!("not an IPv{family} address")
            }]
        })
    };
    json_schema!({
        "type": "object",
        "default": { "useNodeIP": false, "allocatorPolicy": "default" },
        "properties": {
            "ipv4": address(4, ""),
            "ipv6": address(6, ", or the pair of the IPv4 address"),
            "useNodeIP": {
                "description": "Leave with the gateway node's own address instead of one of the pool. Cannot change.",
                "type": "boolean",
                "default": false
            },
            "allocatorPolicy": {
                "description": "How an address is chosen when none is given: `default` (the gateway's default address), \
                    `rr` or `PreferUnallocated` (the lowest unused one, else any), `Random` (any), or `Limit` (one that \
                    serves fewer than `limit` policies). Upper and lower case are the same; any other word means \
                    `default`. Cannot change.",
                "type": "string",
                "maxLength": 64,
                "default": "default"
            },
            "limit": {
                "description": "How many policies share an address, with allocator policy `Limit`. Empty means 5.",
                "type": "integer",
                "minimum": 1,
                "maximum": 65535
            }
        },
        "x-kubernetes-validations": [{
            "rule": "!(has(self.useNodeIP) && self.useNodeIP) || \
                     ((!has(self.ipv4) || self.ipv4 == '') && (!has(self.ipv6) || self.ipv6 == ''))",
            "message": "useNodeIP leaves with the node's own address: remove ipv4 and ipv6, or useNodeIP"
        }]
    })
}

fn pods(generator: &mut SchemaGenerator) -> Schema {
    applied_to(generator, false)
}

fn cluster_pods(generator: &mut SchemaGenerator) -> Schema {
    applied_to(generator, true)
}

fn applied_to(generator: &mut SchemaGenerator, of_cluster: bool) -> Schema {
    let described = |mut schema: Schema, text: &str| {
        schema.insert("description".to_owned(), text.into());
        schema.to_value()
    };
    let mut properties = serde_json::Map::new();
    let pods = "Pods by label. Must have a term, unless podSubnet is given.";
    properties.insert("podSelector".to_owned(), described(schema::selector(generator), pods));
    let subnet = "Pods by address: every pod of the policy's scope whose address lies inside. Excludes podSelector.";
    properties.insert("podSubnet".to_owned(), described(schema::subnets(generator), subnet));
    if of_cluster {
        let namespaces = "Namespaces by label. Empty means all namespaces.";
        properties.insert("namespaceSelector".to_owned(), described(schema::selector(generator), namespaces));
    }
    let selects = "has(self.podSelector) && ((has(self.podSelector.matchLabels) && self.podSelector.matchLabels.size() > 0) || \
                   (has(self.podSelector.matchExpressions) && self.podSelector.matchExpressions.size() > 0))";
    let lists = "has(self.podSubnet) && self.podSubnet.size() > 0";
    json_schema!({
        "type": "object",
        "properties": properties,
        "x-kubernetes-validations": [
            {
                "rule": format!("!(({selects}) && ({lists}))"),
                "message": "podSelector and podSubnet exclude each other: remove one"
            },
            {
                "rule": format!("({selects}) || ({lists})"),
                "message": "no pod is selected: give podSelector a label, or list podSubnet"
            }
        ]
    })
}
