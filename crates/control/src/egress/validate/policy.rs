//! EgressPolicy and EgressClusterPolicy -> a checked policy. Both kinds are seen alike, through [`PolicyView`].

use std::net::IpAddr;
use std::sync::Arc;

use kube::api::ObjectMeta;
use portolan_api::egress::{AppliedTo, EgressClusterPolicy, EgressIp, EgressPolicy, EgressPolicyStatus};
use portolan_api::well_known::{egress as words, reasons};
use portolan_core::egress::{AddressRequest, Eip, GatewayName, Policy, PolicyName};
use portolan_core::select::Labels;

use super::words::ask;
use super::{Gateways, Problem, selector};

/// What both kinds of policy have in common.
#[derive(Debug, Clone, Copy)]
pub(in crate::egress) struct PolicyView<'a> {
    pub(in crate::egress) metadata: &'a ObjectMeta,
    pub(in crate::egress) of_cluster: bool,
    pub(in crate::egress) gateway: Option<&'a str>,
    pub(in crate::egress) egress_ip: Option<&'a EgressIp>,
    pub(in crate::egress) applied_to: &'a AppliedTo,
    pub(in crate::egress) dest_subnet: &'a [String],
    pub(in crate::egress) priority: i64,
    pub(in crate::egress) status: Option<&'a EgressPolicyStatus>,
}

/// The two kinds have the same fields, and no type in common.
macro_rules! view {
    ($kind:ident, of_cluster: $of_cluster:literal) => {
        impl<'a> From<&'a $kind> for PolicyView<'a> {
            fn from(policy: &'a $kind) -> Self {
                Self {
                    metadata: &policy.metadata,
                    of_cluster: $of_cluster,
                    gateway: policy.spec.egress_gateway_name.as_deref(),
                    egress_ip: policy.spec.egress_ip.as_ref(),
                    applied_to: &policy.spec.applied_to,
                    dest_subnet: &policy.spec.dest_subnet,
                    priority: policy.spec.priority.unwrap_or_default(),
                    status: policy.status.as_ref(),
                }
            }
        }
    };
}

view!(EgressPolicy, of_cluster: false);
view!(EgressClusterPolicy, of_cluster: true);

impl PolicyView<'_> {
    /// The planner's name for it.
    pub(in crate::egress) fn name(&self) -> PolicyName {
        let namespace = self.metadata.namespace.as_deref().filter(|_| !self.of_cluster);
        PolicyName {
            namespace: namespace.map(Arc::from),
            name: self.metadata.name.as_deref().unwrap_or_default().into(),
        }
    }

    /// When it was created, in seconds.
    pub(in crate::egress) fn created(&self) -> i64 {
        self.metadata.creation_timestamp.as_ref().map_or(i64::MAX, |time| time.0.as_second())
    }

    /// What its status records as granted.
    pub(in crate::egress) fn granted(&self) -> Option<(Eip, Option<&str>)> {
        let status = self.status?;
        let eip = status.eip.as_ref();
        let granted = Eip {
            v4: eip.and_then(|eip| eip.ipv4.as_deref()?.parse().ok()),
            v6: eip.and_then(|eip| eip.ipv6.as_deref()?.parse().ok()),
        };
        let node = status.node.as_deref().filter(|node| !node.is_empty());
        (!granted.is_none() || node.is_some()).then_some((granted, node))
    }
}

/// How a policy stands before planning.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::egress) struct Standing {
    /// As the planner takes it; none when it may not even keep what it has.
    pub(in crate::egress) policy: Option<Policy>,
    pub(in crate::egress) problem: Option<Problem>,
}

/// Checks one policy. `namespace` are the labels of its namespace; `recorded` is the gateway that granted what its
/// status records.
pub(in crate::egress) fn policy(
    view: PolicyView<'_>,
    namespace: &Labels,
    gateways: &Gateways,
    recorded: Option<&GatewayName>,
) -> Standing {
    let resolved = resolve(view, namespace, gateways);
    let gateway = resolved.clone().or_else(|| recorded.cloned());
    let checked = gateway.as_ref().and_then(|name| gateways.by_name.get(name));
    let (explicit, own) = match own_problem(view) {
        Ok(explicit) => (explicit, None),
        Err(problem) => (Eip::default(), Some(problem)),
    };
    if let Some(allowed) = checked.and_then(|checked| checked.allowed.as_ref())
        && !allowed.matches(namespace)
    {
        let gateway = gateway.as_deref().unwrap_or_default();
        let message = format!(
            "gateway `{gateway}` is not for this namespace: its annotation {} says for which it is",
            words::ALLOWED_NAMESPACES
        );
        return Standing { policy: None, problem: Some(Problem::new(reasons::NOT_ALLOWED, message)) };
    }
    let no_gateway = || match resolved.as_ref() {
        None => {
            let message = "no gateway: set spec.egressGatewayName, label the namespace spidernet.io/egressgateway-default, or set clusterDefault on a gateway";
            Some(Problem::new(reasons::GATEWAY_NOT_FOUND, message))
        }
        Some(name) if !gateways.by_name.contains_key(name) => {
            let message = format!("gateway `{name}` does not exist: create it, or name another");
            Some(Problem::new(reasons::GATEWAY_NOT_FOUND, message))
        }
        Some(_) => None,
    };
    let refusal = checked.and_then(|checked| checked.refusal(recorded == gateway.as_ref()));
    let refused = own.is_some() || resolved.is_none() || refusal.is_some();
    let gateways_own = || {
        let (name, Problem { reason, message }) = (gateway.as_deref()?, refusal?);
        let message = format!("gateway `{name}` is not accepted, so it grants nothing new: {message}");
        Some(Problem::new(reason, message))
    };
    let problem = own.or_else(no_gateway).or_else(gateways_own);
    let policy = Policy {
        uid: view.metadata.uid.as_deref().unwrap_or_default().into(),
        gateway: gateway.unwrap_or_else(|| GatewayName::from("")),
        created: view.created(),
        request: if refused && explicit.is_none() { recorded_ask(view) } else { ask(view.egress_ip, explicit) },
        refused,
    };
    Standing { policy: Some(policy), problem }
}

/// What a refused policy counts as asking for: what it has.
fn recorded_ask(view: PolicyView<'_>) -> AddressRequest {
    match view.granted() {
        Some((eip, _)) if eip.is_none() => AddressRequest::NodeAddress,
        Some(_) | None => ask(view.egress_ip, Eip::default()),
    }
}

/// The gateway that a policy names, or that its namespace or the cluster gives it.
pub(in crate::egress) fn resolve(view: PolicyView<'_>, namespace: &Labels, gateways: &Gateways) -> Option<GatewayName> {
    let named = view.gateway.filter(|name| !name.is_empty());
    let of_namespace = || namespace.get(words::NAMESPACE_DEFAULT).filter(|name| !name.is_empty() && !view.of_cluster);
    named.or_else(of_namespace).map(GatewayName::from).or_else(|| gateways.default.clone())
}

/// What the API server's own rules say, once more; the explicit address if all is well.
fn own_problem(view: PolicyView<'_>) -> Result<Eip, Problem> {
    let invalid = |message: String| Problem::new(reasons::INVALID, message);
    let given = |text: Option<&String>| text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    let mut explicit = Eip::default();
    if let Some(egress_ip) = view.egress_ip {
        if let Some(text) = given(egress_ip.ipv4.as_ref()) {
            let parsed =
                text.parse().map_err(|_| invalid(format!("spec.egressIP.ipv4: `{text}` is not an IPv4 address")))?;
            explicit.v4 = Some(parsed);
        }
        if let Some(text) = given(egress_ip.ipv6.as_ref()) {
            let parsed =
                text.parse().map_err(|_| invalid(format!("spec.egressIP.ipv6: `{text}` is not an IPv6 address")))?;
            explicit.v6 = Some(parsed);
        }
        if egress_ip.use_node_ip == Some(true) && !explicit.is_none() {
            return Err(invalid(
                "spec.egressIP: useNodeIP leaves with the node's own address: remove ipv4 and ipv6, or useNodeIP"
                    .to_owned(),
            ));
        }
    }
    let AppliedTo { pod_selector, pod_subnet, namespace_selector } = view.applied_to;
    let pods = pod_selector.as_ref().map(selector).transpose();
    let pods = pods.map_err(|what| invalid(format!("spec.appliedTo.podSelector: {what}")))?;
    let selects = pods.is_some_and(|selector| !selector.is_empty());
    match (selects, !pod_subnet.is_empty()) {
        (true, true) => {
            return Err(invalid("spec.appliedTo: podSelector and podSubnet exclude each other: remove one".to_owned()));
        }
        (false, false) => {
            return Err(invalid(
                "spec.appliedTo: no pod is selected: give podSelector a label, or list podSubnet".to_owned(),
            ));
        }
        (true, false) | (false, true) => {}
    }
    if let Some(namespaces) = namespace_selector {
        selector(namespaces).map_err(|what| invalid(format!("spec.appliedTo.namespaceSelector: {what}")))?;
    }
    for (field, subnets) in [("appliedTo.podSubnet", pod_subnet.as_slice()), ("destSubnet", view.dest_subnet)] {
        if subnets.len() > 1_000 {
            return Err(invalid(format!(
                "spec.{field}: {} items are more than 1000: merge ranges, or split the policy",
                subnets.len()
            )));
        }
        for subnet in subnets {
            if !is_cidr(subnet) {
                return Err(invalid(format!(
                    "spec.{field}: `{subnet}` is not a CIDR: write it like 10.1.0.0/16 or fd00:1::/64"
                )));
            }
        }
    }
    if view.priority < 0 {
        return Err(invalid(format!("spec.priority: {} is negative: write 0 or more", view.priority)));
    }
    Ok(explicit)
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let (Ok(address), Ok(length)) = (address.parse::<IpAddr>(), length.parse::<u8>()) else { return false };
    length <= if address.is_ipv4() { 32 } else { 128 }
}
