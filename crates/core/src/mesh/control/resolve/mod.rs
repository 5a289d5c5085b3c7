//! The resolver: keeps the world and everything computed from it, and recomputes only what a change may affect.
//!
//! ```text
//! World --> pod sets --> Targets, generated Targets --> Routes --> VirtualServices, Rules --> assignments to proxies
//! ```
//! Every node records what it reads ([`dependencies`]); a change invalidates the readers, in the order above. A change
//! followed by [`Resolver::plan`] gives the same result as planning the changed world from scratch: a property test
//! checks this.

mod assignment;
mod callee;
mod compile;
mod compiled;
mod cycles;
mod dependencies;
mod evaluate;
mod explain;
mod generate;
mod place;
mod pod_sets;
mod queries;
mod refs;
mod serve;
mod sets;
mod state;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::dependencies::{Dependency, GraphNode, PodSetId};
use self::pod_sets::{PodChange, set_member};
use self::state::Normal;
use super::names;
use super::normalize::{self, Normalized};
use super::types::{MeshKind, ObjectName, VirtualService};
use super::wire::{ConfigKind, ProxyConfig};
use super::world::{Change, MeshObject, Pod, Transport, World};

pub use self::explain::ResolvedReference;
pub use self::generate::{GeneratedObject, Owner};
pub use self::state::{Affected, Resolver};
pub use self::status::ObjectStatus;

/// The desired state.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// The configuration of each proxy; proxies without any are left out.
    pub desired: BTreeMap<ObjectName, ProxyConfig>,
    /// The status of each of the users' objects.
    pub statuses: BTreeMap<(MeshKind, ObjectName), ObjectStatus>,
    /// Objects that should be generated.
    pub generated: BTreeMap<(MeshKind, ObjectName), GeneratedObject>,
    /// Generated objects that exist and are no longer needed.
    pub unused: BTreeSet<(MeshKind, ObjectName)>,
    /// Generated objects that users have edited: they lose the label that marks them as generated.
    pub taken_over: BTreeSet<(MeshKind, ObjectName)>,
}

/// Plans a world from scratch. Total and deterministic.
pub fn plan(world: &World) -> Plan {
    Resolver::new(world.clone()).plan()
}

impl Resolver {
    /// Resolves a world.
    pub fn new(world: World) -> Self {
        let mut resolver = Self { world, ..Self::default() };
        let World { slices, pods, .. } = &resolver.world;
        for (name, slice) in slices {
            let service = ObjectName::new(Arc::clone(&name.namespace), Arc::clone(&slice.service));
            set_member(&mut resolver.slices_of, service, name.clone(), true);
        }
        resolver.proxy_roles = pods.iter().map(|(name, pod)| (name.clone(), pod.proxy_role())).collect();
        for (name, pod) in pods {
            resolver.index.update(name, pod, true);
            update_host_ports(&mut resolver.host_ports, name, pod, true);
        }
        let objects: Vec<(MeshKind, ObjectName)> = resolver.world.objects.keys().cloned().collect();
        for (kind, name) in objects {
            resolver.normalize_object(kind, &name);
        }
        resolver.evaluate_dirty();
        (resolver.affected, resolver.is_resolved) = (Affected::default(), true);
        resolver
    }

    /// Applies a change and returns what it affects.
    pub fn change(&mut self, change: Change) -> Affected {
        match self.world.with_shared_namespace(change) {
            Change::Object(kind, name, object) => self.change_object(kind, name, object),
            Change::Service(name, service) => {
                if self.world.apply(Change::Service(name.clone(), service)) {
                    self.invalidate(&Dependency::Service(name.clone()));
                    self.mark_generated_service(&name);
                }
            }
            Change::Slice(name, slice) => self.change_slice(&name, slice),
            Change::Pod(name, pod) => self.change_pod(&name, pod),
            Change::Namespace(name, annotations) => {
                if self.world.apply(Change::Namespace(Arc::clone(&name), annotations)) {
                    self.invalidate(&Dependency::Namespace(name));
                    self.invalidate(&Dependency::AnyNamespace);
                }
            }
            Change::Proxy(name, info) => {
                // a proxy that has not answered yet is assumed to be Portolan's, which is also the default
                let reported = |world: &World| world.proxies.get(&name).cloned().unwrap_or_default();
                let before = reported(&self.world);
                self.world.apply(Change::Proxy(name.clone(), info));
                let differs = reported(&self.world) != before;
                if let Some(pod) = self.world.pods.get(&name).filter(|_| differs) {
                    let candidates = self.index.candidates(&name, pod);
                    self.update_membership(
                        &name,
                        candidates,
                        PodChange { placement_changed: true, address_changed: false },
                    );
                    self.mark_all(&name);
                }
            }
            change @ Change::ClusterAddresses { .. } => {
                if self.world.apply(change) {
                    self.invalidate_all();
                }
            }
            change @ Change::WritesGenerated(_) => {
                if self.world.apply(change) {
                    let users = self.generated_users.values().flat_map(|users| users.users.keys());
                    self.affected.objects.extend(users.cloned());
                }
            }
        }
        self.evaluate_dirty();
        std::mem::take(&mut self.affected)
    }

    /// Marks everything for evaluation, because the allowed endpoints have changed.
    fn invalidate_all(&mut self) {
        let Self { objects, generated, dirty, .. } = self;
        dirty.extend(objects.targets.keys().cloned().map(GraphNode::Target));
        dirty.extend(generated.keys().cloned().map(GraphNode::Generated));
        dirty.extend(objects.routes.keys().cloned().map(GraphNode::Route));
        dirty.extend(objects.virtual_services.keys().cloned().map(GraphNode::VirtualService));
        dirty.extend(objects.rules.keys().cloned().map(GraphNode::Rule));
    }

    /// The current world.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The number of evaluations so far: the cost of changes.
    pub fn evaluations(&self) -> u64 {
        self.evaluations
    }

    /// The complete plan.
    pub fn plan(&self) -> Plan {
        let mut plan = Plan::default();
        for pod in self.assignments.keys() {
            let config = self.desired(pod);
            if !config.is_empty() {
                plan.desired.insert(pod.clone(), config);
            }
        }
        for (kind, name) in self.world.objects.keys() {
            plan.statuses.extend(self.status(*kind, name).map(|verdict| ((*kind, name.clone()), verdict)));
        }
        plan.generated = self.all_generated();
        for ((kind, name), object) in &self.world.objects {
            let key = (*kind, name.clone());
            match origin(object) {
                ObjectOrigin::User => {}
                ObjectOrigin::TakenOver => drop(plan.taken_over.insert(key)),
                ObjectOrigin::Generated if plan.generated.contains_key(&key) => {}
                ObjectOrigin::Generated => drop(plan.unused.insert(key)),
            }
        }
        plan
    }

    fn change_object(&mut self, kind: MeshKind, name: ObjectName, object: Option<MeshObject>) {
        let visible = |resolver: &Self| {
            let object = resolver.world.objects.get(&(kind, name.clone()));
            let annotations =
                object.filter(|_| resolver.is_user_object(kind, &name)).map(|object| object.annotations.clone());
            let found = resolver.virtual_service(&name).filter(|_| kind == MeshKind::VirtualService);
            let callee = |one: &Arc<VirtualService>| {
                (one.listener.clone(), one.selector.clone(), one.extensions.tls.clone(), one.is_proxy_type())
            };
            (annotations, found.map(callee))
        };
        let before = visible(self);
        if !self.world.apply(Change::Object(kind, name.clone(), object)) {
            return;
        }
        self.normalize_object(kind, &name);
        self.affected.generated.insert((kind, name.clone()));
        self.affected.objects.insert((kind, name.clone()));
        if visible(self) != before {
            self.invalidate(&Dependency::Object(kind, name));
        }
    }

    /// Reads an object into the normal form.
    fn normalize_object(&mut self, kind: MeshKind, name: &ObjectName) {
        let object =
            self.world.objects.get(&(kind, name.clone())).filter(|object| origin(object) != ObjectOrigin::Generated);
        let spec = object.map(|object| Arc::clone(&object.spec));
        let node = match kind {
            MeshKind::VirtualService => {
                store_normalized(
                    &mut self.objects.virtual_services,
                    name,
                    spec.map(|spec| normalize::virtual_service(&spec)),
                );
                GraphNode::VirtualService(name.clone())
            }
            MeshKind::Route => {
                store_normalized(&mut self.objects.routes, name, spec.map(|spec| normalize::route(&spec)));
                GraphNode::Route(name.clone())
            }
            MeshKind::Target => {
                store_normalized(&mut self.objects.targets, name, spec.map(|spec| normalize::target(&spec)));
                GraphNode::Target(name.clone())
            }
            MeshKind::Rule => {
                store_normalized(&mut self.objects.rules, name, spec.map(|spec| normalize::rule(&spec)));
                GraphNode::Rule(name.clone())
            }
            MeshKind::Service => return,
        };
        self.dirty.insert(node);
    }

    fn change_slice(&mut self, name: &ObjectName, slice: Option<super::world::EndpointSlice>) {
        let of = |resolver: &Self| {
            let slice = resolver.world.slices.get(name);
            slice.map(|slice| ObjectName::new(Arc::clone(&name.namespace), Arc::clone(&slice.service)))
        };
        let before = of(self);
        if !self.world.apply(Change::Slice(name.clone(), slice)) {
            return;
        }
        let after = of(self);
        for (service, present) in [(before, false), (after, true)] {
            if let Some(service) = service {
                set_member(&mut self.slices_of, service.clone(), name.clone(), present);
                self.mark_generated_service(&service);
                self.invalidate(&Dependency::Slices(service));
            }
        }
    }

    fn change_pod(&mut self, name: &ObjectName, pod: Option<Pod>) {
        let before = self.world.pods.get(name).cloned();
        if !self.world.apply(Change::Pod(name.clone(), pod)) {
            return;
        }
        let after = self.world.pods.get(name).cloned();
        let mut candidates = BTreeSet::new();
        for (pod, present) in [(&before, false), (&after, true)] {
            let Some(pod) = pod else { continue };
            candidates.extend(self.index.candidates(name, pod));
            self.index.update(name, pod, present);
            if update_host_ports(&mut self.host_ports, name, pod, present) {
                self.invalidate(&Dependency::HostPorts(Arc::clone(&pod.node)));
            }
        }
        match &after {
            Some(pod) => drop(self.proxy_roles.insert(name.clone(), pod.proxy_role())),
            None => drop(self.proxy_roles.remove(name)),
        }
        let placement = |pod: &Option<Pod>| {
            pod.clone().map(|pod| Pod { addresses: Vec::new(), ready: false, terminating: false, ..pod })
        };
        let addresses = |pod: &Option<Pod>| pod.as_ref().map(|pod| (pod.addresses.clone(), pod.ready, pod.terminating));
        let change = PodChange {
            placement_changed: placement(&before) != placement(&after),
            address_changed: addresses(&before) != addresses(&after),
        };
        // the address family of a Service's endpoint depends on its pod
        let first = |pod: &Option<Pod>| pod.as_ref().and_then(|pod| pod.addresses.first().copied());
        if first(&before) != first(&after) {
            let sets: Vec<PodSetId> = candidates.iter().cloned().collect();
            for id in sets {
                self.invalidate(&Dependency::Endpoints(id));
            }
        }
        self.update_membership(name, candidates, change);
    }

    /// Evaluates what is dirty, each node after those it reads, and removes what nothing depends on any more.
    fn evaluate_dirty(&mut self) {
        loop {
            while let Some(node) = self.dirty.pop_first() {
                self.evaluations += 1;
                self.evaluate(&node);
            }
            let Some(unread) = self.graph.unread.pop_last() else { break };
            match &unread {
                GraphNode::Set(id) => {
                    let [members, endpoints] =
                        [Dependency::Members(Arc::clone(id)), Dependency::Endpoints(Arc::clone(id))];
                    if !self.graph.is_read(&members) && !self.graph.is_read(&endpoints) {
                        self.remove_set(id);
                    }
                }
                GraphNode::Generated(generated) if !self.graph.is_read(&Dependency::Outcome(unread.clone())) => {
                    self.graph.set(&unread, BTreeSet::new());
                    self.set_shared(&unread, None);
                    self.mark_generated(generated);
                    self.generated.remove(generated);
                }
                GraphNode::Generated(_)
                | GraphNode::Target(_)
                | GraphNode::Route(_)
                | GraphNode::VirtualService(_)
                | GraphNode::Rule(_) => {}
            }
        }
    }

    fn mark_all(&mut self, pod: &ObjectName) {
        let config = self.desired(pod);
        let affected = self.affected.pods.entry(pod.clone()).or_default();
        affected.extend(config.clusters.keys().map(|name| (ConfigKind::Cluster, Arc::clone(name))));
        affected.extend(config.routes.keys().map(|name| (ConfigKind::Route, Arc::clone(name))));
        affected.extend(config.rules.keys().map(|name| (ConfigKind::Rule, Arc::clone(name))));
        affected.extend(config.rulelists.keys().map(|name| (ConfigKind::RuleList, Arc::clone(name))));
        affected.extend(config.listeners.keys().map(|name| (ConfigKind::Listener, Arc::clone(name))));
    }
}

/// Who wrote an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectOrigin {
    /// A user.
    User,
    /// The operator, and nobody has changed it since.
    Generated,
    /// The operator, and a user has changed it.
    TakenOver,
}

/// Who wrote an object, by its labels, annotations and spec.
pub fn origin(object: &MeshObject) -> ObjectOrigin {
    if object.labels.get("l7mp.io/generated") != Some("true") {
        return ObjectOrigin::User;
    }
    let is_as_written = object.annotations.get("l7mp.io/generated-hash") == Some(&names::spec_hash(&object.spec));
    let is_applied = object.annotations.get("kubectl.kubernetes.io/last-applied-configuration").is_some();
    if is_as_written && !is_applied { ObjectOrigin::Generated } else { ObjectOrigin::TakenOver }
}

fn store_normalized<T>(map: &mut BTreeMap<ObjectName, Normal<T>>, name: &ObjectName, read: Option<Normalized<T>>) {
    match read {
        Some(Normalized { outcome, warnings }) => {
            let normal = Normalized { outcome: outcome.map(Arc::new), warnings };
            map.insert(name.clone(), normal);
        }
        None => drop(map.remove(name)),
    }
}

/// Adds or removes the ports of a pod on the host network; false if it is not on the host network.
fn update_host_ports(
    ports: &mut BTreeMap<(Arc<str>, Transport, u16), BTreeSet<ObjectName>>,
    name: &ObjectName,
    pod: &Pod,
    present: bool,
) -> bool {
    if !pod.host_network {
        return false;
    }
    let declared = pod.containers.iter().flat_map(|container| &container.ports);
    for own in declared {
        set_member(ports, (Arc::clone(&pod.node), own.transport, own.port), name.clone(), present);
    }
    true
}
