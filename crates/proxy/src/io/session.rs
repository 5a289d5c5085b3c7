//! A session with its sockets, as one worker holds it.

use super::cluster::{ClusterState, EndpointState};
use super::flow::FlowKey;
use super::link::Link;
use super::loop_detection::End;
use super::port::{ListenerState, Port};
use super::rate::Limiter;
use super::slab::Key;
use super::splice::Splice;
use super::stats::Meter;
use super::sys::SockAddr;
use crate::config::types::{Cluster, Endpoint, Name, ObjectId, Route};
use crate::proto::session::{Lookup, Session as SessionMachine};
use crate::proto::{Message, Now, json_socket};
use crate::transport::spec::ListenAddress;
use serde_json::{Value, json};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

/// The part of a session that the packet path uses: one cache line towards the endpoint, and a second one for replies.
#[derive(Clone, Default)]
#[repr(C, align(64))]
pub(crate) struct Hot {
    pub key: FlowKey,
    /// The socket for the fast path; negative: the slow path.
    pub upstream: i32,
    pub generation: u32,
    /// When a packet last passed, in either direction.
    pub seen: u64,
    pub packets_in: u64,
    pub bytes_in: u64,
    /// The last batch with this session, and its group there.
    pub batch: u32,
    pub group: u16,
    /// The route refuses segmented messages.
    pub singly: bool,
    /// The endpoint has not responded yet.
    pub unconfirmed: bool,
    pub packets_out: u64,
    pub bytes_out: u64,
    pub peer: SockAddr,
    /// GRO is enabled on the endpoint's socket. Most sessions get one reply at a time, so it is enabled only after several
    /// arrived at once.
    pub joined: bool,
}

const _: () = assert!(std::mem::offset_of!(Hot, packets_out) == 64 && size_of::<Hot>() == 128, "two cache lines");

/// A session's cold part.
pub(crate) struct Session {
    pub key: Key,
    /// Grows from session to session over all workers.
    pub sequence: u64,
    pub name: Box<str>,
    pub machine: SessionMachine,
    pub listener: Arc<ListenerState>,
    /// The port for replies, for clients without a connection.
    pub port: Option<Arc<Port>>,
    pub local: SocketAddr,
    pub peer: Option<SocketAddr>,
    pub source: Link,
    pub handshake: ServerHandshake,
    /// Absent if it follows from the addresses.
    pub metadata: Option<Box<Value>>,
    /// The rule rewrote `/HTTP/url/host`, so it is used.
    pub rewrote_host: bool,
    pub rewrote_port: bool,
    /// Shared by sessions with the same outcome of the rules.
    pub decision: Option<Arc<Decision>>,
    pub stages: SmallVec<[Stage; 1]>,
    pub setup_queue: Option<Box<SetupQueue>>,
    pub splice: Option<Box<Splice>>,
    pub created: Now,
    /// When the worker looks at it next; 0 for never.
    pub timer: u64,
    pub idle_ms: u64,
    /// Counted among the requests through API listeners.
    pub api_request: bool,
    /// When reading from the client resumes; 0 if it is not paused by a rate limit.
    pub resume_at: u64,
    /// Proxies that the client passed, counting this one each time.
    pub hops: u8,
}

/// The state of a JSONSocket client's header.
#[derive(Default)]
pub(crate) enum ServerHandshake {
    /// Not a JSONSocket, or done with it.
    #[default]
    None,
    /// The header is not complete.
    Waiting(Vec<u8>),
    /// It was read; the answer waits for the route.
    Read(Box<[u8]>),
    /// It was answered; a repetition before any data is answered again.
    Answered(Box<[u8]>),
    /// Data has arrived; the client's close notice will have this token.
    Open(u64),
}

impl ServerHandshake {
    /// The state after the first data behind a header.
    pub(crate) fn after_header(header: &[u8]) -> Self {
        token_of(header).map_or(Self::None, Self::Open)
    }

    /// The token that a close notice of the client must have.
    pub(crate) fn close_token(&self) -> Option<u64> {
        match self {
            Self::Open(token) => Some(*token),
            Self::Read(header) | Self::Answered(header) => token_of(header),
            Self::None | Self::Waiting(_) => None,
        }
    }
}

fn token_of(header: &[u8]) -> Option<u64> {
    json_socket::take_token(&mut json_socket::parse_request(header).ok()?)
}

/// Which rule and route a session got.
pub(crate) struct Decision {
    pub rulelists: Vec<ObjectId>,
    pub rule: ObjectId,
    pub route: Arc<Route>,
    pub lookup: Arc<Lookup>,
}

/// One stage of a session's path.
pub(crate) struct Stage {
    pub cluster_name: Name,
    pub cluster: Option<Arc<Cluster>>,
    pub cluster_state: Option<Arc<ClusterState>>,
    pub endpoint: Option<Arc<Endpoint>>,
    pub state: Option<Arc<EndpointState>>,
    pub link: Link,
    pub handshake: Option<Box<ClientHandshake>>,
    pub began: u64,
    /// Counted among the cluster's attempts.
    pub pending: bool,
    /// Counted among the cluster's retries.
    pub retrying: Option<Arc<ClusterState>>,
    /// Connected, but the endpoint has not responded yet.
    pub unconfirmed: bool,
    /// What this session passes through a Metric cluster, where sessions are counted.
    pub meter: Option<Arc<Meter>>,
    /// The local end, if it connects to a listener of this proxy.
    pub looped: Option<Box<End>>,
    /// Addresses of its name that were tried.
    pub tries: u16,
}

/// A JSONSocket handshake as a client.
pub(crate) struct ClientHandshake {
    pub header: Vec<u8>,
    pub answer: Vec<u8>,
    pub retransmit_ms: u64,
    pub sent_at: u64,
}

/// Messages queued until the session is connected, with their place on the path.
#[derive(Default)]
pub(crate) struct SetupQueue {
    messages: VecDeque<(usize, bool, Vec<u8>)>,
    bytes: usize,
}

impl SetupQueue {
    const MESSAGES: usize = 64;
    const BYTES: usize = 64 * 1024;
    /// What keeping a message costs besides its bytes, rounded up.
    const OVERHEAD: usize = 64;

    /// What a message counts for.
    pub(crate) const fn cost(len: usize) -> usize {
        len + Self::OVERHEAD
    }

    /// Keeps a datagram, unless too much waits already. A single large one always fits.
    pub(crate) fn push(&mut self, from: usize, message: Message<'_>) -> bool {
        let allowed = Self::BYTES + Self::MESSAGES * Self::OVERHEAD;
        let full = self.messages.len() >= Self::MESSAGES
            || (!self.messages.is_empty() && self.bytes + Self::cost(message.data.len()) > allowed);
        if !full {
            self.push_all(from, message);
        }
        !full
    }

    /// Keeps a part of a stream, of which nothing may be missing: no more of it is read once [`Self::is_full`].
    pub(crate) fn push_all(&mut self, from: usize, message: Message<'_>) {
        self.bytes += Self::cost(message.data.len());
        self.messages.push_back((from, message.text, message.data.to_vec()));
    }

    pub(crate) fn pop(&mut self) -> Option<(usize, bool, Vec<u8>)> {
        let message = self.messages.pop_front()?;
        self.bytes -= Self::cost(message.2.len());
        Some(message)
    }

    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= Self::BYTES || self.messages.len() >= Self::MESSAGES
    }
}

impl Session {
    /// The metadata as rules and dumps see it.
    pub(crate) fn metadata(&self) -> Value {
        if let Some(metadata) = &self.metadata {
            return (**metadata).clone();
        }
        let mut metadata = json!({ "name": &*self.name });
        if let Some(peer) = self.peer {
            let is_udp = matches!(self.listener.config.spec.listen_address(), ListenAddress::Udp { .. });
            let transport = if is_udp { "UDP" } else { "TCP" };
            metadata["IP"] = json!({ "src_addr": peer.ip().to_string(), "dst_addr": self.local.ip().to_string() });
            metadata[transport] = json!({ "src_port": peer.port(), "dst_port": self.local.port() });
        }
        metadata
    }

    /// The rates that hold for what the client sends: its listener's and those of the clusters on its way.
    pub(crate) fn limiters(&self) -> impl Iterator<Item = &Limiter> {
        let clusters = self
            .stages
            .iter()
            .filter_map(|stage| stage.cluster_state.as_ref())
            .map(|cluster_state| &*cluster_state.limiter);
        std::iter::once(&*self.listener.limiter).chain(clusters).filter(|limiter| limiter.limits())
    }

    /// Whether a stage that is lost is connected again.
    pub(crate) fn reconnects(&self) -> bool {
        use crate::config::types::RetryOn::{Always, Disconnect};
        self.decision.as_ref().is_some_and(|decision| {
            matches!(decision.route.retry.retry_on, Always | Disconnect) && decision.route.retry.num_retries > 0
        })
    }

    /// The link of a place on the way: 0 is the source, then the stages.
    pub(crate) fn link(&mut self, at: usize) -> &mut Link {
        if at == 0 { &mut self.source } else { &mut self.stages[at - 1].link }
    }

    /// The same to look at.
    pub(crate) fn link_at(&self, at: usize) -> &Link {
        if at == 0 { &self.source } else { &self.stages[at - 1].link }
    }

    /// Whether a stage has to hear from its endpoint before it is connected: a WebSocket or JSONSocket response.
    pub(crate) fn awaits_response(&self, at: usize) -> bool {
        at > 0
            && (self.stages[at - 1].handshake.is_some()
                || matches!(self.link_at(at), Link::Stream(stream) if stream.is_upgrading()))
    }

    /// The name of the cluster at a place on the way.
    pub(crate) fn cluster_name(&self, at: usize) -> Name {
        self.stages.get(at.wrapping_sub(1)).map(|stage| Arc::clone(&stage.cluster_name)).unwrap_or_default()
    }

    /// Whether a stage only has to be passed in memory.
    pub(crate) fn is_virtual(&self, at: usize) -> bool {
        at > 0 && matches!(self.stages[at - 1].link, Link::Virtual)
    }

    /// The place after `at`.
    pub(crate) fn after(&self, at: usize) -> usize {
        (at + 1) % (self.stages.len() + 1)
    }

    /// The first place after `at` that has a socket; the source if there is none.
    pub(crate) fn socket_after(&self, at: usize) -> usize {
        let mut next = self.after(at);
        while next != 0 && self.is_virtual(next) {
            next = self.after(next);
        }
        next
    }
}

impl Stage {
    /// Whether its datagrams leave by UDP, whatever is spoken in them.
    pub(crate) fn is_udp(&self) -> bool {
        self.cluster.as_ref().is_some_and(|cluster| cluster.spec.is_over_udp())
    }

    pub(crate) fn new(cluster_name: Name) -> Self {
        Self {
            cluster_name,
            cluster: None,
            cluster_state: None,
            endpoint: None,
            state: None,
            link: Link::None,
            handshake: None,
            began: 0,
            pending: false,
            retrying: None,
            unconfirmed: false,
            meter: None,
            looped: None,
            tries: 0,
        }
    }
}
