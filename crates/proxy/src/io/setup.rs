//! From a client to a session with a route.

use super::flow::FlowKey;
use super::link::Link;
use super::loop_detection::{Family, MAX_HOPS};
use super::port::{ListenerState, Port};
use super::session::{Decision, Hot, ServerHandshake, Session, Stage};
use super::slab::Key;
use super::stats::{Drop, Limit};
use super::sys::SockAddr;
use super::worker::{TimerEvent, Worker};
use crate::config::snapshot::Snapshot;
use crate::config::types::{Evict, ListenerSpec, Matching, Name, ObjectId, Route};
use crate::proto::session::{Failure, Finish, Lookup, Session as SessionMachine};
use portolan_core::mesh::{self, LookupError, Rewrite};
use serde_json::Value;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Compiled rules, kept by id: a changed rule has another one.
#[derive(Default)]
pub(super) struct Rules {
    lists: BTreeMap<Name, List>,
    compiled: BTreeMap<ObjectId, Arc<mesh::Rule>>,
    /// What each rule last decided.
    decisions: BTreeMap<ObjectId, Arc<Decision>>,
}

/// A rulelist, put together.
struct List {
    id: ObjectId,
    compiled: mesh::RuleList,
    /// Where its first rule takes everyone as they are, nobody's metadata is looked at.
    always: Option<Arc<Decision>>,
}

/// What a lookup decides on.
pub(super) struct Found {
    pub rulelists: Vec<ObjectId>,
    pub rulelist: Name,
    pub rule: Arc<mesh::Rule>,
    pub rule_id: ObjectId,
}

impl Rules {
    /// Rulelists are put together again after a change; compiled rules stay while they are used.
    pub(super) fn forget(&mut self) {
        self.lists.clear();
        self.decisions.clear();
        if self.compiled.len() > 100_000 {
            self.compiled.clear();
        }
    }

    pub(super) fn look_up(&mut self, start: &str, metadata: &Value, snapshot: &Snapshot) -> Result<Found, LookupError> {
        loop {
            match self.decide(start, metadata, snapshot) {
                Err(LookupError::RuleList(name)) if self.compile(&name, snapshot) => {}
                decided => return decided,
            }
        }
    }

    /// What a rulelist decides without a look at anybody's metadata.
    fn always(&mut self, start: &Name, snapshot: &Snapshot) -> Option<Arc<Decision>> {
        if !self.lists.contains_key(start) {
            self.compile(start, snapshot);
        }
        self.lists.get(start)?.always.clone()
    }

    /// What a lookup decided; sessions that are taken alike share it.
    fn decision(&mut self, found: &Found, route: &Arc<Route>) -> Arc<Decision> {
        let known = self.decisions.get(&found.rule_id);
        let alike = |known: &&Arc<Decision>| known.rulelists == found.rulelists && Arc::ptr_eq(&known.route, route);
        if let Some(known) = known.filter(alike) {
            return Arc::clone(known);
        }
        let lookup = Lookup { rulelist: Arc::clone(&found.rulelist), rule: Arc::clone(&found.rule.name) };
        let (rulelists, route, lookup) = (found.rulelists.clone(), Arc::clone(route), Arc::new(lookup));
        let decision = Arc::new(Decision { rulelists, rule: found.rule_id, route, lookup });
        self.decisions.insert(found.rule_id, Arc::clone(&decision));
        decision
    }

    fn decide(&self, start: &str, metadata: &Value, snapshot: &Snapshot) -> Result<Found, LookupError> {
        let lists = &self.lists;
        let verdict = mesh::lookup(start, |name| lists.get(name).map(|list| &list.compiled), metadata)?;
        let ids = verdict.rulelists.iter().filter_map(|list| lists.get(&list.name)).map(|list| list.id);
        let rulelist = verdict.rulelists.last().map(|list| Arc::clone(&list.name)).unwrap_or_default();
        let rule_id = snapshot.rules.get(&verdict.rule.name).map(|rule| rule.id).unwrap_or_default();
        Ok(Found { rulelists: ids.collect(), rulelist, rule: Arc::clone(verdict.rule), rule_id })
    }

    /// Compiles a rulelist that was not needed before; false if there is none of this name.
    fn compile(&mut self, name: &Name, snapshot: &Snapshot) -> bool {
        let Some(list) = snapshot.rulelists.get(name).filter(|_| !self.lists.contains_key(name)) else { return false };
        for rule in list.rules.iter().filter_map(|rule| snapshot.rules.get(rule)) {
            self.compiled.entry(rule.id).or_insert_with(|| {
                let action = rule.action.apply.as_ref().map_or_else(
                    || {
                        let rewrites = rule.action.rewrite.iter();
                        let rewrites = rewrites.map(|step| Rewrite::new(&step.path, step.value.clone())).collect();
                        mesh::Action::Route(rewrites, rule.action.route.clone())
                    },
                    |list| mesh::Action::Apply(Arc::clone(list)),
                );
                let never = Value::Object(serde_json::Map::new());
                let matching = match &rule.matching {
                    Matching::Always => None,
                    Matching::Never => Some(&never),
                    Matching::When(predicate) => Some(predicate),
                };
                Arc::new(mesh::Rule::new(Arc::clone(&rule.name), matching, action))
            });
        }
        let rules = &self.compiled;
        let find = |rule: &str| snapshot.rules.get(rule).and_then(|rule| rules.get(&rule.id)).cloned();
        let compiled = mesh::RuleList::new(Arc::clone(name), list.rules.iter().cloned(), find);
        let first = list.rules.first().and_then(|rule| snapshot.rules.get(rule));
        let first = first.filter(|rule| {
            rule.matching == Matching::Always && rule.action.apply.is_none() && rule.action.rewrite.is_empty()
        });
        let always = first.and_then(|rule| {
            let route = Arc::clone(snapshot.routes.get(rule.action.route.as_ref()?)?);
            let lookup = Arc::new(Lookup { rulelist: Arc::clone(name), rule: Arc::clone(&rule.name) });
            Some(Arc::new(Decision { rulelists: vec![list.id], rule: rule.id, route, lookup }))
        });
        self.lists.insert(Arc::clone(name), List { id: list.id, compiled, always });
        true
    }
}

/// Who comes in, and how.
pub(super) struct Incoming {
    pub listener: Arc<ListenerState>,
    pub port: Option<Arc<Port>>,
    pub local: SocketAddr,
    pub peer: Option<SocketAddr>,
    pub source: Link,
    pub metadata: Option<Value>,
    /// The code point of its first packet, where that is read.
    pub dscp: Option<u8>,
}

impl Worker {
    /// Makes the session of a UDP client that is not known; nothing if it is not to be served.
    pub(super) fn open_udp(&mut self, key: FlowKey, hash: u64, from: &SockAddr, dscp: Option<u8>) -> Option<u32> {
        let port = Arc::clone(&self.ports.get(&key.listener)?.port);
        let listener = port.listener.load_full()?;
        let peer = from.to_std();
        let ListenerSpec::Udp(udp) = listener.config.spec.transport() else { return None };
        let other = |wanted: Option<IpAddr>| wanted.is_some_and(|address| address != peer.ip());
        if other(udp.connect.address) || udp.connect.port.is_some_and(|port| port != peer.port()) {
            return None;
        }
        if !self.refused.is_empty() {
            let until = self.refused.get(&key);
            if until.is_some_and(|until| *until > self.now.ms) {
                self.count_drop(Drop::NoRoute, 1);
                return None;
            }
        }
        if self.listens_on(Family::Udp, peer) {
            self.count_drop(Drop::Loop, 1);
            return None;
        }
        let (local, source) = (port.local, Link::UdpPeer);
        let incoming = Incoming { listener, port: Some(port), local, peer: Some(peer), source, metadata: None, dscp };
        let session = self.admit(incoming)?;
        let Key { slot, generation } = session.key;
        self.add_flow(&key, hash, slot, from);
        self.begin(session);
        // A session that ended at once has taken its flow along.
        (self.hot[slot as usize].generation == generation).then_some(slot)
    }

    /// Gives a client a slot and a name, unless a cap stands against it.
    pub(super) fn admit(&mut self, incoming: Incoming) -> Option<Box<Session>> {
        if !self.has_room(&incoming) {
            self.count_drop(Drop::Cap, 1);
            return None;
        }
        let family = if matches!(incoming.source, Link::UdpPeer) { Family::Udp } else { Family::Tcp };
        let hops = incoming.peer.map_or(0, |peer| self.shared.loops.behind((family, peer)));
        if hops > MAX_HOPS {
            self.count_drop(Drop::Loop, 1);
            return None;
        }
        let Incoming { listener, port, local, peer, source, metadata, dscp } = incoming;
        let is_json = matches!(listener.config.spec, ListenerSpec::JsonSocket(_));
        let session = Session {
            key: Key { slot: 0, generation: 0 },
            sequence: self.shared.next_sequence(),
            name: Box::default(),
            machine: SessionMachine::new(self.now),
            port,
            local,
            peer,
            source,
            handshake: if is_json { ServerHandshake::Waiting(Vec::new()) } else { ServerHandshake::None },
            metadata: metadata.map(Box::new),
            rewrote_host: false,
            rewrote_port: false,
            decision: None,
            stages: SmallVec::new(),
            setup_queue: None,
            splice: None,
            created: self.now,
            timer: 0,
            idle_ms: listener.idle_ms,
            resume_at: 0,
            hops,
            listener,
        };
        let key = self.sessions.insert(Box::new(session));
        let mut session = self.sessions.take(key)?;
        session.key = key;
        session.name = self.name_for(&session);
        if let Some(dscp) = dscp {
            let mut metadata = session.metadata();
            metadata["IP"]["dscp"] = dscp.into();
            session.metadata = Some(Box::new(metadata));
        }
        if let Some(Value::Object(map)) = session.metadata.as_deref_mut() {
            map.insert("name".to_owned(), Value::String(session.name.to_string()));
        }
        let hot = Hot { upstream: -1, generation: key.generation, seen: self.now.ms, ..Hot::default() };
        if key.slot as usize == self.hot.len() {
            self.hot.push(hot);
        } else {
            self.hot[key.slot as usize] = hot;
        }
        self.count_in(&session);
        Some(session)
    }

    /// Takes an admitted session to its route, or waits for its header.
    pub(super) fn begin(&mut self, session: Box<Session>) {
        let seconds = if matches!(session.handshake, ServerHandshake::Waiting(_)) {
            session.listener.config.options.setup_timeout as u64 + 1
        } else {
            session.idle_ms.div_ceil(1000)
        };
        if seconds > 0 {
            self.idle.add(self.now.ms / 1000 + seconds, TimerEvent::Idle(session.key));
        }
        self.run_session(session, |worker, session| {
            if matches!(session.handshake, ServerHandshake::None) {
                worker.route(session);
            }
        });
    }

    /// Looks up the rule and route of a session and starts its stages.
    pub(super) fn route(&mut self, session: &mut Session) {
        let always = self.rules.always(&session.listener.config.rules, &self.snapshot);
        let Some(decision) = always.or_else(|| self.decide(session)) else { return };
        let Decision { route, lookup, .. } = &*decision;
        let way = route.ingress.iter().chain([&route.destination]).chain(&route.egress);
        session.stages = way.map(|cluster| Stage::new(Arc::clone(cluster))).collect();
        if session.stages.len() > 200 {
            let failure = Failure::not_found("The route has more than 200 stages").permanent();
            return session.machine.handle_refusal(&failure, self.now);
        }
        *self.stats.by_name.lock().rules.entry(Arc::clone(&lookup.rule)).or_default() += 1;
        session.machine.handle_route(Arc::clone(lookup), session.stages.len(), route.retry, self.now);
        session.decision = Some(decision);
    }

    /// Lets the rules look at a session; nothing if they refuse it.
    fn decide(&mut self, session: &mut Session) -> Option<Arc<Decision>> {
        let snapshot = Arc::clone(&self.snapshot);
        let mut metadata = session.metadata();
        let found = match self.rules.look_up(&session.listener.config.rules, &metadata, &snapshot) {
            Ok(found) => found,
            Err(error) => {
                self.refuse(session, &error);
                return None;
            }
        };
        let Some(route) = found.rule.route().and_then(|route| snapshot.routes.get(route)) else {
            let name = found.rule.route().cloned().unwrap_or_default();
            self.refuse(session, &LookupError::Route(name));
            return None;
        };
        self.rewrite(session, &found.rule, &mut metadata);
        Some(self.rules.decision(&found, route))
    }

    fn rewrite(&self, session: &mut Session, rule: &mesh::Rule, metadata: &mut Value) {
        let mesh::Action::Route(rewrites, _) = &rule.action else { return };
        if rewrites.is_empty() {
            return;
        }
        let no_place = rule.rewrite(metadata);
        if !no_place.is_empty() {
            tracing::debug!(session = %session.name, rule = %rule.name, "rewrite path not found in the metadata");
        }
        let wrote = |part: &str| {
            let path = format!("HTTP/url/{part}");
            let mut written = rewrites.iter().map(|rewrite| rewrite.path.as_str().trim_matches('/'));
            written.any(|at| at.is_empty() || path == at || path.starts_with(&format!("{at}/")))
        };
        (session.rewrote_host, session.rewrote_port) = (wrote("host"), wrote("port"));
        session.metadata = Some(Box::new(std::mem::take(metadata)));
        if session.metadata.as_ref().is_some_and(|metadata| {
            metadata.is_object() && metadata.to_string().len() > self.snapshot.admin.limits.metadata
        }) {
            self.stats.reach_limit(Limit::Metadata);
            let most = self.snapshot.admin.limits.metadata;
            let content = format!("The metadata is larger than {most} bytes (admin.limits.metadata)");
            session.machine.handle_refusal(&Failure::unavailable(content), self.now);
        }
    }

    fn refuse(&self, session: &mut Session, error: &LookupError) {
        self.count_drop(Drop::NoRoute, 1);
        let content = error.content(&session.name);
        session.machine.handle_refusal(&Failure::not_found(content).permanent(), self.now);
    }

    fn has_room(&mut self, incoming: &Incoming) -> bool {
        let listener = &incoming.listener;
        let options = &listener.config.options;
        let most = self.snapshot.admin.limits.sessions.min(self.shared.most_sessions);
        if self.shared.counts.active.load(Relaxed) >= most {
            self.stats.reach_limit(Limit::Sessions);
            return false;
        }
        let of_source = options.max_sessions_per_source.zip(incoming.peer).is_some_and(|(most, peer)| {
            listener.sources.lock().get(&source_of(peer.ip())).is_some_and(|count| *count >= most)
        });
        let full = options.max_sessions.is_some_and(|most| listener.counts.active.load(Relaxed) >= most);
        if !full && !of_source {
            return true;
        }
        options.evict == Evict::Lru && self.evict(listener, incoming.peer.filter(|_| of_source))
    }

    /// Ends the session of a listener that was idle for longest; of one source, if that is what is full.
    fn evict(&mut self, listener: &Arc<ListenerState>, source: Option<SocketAddr>) -> bool {
        let source = source.map(|peer| source_of(peer.ip()));
        let fits = |session: &Session| {
            Arc::ptr_eq(&session.listener, listener)
                && source.is_none_or(|source| session.peer.is_some_and(|peer| source_of(peer.ip()) == source))
        };
        let candidates = self.by_sequence.values().filter_map(|key| self.sessions.get(*key));
        let oldest = candidates.filter(|session| fits(session)).min_by_key(|s| self.hot[s.key.slot as usize].seen);
        let Some(key) = oldest.map(|session| session.key) else { return false };
        self.with_session(key, |worker, session| session.machine.handle_end(Finish::Evicted, None, worker.now));
        true
    }

    fn count_in(&mut self, session: &Session) {
        self.by_sequence.insert(session.sequence, session.key);
        self.shared.counts.active.fetch_add(1, Relaxed);
        session.listener.counts.active.fetch_add(1, Relaxed);
        if let Some(port) = &session.port {
            port.sessions.fetch_add(1, Relaxed);
        }
        let listener = &session.listener.config;
        if let Some(peer) = session.peer.filter(|_| listener.options.max_sessions_per_source.is_some()) {
            *session.listener.sources.lock().entry(source_of(peer.ip())).or_default() += 1;
        }
        self.stats.opened.add(1);
        self.stats.active.set(self.sessions.len() as u64);
        self.stats.by_name.lock().listeners.count(&listener.name, listener.spec.protocol());
    }
}

/// What counts as one source: an IPv4 address, or a /64 of IPv6.
pub(super) fn source_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from(u128::from(v6) >> 64 << 64)),
    }
}
