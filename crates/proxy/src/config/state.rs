//! The whole configuration as a value: a change works on a copy, which is applied or dropped.
//!
//! Copies share what is equal, so they cost little however much there is. Objects refer to each other by name;
//! how often a name is referred to is counted, also while there is no such object, because that decides how long
//! an object lives that came with another one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use super::json::{Json, Object as Fields};
use super::kind::Kind;
use super::refusal::Refusal;
use super::snapshot::{ListenerChange, Names, Snapshot};
use super::spec;
use super::types::{Cluster, Endpoint, Listener, Name, ObjectId, Route, Rule, RuleList};

/// How many suffixes `_1`, `_2`, ... are tried for a generated name.
const NAME_ATTEMPTS: u32 = 20;

#[derive(Debug, Clone, Default)]
pub struct State {
    pub snapshot: Snapshot,
    metas: [Names<Meta>; 6],
    references: [Names<usize>; 6],
    /// Which listeners want a port or a socket file.
    claims: Names<Vec<Name>>,
    /// Made names so far.
    made: [u64; 6],
    last_id: u64,
    /// Auto-generated objects that nothing refers to and that wait for their last session.
    pub pending_removal: BTreeSet<(Kind, Name)>,
    /// The same, freed by this very change and not looked at yet.
    pub orphans: BTreeSet<(Kind, Name)>,
    /// Addresses of listeners that route to the API.
    api: BTreeMap<Name, SocketAddr>,
    /// Something differs from what is in force.
    pub changed: bool,
}

/// What is known of an object besides its meaning.
#[derive(Debug, Clone)]
pub struct Meta {
    pub id: ObjectId,
    /// It was defined inline in another object.
    pub auto: bool,
    pub owner: Option<Name>,
    /// When it changed last.
    pub generation: u64,
    /// A hash of what the client wrote, to detect an identical write; none once a part was edited.
    pub written: Option<u128>,
    /// What clients read; references are names, a cluster has no `endpoints` here.
    pub view: Arc<Fields>,
    pub warnings: Vec<String>,
    /// An endpoint's cluster.
    pub cluster: Option<Name>,
}

/// An object of any kind but endpoints, which are parts of clusters.
#[derive(Debug)]
pub enum Object {
    Listener(Arc<Listener>),
    Cluster(Arc<Cluster>),
    RuleList(Arc<RuleList>),
    Rule(Arc<Rule>),
    Route(Arc<Route>),
}

impl State {
    pub fn meta(&self, kind: Kind, name: &str) -> Option<&Meta> {
        self.metas[kind as usize].get(name).map(AsRef::as_ref)
    }

    /// Names and what is known of them, in the order in which they were added.
    pub fn list(&self, kind: Kind) -> Vec<&Meta> {
        let mut all: Vec<&Meta> = self.metas[kind as usize].iter().map(AsRef::as_ref).collect();
        all.sort_by_key(|meta| meta.id);
        all
    }

    pub fn count(&self, kind: Kind) -> usize {
        self.metas[kind as usize].len()
    }

    pub fn endpoint(&self, name: &str) -> Option<&Arc<Endpoint>> {
        let meta = self.meta(Kind::Endpoint, name)?;
        let endpoints = &self.snapshot.clusters.get(meta.cluster.as_ref()?)?.endpoints;
        endpoints.get(place_of(endpoints, meta.id)?)
    }

    pub fn fresh_id(&mut self) -> ObjectId {
        self.last_id += 1;
        ObjectId(self.last_id)
    }

    /// Generates a name: `<parent>-Rule-7`.
    pub fn make_name(&mut self, kind: Kind, parent: &str) -> Result<Name, Refusal> {
        let number = self.made[kind as usize];
        self.made[kind as usize] += 1;
        let name = format!("{parent}-{}-{number}", kind.generated());
        if self.meta(kind, &name).is_none() {
            return Ok(name.into());
        }
        (1..=NAME_ATTEMPTS)
            .map(|attempt| format!("{name}_{attempt}"))
            .find(|name| self.meta(kind, name).is_none())
            .map(Into::into)
            .ok_or_else(|| Refusal::conflict(format!("Cannot add {}: no free name like \"{name}\"", kind.noun())))
    }

    /// Adds or replaces an object.
    pub fn store(&mut self, object: Object, meta: Meta) {
        self.changed = true;
        let (kind, name) = (object.kind(), object.name());
        let before = self.get(kind, &name);
        for (kind, name) in object.references() {
            self.refer(kind, &name);
        }
        if let Some(before) = before {
            self.forget_references(&before);
        }
        self.metas[kind as usize].insert(Arc::clone(&name), Arc::new(meta));
        match object {
            Object::Listener(listener) => self.place_listener(&name, Some(listener)),
            Object::Cluster(cluster) => drop(self.snapshot.clusters.insert(name, cluster)),
            Object::RuleList(list) => drop(self.snapshot.rulelists.insert(name, list)),
            Object::Rule(rule) => drop(self.snapshot.rules.insert(name, rule)),
            Object::Route(route) => drop(self.snapshot.routes.insert(name, route)),
        }
    }

    /// Removes an object, a cluster with its endpoints; objects that only it used become orphans.
    pub fn take(&mut self, kind: Kind, name: &str) -> Option<Meta> {
        let meta = self.metas[kind as usize].remove(name)?;
        self.changed = true;
        self.pending_removal.remove(&(kind, name.into()));
        if let Some(object) = self.get(kind, name) {
            self.forget_references(&object);
            if let Object::Cluster(cluster) = &object {
                for endpoint in &cluster.endpoints {
                    self.metas[Kind::Endpoint as usize].remove(&endpoint.name);
                }
            }
        }
        match kind {
            Kind::Listener => self.place_listener(name, None),
            Kind::Cluster => drop(self.snapshot.clusters.remove(name)),
            Kind::RuleList => drop(self.snapshot.rulelists.remove(name)),
            Kind::Rule => drop(self.snapshot.rules.remove(name)),
            Kind::Route => drop(self.snapshot.routes.remove(name)),
            Kind::Endpoint => self.edit_endpoints(meta.cluster.as_deref(), |endpoints| {
                if let Some(place) = place_of(endpoints, meta.id) {
                    endpoints.remove(place);
                }
            }),
        }
        Some(Arc::unwrap_or_clone(meta))
    }

    /// Adds or replaces an endpoint of a cluster.
    pub fn store_endpoint(&mut self, endpoint: Arc<Endpoint>, meta: Meta) {
        self.changed = true;
        let cluster = meta.cluster.clone();
        let before = self.metas[Kind::Endpoint as usize].insert(Arc::clone(&endpoint.name), Arc::new(meta));
        self.edit_endpoints(cluster.as_deref(), |endpoints| {
            match before.and_then(|_| place_of(endpoints, endpoint.id)) {
                Some(place) => endpoints[place] = endpoint,
                None => endpoints.push(endpoint),
            }
        });
    }

    /// Records an endpoint whose cluster is stored later, as a whole.
    pub fn record_endpoint(&mut self, name: Name, meta: Meta) {
        self.metas[Kind::Endpoint as usize].insert(name, Arc::new(meta));
    }

    /// Forgets an endpoint whose cluster is stored later, without it.
    pub fn forget_endpoint(&mut self, name: &str) {
        self.metas[Kind::Endpoint as usize].remove(name);
    }

    /// Changes what is known of an object, but not the object.
    pub fn edit_meta(&mut self, kind: Kind, name: &str, edit: impl FnOnce(&mut Meta)) {
        if let Some(meta) = self.metas[kind as usize].get_mut(name) {
            edit(Arc::make_mut(meta));
        }
    }

    pub fn get(&self, kind: Kind, name: &str) -> Option<Object> {
        Some(match kind {
            Kind::Listener => Object::Listener(Arc::clone(self.snapshot.listeners.get(name)?)),
            Kind::Cluster => Object::Cluster(Arc::clone(self.snapshot.clusters.get(name)?)),
            Kind::RuleList => Object::RuleList(Arc::clone(self.snapshot.rulelists.get(name)?)),
            Kind::Rule => Object::Rule(Arc::clone(self.snapshot.rules.get(name)?)),
            Kind::Route => Object::Route(Arc::clone(self.snapshot.routes.get(name)?)),
            Kind::Endpoint => return None,
        })
    }

    /// Whether an inline object is not used any more.
    pub fn is_orphan(&self, kind: Kind, name: &str) -> bool {
        self.meta(kind, name).is_some_and(|meta| meta.auto) && self.references[kind as usize].get(name).is_none()
    }

    /// Another listener with the same port or socket file.
    pub fn conflicting_listener(&self, listener: &Listener) -> Option<(String, Name)> {
        if let Some(file) = spec::socket_file(&listener.spec) {
            let conflicting_listener = self.claims.get(&file)?.iter().find(|other| **other != listener.name)?;
            return Some((format!("file {file}"), Arc::clone(conflicting_listener)));
        }
        let (family, address, port) = spec::claim(&listener.spec)?;
        let conflicting_listener = self.claims.get(&format!("{family} {port}"))?.iter().find(|other| {
            let theirs = self.snapshot.listeners.get(other).and_then(|other| spec::claim(&other.spec));
            **other != listener.name && theirs.is_some_and(|(_, theirs, _)| spec::overlap(address, theirs))
        })?;
        Some((format!("{family} port {port}"), Arc::clone(conflicting_listener)))
    }

    /// The listener that a packet to an address of this machine would come in by.
    pub fn listener_at(&self, family: &str, address: IpAddr, port: u16) -> Option<&Name> {
        self.claims.get(&format!("{family} {port}"))?.iter().find(|name| {
            let bound = self.snapshot.listeners.get(name).and_then(|listener| spec::claim(&listener.spec)?.1);
            match bound {
                Some(bound) if !bound.is_unspecified() => bound == address,
                Some(_) | None => address.is_loopback(),
            }
        })
    }

    /// Binds a listener to loopback, regardless of its spec.
    pub fn bind_to_loopback(&mut self, name: &str) {
        let Some(listener) = self.snapshot.listeners.get_mut(name) else { return };
        Arc::make_mut(listener).loopback_only = true;
        let listener = Arc::clone(listener);
        if let Some(change) = self.snapshot.changed_listeners.iter_mut().find(|change| change.is_of(name)) {
            change.after = Some(listener);
        }
    }

    /// Records whether a listener routes to the API.
    pub fn note_api_listener(&mut self, listener: &Listener, carries: bool) {
        match spec::claim(&listener.spec).filter(|_| carries) {
            Some((_, address, port)) => {
                let address = address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
                self.api.insert(Arc::clone(&listener.name), SocketAddr::new(address, port));
            }
            None => drop(self.api.remove(&listener.name)),
        }
    }

    /// Addresses of listeners that route to the API.
    pub fn api_listeners(&self) -> impl Iterator<Item = SocketAddr> {
        self.api.values().copied()
    }

    /// The next generation, ready to be put in force.
    pub fn seal(&mut self) {
        self.snapshot.generation += 1;
    }

    fn place_listener(&mut self, name: &str, after: Option<Arc<Listener>>) {
        let before = if let Some(listener) = &after {
            self.snapshot.listeners.insert(name.into(), Arc::clone(listener))
        } else {
            self.api.remove(name);
            self.snapshot.listeners.remove(name)
        };
        if let Some(key) = before.as_ref().and_then(|listener| claim_key(listener)) {
            self.edit_claim(&key, |names| names.retain(|other| &**other != name));
        }
        if let Some(key) = after.as_ref().and_then(|listener| claim_key(listener)) {
            self.edit_claim(&key, |names| names.push(name.into()));
        }
        let changes = &mut self.snapshot.changed_listeners;
        match changes.iter_mut().find(|change| change.is_of(name)) {
            Some(change) => change.after = after,
            None => changes.push(ListenerChange { before, after }),
        }
    }

    fn edit_claim(&mut self, key: &str, edit: impl FnOnce(&mut Vec<Name>)) {
        let mut names = self.claims.get(key).map(|names| names.to_vec()).unwrap_or_default();
        edit(&mut names);
        if names.is_empty() {
            self.claims.remove(key);
        } else {
            self.claims.insert(key.into(), Arc::new(names));
        }
    }

    fn edit_endpoints(&mut self, cluster: Option<&str>, edit: impl FnOnce(&mut Vec<Arc<Endpoint>>)) {
        let Some(name) = cluster else { return };
        if let Some(cluster) = self.snapshot.clusters.get_mut(name) {
            edit(&mut Arc::make_mut(cluster).endpoints);
        }
    }

    fn refer(&mut self, kind: Kind, name: &Name) {
        let counts = &mut self.references[kind as usize];
        match counts.get_mut(name) {
            Some(count) => *Arc::make_mut(count) += 1,
            None => drop(counts.insert(Arc::clone(name), Arc::new(1))),
        }
        self.pending_removal.remove(&(kind, Arc::clone(name)));
    }

    fn forget_references(&mut self, object: &Object) {
        for (kind, name) in object.references() {
            let counts = &mut self.references[kind as usize];
            match counts.get_mut(&name) {
                Some(count) if **count > 1 => *Arc::make_mut(count) -= 1,
                Some(_) | None => {
                    counts.remove(&name);
                    self.orphans.insert((kind, name));
                }
            }
        }
    }
}

impl ListenerChange {
    fn is_of(&self, name: &str) -> bool {
        [&self.before, &self.after].into_iter().flatten().any(|listener| &*listener.name == name)
    }
}

impl Object {
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Listener(_) => Kind::Listener,
            Self::Cluster(_) => Kind::Cluster,
            Self::RuleList(_) => Kind::RuleList,
            Self::Rule(_) => Kind::Rule,
            Self::Route(_) => Kind::Route,
        }
    }

    pub fn name(&self) -> Name {
        Arc::clone(match self {
            Self::Listener(listener) => &listener.name,
            Self::Cluster(cluster) => &cluster.name,
            Self::RuleList(list) => &list.name,
            Self::Rule(rule) => &rule.name,
            Self::Route(route) => &route.name,
        })
    }

    pub fn references(&self) -> Vec<(Kind, Name)> {
        match self {
            Self::Listener(listener) => vec![(Kind::RuleList, Arc::clone(&listener.rules))],
            Self::Cluster(_) => Vec::new(),
            Self::RuleList(list) => list.rules.iter().map(|rule| (Kind::Rule, Arc::clone(rule))).collect(),
            Self::Rule(rule) => {
                let apply = rule.action.apply.iter().map(|list| (Kind::RuleList, Arc::clone(list)));
                apply.chain(rule.action.route.iter().map(|route| (Kind::Route, Arc::clone(route)))).collect()
            }
            Self::Route(route) => {
                let all = std::iter::once(&route.destination).chain(&route.ingress).chain(&route.egress);
                all.map(|cluster| (Kind::Cluster, Arc::clone(cluster))).collect()
            }
        }
    }
}

impl Meta {
    /// The object's name, as clients read it.
    pub fn name(&self) -> &str {
        self.view.get("name").and_then(Json::as_str).unwrap_or_default()
    }
}

/// Where an endpoint stands. Identities grow as endpoints come, so it is found by halves unless its cluster was
/// written again in another order.
fn place_of(endpoints: &[Arc<Endpoint>], id: ObjectId) -> Option<usize> {
    let by_halves = endpoints.binary_search_by_key(&id, |endpoint| endpoint.id).ok();
    by_halves.or_else(|| endpoints.iter().position(|endpoint| endpoint.id == id))
}

fn claim_key(listener: &Listener) -> Option<Name> {
    spec::socket_file(&listener.spec)
        .or_else(|| spec::claim(&listener.spec).map(|(family, _, port)| format!("{family} {port}").into()))
}
