//! The state machine of a session: lookup, connecting all stages at once, retries, losing a stage, the end.
//!
//! ```text
//!   INIT --> lookup --> CONNECTED <--> DISCONNECTED --> FINALIZING --> DESTROYED
//! ```
//! The owner of the sockets calls [`Session::poll_action`] for what to do, and reports the outcome.

use super::Now;
use crate::config::engine::EventDump;
use crate::config::types::{Name, Retry, RetryOn};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Init,
    Connected,
    Disconnected,
    Finalizing,
    Destroyed,
}

impl Status {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Init => "INIT",
            Self::Connected => "CONNECTED",
            Self::Disconnected => "DISCONNECTED",
            Self::Finalizing => "FINALIZING",
            Self::Destroyed => "DESTROYED",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageStatus {
    Init,
    Retrying,
    Connected,
    Ready,
    Disconnected,
    Finalizing,
    End,
}

impl StageStatus {
    pub const fn word(self) -> &'static str {
        match self {
            Self::Init => "INIT",
            Self::Retrying => "RETRYING",
            Self::Connected => "CONNECTED",
            Self::Ready => "READY",
            Self::Disconnected => "DISCONNECTED",
            Self::Finalizing => "FINALIZING",
            Self::End => "END",
        }
    }
}

/// What the owner of the sockets has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Connect this stage, with a fresh choice of endpoint.
    Connect(usize),
    /// Give up an attempt that takes too long, or a connection that is gone.
    Abandon(usize),
    /// An attempt has taken too long: it is a failure.
    TimeOut(usize),
    /// All stages are connected: forward what is queued.
    Open,
    /// The session is over.
    Finish(Finish),
}

/// Why a session is over; the words are labels of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finish {
    Normal,
    Error,
    Api,
    Idle,
    Evicted,
    Shutdown,
    /// A panic while the session was handled.
    Fault,
}

impl Finish {
    /// Whether what waits to be sent is still delivered.
    pub const fn lets_linger(self) -> bool {
        match self {
            Self::Normal | Self::Error | Self::Idle | Self::Api | Self::Evicted | Self::Shutdown => true,
            // the state of the protocols is unknown
            Self::Fault => false,
        }
    }

    pub const ALL: [Self; 7] =
        [Self::Normal, Self::Error, Self::Api, Self::Idle, Self::Evicted, Self::Shutdown, Self::Fault];

    pub const fn word(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Error => "error",
            Self::Api => "api",
            Self::Idle => "idle",
            Self::Evicted => "evicted",
            Self::Shutdown => "shutdown",
            Self::Fault => "fault",
        }
    }
}

/// Why a session or one of its stages cannot be set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `Not Found`, `Service Unavailable`, ...
    pub message: &'static str,
    pub content: String,
    /// Whether another attempt may do better.
    pub retry: bool,
    /// Whether it counts against the endpoint's health.
    pub endpoint_fault: bool,
}

impl Failure {
    pub fn not_found(content: impl Into<String>) -> Self {
        Self { message: "Not Found", content: content.into(), retry: true, endpoint_fault: false }
    }

    pub fn connect(content: impl Into<String>) -> Self {
        Self { message: "Bad Gateway", content: content.into(), retry: true, endpoint_fault: false }
    }

    pub fn unavailable(content: impl Into<String>) -> Self {
        Self { message: "Service Unavailable", content: content.into(), retry: false, endpoint_fault: false }
    }

    /// The attempt took too long.
    pub fn timed_out() -> Self {
        Self::connect("connect ETIMEDOUT").with_endpoint_fault(true)
    }

    #[must_use]
    pub fn with_endpoint_fault(self, endpoint_fault: bool) -> Self {
        Self { endpoint_fault, ..self }
    }

    #[must_use]
    pub fn permanent(self) -> Self {
        Self { retry: false, ..self }
    }
}

#[derive(Clone, Debug)]
struct Event {
    unix: u64,
    kind: EventKind,
}

/// Small, because every session keeps some: common data is shared, rare data is boxed.
#[derive(Clone, Debug)]
enum EventKind {
    Init,
    Lookup(Arc<Lookup>),
    Connect,
    RareEvent(Box<RareEvent>),
    Destroy,
}

#[derive(Clone, Debug)]
enum RareEvent {
    Disconnect(String),
    Error {
        message: &'static str,
        content: String,
    },
    /// Content: the reason, if there is one.
    End(Option<&'static str>),
}

impl From<RareEvent> for EventKind {
    fn from(event: RareEvent) -> Self {
        Self::RareEvent(Box::new(event))
    }
}

/// Which rule took a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    pub rulelist: Name,
    pub rule: Name,
}

#[derive(Clone, Debug)]
struct Stage {
    status: StageStatus,
    /// Further attempts that are allowed.
    left: u32,
    /// When the last attempt began.
    began: u64,
    /// When it was last reconnected; 0 for never.
    again: u64,
    due: Due,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Nothing,
    /// The next attempt begins.
    Attempt(u64),
    /// The attempt under way has taken too long.
    Deadline(u64),
}

/// The state of one session, without its sockets.
#[derive(Debug)]
pub struct Session {
    status: Status,
    stages: SmallVec<[Stage; 1]>,
    retry: Retry,
    events: Vec<Event>,
    actions: VecDeque<Action>,
    /// [`Action::Open`] is yet to be taken.
    opening: bool,
    retries: u32,
}

/// Events kept of one session: the first and the last ones.
const EVENTS: usize = 32;

impl Session {
    pub fn new(now: Now) -> Self {
        let mut session = Self {
            status: Status::Init,
            stages: SmallVec::new(),
            retry: Retry::default(),
            events: Vec::with_capacity(3),
            actions: VecDeque::new(),
            opening: false,
            retries: 0,
        };
        session.log(now, EventKind::Init);
        session
    }

    pub const fn status(&self) -> Status {
        self.status
    }

    pub fn stage_status(&self, stage: usize) -> StageStatus {
        self.stages.get(stage).map_or(StageStatus::Init, |stage| stage.status)
    }

    /// Whether messages pass: all stages are connected, and what was queued before has gone ahead.
    pub fn is_open(&self) -> bool {
        self.status == Status::Connected && !self.opening
    }

    pub fn is_over(&self) -> bool {
        matches!(self.status, Status::Finalizing | Status::Destroyed)
    }

    /// Attempts beyond the first of each stage since this was last asked.
    pub const fn take_retries(&mut self) -> u32 {
        std::mem::replace(&mut self.retries, 0)
    }

    /// Whether a failure would be followed by another attempt.
    pub fn would_retry(&self, at: usize, failure: &Failure) -> bool {
        !self.is_over() && failure.retry && self.stages.get(at).is_some_and(|stage| stage.left > 0)
    }

    /// The lookup found a route with so many stages: all of them connect.
    pub fn handle_route(&mut self, lookup: Arc<Lookup>, stages: usize, retry: Retry, now: Now) {
        self.log(now, EventKind::Lookup(lookup));
        self.retry = retry;
        self.stages = (0..stages)
            .map(|_| Stage { status: StageStatus::Init, left: 0, began: 0, again: 0, due: Due::Nothing })
            .collect();
        for at in 0..stages {
            let left = if self.retries_connects() { retry.num_retries } else { 0 };
            if let Some(stage) = self.stages.get_mut(at) {
                stage.left = left;
            }
            self.attempt(at, now);
        }
    }

    /// The session cannot be set up at all.
    pub fn handle_refusal(&mut self, failure: &Failure, now: Now) {
        if self.is_over() {
            return;
        }
        self.log(now, RareEvent::Error { message: failure.message, content: failure.content.clone() });
        self.finish(Finish::Error);
    }

    /// A stage is connected.
    pub fn handle_connected(&mut self, at: usize, now: Now) {
        let Some(stage) =
            self.stages.get_mut(at).filter(|_| matches!(self.status, Status::Init | Status::Disconnected))
        else {
            return;
        };
        stage.status = StageStatus::Ready;
        stage.due = Due::Nothing;
        if self.stages.iter().all(|stage| stage.status == StageStatus::Ready) {
            self.status = Status::Connected;
            self.log(now, EventKind::Connect);
            self.opening = true;
            self.actions.push_back(Action::Open);
        }
    }

    /// An attempt came to nothing. `name` is the session's, for the event.
    pub fn handle_failure(&mut self, at: usize, failure: &Failure, name: &str, now: Now) {
        if self.is_over() {
            return;
        }
        let timeout = self.retry.timeout;
        let Some(stage) = self.stages.get_mut(at) else { return };
        if stage.left > 0 && failure.retry {
            stage.left -= 1;
            stage.status = StageStatus::Retrying;
            stage.due = Due::Attempt(now.ms.max(stage.began + timeout));
            return;
        }
        stage.status = StageStatus::End;
        stage.due = Due::Nothing;
        let content = format!("Pipeline setup failed for session \"{name}\": {}: {}", failure.message, failure.content);
        self.log(now, RareEvent::Error { message: failure.message, content });
        self.finish(Finish::Error);
    }

    /// A connected stage was lost; `cluster` and `error` are for the event.
    pub fn handle_disconnect(&mut self, at: usize, cluster: &str, error: &str, now: Now) {
        if self.is_over() {
            return;
        }
        self.log(now, RareEvent::Disconnect(format!("Session.disconnect: Stage: {cluster}: Error: {error}")));
        self.actions.push_back(Action::Abandon(at));
        if !self.retries_disconnects() {
            self.log(now, RareEvent::End(None));
            self.finish(Finish::Normal);
            return;
        }
        self.status = Status::Disconnected;
        let Retry { num_retries, timeout, .. } = self.retry;
        let Some(stage) = self.stages.get_mut(at) else { return };
        stage.status = StageStatus::Disconnected;
        stage.left = num_retries.saturating_sub(1);
        let due = if stage.again == 0 { now.ms } else { now.ms.max(stage.again + timeout) };
        stage.again = due;
        stage.due = Due::Attempt(due);
        if due == now.ms {
            self.retries += 1;
            self.attempt(at, now);
        }
    }

    /// Ends the session; `content` is shown in the END event.
    pub fn handle_end(&mut self, finish: Finish, content: Option<&'static str>, now: Now) {
        if self.is_over() {
            return;
        }
        self.log(now, RareEvent::End(content));
        self.finish(finish);
    }

    /// Everything was closed.
    pub fn handle_destroyed(&mut self, now: Now) {
        self.status = Status::Destroyed;
        for stage in &mut self.stages {
            stage.status = StageStatus::End;
        }
        self.log(now, EventKind::Destroy);
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Now) {
        for at in 0..self.stages.len() {
            match self.stages.get(at).map_or(Due::Nothing, |stage| stage.due) {
                Due::Attempt(due) if due <= now.ms => {
                    self.retries += 1;
                    self.attempt(at, now);
                }
                Due::Deadline(due) if due <= now.ms => {
                    if let Some(stage) = self.stages.get_mut(at) {
                        stage.due = Due::Nothing;
                    }
                    self.actions.push_back(Action::TimeOut(at));
                }
                Due::Attempt(_) | Due::Deadline(_) | Due::Nothing => {}
            }
        }
    }

    /// When [`Session::handle_timeout`] has something to do, and what.
    pub fn poll_timeout(&self) -> Option<(u64, &'static str)> {
        let dues = self.stages.iter().filter_map(|stage| match stage.due {
            Due::Nothing => None,
            Due::Attempt(at) => Some((at, "next attempt")),
            Due::Deadline(at) => Some((at, "attempt time-out")),
        });
        dues.min()
    }

    pub fn poll_action(&mut self) -> Option<Action> {
        let next = self.actions.pop_front();
        if next == Some(Action::Open) {
            self.opening = false;
        }
        if next.is_none() && self.actions.capacity() > 0 {
            // most sessions are idle most of the time: free the memory
            self.actions = VecDeque::new();
        }
        next
    }

    /// The events so far, as the API shows them.
    pub fn events(&self, name: &str) -> Vec<EventDump> {
        self.events.iter().map(|event| event.dump(name)).collect()
    }

    /// The last ERROR, where there was one: message and content.
    pub fn error(&self) -> Option<(&'static str, &str)> {
        self.events.iter().rev().find_map(|event| match &event.kind {
            EventKind::RareEvent(event) => match &**event {
                RareEvent::Error { message, content } => Some((*message, content.as_str())),
                RareEvent::Disconnect(_) | RareEvent::End(_) => None,
            },
            EventKind::Init | EventKind::Lookup(_) | EventKind::Connect | EventKind::Destroy => None,
        })
    }

    fn attempt(&mut self, at: usize, now: Now) {
        let Some(stage) = self.stages.get_mut(at) else { return };
        if stage.status == StageStatus::Disconnected {
            stage.status = StageStatus::Retrying;
        }
        stage.began = now.ms;
        stage.due = Due::Deadline(now.ms + self.retry.timeout);
        self.actions.push_back(Action::Connect(at));
    }

    fn finish(&mut self, finish: Finish) {
        self.status = Status::Finalizing;
        for stage in &mut self.stages {
            stage.due = Due::Nothing;
            stage.status = StageStatus::Finalizing;
        }
        self.actions.push_back(Action::Finish(finish));
    }

    const fn retries_connects(&self) -> bool {
        matches!(self.retry.retry_on, RetryOn::ConnectFailure | RetryOn::Always)
    }

    const fn retries_disconnects(&self) -> bool {
        matches!(self.retry.retry_on, RetryOn::Disconnect | RetryOn::Always) && self.retry.num_retries > 0
    }

    fn log(&mut self, now: Now, kind: impl Into<EventKind>) {
        if self.events.len() == EVENTS {
            self.events.remove(EVENTS / 2);
        }
        self.events.push(Event { unix: now.unix, kind: kind.into() });
    }
}

impl Event {
    fn dump(&self, name: &str) -> EventDump {
        let (event, message, content) = match &self.kind {
            EventKind::Init => ("INIT", format!("Session {name} initialized"), ""),
            EventKind::Lookup(lookup) => {
                let Lookup { rulelist, rule } = &**lookup;
                let message = format!("Successfull lookup on rulelist:{rulelist}/rule:{rule}");
                ("LOOKUP SUCCESS", message, "")
            }
            EventKind::Connect => ("CONNECT", "Session successfully connected".to_owned(), ""),
            EventKind::RareEvent(event) => match &**event {
                RareEvent::Disconnect(why) => ("DISCONNECT", why.clone(), ""),
                RareEvent::Error { message, content } => ("ERROR", (*message).to_owned(), content.as_str()),
                RareEvent::End(None) => ("END", "Normal end".to_owned(), ""),
                RareEvent::End(Some(content)) => ("END", "OK".to_owned(), *content),
            },
            EventKind::Destroy => ("DESTROY", "Session destroyed".to_owned(), ""),
        };
        EventDump { event, at: Duration::from_millis(self.unix), message, content: content.to_owned() }
    }
}

#[cfg(test)]
mod tests;
