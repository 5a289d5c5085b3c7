//! Commands from other threads to a worker.

use super::flow::FlowKey;
use super::link::{Codec, Link};
use super::port::{ListenerState, Port};
use super::session::{Decision, Session, Stage};
use super::slab::Key;
use super::sync::Member;
use super::sys::{self, SockAddr};
use super::worker::{OpenPort, Token, Worker};
use crate::config::engine::{Ending, SessionDump, SessionFilter, SourceDump, StageDump, StageEnd, Traffic};
use crate::config::types::{ListenerSpec, ObjectId, Qos};
use crate::proto::session::{Finish, Status};
use crate::rest::exchange::Response;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

pub(super) enum Command {
    /// Serve a port; also one that is served already and has another listener.
    Attach(Arc<Port>),
    /// No new sessions by this port; the known ones are served on.
    Detach(Arc<Port>),
    /// End sessions of a listener that went and takes them along.
    EndOf(Arc<ListenerState>),
    List {
        filter: SessionFilter,
        from: u64,
        limit: usize,
        reply: SyncSender<Vec<(u64, SessionDump)>>,
    },
    /// Looks at a bounded number of sessions from a sequence number on, and treats those that fit.
    Sweep {
        filter: SessionFilter,
        from: u64,
        how: SweepAction,
        reply: SyncSender<SweepResult>,
    },
    GroupMessages(Vec<(Member, Vec<u8>)>),
    /// A JSONSocket client is done with the session of a flow.
    CloseNotice {
        flow: FlowKey,
        token: u64,
    },
    Answer {
        session: Key,
        response: Box<Response>,
    },
    Resolved {
        session: Key,
        stage: usize,
        addresses: Arc<[IpAddr]>,
    },
    Drain,
    Stop,
    /// Breaks the worker, to see that it comes back.
    #[cfg(test)]
    Fault,
}

/// What is done to sessions that fit.
#[derive(Clone, Copy, Debug)]
pub(super) enum SweepAction {
    Count,
    End(Ending),
    /// Marks what leaves by the filter's listener or cluster with a code point.
    Mark(u8),
}

/// Sessions that one command looks at.
const SLICE: usize = 256;

/// What a sweep found, and where the next one begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SweepResult {
    pub worker: usize,
    pub count: usize,
    pub next: Option<u64>,
}

/// What filters ask about a session.
#[derive(Clone, Default)]
pub(super) struct Ids {
    pub listener: ObjectId,
    pub rulelists: Vec<ObjectId>,
    pub rule: Option<ObjectId>,
    pub route: Option<ObjectId>,
    pub clusters: Vec<ObjectId>,
    pub endpoints: Vec<ObjectId>,
}

impl Ids {
    pub(super) fn of(session: &Session) -> Self {
        let decision = session.decision.as_ref();
        Self {
            listener: session.listener.config.id,
            rulelists: decision.map(|decision| decision.rulelists.clone()).unwrap_or_default(),
            rule: decision.map(|decision| decision.rule),
            route: decision.map(|decision| decision.route.id),
            clusters: session.stages.iter().filter_map(|stage| Some(stage.cluster.as_ref()?.id)).collect(),
            endpoints: session.stages.iter().filter_map(|stage| Some(stage.endpoint.as_ref()?.id)).collect(),
        }
    }

    fn fit(&self, filter: &SessionFilter) -> bool {
        let SessionFilter { name: _, listener, rulelist, rule, route, cluster, endpoint } = filter;
        let is = |wanted: &Option<ObjectId>, has: Option<ObjectId>| wanted.is_none() || *wanted == has;
        let among = |wanted: &Option<ObjectId>, has: &[ObjectId]| wanted.is_none_or(|wanted| has.contains(&wanted));
        is(listener, Some(self.listener))
            && among(rulelist, &self.rulelists)
            && is(rule, self.rule)
            && is(route, self.route)
            && among(cluster, &self.clusters)
            && among(endpoint, &self.endpoints)
    }
}

impl Worker {
    pub(super) fn run_commands(&mut self) {
        for command in self.commands.take() {
            self.follow_configuration();
            self.guarded(|worker| worker.run_command(command));
        }
    }

    fn run_command(&mut self, command: Command) {
        match command {
            Command::Attach(port) => self.attach(&port),
            Command::Detach(port) => self.detach(&port),
            Command::EndOf(listener) => {
                let keys: Vec<Key> = self.by_sequence.values().copied().collect();
                for key in keys {
                    if self.sessions.get(key).is_some_and(|session| Arc::ptr_eq(&session.listener, &listener)) {
                        self.end(key, Finish::Api, "Listener deleted from API");
                    }
                }
            }
            // Whoever asked may have stopped waiting; then nobody needs the answer.
            Command::List { filter, from, limit, reply } => drop(reply.send(self.list(&filter, from, limit))),
            Command::Sweep { filter, from, how, reply } => drop(reply.send(self.sweep(&filter, from, how))),
            Command::GroupMessages(messages) => self.group_messages.extend(messages),
            Command::CloseNotice { flow, token } => self.handle_close_notice(flow, token),
            Command::Answer { session, response } => self.handle_api_answer(session, &response),
            Command::Resolved { session, stage, addresses } => self.resolved(session, stage, &addresses),
            Command::Drain => {
                let ports: Vec<Arc<Port>> = self.ports.values().map(|open| Arc::clone(&open.port)).collect();
                for port in &ports {
                    self.detach(port);
                }
            }
            #[cfg(test)]
            Command::Fault => panic!("fault injected by a test"),
            Command::Stop => {
                let keys: Vec<Key> = self.by_sequence.values().copied().collect();
                for key in keys {
                    self.end(key, Finish::Shutdown, "Shutdown");
                }
                self.stopping = true;
            }
        }
    }

    pub(super) fn attach(&mut self, port: &Arc<Port>) {
        let Some(fd) = port.socket(self.id) else { return };
        let listener = port.listener.load_full();
        let qos = listener.as_ref().and_then(|listener| listener.config.options.qos.as_ref());
        sys::set_dscp(fd, code_point(qos));
        let reads_dscp = qos.is_some();
        if reads_dscp {
            sys::receive_dscp(fd);
        }
        let id = port.id;
        if let Some(open) = self.ports.get_mut(&id) {
            open.detached = false;
            open.reads_dscp |= reads_dscp;
        } else {
            if let Err(error) = self.epoll.add(fd, Token::Port(id).pack(), sys::READ) {
                tracing::error!(%error, address = ?port.bind_address, "cannot watch a listening socket");
                return;
            }
            if let Some((family, at)) = port.bind_address.end() {
                self.listening.entry((family, port.local.port())).or_default().push(at.ip());
            }
            self.ports.insert(id, OpenPort { port: Arc::clone(port), fd, detached: false, drops: 0, reads_dscp });
        }
        if let Some(listener) = listener.filter(|listener| listener.is_singleton()) {
            self.open_singleton(port, &listener);
        }
    }

    /// The session of a singleton exists without any packet.
    fn open_singleton(&mut self, port: &Arc<Port>, listener: &ListenerState) {
        let ListenerSpec::Udp(udp) = listener.config.spec.transport() else { return };
        let (Some(address), Some(peer_port)) = (udp.connect.address, udp.connect.port) else { return };
        let address = self.shared.host_mapping.map_address(address);
        if address.is_ipv4() != port.local.is_ipv4() {
            return;
        }
        let peer = SockAddr::from(SocketAddr::new(address, peer_port));
        let (bits, number) = peer.key();
        let key = super::flow::FlowKey::new(bits, port.id, number);
        let hash = self.flows.hash(&key);
        if self.flows.get(hash, &key, |slot| self.hot[slot as usize].key).is_none() {
            self.open_udp(key, hash, &peer, None);
        }
    }

    fn detach(&mut self, port: &Arc<Port>) {
        if !port.is_datagram() {
            return self.close_port(port.id);
        }
        if let Some(open) = self.ports.get_mut(&port.id) {
            open.detached = port.listener.load().is_none();
        }
    }

    pub(super) fn end(&mut self, key: Key, finish: Finish, content: &'static str) {
        self.with_session(key, |worker, session| session.machine.handle_end(finish, Some(content), worker.now));
    }

    /// The live session of a name, if it is here and fits.
    fn named(&self, name: &str, filter: &SessionFilter) -> Option<Key> {
        self.session_named(name).filter(|session| fits(session, filter)).map(|session| session.key)
    }

    /// Looks at the next sessions in order; packets wait for one slice at most.
    fn sweep(&mut self, filter: &SessionFilter, from: u64, how: SweepAction) -> SweepResult {
        let (keys, next) = if let Some(name) = &filter.name {
            (self.named(name, filter).into_iter().collect(), None)
        } else {
            let mut slice = self.by_sequence.range(from..);
            let seen: Vec<(u64, Key)> = slice.by_ref().take(SLICE).map(|(at, key)| (*at, *key)).collect();
            let next = slice.next().map(|(at, _)| *at);
            let fitting = |(_, key): (u64, Key)| self.sessions.get(key).filter(|s| fits(s, filter)).map(|s| s.key);
            (seen.into_iter().filter_map(fitting).collect::<Vec<Key>>(), next)
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
                worker.disconnect_stage(session, stage, "Endpoint deleted from API")
            });
        }
    }

    /// A slice of the list: sessions after a sequence number, finished ones among them.
    fn list(&self, filter: &SessionFilter, from: u64, limit: usize) -> Vec<(u64, SessionDump)> {
        let named = |name: &str| filter.name.as_ref().is_none_or(|wanted| wanted == name);
        let mut listed: Vec<(u64, SessionDump)> = Vec::new();
        if filter.name.is_some() {
            let live = filter.name.as_ref().and_then(|name| self.sessions.get(self.named(name, filter)?));
            listed.extend(live.map(|session| (session.sequence, self.dump(session))));
        } else {
            let live = self.by_sequence.range(from..).filter_map(|(_, key)| self.sessions.get(*key));
            let live = live.filter(|session| fits(session, filter)).take(limit);
            listed.extend(live.map(|session| (session.sequence, self.dump(session))));
        }
        let finished = self.finished.iter().filter(|f| f.sequence >= from && named(&f.dump.name) && f.ids.fit(filter));
        listed.extend(finished.map(|finished| (finished.sequence, finished.dump.clone())));
        listed.sort_by_key(|(sequence, _)| *sequence);
        listed.truncate(limit);
        listed
    }

    pub(super) fn traffic(&self, key: Key) -> Traffic {
        let hot = &self.hot[key.slot as usize];
        Traffic {
            packets_in: hot.packets_in,
            packets_out: hot.packets_out,
            bytes_in: hot.bytes_in,
            bytes_out: hot.bytes_out,
        }
    }

    /// A session as it is.
    pub(super) fn dump(&self, session: &Session) -> SessionDump {
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
            traffic: self.traffic(session.key),
            created: Duration::from_millis(session.created.unix),
            idle: Duration::from_millis(self.now.ms - self.hot[session.key.slot as usize].seen),
        }
    }
}

/// What leaves is marked with it; with nothing where nobody asks for more.
pub(super) fn code_point(qos: Option<&Qos>) -> u8 {
    qos.and_then(|qos| qos.dscp).unwrap_or(0)
}

/// Whether a live session fits all but the name.
fn fits(session: &Session, filter: &SessionFilter) -> bool {
    let SessionFilter { name: _, listener, rulelist, rule, route, cluster, endpoint } = filter;
    let decision = session.decision.as_deref();
    let decided = |wanted: &Option<ObjectId>, holds: &dyn Fn(&Decision, ObjectId) -> bool| {
        wanted.is_none_or(|wanted| decision.is_some_and(|decision| holds(decision, wanted)))
    };
    let staged = |wanted: &Option<ObjectId>, id: &dyn Fn(&Stage) -> Option<ObjectId>| {
        wanted.is_none_or(|wanted| session.stages.iter().any(|stage| id(stage) == Some(wanted)))
    };
    listener.is_none_or(|wanted| session.listener.config.id == wanted)
        && decided(rulelist, &|decision, wanted| decision.rulelists.contains(&wanted))
        && decided(rule, &|decision, wanted| decision.rule == wanted)
        && decided(route, &|decision, wanted| decision.route.id == wanted)
        && staged(cluster, &|stage| stage.cluster.as_ref().map(|cluster| cluster.id))
        && staged(endpoint, &|stage| stage.endpoint.as_ref().map(|endpoint| endpoint.id))
}

fn is_handshaking(session: &Session) -> bool {
    let upgrading = matches!(&session.source, Link::Stream(stream) if matches!(&stream.codec, Codec::Ws(state) if state.nonce.is_some()));
    upgrading || matches!(session.handshake, super::session::ServerHandshake::Waiting(_))
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
