//! From a client to a session with a route.

use super::incoming::Incoming;
use super::link::Link;
use super::loop_detection::{Family, MAX_HOPS};
use super::port::ListenerState;
use super::rate::source_of;
use super::session::{Decision, ServerHandshake, Session, Stage};
use super::slab::Key;
use super::stats::{Drop, Limit};
use super::timers::TimerEvent;
use super::worker::Worker;
use crate::config::types::{Evict, ListenerSpec};
use crate::proto::session::{Failure, Finish, Session as SessionMachine};
use portolan_core::mesh::{self, LookupError};
use serde_json::Value;
use smallvec::SmallVec;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

impl Worker {
    /// Gives a client a slot and a name, unless a limit is reached.
    pub(crate) fn admit(&mut self, incoming: Incoming) -> Option<Box<Session>> {
        if !self.has_room(&incoming) {
            self.count_drop(Drop::Cap, 1);
            return None;
        }
        let family = if matches!(incoming.source, Link::UdpPeer) { Family::Udp } else { Family::Tcp };
        let hops = incoming.peer.map_or(0, |peer| self.shared.loops.hops_of((family, peer)));
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
            api_request: false,
            resume_at: 0,
            hops,
            listener,
        };
        let mut session = self.sessions.admit(session, self.now.ms)?;
        session.name = self.name_for(&session);
        if let Some(dscp) = dscp {
            let mut metadata = session.metadata();
            metadata["IP"]["dscp"] = dscp.into();
            session.metadata = Some(Box::new(metadata));
        }
        if let Some(Value::Object(map)) = session.metadata.as_deref_mut() {
            map.insert("name".to_owned(), Value::String(session.name.to_string()));
        }
        self.count_in(&session);
        Some(session)
    }

    /// Routes an admitted session, or waits for its header.
    pub(crate) fn begin(&mut self, session: Box<Session>) {
        let seconds = if matches!(session.handshake, ServerHandshake::Waiting(_)) {
            session.listener.setup_seconds() + 1
        } else {
            session.idle_ms.div_ceil(1000)
        };
        if seconds > 0 {
            self.timers.add(self.now.ms / 1000 + seconds, TimerEvent::Idle(session.key));
        }
        self.run_session(session, |worker, session| {
            if matches!(session.handshake, ServerHandshake::None) {
                worker.route(session);
            }
        });
    }

    /// Looks up the rule and route of a session and starts its stages.
    pub(crate) fn route(&mut self, session: &mut Session) {
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

    /// Applies the rules to a session; `None` if they refuse it.
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

    /// Ends the least recently used session of a listener; of one source, if its limit is reached.
    fn evict(&mut self, listener: &Arc<ListenerState>, source: Option<SocketAddr>) -> bool {
        let source = source.map(|peer| source_of(peer.ip()));
        let fits = |session: &Session| {
            Arc::ptr_eq(&session.listener, listener)
                && source.is_none_or(|source| session.peer.is_some_and(|peer| source_of(peer.ip()) == source))
        };
        let candidates = self.sessions.from(0).filter(|session| fits(session));
        let oldest = candidates.min_by_key(|session| self.sessions.hot[session.key.slot as usize].seen);
        let Some(key) = oldest.map(|session| session.key) else { return false };
        self.with_session(key, |worker, session| session.machine.handle_end(Finish::Evicted, None, worker.now));
        true
    }

    fn count_in(&mut self, session: &Session) {
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
