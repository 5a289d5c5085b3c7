//! Clusters without endpoints: the worker does their work itself.

use super::connect::Attempt;
use super::link::Link;
use super::log::{Line, LogFile};
use super::session::Session;
use super::stats::Drop;
use super::sync::Member;
use super::worker::Worker;
use crate::config::types::{Cluster, ClusterSpec, LoggerCluster};
use crate::proto::Message;
use crate::proto::session::Failure;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use portolan_core::mesh::{Path, key_text};
use serde_json::Value;
use std::path::Path as FilePath;
use std::sync::Arc;

/// Messages of Sync groups delivered per loop.
const GROUP_MESSAGES_PER_LOOP: usize = 1024;

/// What a virtual cluster makes of a message.
pub(crate) enum Transformed {
    Same,
    Changed(Vec<u8>),
    Nothing,
}

impl Worker {
    pub(crate) fn join_virtual(
        &mut self,
        session: &mut Session,
        stage: usize,
        cluster: &Arc<Cluster>,
    ) -> Result<Attempt, Failure> {
        match &cluster.spec {
            ClusterSpec::Sync(sync) => {
                let metadata = session.metadata();
                let found =
                    Path::new(&sync.query).read(&metadata).filter(|value| !value.is_object() && !value.is_array());
                let key = found.and_then(key_text).filter(|key| !key.is_empty());
                let Some(key) = key else {
                    let content = format!(
                        "SyncCluster.stream: reject: Session: \"{}\": query \"{}\": empty label",
                        session.name, sync.query
                    );
                    return Err(Failure::not_found(content).permanent());
                };
                let member = Member { worker: self.id, session: session.key, at: stage + 1 };
                let cluster_state =
                    session.stages[stage].cluster_state.clone().ok_or_else(|| Failure::not_found("No group"))?;
                let most = if sync.pair { 2 } else { sync.max_members };
                let joined = cluster_state.groups.join(&key, member, most);
                let (membership, waiting) = joined.map_err(|full| Failure::unavailable(full.to_string()))?;
                session.stages[stage].link = Link::Sync(Box::new(membership));
                self.group_messages.extend(waiting.into_iter().map(|message| (member, message)));
            }
            ClusterSpec::Stdio => {
                if !self.snapshot.admin.allow_stdio {
                    return Err(Failure::unavailable("Stdio is not allowed: set admin.allow_stdio"));
                }
                let member = Member { worker: self.id, session: session.key, at: stage + 1 };
                if !self.shared.stdio.join(member, &self.shared.rings) {
                    return Err(Failure::unavailable("Stdio serves one session at a time"));
                }
                session.stages[stage].link = Link::Virtual;
            }
            ClusterSpec::Metric(_) => {
                if self.snapshot.admin.metrics_per_session {
                    meter_session(session, stage);
                }
                session.stages[stage].link = Link::Virtual;
            }
            ClusterSpec::Transport(_)
            | ClusterSpec::JsonSocket(_)
            | ClusterSpec::Echo
            | ClusterSpec::Discard
            | ClusterSpec::Logger(_)
            | ClusterSpec::Prometheus
            | ClusterSpec::JsonEncap
            | ClusterSpec::JsonDecap
            | ClusterSpec::Controller => session.stages[stage].link = Link::Virtual,
        }
        Ok(Attempt::Connected)
    }

    /// Passes a message through a virtual stage.
    pub(crate) fn apply_virtual_cluster(&mut self, session: &Session, at: usize, data: &[u8]) -> Transformed {
        let stage = &session.stages[at - 1];
        let Some(cluster) = &stage.cluster else { return Transformed::Nothing };
        match &cluster.spec {
            ClusterSpec::Echo => Transformed::Same,
            ClusterSpec::Logger(logger) => {
                self.write_log(logger, data);
                Transformed::Same
            }
            ClusterSpec::Stdio => {
                self.log(Line { file: None, bytes: data.to_vec() });
                Transformed::Nothing
            }
            ClusterSpec::Metric(_) => {
                let meters =
                    stage.cluster_state.iter().map(|cluster_state| &cluster_state.meter).chain(stage.meter.as_deref());
                meters.for_each(|meter| meter.count(data.len()));
                Transformed::Same
            }
            ClusterSpec::JsonEncap => Transformed::Changed(encapsulate(session, data)),
            ClusterSpec::JsonDecap => Transformed::Changed(decapsulate(data)),
            ClusterSpec::Discard
            | ClusterSpec::Controller
            | ClusterSpec::Prometheus
            | ClusterSpec::Sync(_)
            | ClusterSpec::Transport(_)
            | ClusterSpec::JsonSocket(_) => Transformed::Nothing,
        }
    }

    fn write_log(&self, logger: &LoggerCluster, data: &[u8]) {
        let file = (logger.log_file != "-").then(|| {
            let directory = self.snapshot.admin.log_dir.as_ref()?;
            let file = FilePath::new(&logger.log_file).strip_prefix(directory).ok()?;
            Some(LogFile { directory: directory.clone(), file: file.to_owned() })
        });
        if let Some(None) = file {
            return;
        }
        let prefix = if logger.log_prefix.is_empty() { String::new() } else { format!("{}: ", logger.log_prefix) };
        let bytes = [prefix.as_bytes(), data].concat();
        self.log(Line { file: file.flatten(), bytes });
    }

    /// Hands a line to the writing thread; if its queue is full, the line is dropped and counted.
    pub(crate) fn log(&self, line: Line) {
        if !self.shared.sink.write(line) {
            self.stats.log_drops.add(1);
        }
    }

    /// Sends a message to the other members of a group.
    pub(crate) fn send_to_group(&mut self, session: &Session, at: usize, data: &[u8]) {
        if let Link::Sync(membership) = &session.stages[at - 1].link {
            self.group_messages.send(membership, data);
        }
    }

    /// Delivers messages of groups, a bounded number at a time.
    pub(crate) fn deliver_group_messages(&mut self) {
        let dropped = self.group_messages.flush(&self.shared.rings);
        if dropped > 0 {
            self.count_drop(Drop::Send, dropped);
        }
        for _ in 0..GROUP_MESSAGES_PER_LOOP {
            let Some((Member { session, at, .. }, data)) = self.group_messages.pop() else { return };
            self.with_session(session, |worker, session| {
                if at <= session.stages.len() {
                    worker.handle_stage(session, at, Message::binary(&data));
                }
            });
        }
    }
}

/// Sessions that are counted individually.
const METERED: usize = 1000;

/// Counts a session by its name, as long as there is room for names.
fn meter_session(session: &mut Session, stage: usize) {
    let place = &mut session.stages[stage];
    let Some(cluster_state) = &place.cluster_state else { return };
    let mut meters = cluster_state.meters.lock();
    if meters.len() < METERED {
        place.meter = Some(Arc::clone(meters.entry(session.name.to_string()).or_default()));
    }
}

/// `name` first, then all other metadata, then the payload.
fn encapsulate(session: &Session, data: &[u8]) -> Vec<u8> {
    let Value::Object(mut metadata) = session.metadata() else { return Vec::new() };
    metadata.remove("name");
    let name = Value::String(session.name.to_string());
    let others: Vec<String> =
        metadata.iter().map(|(key, value)| format!(",{}:{value}", Value::String(key.clone()))).collect();
    let others = others.concat();
    format!("{{\"metadata\":{{\"name\":{name}{others}}},\"payload\":\"{}\"}}", STANDARD.encode(data)).into_bytes()
}

/// The payload of an encapsulated message; anything invalid is an empty one.
fn decapsulate(data: &[u8]) -> Vec<u8> {
    let message = serde_json::from_slice::<Value>(data).unwrap_or_default();
    let payload = message.get("payload").and_then(Value::as_str);
    payload.and_then(|payload| STANDARD.decode(payload).ok()).unwrap_or_default()
}
