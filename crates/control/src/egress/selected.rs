//! Which pods each policy selects, which policies are shadowed by others, and the endpoints in slices. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use portolan_api::egress::Endpoint;
use portolan_core::egress::{CandidatePolicy, PolicyName, resolve_overlaps};
use portolan_core::select::{Labels, Selector};

use super::observe::Cache;
use super::slim::Pod;
use super::validate::{PolicyView, labels, selector};
use crate::runtime::store::Key;

/// The parsed selectors of a policy.
#[derive(Debug, Clone, PartialEq)]
struct Scope {
    pods: Pods,
    /// None: the policy's own namespace, or all of them for a cluster policy.
    namespaces: Option<Selector>,
    overlap: CandidatePolicy,
}

#[derive(Debug, Clone, PartialEq)]
enum Pods {
    ByLabel(Selector),
    ByAddress(Vec<IpNet>),
}

/// The selected pods of all policies, updated pod by pod.
#[derive(Debug, Default)]
pub(super) struct Selected {
    scopes: BTreeMap<PolicyName, Scope>,
    /// The policies of each pod that has any.
    by_pod: BTreeMap<Arc<Key>, Arc<[PolicyName]>>,
    /// The pods of each policy that has any.
    by_policy: BTreeMap<PolicyName, BTreeSet<Arc<Key>>>,
    /// Policies that apply to no pod and destination, and the policy that wins instead; none when no policy can.
    shadowed: BTreeMap<PolicyName, Option<PolicyName>>,
    /// Policies that select pods on the host network, which they cannot serve.
    on_host: BTreeMap<PolicyName, Arc<Key>>,
    /// `shadowed` must be computed again.
    stale: bool,
}

/// Why a policy applies nowhere.
pub(super) enum Shadow<'a> {
    /// This policy wins everywhere instead.
    Winner(&'a PolicyName),
    /// Every destination it names is one that no policy may serve.
    NeverServed,
}

/// The properties of a pod that policies select by.
struct Selectable {
    namespace: Labels,
    pod: Labels,
    addresses: Vec<IpAddr>,
}

impl Selectable {
    /// None when the pod has ended or is being deleted.
    fn of(cache: &Cache, key: &Key, pod: &Pod) -> Option<Self> {
        if pod.ended() || pod.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let namespace = cache.namespaces.get(&Key::of_cluster(&key.namespace));
        let namespace = namespace.map(|namespace| labels(&namespace.metadata)).unwrap_or_default();
        Some(Self { namespace, pod: labels(&pod.metadata), addresses: addresses(pod) })
    }
}

impl Selected {
    /// Adds a policy; [`Selected::all_pods`] finds its pods.
    pub(super) fn expect(&mut self, name: &PolicyName, view: PolicyView<'_>) {
        self.scopes.extend(Scope::of(name, view).map(|scope| (name.clone(), scope)));
    }

    /// Finds the policies of all pods.
    pub(super) fn all_pods(&mut self, cache: &Cache) {
        self.stale = true;
        let mut pods = Vec::new();
        cache.pods.for_each_key(|key| pods.push(key.clone()));
        for pod in pods {
            self.pod(cache, &pod);
        }
    }

    /// Updates or removes a policy; true when its slices may differ.
    pub(super) fn policy(&mut self, cache: &Cache, name: &PolicyName, view: Option<PolicyView<'_>>) -> bool {
        let scope = view.and_then(|view| Scope::of(name, view));
        if self.scopes.get(name) == scope.as_ref() {
            return false;
        }
        self.stale = true;
        for pod in self.by_policy.get(name).cloned().unwrap_or_default() {
            self.set(&pod, name, false);
        }
        self.on_host.remove(name);
        let Some(scope) = scope else {
            self.scopes.remove(name);
            return true;
        };
        let mut chosen = Vec::new();
        let visit = |key: &Arc<Key>, pod: &Arc<Pod>| {
            if Selectable::of(cache, key, pod).is_some_and(|candidate| scope.selects(&candidate)) {
                chosen.push((key.clone(), pod.spec.host_network));
            }
        };
        match &name.namespace {
            Some(namespace) => cache.pods.in_namespace(namespace, visit),
            None => cache.pods.for_each(visit),
        }
        self.scopes.insert(name.clone(), scope);
        for (pod, on_host) in chosen {
            if on_host {
                self.on_host.insert(name.clone(), pod);
            } else {
                self.set(&pod, name, true);
            }
        }
        true
    }

    /// Updates a pod; returns the policies whose slices may differ.
    pub(super) fn pod(&mut self, cache: &Cache, key: &Arc<Key>) -> BTreeSet<PolicyName> {
        let before = self.by_pod.get(key).cloned().unwrap_or_default();
        let pod = cache.pods.get(key);
        let candidate = pod.as_deref().and_then(|pod| Selectable::of(cache, key, pod));
        let mut after = candidate.map(|candidate| self.policies_of(key, &candidate)).unwrap_or_default();
        self.on_host.retain(|_, pod| pod != key);
        if pod.is_some_and(|pod| pod.spec.host_network) {
            self.on_host.extend(std::mem::take(&mut after).into_iter().map(|policy| (policy, key.clone())));
        }
        for gone in before.iter().filter(|policy| !after.contains(policy)) {
            self.set(key, gone, false);
        }
        for come in after.iter().filter(|policy| !before.contains(policy)) {
            self.set(key, come, true);
        }
        before.iter().cloned().chain(after).collect()
    }

    fn policies_of(&self, key: &Key, candidate: &Selectable) -> Vec<PolicyName> {
        let from = PolicyName { namespace: Some(key.namespace.as_str().into()), name: "".into() };
        let in_namespace = |policy: &PolicyName| policy.namespace.as_deref() == Some(&key.namespace);
        let of_namespace = self.scopes.range(from..).take_while(|(policy, _)| in_namespace(policy));
        let of_cluster = self.scopes.iter().take_while(|(policy, _)| policy.namespace.is_none());
        let chosen = of_cluster.chain(of_namespace).filter(|(_, scope)| scope.selects(candidate));
        chosen.map(|(policy, _)| policy.clone()).collect()
    }

    /// Records that a policy selects a pod, or no longer does.
    fn set(&mut self, pod: &Arc<Key>, policy: &PolicyName, selects: bool) {
        self.stale = true;
        let (pod, before) = self.by_pod.remove_entry(pod).unwrap_or_else(|| (pod.clone(), Arc::default()));
        let mut policies: BTreeSet<PolicyName> = before.iter().cloned().collect();
        if selects {
            policies.insert(policy.clone());
            self.by_policy.entry(policy.clone()).or_default().insert(pod.clone());
        } else {
            policies.remove(policy);
            if let Some(pods) = self.by_policy.get_mut(policy) {
                pods.remove(&pod);
                if pods.is_empty() {
                    self.by_policy.remove(policy);
                }
            }
        }
        if !policies.is_empty() {
            self.by_pod.insert(pod, policies.into_iter().collect());
        }
    }

    /// Computes the shadowed policies again; returns those for which that changed.
    pub(super) fn update_shadowed(&mut self) -> BTreeSet<PolicyName> {
        if !std::mem::take(&mut self.stale) {
            return BTreeSet::new();
        }
        let classes: BTreeSet<&Arc<[PolicyName]>> = self.by_pod.values().collect();
        let (mut wins, mut loses) = (BTreeSet::new(), BTreeMap::new());
        for class in classes {
            let members = class.iter().filter_map(|policy| Some(self.scopes.get(policy)?.overlap.clone()));
            let outcome = resolve_overlaps(&members.collect::<Vec<_>>());
            loses.extend(outcome.shadowed.iter().map(|(loser, winner)| (loser.clone(), winner.clone())));
            wins.extend(class.iter().filter(|policy| !outcome.shadowed.contains_key(*policy)).cloned());
        }
        loses.retain(|policy, _| !wins.contains(policy));
        let before = std::mem::replace(&mut self.shadowed, loses);
        let differs = |policy: &&PolicyName| before.get(*policy) != self.shadowed.get(*policy);
        before.keys().chain(self.shadowed.keys()).filter(differs).cloned().collect()
    }

    /// Why this policy applies nowhere, if so.
    pub(super) fn shadowed_by(&self, policy: &PolicyName) -> Option<Shadow<'_>> {
        self.shadowed.get(policy).map(|winner| winner.as_ref().map_or(Shadow::NeverServed, Shadow::Winner))
    }

    /// A pod on the host network that the policy selects and cannot serve.
    pub(super) fn on_host(&self, policy: &PolicyName) -> Option<&Key> {
        self.on_host.get(policy).map(AsRef::as_ref)
    }

    /// The policies that select a pod.
    pub(super) fn of_pod(&self, pod: &Key) -> &[PolicyName] {
        self.by_pod.get(pod).map(AsRef::as_ref).unwrap_or_default()
    }

    /// The overlap rules' view of a policy.
    pub(super) fn overlapping(&self, policy: &PolicyName) -> Option<&CandidatePolicy> {
        self.scopes.get(policy).map(|scope| &scope.overlap)
    }

    /// The pods of a policy, as slices list them.
    pub(super) fn endpoints(&self, cache: &Cache, policy: &PolicyName) -> Vec<Endpoint> {
        let pods = self.by_policy.get(policy).into_iter().flatten();
        pods.filter_map(|key| endpoint(key, &*cache.pods.get(key)?)).collect()
    }
}

impl Scope {
    /// None when the policy selects nothing, or its selectors are invalid.
    fn of(name: &PolicyName, view: PolicyView<'_>) -> Option<Self> {
        let by_label = view.applied_to.pod_selector.as_ref().and_then(|wanted| selector(wanted).ok());
        let subnets: Vec<IpNet> = view.applied_to.pod_subnet.iter().filter_map(|subnet| subnet.parse().ok()).collect();
        let pods = match by_label.filter(|selector| !selector.is_empty()) {
            Some(_) if !subnets.is_empty() => return None,
            Some(selector) => Pods::ByLabel(selector),
            None if subnets.is_empty() => return None,
            None => Pods::ByAddress(subnets),
        };
        let namespaces = view.applied_to.namespace_selector.as_ref().filter(|_| view.of_cluster);
        let namespaces = namespaces.and_then(|wanted| selector(wanted).ok());
        let destinations = view.dest_subnet.iter().filter_map(|subnet| subnet.parse().ok()).collect();
        let overlap =
            CandidatePolicy { name: name.clone(), priority: view.priority, created: view.created(), destinations };
        Some(Self { pods, namespaces, overlap })
    }

    fn selects(&self, candidate: &Selectable) -> bool {
        let Selectable { namespace, pod, addresses } = candidate;
        self.namespaces.as_ref().is_none_or(|selector| selector.matches(namespace))
            && match &self.pods {
                Pods::ByLabel(selector) => selector.matches(pod),
                Pods::ByAddress(subnets) => {
                    addresses.iter().any(|address| subnets.iter().any(|subnet| subnet.contains(address)))
                }
            }
    }
}

/// The addresses of a pod.
pub(super) fn addresses(pod: &Pod) -> Vec<IpAddr> {
    pod.status.pod_ips.iter().filter_map(|address| address.ip.parse().ok()).collect()
}

/// None until the pod has an address and a node.
fn endpoint(key: &Key, pod: &Pod) -> Option<Endpoint> {
    let (ipv6, ipv4): (Vec<_>, Vec<_>) =
        addresses(pod).iter().map(ToString::to_string).partition(|address| address.contains(':'));
    if pod.spec.node_name.is_empty() || (ipv4.is_empty() && ipv6.is_empty()) {
        return None;
    }
    Some(Endpoint { ns: key.namespace.clone(), pod: key.name.clone(), ipv4, ipv6, node: pod.spec.node_name.clone() })
}
