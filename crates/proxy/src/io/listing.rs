//! Sessions as lists, filters and dumps of the API see them.

use super::command::{SweepAction, SweepResult};
use super::link::{Codec, Link};
use super::session::{ServerHandshake, Session, Stage};
use super::session_filter::fits;
use super::slab::Key;
use super::sys;
use super::worker::Worker;
use crate::config::engine::{Ending, SessionDump, SessionFilter, SourceDump, StageDump, StageEnd};
use crate::config::types::ObjectId;
use crate::proto::session::{Finish, Status};
use std::sync::Arc;
use std::time::Duration;

/// Sessions that one command looks at.
const SLICE: usize = 256;

impl Worker {
    /// The live session of a name, if it is here and fits.
    fn named(&self, name: &str, filter: &SessionFilter) -> Option<Key> {
        self.session_named(name).filter(|session| fits(session, filter)).map(|session| session.key)
    }

    /// Looks at the next sessions in order; packets wait for one slice at most.
    pub(crate) fn sweep(&mut self, filter: &SessionFilter, from: u64, how: SweepAction) -> SweepResult {
        let (keys, next) = if let Some(name) = &filter.name {
            (self.named(name, filter).into_iter().collect(), None)
        } else {
            let (mut keys, next) = self.sessions.slice(from, SLICE);
            keys.retain(|key| self.sessions.get(*key).is_some_and(|session| fits(session, filter)));
            (keys, next)
        };
        for key in &keys {
            match how {
                SweepAction::Count => {}
                SweepAction::End(Ending::End(content)) => self.end(*key, Finish::Api, content),
                SweepAction::End(Ending::Disconnect) => self.disconnect(*key, filter.endpoint),
                SweepAction::Mark(dscp) => self.mark(*key, filter, dscp),
            }
        }
        SweepResult { worker: self.id, count: keys.len(), next }
    }

    fn mark(&self, key: Key, filter: &SessionFilter, dscp: u8) {
        let Some(session) = self.sessions.get(key) else { return };
        let source = filter.listener.is_some().then_some(&session.source);
        let of_cluster = |stage: &&Stage| stage.cluster.as_ref().is_some_and(|at| filter.cluster == Some(at.id));
        let stages = session.stages.iter().filter(of_cluster).map(|stage| &stage.link);
        for fd in source.into_iter().chain(stages).filter_map(Link::socket) {
            sys::set_dscp(fd, dscp);
        }
    }

    fn disconnect(&mut self, key: Key, endpoint: Option<ObjectId>) {
        let Some(session) = self.sessions.get(key) else { return };
        let at = session.stages.iter().position(|stage| {
            stage.endpoint.as_ref().is_some_and(|used| endpoint.is_none_or(|wanted| wanted == used.id))
        });
        if let Some(stage) = at {
            self.with_session(key, |worker, session| {
                worker.disconnect_stage(session, stage, "Endpoint deleted from API");
            });
        }
    }

    /// A slice of the list: sessions after a sequence number, finished ones among them.
    pub(crate) fn list(&self, filter: &SessionFilter, from: u64, limit: usize) -> Vec<(u64, SessionDump)> {
        let named = |name: &str| filter.name.as_ref().is_none_or(|wanted| wanted == name);
        let mut listed: Vec<(u64, SessionDump)> = Vec::new();
        if filter.name.is_some() {
            let live = filter.name.as_ref().and_then(|name| self.sessions.get(self.named(name, filter)?));
            listed.extend(live.map(|session| (session.sequence, self.dump(session))));
        } else {
            let live = self.sessions.from(from).filter(|session| fits(session, filter)).take(limit);
            listed.extend(live.map(|session| (session.sequence, self.dump(session))));
        }
        let finished = self.sessions.finished_from(from);
        let finished = finished.filter(|f| named(&f.dump.name) && f.ids.fit(filter)).take(limit);
        listed.extend(finished.map(|finished| (finished.sequence, finished.dump.clone())));
        listed.sort_by_key(|(sequence, _)| *sequence);
        listed.truncate(limit);
        listed
    }

    /// A session as it is.
    pub(crate) fn dump(&self, session: &Session) -> SessionDump {
        let mut stages = (0..session.stages.len()).map(|at| dump_stage(session, at));
        let ingress = session.decision.as_ref().map_or(0, |decision| decision.route.ingress.len());
        let before = stages.by_ref().take(ingress).collect();
        let destination = stages.next();
        let source = if session.machine.is_over() {
            "END"
        } else if is_handshaking(session) {
            "INIT"
        } else {
            "READY"
        };
        SessionDump {
            name: session.name.to_string(),
            metadata: session.metadata(),
            source: SourceDump {
                origin: Arc::clone(&session.listener.config.name),
                listener: Arc::clone(&session.listener.config),
                status: source,
            },
            destination,
            ingress: before,
            egress: stages.collect(),
            status: session.machine.status().word(),
            events: session.machine.events(&session.name),
            traffic: self.sessions.traffic(session.key),
            created: Duration::from_millis(session.created.unix),
            idle: Duration::from_millis(self.now.ms - self.sessions.hot[session.key.slot as usize].seen),
        }
    }
}

fn is_handshaking(session: &Session) -> bool {
    let upgrading = matches!(&session.source, Link::Stream(stream) if matches!(&stream.codec, Codec::Ws(state) if state.nonce.is_some()));
    upgrading || matches!(session.handshake, ServerHandshake::Waiting(_))
}

fn dump_stage(session: &Session, at: usize) -> StageDump {
    let stage = &session.stages[at];
    let is_virtual = stage.cluster.as_ref().is_some_and(|cluster| cluster.spec.is_virtual());
    let end = match &stage.endpoint {
        _ if is_virtual => StageEnd::Virtual,
        Some(endpoint) => StageEnd::Endpoint(Arc::clone(endpoint)),
        None => StageEnd::None,
    };
    let status =
        if session.machine.status() == Status::Destroyed { "END" } else { session.machine.stage_status(at).word() };
    StageDump { origin: Arc::clone(&stage.cluster_name), end, status }
}
