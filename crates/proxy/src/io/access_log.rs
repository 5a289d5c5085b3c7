//! The access log: one line of JSON per finished session.

use super::log::{Line, LogFile};
use super::session::Session;
use super::worker::Worker;
use crate::config::engine::Traffic;
use crate::config::types::Addresses;
use crate::proto::session::Finish;
use portolan_core::mesh::Path;
use serde_json::{Map, Value, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Paths of metadata that a line may show.
const LABELS: usize = 4;

impl Worker {
    pub(crate) fn log_access(&mut self, session: &Session, finish: Finish, traffic: Traffic) {
        let Some(file) = self.snapshot.admin.access_log_path.as_deref().and_then(log_file) else { return };
        if !self.is_logged(session) {
            return;
        }
        let cut = self.snapshot.admin.access_log_addresses == Addresses::Cut;
        let line = self.describe(session, finish, traffic, cut);
        self.log(Line { file: Some(file), bytes: format!("{line}\n").into_bytes() });
    }

    /// Whether the listener wants its sessions logged, and this one among them.
    fn is_logged(&mut self, session: &Session) -> bool {
        let Some(monitoring) = &session.listener.config.options.monitoring else { return true };
        if monitoring.access_log == Some(false) {
            return false;
        }
        let Some(ratio) = monitoring.sample_ratio else { return true };
        (self.next_random() >> 11) as f64 / (1u64 << 53) as f64 <= ratio
    }

    fn describe(&self, session: &Session, finish: Finish, traffic: Traffic, cut: bool) -> Value {
        let stages = &session.stages;
        let clusters: Vec<&str> = stages.iter().map(|stage| &*stage.cluster_name).collect();
        let endpoints: Vec<_> = stages.iter().map(|stage| stage.endpoint.as_ref().map(|it| &*it.name)).collect();
        let shown = |peer: SocketAddr| if cut { cut_address(peer.ip()) } else { peer.to_string() };
        let mut line = json!({
            "time": jiff::Timestamp::from_millisecond(self.now.unix as i64).map(|at| at.to_string()).ok(),
            "session": session_name(session, cut), "listener": &*session.listener.config.name,
            "client": session.peer.map(shown), "clusters": clusters, "endpoints": endpoints,
            "reason": finish.word(), "error": session.machine.error().map(|(_, content)| content),
            "duration_ms": self.now.ms - session.created.ms,
            "packets_in": traffic.packets_in, "bytes_in": traffic.bytes_in,
            "packets_out": traffic.packets_out, "bytes_out": traffic.bytes_out,
        });
        if cut && let Some(error) = line["error"].as_str() {
            line["error"] = error.replace(&*session.name, &session_name(session, cut)).into();
        }
        if let Some(monitoring) = session.listener.config.options.monitoring.as_ref() {
            let metadata = session.metadata();
            let labels = monitoring.labels.iter().take(LABELS);
            let read = |path: &String| Some((path.clone(), Path::new(path).read(&metadata)?.clone()));
            line["labels"] = Value::Object(labels.filter_map(read).collect::<Map<_, _>>());
        }
        line
    }
}

/// A session's name, with the client's address shortened if `cut`.
fn session_name(session: &Session, cut: bool) -> String {
    match session.peer.filter(|_| cut) {
        Some(peer) => session.name.replacen(&format!("{}:{}", peer.ip(), peer.port()), &cut_address(peer.ip()), 1),
        None => session.name.to_string(),
    }
}

/// The network that an address is in: a /24 of IPv4, a /48 of IPv6.
fn cut_address(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => format!("{}/24", Ipv4Addr::from(u32::from(v4) & 0xffff_ff00)),
        IpAddr::V6(v6) => format!("{}/48", Ipv6Addr::from(u128::from(v6) >> 80 << 80)),
    }
}

fn log_file(path: &std::path::Path) -> Option<LogFile> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = directory.unwrap_or(std::path::Path::new(".")).to_owned();
    Some(LogFile { directory, file: path.file_name()?.into() })
}
