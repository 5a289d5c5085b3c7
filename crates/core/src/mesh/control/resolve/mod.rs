//! The resolver: keeps the world and what follows from it, and computes again only what a change may have made
//! different.
//!
//! ```text
//! World --> sets of pods --> Targets, generated Targets --> Routes --> VirtualServices, Rules --> seats on proxies
//! ```
//! Every node notes what it reads ([`keys`]); a change is told to the readers, in the order above. A change followed
//! by [`Resolver::plan`] gives what planning the changed world afresh gives: a property test holds it to that.

mod ask;
mod callee;
mod compile;
mod evaluate;
mod explain;
mod generate;
mod keys;
mod loops;
mod place;
mod refs;
mod serve;
mod sets;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::compile::{Compiled, Way};
use self::keys::{Generated, Key, Node, Reads, SetId};
use self::loops::Loops;
use self::place::{Seat, Unit};
use self::sets::{PodChange, PodIndex, PodSet, put};
use super::normalize::{self, Normalized};
use super::types::{MeshKind, ObjectName, Route, RuleObject, Target, VirtualService};
use super::wire::{ConfigKind, ProxyConfig};
use super::world::{Change, MeshObject, Pod, ProxyRole, Transport, World};
use super::{Diagnostic, names};

pub use self::explain::ResolvedReference;
pub use self::generate::{GeneratedObject, Owner};
pub use self::status::ObjectStatus;

/// Everything whose desired state may have changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Affected {
    /// Things on proxies, by pod.
    pub pods: BTreeMap<ObjectName, BTreeSet<(ConfigKind, Arc<str>)>>,
    /// Objects whose verdict may differ.
    pub objects: BTreeSet<(MeshKind, ObjectName)>,
    /// Generated objects that may have to be created, changed or removed.
    pub generated: BTreeSet<(MeshKind, ObjectName)>,
}

/// Everything that follows from a world.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// What each proxy should hold; proxies that should hold nothing are not in it.
    pub desired: BTreeMap<ObjectName, ProxyConfig>,
    /// What is to be said of each of the users' objects.
    pub statuses: BTreeMap<(MeshKind, ObjectName), ObjectStatus>,
    /// Objects that should exist because names make them necessary.
    pub generated: BTreeMap<(MeshKind, ObjectName), GeneratedObject>,
    /// Generated objects that exist and are no longer needed.
    pub unused: BTreeSet<(MeshKind, ObjectName)>,
    /// Generated objects that users have taken over: our marks come off.
    pub taken_over: BTreeSet<(MeshKind, ObjectName)>,
}

/// What should be, given what is: total, and the same for the same input.
pub fn plan(world: &World) -> Plan {
    Resolver::new(world.clone()).plan()
}

type Normal<T> = Normalized<Arc<T>>;

/// Users' objects in the normal form.
#[derive(Debug, Clone, Default)]
struct Normals {
    virtual_services: BTreeMap<ObjectName, Normal<VirtualService>>,
    routes: BTreeMap<ObjectName, Normal<Route>>,
    targets: BTreeMap<ObjectName, Normal<Target>>,
    rules: BTreeMap<ObjectName, Normal<RuleObject>>,
}

/// A user's Target and where it is.
#[derive(Debug, Clone)]
struct Placed {
    outcome: Result<Compiled, Diagnostic>,
    notes: Vec<Diagnostic>,
    matched: usize,
    pods: BTreeSet<ObjectName>,
    /// Proxies that cannot have it, and why.
    broken: BTreeMap<ObjectName, Diagnostic>,
    /// The Service it links to, for want of a VirtualService.
    service: Option<ObjectName>,
}

/// A generated Target.
#[derive(Debug, Clone)]
struct Made {
    outcome: Result<Compiled, Diagnostic>,
    notes: Vec<Diagnostic>,
}

/// Who names a generated Target, and the caller: its namespace and selector.
type Use = (Generated, (MeshKind, ObjectName), (Arc<str>, Arc<str>));

/// What a VirtualService or Rule gives.
#[derive(Debug, Clone, Default)]
struct Served {
    refused: Option<Diagnostic>,
    unmet: Vec<Diagnostic>,
    notes: Vec<Diagnostic>,
    is_stub: bool,
    matched: usize,
    naked: usize,
    units: BTreeMap<ObjectName, Arc<Unit>>,
    uses: BTreeSet<Use>,
    callees: BTreeSet<ObjectName>,
}

/// Who uses something, each counted.
#[derive(Debug, Clone, Default)]
struct Users {
    namers: BTreeMap<(MeshKind, ObjectName), usize>,
    callers: BTreeMap<(Arc<str>, Arc<str>), usize>,
}

/// Decides what every proxy holds, all at once or change by change.
#[derive(Debug, Clone, Default)]
pub struct Resolver {
    world: World,
    slices_of: BTreeMap<ObjectName, BTreeSet<ObjectName>>,
    marks: BTreeMap<ObjectName, ProxyRole>,
    /// Pods on the host's network that declare a port, by node.
    host_ports: BTreeMap<(Arc<str>, Transport, u16), BTreeSet<ObjectName>>,
    index: PodIndex,
    sets: BTreeMap<SetId, PodSet>,
    normals: Normals,
    reads: Reads,
    dirty: BTreeSet<Node>,
    targets: BTreeMap<ObjectName, Placed>,
    generated: BTreeMap<Generated, Made>,
    routes: BTreeMap<ObjectName, Way>,
    served: BTreeMap<Node, Served>,
    loops: Loops,
    seats: BTreeMap<ObjectName, Seat>,
    shared: BTreeMap<Node, Arc<Unit>>,
    /// Pods that need something shared.
    needers: BTreeMap<Node, BTreeSet<ObjectName>>,
    users: BTreeMap<Generated, Users>,
    /// Targets that link to a Service.
    linked: BTreeMap<ObjectName, BTreeSet<ObjectName>>,
    /// Generated Targets that lead to a naked Service.
    wrapped: BTreeMap<ObjectName, BTreeSet<Generated>>,
    touched: Affected,
    /// The world has been resolved once: from here on, what is touched matters.
    is_resolved: bool,
    evaluations: u64,
}

impl Resolver {
    /// Resolves a world.
    pub fn new(world: World) -> Self {
        let mut resolver = Self { world, ..Self::default() };
        let World { slices, pods, .. } = &resolver.world;
        for (name, slice) in slices {
            let service = ObjectName::new(Arc::clone(&name.namespace), Arc::clone(&slice.service));
            put(&mut resolver.slices_of, service, name.clone(), true);
        }
        resolver.marks = pods.iter().map(|(name, pod)| (name.clone(), pod.proxy_role())).collect();
        for (name, pod) in pods {
            resolver.index.note(name, pod, true);
            note_host_ports(&mut resolver.host_ports, name, pod, true);
        }
        let objects: Vec<(MeshKind, ObjectName)> = resolver.world.objects.keys().cloned().collect();
        for (kind, name) in objects {
            resolver.read(kind, &name);
        }
        resolver.settle();
        (resolver.touched, resolver.is_resolved) = (Affected::default(), true);
        resolver
    }

    /// Takes in a change and says what it touches.
    pub fn change(&mut self, change: Change) -> Affected {
        match self.world.with_shared_namespace(change) {
            Change::Object(kind, name, object) => self.change_object(kind, name, object),
            Change::Service(name, service) => {
                if self.world.apply(Change::Service(name.clone(), service)) {
                    self.emit(&Key::Service(name.clone()));
                    self.touch_wrapper(&name);
                }
            }
            Change::Slice(name, slice) => self.change_slice(&name, slice),
            Change::Pod(name, pod) => self.change_pod(&name, pod),
            Change::Namespace(name, annotations) => {
                if self.world.apply(Change::Namespace(Arc::clone(&name), annotations)) {
                    self.emit(&Key::Namespace(name));
                    self.emit(&Key::AnyNamespace);
                }
            }
            Change::Proxy(name, facts) => {
                // one that has said nothing yet is taken for ours: when it says so, nothing is different
                let said = |world: &World| world.proxies.get(&name).cloned().unwrap_or_default();
                let before = said(&self.world);
                self.world.apply(Change::Proxy(name.clone(), facts));
                let differs = said(&self.world) != before;
                if let Some(pod) = self.world.pods.get(&name).filter(|_| differs) {
                    let candidates = self.index.candidates(&name, pod);
                    self.regroup(&name, candidates, PodChange { placed_differently: true, reached_differently: false });
                    self.touch_all(&name);
                }
            }
            change @ Change::ClusterAddresses { .. } => {
                if self.world.apply(change) {
                    self.look_again();
                }
            }
            change @ Change::WritesGenerated(_) => {
                if self.world.apply(change) {
                    let users = self.users.values().flat_map(|users| users.namers.keys());
                    self.touched.objects.extend(users.cloned());
                }
            }
        }
        self.settle();
        std::mem::take(&mut self.touched)
    }

    /// Everything is computed again: what may be an endpoint is asked everywhere.
    fn look_again(&mut self) {
        let Self { normals, generated, dirty, .. } = self;
        dirty.extend(normals.targets.keys().cloned().map(Node::Target));
        dirty.extend(generated.keys().cloned().map(Node::Generated));
        dirty.extend(normals.routes.keys().cloned().map(Node::Route));
        dirty.extend(normals.virtual_services.keys().cloned().map(Node::VirtualService));
        dirty.extend(normals.rules.keys().cloned().map(Node::Rule));
    }

    /// The world as it stands.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// How many objects and sets were looked at so far: what changes cost.
    pub fn evaluations(&self) -> u64 {
        self.evaluations
    }

    /// Everything that follows.
    pub fn plan(&self) -> Plan {
        let mut plan = Plan::default();
        for pod in self.seats.keys() {
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
            match standing(object) {
                ObjectOrigin::User => {}
                ObjectOrigin::TakenOver => drop(plan.taken_over.insert(key)),
                ObjectOrigin::Generated if plan.generated.contains_key(&key) => {}
                ObjectOrigin::Generated => drop(plan.unused.insert(key)),
            }
        }
        plan
    }

    fn change_object(&mut self, kind: MeshKind, name: ObjectName, object: Option<MeshObject>) {
        let facet = |resolver: &Self| {
            let object = resolver.world.objects.get(&(kind, name.clone()));
            let annotations =
                object.filter(|_| resolver.is_users(kind, &name)).map(|object| object.annotations.clone());
            let found = resolver.virtual_service(&name).filter(|_| kind == MeshKind::VirtualService);
            let callee = |one: &Arc<VirtualService>| {
                (one.listener.clone(), one.selector.clone(), one.extensions.tls.clone(), one.is_proxy_type())
            };
            (annotations, found.map(callee))
        };
        let before = facet(self);
        if !self.world.apply(Change::Object(kind, name.clone(), object)) {
            return;
        }
        self.read(kind, &name);
        self.touched.generated.insert((kind, name.clone()));
        self.touched.objects.insert((kind, name.clone()));
        if facet(self) != before {
            self.emit(&Key::Object(kind, name));
        }
    }

    /// Brings an object into the normal form.
    fn read(&mut self, kind: MeshKind, name: &ObjectName) {
        let object =
            self.world.objects.get(&(kind, name.clone())).filter(|object| standing(object) != ObjectOrigin::Generated);
        let spec = object.map(|object| Arc::clone(&object.spec));
        let node = match kind {
            MeshKind::VirtualService => {
                keep(&mut self.normals.virtual_services, name, spec.map(|spec| normalize::virtual_service(&spec)));
                Node::VirtualService(name.clone())
            }
            MeshKind::Route => {
                keep(&mut self.normals.routes, name, spec.map(|spec| normalize::route(&spec)));
                Node::Route(name.clone())
            }
            MeshKind::Target => {
                keep(&mut self.normals.targets, name, spec.map(|spec| normalize::target(&spec)));
                Node::Target(name.clone())
            }
            MeshKind::Rule => {
                keep(&mut self.normals.rules, name, spec.map(|spec| normalize::rule(&spec)));
                Node::Rule(name.clone())
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
        for (service, there) in [(before, false), (after, true)] {
            if let Some(service) = service {
                put(&mut self.slices_of, service.clone(), name.clone(), there);
                self.touch_wrapper(&service);
                self.emit(&Key::Slices(service));
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
        for (pod, there) in [(&before, false), (&after, true)] {
            let Some(pod) = pod else { continue };
            candidates.extend(self.index.candidates(name, pod));
            self.index.note(name, pod, there);
            if note_host_ports(&mut self.host_ports, name, pod, there) {
                self.emit(&Key::HostPorts(Arc::clone(&pod.node)));
            }
        }
        match &after {
            Some(pod) => drop(self.marks.insert(name.clone(), pod.proxy_role())),
            None => drop(self.marks.remove(name)),
        }
        let plain = |pod: &Option<Pod>| {
            pod.clone().map(|pod| Pod { addresses: Vec::new(), ready: false, terminating: false, ..pod })
        };
        let reached = |pod: &Option<Pod>| pod.as_ref().map(|pod| (pod.addresses.clone(), pod.ready, pod.terminating));
        let is = PodChange {
            placed_differently: plain(&before) != plain(&after),
            reached_differently: reached(&before) != reached(&after),
        };
        // which family a Service's endpoint is asked for depends on its pod
        let first = |pod: &Option<Pod>| pod.as_ref().and_then(|pod| pod.addresses.first().copied());
        if first(&before) != first(&after) {
            let sets: Vec<SetId> = candidates.iter().cloned().collect();
            for id in sets {
                self.emit(&Key::Endpoints(id));
            }
        }
        self.regroup(name, candidates, is);
    }

    /// Tells the readers of something that it is different.
    fn emit(&mut self, key: &Key) {
        self.dirty.extend(self.reads.readers(key).cloned());
    }

    /// Computes what is dirty, each node after those it reads.
    fn settle(&mut self) {
        loop {
            while let Some(node) = self.dirty.pop_first() {
                self.evaluations += 1;
                self.evaluate(&node);
            }
            let Some(idle) = self.reads.idle.pop_last() else { break };
            match &idle {
                Node::Set(id) => {
                    let [members, endpoints] = [Key::Members(Arc::clone(id)), Key::Endpoints(Arc::clone(id))];
                    if !self.reads.is_read(&members) && !self.reads.is_read(&endpoints) {
                        self.drop_set(id);
                    }
                }
                Node::Generated(generated) if !self.reads.is_read(&Key::Outcome(idle.clone())) => {
                    self.reads.set(&idle, BTreeSet::new());
                    self.share(&idle, None);
                    self.touch_generated(generated);
                    self.generated.remove(generated);
                }
                Node::Generated(_) | Node::Target(_) | Node::Route(_) | Node::VirtualService(_) | Node::Rule(_) => {}
            }
        }
    }

    /// A user's VirtualService that is not refused.
    fn virtual_service(&self, name: &ObjectName) -> Option<&Arc<VirtualService>> {
        self.normals.virtual_services.get(name)?.outcome.as_ref().ok()
    }

    /// Whether there is an object of this name that is the user's.
    fn is_users(&self, kind: MeshKind, name: &ObjectName) -> bool {
        match kind {
            MeshKind::VirtualService => self.normals.virtual_services.contains_key(name),
            MeshKind::Route => self.normals.routes.contains_key(name),
            MeshKind::Target => self.normals.targets.contains_key(name),
            MeshKind::Rule => self.normals.rules.contains_key(name),
            MeshKind::Service => self.world.services.contains_key(name),
        }
    }

    fn touch_all(&mut self, pod: &ObjectName) {
        let config = self.desired(pod);
        let touched = self.touched.pods.entry(pod.clone()).or_default();
        touched.extend(config.clusters.keys().map(|name| (ConfigKind::Cluster, Arc::clone(name))));
        touched.extend(config.routes.keys().map(|name| (ConfigKind::Route, Arc::clone(name))));
        touched.extend(config.rules.keys().map(|name| (ConfigKind::Rule, Arc::clone(name))));
        touched.extend(config.rulelists.keys().map(|name| (ConfigKind::RuleList, Arc::clone(name))));
        touched.extend(config.listeners.keys().map(|name| (ConfigKind::Listener, Arc::clone(name))));
    }
}

/// Whose an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectOrigin {
    /// A user wrote it.
    User,
    /// It is as we wrote it.
    Generated,
    /// We wrote it, and a user has changed it.
    TakenOver,
}

fn standing(object: &MeshObject) -> ObjectOrigin {
    if object.labels.get("l7mp.io/generated") != Some("true") {
        return ObjectOrigin::User;
    }
    let is_as_written = object.annotations.get("l7mp.io/generated-hash") == Some(&names::spec_hash(&object.spec));
    let is_applied = object.annotations.get("kubectl.kubernetes.io/last-applied-configuration").is_some();
    if is_as_written && !is_applied { ObjectOrigin::Generated } else { ObjectOrigin::TakenOver }
}

fn keep<T>(map: &mut BTreeMap<ObjectName, Normal<T>>, name: &ObjectName, read: Option<Normalized<T>>) {
    match read {
        Some(Normalized { outcome, warnings }) => {
            let normal = Normalized { outcome: outcome.map(Arc::new), warnings };
            map.insert(name.clone(), normal);
        }
        None => drop(map.remove(name)),
    }
}

/// Notes the ports of a pod on its node's network; false if there are none.
fn note_host_ports(
    ports: &mut BTreeMap<(Arc<str>, Transport, u16), BTreeSet<ObjectName>>,
    name: &ObjectName,
    pod: &Pod,
    there: bool,
) -> bool {
    if !pod.host_network {
        return false;
    }
    let declared = pod.containers.iter().flat_map(|container| &container.ports);
    for own in declared {
        put(ports, (Arc::clone(&pod.node), own.transport, own.port), name.clone(), there);
    }
    true
}
