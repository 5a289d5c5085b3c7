//! Which address each policy was granted, from records that can be trusted. Pure.
//!
//! Tenants may be able to write the status of their own policies, but neither claims nor the status of gateways.
//! So the status of a gateway counts, if there is a claim for the address. The status of the policy alone counts only
//! for an address that has a claim, and while the gateway does not list the policy: the status of the gateway is
//! written up to a second later, and lists 1,000 policies at most.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::ResourceExt;
use portolan_api::egress::{EgressGateway, EipEntry};
use portolan_core::egress::{Binding, Eip, GatewayName, NodeName, PolicyName};

use super::observe::Cache;
use super::validate::{CheckedGateway, PolicyView};

/// What the status of the gateways says was granted.
#[derive(Debug, Default)]
pub(super) struct GatewayGrants {
    bindings: BTreeMap<PolicyName, Binding>,
    /// The namespaces that each address serves.
    namespaces: BTreeMap<Eip, BTreeSet<Option<Arc<str>>>>,
    /// Gateways whose status the original wrote: what it granted has no claims yet.
    foreign: BTreeSet<GatewayName>,
}

impl GatewayGrants {
    /// Reads the status of all gateways.
    pub(super) fn read(cache: &Cache) -> Self {
        let mut shown = Self::default();
        cache.gateways.for_each(|_, gateway| shown.take(gateway));
        shown
    }

    fn take(&mut self, gateway: &EgressGateway) {
        let name: GatewayName = gateway.name_any().into();
        let status = gateway.status.as_ref();
        if status.is_none_or(|status| status.observed_generation.is_none()) {
            self.foreign.insert(name.clone());
        }
        for node in status.iter().flat_map(|status| &status.node_list) {
            for entry in if node.eips.is_empty() { &node.epis } else { &node.eips } {
                let EipEntry { ipv4, ipv6, policies } = entry;
                let eip = Eip { v4: ipv4.parse().ok(), v6: ipv6.parse().ok() };
                for policy in policies {
                    let namespace: Option<Arc<str>> =
                        Some(policy.namespace.as_str()).filter(|name| !name.is_empty()).map(Arc::from);
                    self.namespaces.entry(eip).or_default().insert(namespace.clone());
                    let policy = PolicyName { namespace, name: policy.name.as_str().into() };
                    let node = Some(node.name.as_str().into());
                    self.bindings.entry(policy).or_insert(Binding { eip, node, gateway: name.clone() });
                }
            }
        }
    }

    /// What a policy was granted; `own` is the gateway it uses, by name or by default.
    pub(super) fn granted(
        &self,
        cache: &Cache,
        view: PolicyView<'_>,
        own: Option<(&GatewayName, &CheckedGateway)>,
    ) -> Option<Binding> {
        let shown = self.bindings.get(&view.name());
        // A policy without status is new, even if the gateway still lists a deleted one of its name; but the original
        // wrote none.
        let counts = |shown: &&Binding| {
            self.foreign.contains(&shown.gateway)
                || (view.granted().is_some() && (shown.eip.is_none() || is_claimed(cache, shown.eip, &shown.gateway)))
        };
        shown.filter(counts).cloned().or_else(|| {
            let (name, gateway) = own?;
            let said = own_status(view, name)?;
            let lost = shown.is_some_and(|shown| (shown.eip, &shown.gateway) == (said.eip, name));
            let free = || !gateway.gateway.exclusive || !self.serves_another_namespace(said.eip, view);
            let believed = self.foreign.contains(name) || lost || (is_backed(cache, view, &said) && free());
            believed.then_some(said)
        })
    }

    fn serves_another_namespace(&self, eip: Eip, view: PolicyView<'_>) -> bool {
        let own = view.name().namespace;
        self.namespaces.get(&eip).is_some_and(|namespaces| namespaces.iter().any(|namespace| *namespace != own))
    }
}

/// What the status of a policy not seen before says it was granted, if there is a claim for it.
pub(super) fn granted_earlier(cache: &Cache, view: PolicyView<'_>, own: &GatewayName) -> Option<Binding> {
    own_status(view, own).filter(|said| is_backed(cache, view, said))
}

fn own_status(view: PolicyView<'_>, gateway: &GatewayName) -> Option<Binding> {
    let (eip, node) = view.granted()?;
    Some(Binding { eip, node: node.map(NodeName::from), gateway: gateway.clone() })
}

/// There is a claim for the address; or there is no address, as the policy uses the node's own.
fn is_backed(cache: &Cache, view: PolicyView<'_>, said: &Binding) -> bool {
    if said.eip.is_none() {
        return view.egress_ip.is_some_and(|asked| asked.use_node_ip == Some(true));
    }
    is_claimed(cache, said.eip, &said.gateway)
}

fn is_claimed(cache: &Cache, eip: Eip, gateway: &GatewayName) -> bool {
    eip.addresses().any(|address| cache.is_claimed_by(address, gateway))
}
