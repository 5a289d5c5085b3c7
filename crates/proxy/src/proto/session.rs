//! The life of a session: lookup, connecting all stages at once, retries, losing a stage, the end.
//!
//! ```text
//!   INIT --> lookup --> CONNECTED <--> DISCONNECTED --> FINALIZING --> DESTROYED
//! ```
//! Whoever owns the sockets asks [`Session::poll_action`] what to do and tells what came of it.

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
    /// All stages stand: pass on what waits.
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
    /// A fault in this program, which cost this session and no other.
    Fault,
}

impl Finish {
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
    /// Whether it speaks against the endpoint's health.
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

/// Small, because sessions are many and each keeps some: what most of them have alike is shared, and what few have
/// lies elsewhere.
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
    /// Content: why, where there is a reason to tell.
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
    /// When it was last connected again after it had stood; 0 for never.
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
    retries: u32,
}

/// Events kept of one session: the first and the last ones tell most.
const EVENTS: usize = 32;

impl Session {
    pub fn new(now: Now) -> Self {
        let mut session = Self {
            status: Status::Init,
            stages: SmallVec::new(),
            retry: Retry::default(),
            events: Vec::with_capacity(3),
            actions: VecDeque::new(),
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

    pub fn is_open(&self) -> bool {
        self.status == Status::Connected
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

    /// A stage stands.
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

    /// A stage that stood was lost; `cluster` and `error` are for the event.
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

    /// Ends the session; content is what the END event tells beside `OK`.
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
        if next.is_none() && self.actions.capacity() > 0 {
            // Sessions are many and mostly at rest: the room goes back.
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
mod tests {
    use super::*;

    fn at(ms: u64) -> Now {
        Now { ms, unix: ms }
    }

    fn routed(on: RetryOn, num_retries: u32, stages: usize) -> Session {
        let mut session = Session::new(at(0));
        let retry = Retry { retry_on: on, num_retries, timeout: 100 };
        let lookup = Arc::new(Lookup { rulelist: "rl".into(), rule: "r".into() });
        session.handle_route(lookup, stages, retry, at(0));
        session
    }

    fn actions(session: &mut Session) -> Vec<Action> {
        std::iter::from_fn(|| session.poll_action()).collect()
    }

    fn words(session: &Session) -> Vec<&'static str> {
        session.events("s").iter().map(|event| event.event).collect()
    }

    /// Lets every attempt come to `outcome`; returns when attempts began, and how it ended.
    fn attempts(session: &mut Session, outcome: impl Fn(&mut Session, Now)) -> (Vec<u64>, Option<Finish>) {
        let (mut began, mut now) = (Vec::new(), at(0));
        loop {
            while let Some(action) = session.poll_action() {
                match action {
                    Action::Connect(0) => {
                        began.push(now.ms);
                        outcome(session, now);
                    }
                    Action::Finish(finish) => return (began, Some(finish)),
                    Action::TimeOut(at) => session.handle_failure(at, &Failure::timed_out(), "s", now),
                    Action::Connect(_) | Action::Abandon(_) | Action::Open => {}
                }
            }
            let Some((due, _)) = session.poll_timeout() else { return (began, None) };
            now = at(due);
            session.handle_timeout(now);
        }
    }

    #[test]
    fn a_failing_stage_is_tried_as_often_as_the_policy_says() {
        use RetryOn::{Always, ConnectFailure, Disconnect, Never};
        for on in [Never, ConnectFailure, Disconnect, Always] {
            for retries in 0..3 {
                let more = if matches!(on, ConnectFailure | Always) { u64::from(retries) } else { 0 };
                let expected: Vec<u64> = (0..=more).map(|n| n * 100).collect();
                let mut session = routed(on, retries, 1);
                let refused = |session: &mut Session, now| session.handle_failure(0, &Failure::connect("x"), "s", now);
                assert_eq!(
                    attempts(&mut session, refused),
                    (expected.clone(), Some(Finish::Error)),
                    "{on:?} {retries}"
                );
                let mut silent = routed(on, retries, 1);
                assert_eq!(
                    attempts(&mut silent, |_, _| {}),
                    (expected, Some(Finish::Error)),
                    "{on:?} {retries} silent"
                );
                assert_eq!(words(&silent), ["INIT", "LOOKUP SUCCESS", "ERROR"]);
            }
        }
    }

    #[test]
    fn a_lost_stage_is_connected_again_as_often_as_the_policy_says() {
        use RetryOn::{Always, ConnectFailure, Disconnect, Never};
        for on in [Never, ConnectFailure, Disconnect, Always] {
            for retries in 0..3 {
                let mut session = routed(on, retries, 1);
                actions(&mut session);
                session.handle_connected(0, at(0));
                actions(&mut session);
                session.handle_disconnect(0, "c", "gone", at(0));
                let again = matches!(on, Disconnect | Always) && retries > 0;
                let (began, end) =
                    attempts(&mut session, |session, now| session.handle_failure(0, &Failure::connect("x"), "s", now));
                let expected: Vec<u64> =
                    if again { (0..u64::from(retries)).map(|n| n * 100).collect() } else { vec![] };
                let finish = if again { Finish::Error } else { Finish::Normal };
                assert_eq!((began, end), (expected, Some(finish)), "{on:?} {retries}");
            }
        }
    }

    #[test]
    fn two_reconnects_of_a_stage_are_a_timeout_apart() {
        let mut session = routed(RetryOn::Always, 2, 1);
        let connect = |session: &mut Session, now| {
            assert_eq!(actions(session).last(), Some(&Action::Connect(0)));
            session.handle_connected(0, now);
            assert_eq!(actions(session), [Action::Open]);
        };
        connect(&mut session, at(0));
        session.handle_disconnect(0, "c", "gone", at(10));
        connect(&mut session, at(10));
        session.handle_disconnect(0, "c", "gone", at(20));
        assert_eq!(actions(&mut session), [Action::Abandon(0)]);
        assert_eq!(session.poll_timeout(), Some((110, "next attempt")));
        session.handle_timeout(at(110));
        connect(&mut session, at(110));
        assert_eq!((session.status(), session.take_retries()), (Status::Connected, 2));
    }

    #[test]
    fn a_session_stands_when_its_last_stage_does() {
        let mut session = routed(RetryOn::Never, 1, 3);
        assert_eq!(actions(&mut session), [Action::Connect(0), Action::Connect(1), Action::Connect(2)]);
        session.handle_connected(2, at(1));
        session.handle_connected(0, at(1));
        assert_eq!((session.status(), actions(&mut session)), (Status::Init, vec![]));
        session.handle_connected(1, at(2));
        assert_eq!((session.status(), actions(&mut session)), (Status::Connected, vec![Action::Open]));
        session.handle_end(Finish::Api, Some("Session removed from the API"), at(3));
        session.handle_connected(1, at(4));
        session.handle_destroyed(at(4));
        assert_eq!(words(&session), ["INIT", "LOOKUP SUCCESS", "CONNECT", "END", "DESTROY"]);
        let end = &session.events("s")[3];
        assert_eq!((end.message.as_str(), end.content.as_str()), ("OK", "Session removed from the API"));
    }

    #[test]
    fn a_refusal_tells_why() {
        let mut session = routed(RetryOn::Never, 1, 1);
        session.handle_failure(0, &Failure::not_found("No endpoint in cluster"), "s", at(0));
        let error = r#"Pipeline setup failed for session "s": Not Found: No endpoint in cluster"#;
        assert_eq!(session.error(), Some(("Not Found", error)));
    }

    #[test]
    fn a_session_that_flaps_keeps_a_bounded_log() {
        let mut session = routed(RetryOn::Always, 1, 1);
        for round in 0..1000 {
            session.handle_connected(0, at(round * 1000));
            session.handle_disconnect(0, "c", "gone", at(round * 1000));
            actions(&mut session);
        }
        assert_eq!((words(&session).len(), words(&session)[0]), (EVENTS, "INIT"));
    }
}
