//! Messages on their way through a session: source, stages in order, back to the source.

use super::close_notice::after_header;
use super::link::{Codec, HIGH_WATER, Link, Written};
use super::log::{Line, LogFile};
use super::loop_detection::MAX_HOPS;
use super::session::{ServerHandshake, Session, SetupQueue};
use super::slab::Key;
use super::stats::{Drop, Limit};
use super::sync::Member;
use super::sys;
use super::worker::Worker;
use crate::config::types::{ClusterSpec, DropPolicy, LoggerCluster};
use crate::proto::session::Failure;
use crate::proto::{Message, json_socket};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

/// The largest UDP payload over IPv4: longer pieces of a stream are cut.
const LARGEST: usize = 65_507;

/// Messages of Sync groups that one loop delivers.
const GROUP_MESSAGES_PER_LOOP: usize = 1024;

impl Worker {
    /// A message from the client.
    pub(super) fn handle_source(&mut self, session: &mut Session, message: Message<'_>) {
        let hot = &mut self.hot[session.key.slot as usize];
        hot.seen = self.now.ms;
        hot.packets_in += 1;
        hot.bytes_in += message.data.len() as u64;
        self.stats.packets_in.add(1);
        self.stats.bytes_in.add(message.data.len() as u64);
        match &session.handshake {
            ServerHandshake::Waiting(_) => self.handle_header(session, message.data),
            ServerHandshake::Read(header) if **header == *message.data => {}
            ServerHandshake::None | ServerHandshake::Open(_) | ServerHandshake::Read(_) => {
                self.forward(session, 0, message)
            }
            ServerHandshake::Answered(header) if **header == *message.data => self.accept_header(session),
            ServerHandshake::Answered(header) => {
                session.handshake = after_header(header);
                self.choose_path(session);
                self.forward(session, 0, message);
            }
        }
    }

    /// Which of some datagrams the rates let pass; the others are counted.
    pub(super) fn apply_rate_limits(&self, session: &Session, sizes: &[usize]) -> Range<usize> {
        let source = session.peer.map(|peer| peer.ip());
        let mut passing = 0..sizes.len();
        for limiter in session.limiters() {
            match limiter.grant(source, &sizes[passing.clone()], self.now.ms) {
                (granted, DropPolicy::Newest) => passing.end = passing.start + granted,
                (granted, DropPolicy::Oldest) => passing.start = passing.end - granted,
            }
        }
        self.count_drop(Drop::Rate, (sizes.len() - passing.len()) as u64);
        passing
    }

    /// A message out of a stage.
    pub(super) fn handle_stage(&mut self, session: &mut Session, at: usize, message: Message<'_>) {
        self.hot[session.key.slot as usize].seen = self.now.ms;
        if session.stages[at - 1].unconfirmed {
            super::circuit::confirm_endpoint(&mut session.stages[at - 1]);
        }
        if session.stages[at - 1].handshake.is_some() {
            return self.handle_answer(session, at - 1, message);
        }
        self.forward(session, at, message);
    }

    /// Passes a message on from a place on the way, or keeps it until the session stands.
    pub(super) fn forward(&mut self, session: &mut Session, from: usize, message: Message<'_>) {
        if session.machine.is_over() {
            return;
        }
        if !session.machine.is_open() {
            return self.queue_until_connected(session, from, message);
        }
        let mut data = Cow::Borrowed(message.data);
        let mut text = message.text;
        let mut at = from;
        loop {
            at = session.after(at);
            if at == 0 {
                return self.send_to_source(session, Message { data: &data, text });
            }
            if !session.is_virtual(at) {
                return self.send_to_stage(session, at, Message { data: &data, text });
            }
            match self.apply_virtual_cluster(session, at, &data) {
                Transformed::Same => {}
                Transformed::Changed(bytes) => {
                    data = Cow::Owned(bytes);
                    text = false;
                }
                Transformed::Nothing => return,
            }
        }
    }

    fn queue_until_connected(&mut self, session: &mut Session, from: usize, message: Message<'_>) {
        let room = self.snapshot.admin.limits.setup_queue;
        let fits = self.setup_queue_bytes + message.data.len() <= room;
        let of_stream = matches!(session.link(from), Link::Stream(_));
        let held = session.setup_queue.get_or_insert_with(Box::<SetupQueue>::default);
        if fits && of_stream {
            held.push_all(from, message);
        } else if !fits || !held.push(from, message) {
            self.count_drop(Drop::SetupQueue, 1);
            if !fits {
                self.stats.reach_limit(Limit::SetupQueue);
            }
            if of_stream {
                let why = format!("More than {room} bytes wait for sessions to connect (admin.limits.setup_queue)");
                session.machine.handle_refusal(&Failure::unavailable(why), self.now);
            }
            return;
        }
        self.setup_queue_bytes += message.data.len();
    }

    /// Passes on what waited for the session to stand.
    pub(super) fn drain_setup_queue(&mut self, session: &mut Session) {
        while let Some((from, text, data)) = session.setup_queue.as_mut().and_then(|held| held.pop()) {
            self.setup_queue_bytes -= data.len();
            self.forward(session, from, Message { data: &data, text });
        }
        session.setup_queue = None;
    }

    pub(super) fn send_to_source(&mut self, session: &mut Session, message: Message<'_>) {
        let slot = session.key.slot;
        let hot = &mut self.hot[slot as usize];
        hot.packets_out += 1;
        hot.bytes_out += message.data.len() as u64;
        self.stats.packets_out.add(1);
        self.stats.bytes_out.add(message.data.len() as u64);
        self.send_raw_to_source(session, message);
    }

    /// Sends to the client without counting: answers of handshakes.
    pub(super) fn send_raw_to_source(&mut self, session: &mut Session, message: Message<'_>) {
        let worker = self.id;
        let fd = session.port.as_ref().and_then(|port| port.socket(worker));
        match &mut session.source {
            Link::UdpPeer => {
                for piece in pieces(message.data) {
                    self.answer_udp(session.key.slot, piece, fd.unwrap_or(-1));
                }
            }
            Link::UnixPeer(peer) => {
                if peer.is_unnamed() || sys::send_to_unix(fd.unwrap_or(-1), message.data, peer).is_err() {
                    self.count_drop(Drop::Send, 1);
                }
            }
            Link::Datagram(fd) => {
                if let Err(error) = sys::send(fd.as_raw_fd(), message.data) {
                    self.count_drop(Drop::Send, 1);
                    if !sys::would_block(&error) {
                        self.source_lost(session);
                    }
                }
            }
            Link::Stream(_) => self.send_to_stream(session, 0, message),
            Link::None | Link::Virtual | Link::Sync(_) => {}
        }
    }

    fn send_to_stage(&mut self, session: &mut Session, at: usize, message: Message<'_>) {
        match &session.stages[at - 1].link {
            Link::Datagram(fd) => {
                let fd = fd.as_raw_fd();
                // Only UDP takes several datagrams as one message and gives them out one by one.
                if self.outbox.open && session.stages[at - 1].is_udp() {
                    if self.outbox.is_full(message.data.len()) {
                        self.flush_outbox(session);
                    }
                    if message.data.len() <= LARGEST {
                        return self.outbox.push(at, fd, message.data);
                    }
                }
                for piece in pieces(message.data) {
                    match sys::send(fd, piece) {
                        Ok(_) => {}
                        Err(error) if is_loss(&error) => {
                            self.count_drop(Drop::Send, 1);
                            return self.stage_lost(session, at, &error, "sendmsg");
                        }
                        Err(_) => self.count_drop(Drop::Send, 1),
                    }
                }
            }
            Link::Stream(_) => self.send_to_stream(session, at, message),
            Link::Sync(_) => self.send_to_group(session, at, message.data),
            Link::None | Link::Virtual | Link::UdpPeer | Link::UnixPeer(_) => {}
        }
    }

    pub(super) fn send_to_stream(&mut self, session: &mut Session, at: usize, message: Message<'_>) {
        let Link::Stream(stream) = session.link(at) else { return };
        let corked = self.outbox.open && stream.cork();
        let written = stream.send(message);
        if !corked {
            return self.follow_write(session, at, written);
        }
        if !self.outbox.corked.contains(&at) {
            self.outbox.corked.push(at);
        }
        if written == Written::Dropped {
            self.count_drop(Drop::Send, 1);
        }
    }

    /// What follows from how a write to a stream went.
    pub(super) fn follow_write(&mut self, session: &mut Session, at: usize, written: Written) {
        match written {
            Written::Done => {}
            Written::Queued => {
                if matches!(session.link(at), Link::Stream(stream) if stream.waiting() > HIGH_WATER) {
                    self.pause_feeders(session, at);
                }
                self.watch_stream(session, at);
            }
            Written::Dropped => self.count_drop(Drop::Send, 1),
            Written::Broken => self.stream_lost(session, at, &io::Error::from_raw_os_error(libc::EPIPE)),
        }
    }

    /// What a stage inside the worker makes of a message.
    fn apply_virtual_cluster(&mut self, session: &Session, at: usize, data: &[u8]) -> Transformed {
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
            | ClusterSpec::Udp(_)
            | ClusterSpec::Tcp(_)
            | ClusterSpec::Uds(_)
            | ClusterSpec::WebSocket(_)
            | ClusterSpec::JsonSocket(_) => Transformed::Nothing,
        }
    }

    fn write_log(&self, logger: &LoggerCluster, data: &[u8]) {
        let file = (logger.log_file != "-").then(|| {
            let directory = self.snapshot.admin.log_dir.as_ref()?;
            let file = Path::new(&logger.log_file).strip_prefix(directory).ok()?;
            Some(LogFile { directory: directory.clone(), file: file.to_owned() })
        });
        if let Some(None) = file {
            return;
        }
        let prefix = if logger.log_prefix.is_empty() { String::new() } else { format!("{}: ", logger.log_prefix) };
        let bytes = [prefix.as_bytes(), data].concat();
        self.log(Line { file: file.flatten(), bytes });
    }

    /// Hands a line to the thread that writes; one too many is dropped and counted.
    pub(super) fn log(&self, line: Line) {
        if !self.shared.sink.write(line) {
            self.stats.log_drops.add(1);
        }
    }

    /// Tells the other members of a group; a slow one loses its own messages only.
    fn send_to_group(&mut self, session: &Session, at: usize, data: &[u8]) {
        let Link::Sync(membership) = &session.stages[at - 1].link else { return };
        let members = membership.group.others(membership.member, data);
        for member in members.iter().filter(|member| **member != membership.member) {
            if member.worker == self.id {
                self.group_messages.push_back((*member, data.to_vec()));
            } else {
                self.remote_group_messages[member.worker].push((*member, data.to_vec()));
            }
        }
    }

    /// Hands out what members of groups said, a bounded number at a time.
    pub(super) fn deliver_group_messages(&mut self) {
        for worker in 0..self.remote_group_messages.len() {
            if self.remote_group_messages[worker].is_empty() {
                continue;
            }
            let batch = std::mem::take(&mut self.remote_group_messages[worker]);
            let count = batch.len() as u64;
            if self.shared.rings[worker].push(super::commands::Command::GroupMessages(batch)).is_err() {
                self.count_drop(Drop::Send, count);
            }
        }
        for _ in 0..GROUP_MESSAGES_PER_LOOP {
            let Some((Member { session, at, .. }, data)) = self.group_messages.pop_front() else { return };
            self.with_session(session, |worker, session| {
                if at <= session.stages.len() {
                    worker.handle_stage(session, at, Message::binary(&data));
                }
            });
        }
    }

    /// A JSONSocket client's header, or a piece of it.
    fn handle_header(&mut self, session: &mut Session, data: &[u8]) {
        let limit = self.snapshot.admin.limits.jsonsocket_header;
        let ServerHandshake::Waiting(read) = &mut session.handshake else { return };
        let is_stream = matches!(&session.source, Link::Stream(stream) if matches!(stream.codec, Codec::Bytes));
        read.extend_from_slice(data);
        let end = if is_stream { json_socket::header_end(read) } else { Some(read.len()) };
        let Some(end) = end.filter(|end| *end <= limit).or_else(|| (read.len() > limit).then_some(read.len())) else {
            return;
        };
        let mut header = std::mem::take(read);
        let rest = header.split_off(end);
        let parsed = if header.len() > limit {
            self.stats.reach_limit(Limit::JsonSocketHeader);
            let why = format!("Bad Request: The header is larger than {limit} bytes (admin.limits.jsonsocket_header)");
            Err(json_socket::Rejected { status: 400, message: why })
        } else {
            json_socket::parse_request(&header)
        };
        match parsed {
            Ok(request) => {
                session.hops = session.hops.max(json_socket::hops(&request));
                Self::import_header(session, request);
                session.handshake = ServerHandshake::Read(header.into());
                if session.hops > MAX_HOPS {
                    self.count_drop(Drop::Loop, 1);
                    let content = format!("Routing loop: more than {MAX_HOPS} proxies on the path");
                    return session.machine.handle_refusal(&Failure::unavailable(content), self.now);
                }
                if !rest.is_empty() {
                    self.queue_until_connected(session, 0, Message::binary(&rest));
                }
                self.route(session);
            }
            Err(rejected) => {
                session.handshake = ServerHandshake::None;
                self.send_raw_to_source(session, Message::binary(&rejected.to_bytes()));
                let refused = Failure::unavailable(rejected.message);
                let failure = Failure { message: "Bad Request", ..refused };
                session.machine.handle_refusal(&failure, self.now);
            }
        }
    }

    fn import_header(session: &mut Session, mut header: serde_json::Map<String, Value>) {
        json_socket::take_token(&mut header);
        let mut metadata = session.metadata();
        let labels = header.get("labels").cloned();
        metadata["JSONSocket"] = Value::Object(header);
        if let (Some(Value::Object(labels)), true) = (labels, session.listener.config.options.import_labels) {
            let all = metadata
                .as_object_mut()
                .map(|map| map.entry("labels").or_insert_with(|| Value::Object(serde_json::Map::new())));
            if let Some(Value::Object(all)) = all {
                all.extend(labels);
            }
        }
        session.metadata = Some(Box::new(metadata));
    }

    /// Tells a JSONSocket client that its route stands.
    pub(super) fn accept_header(&mut self, session: &mut Session) {
        if let ServerHandshake::Read(header) = &mut session.handshake {
            let header = std::mem::take(header);
            let is_message = !matches!(&session.source, Link::Stream(stream) if matches!(stream.codec, Codec::Bytes));
            session.handshake = if is_message { ServerHandshake::Answered(header) } else { ServerHandshake::None };
        }
        self.send_raw_to_source(session, Message::binary(json_socket::ACCEPTED.as_bytes()));
    }

    pub(super) fn send_handshake(&mut self, session: &mut Session, stage: usize) {
        let now = self.now.ms;
        let Some(handshake) = &mut session.stages[stage].handshake else { return };
        handshake.sent_at = now;
        let header = handshake.header.clone();
        self.send_to_stage(session, stage + 1, Message::binary(&header));
    }

    /// The answer to our own JSONSocket header, or a piece of it.
    fn handle_answer(&mut self, session: &mut Session, stage: usize, message: Message<'_>) {
        let limit = self.snapshot.admin.limits.jsonsocket_header;
        let is_stream =
            matches!(&session.stages[stage].link, Link::Stream(stream) if matches!(stream.codec, Codec::Bytes));
        let Some(handshake) = &mut session.stages[stage].handshake else { return };
        handshake.answer.extend_from_slice(message.data);
        let end = if is_stream { json_socket::header_end(&handshake.answer) } else { Some(handshake.answer.len()) };
        let Some(end) = end.or((handshake.answer.len() > limit).then_some(limit)) else { return };
        let mut answer = std::mem::take(&mut handshake.answer);
        let rest = answer.split_off(end);
        session.stages[stage].handshake = None;
        match json_socket::parse_response(&answer) {
            Ok(()) => {
                self.stage_connected(session, stage);
                if !rest.is_empty() {
                    self.forward(session, stage + 1, Message::binary(&rest));
                }
            }
            Err(rejected) => {
                let failure = Failure::connect(rejected.to_string());
                self.stage_failed(session, stage, failure);
            }
        }
    }

    /// A stage's socket failed, seen from the packet path.
    pub(super) fn drop_stage(&mut self, key: Key, at: usize, error: &io::Error, call: &str) {
        self.with_session(key, |worker, session| worker.stage_lost(session, at, error, call));
    }
}

/// What became of a message inside the worker.
enum Transformed {
    Same,
    Changed(Vec<u8>),
    Nothing,
}

/// Errors of a connected datagram socket that mean that nobody is there.
fn is_loss(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNREFUSED
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::EPIPE
                | libc::ENOTCONN
                | libc::ECONNRESET
        )
    )
}

/// A message cut to what fits into one datagram; an empty one is one.
fn pieces(data: &[u8]) -> impl Iterator<Item = &[u8]> {
    (0..data.len().div_ceil(LARGEST).max(1)).map(move |i| &data[i * LARGEST..data.len().min((i + 1) * LARGEST)])
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

/// Keeps `Arc` in scope for the cluster of a stage.
pub(super) fn cluster_name(session: &Session, at: usize) -> Arc<str> {
    session.stages.get(at.wrapping_sub(1)).map(|stage| Arc::clone(&stage.cluster_name)).unwrap_or_default()
}
