//! Which faults happen, how often, and to which request.

use std::time::Duration;

use fastrand::Rng;
use http::Method;

use super::{fault::Fault, trace::Exchange};

/// How often each fault happens, from 0.0 (never, the default) to 1.0 (always).
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Where all chance comes from.
    pub seed: u64,
    /// Holds a request up: how often, and for how long at most.
    pub delay: Option<(f64, Duration)>,
    /// Closes the connection instead of sending the request on.
    pub drop_before: f64,
    /// Sends the request on, lets it commit, then closes the connection without answering.
    pub drop_after: f64,
    /// Sends the request on, lets it commit, then closes the connection in the middle of the answer. Spares watches.
    pub cut_answer: f64,
    /// Answers 409 Conflict to PUT, PATCH and DELETE.
    pub conflict: f64,
    /// Answers 410 Gone to watches and to lists that continue; to watches also within the stream.
    pub gone: f64,
    /// Answers 429 Too Many Requests with a `Retry-After` of one second.
    pub throttle: f64,
    /// Answers 500 or 503.
    pub server_error: f64,
    /// Cuts a watch after an event: how often per event.
    pub cut_watch: f64,
}

/// What a test does to a request that it picks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interference {
    /// Closes the connection without sending the request on.
    Drop,
    /// Answers with this status without asking the API server.
    Status(u16),
    /// Answers 429 Too Many Requests and asks to stay away for so many seconds.
    Throttle(u32),
    /// Sends it on only after this time.
    Delay(Duration),
}

/// What the dice say about one request.
#[derive(Debug, Clone)]
pub(super) struct Injection {
    pub(super) fault: Option<Fault>,
    pub(super) delay: Duration,
    /// Whether a 410 to a watch comes within the stream.
    pub(super) in_stream: bool,
    /// For the events of a watch: how often to cut, and the rng.
    pub(super) cut_watch: (f64, Rng),
}

impl Injection {
    /// For a request that no chance should touch.
    pub(super) fn none() -> Self {
        Self { fault: None, delay: Duration::ZERO, in_stream: false, cut_watch: (0.0, Rng::with_seed(0)) }
    }

    /// For a request that a test interferes with on purpose, not by chance.
    pub(super) fn interfered(interference: Interference) -> Self {
        match interference {
            Interference::Drop => Self { fault: Some(Fault::DroppedBefore), ..Self::none() },
            Interference::Status(code) => Self { fault: Some(Fault::ServerError(code)), ..Self::none() },
            Interference::Throttle(seconds) => Self { fault: Some(Fault::Throttled(seconds)), ..Self::none() },
            Interference::Delay(delay) => Self { delay, ..Self::none() },
        }
    }
}

impl Faults {
    /// Judges the `n`-th request. Every roll is made for every request, so that a roll never shifts another.
    pub(super) fn decide(&self, n: u64, request: &Exchange) -> Injection {
        // The odd constant (2^64 / golden ratio) spreads neighbouring numbers over all seeds.
        let mut rng = Rng::with_seed(self.seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        let (delay_rate, delay_most) = self.delay.unwrap_or_default();
        let (delayed, part) = (rng.f64() < delay_rate, rng.f64());
        let server_error = if rng.bool() { 500 } else { 503 };
        let in_stream = rng.bool();
        let updates = [Method::PUT, Method::PATCH, Method::DELETE].contains(&request.method) && request.is_write();
        let expires = request.is_watch() || (request.is_list() && request.parameter("continue").is_some());
        let fault = [
            (self.drop_before, true, Fault::DroppedBefore),
            (self.throttle, true, Fault::Throttled(1)),
            (self.server_error, true, Fault::ServerError(server_error)),
            (self.conflict, updates, Fault::Conflict),
            (self.gone, expires, Fault::Gone),
            (self.drop_after, true, Fault::DroppedAfter),
            (self.cut_answer, !request.is_watch(), Fault::CutAnswer),
        ]
        .map(|(rate, fits, fault)| (rng.f64() < rate && fits).then_some(fault))
        .into_iter()
        .flatten()
        .next();
        let delay = if delayed { delay_most.mul_f64(part) } else { Duration::ZERO };
        Injection { fault, delay, in_stream, cut_watch: (self.cut_watch, rng) }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::trace::exchange, *};

    fn faults(seed: u64) -> Faults {
        Faults {
            seed,
            delay: Some((0.5, Duration::from_secs(1))),
            drop_before: 0.1,
            drop_after: 0.1,
            conflict: 0.2,
            throttle: 0.1,
            ..Faults::default()
        }
    }

    fn injections(faults: &Faults) -> Vec<(Option<Fault>, Duration)> {
        let request = exchange("PUT", "/api/v1/nodes/n1");
        (1..=200).map(|n| faults.decide(n, &request)).map(|injection| (injection.fault, injection.delay)).collect()
    }

    #[test]
    fn a_seed_fixes_every_verdict_and_another_seed_changes_them() {
        assert_eq!(injections(&faults(7)), injections(&faults(7)));
        assert_ne!(injections(&faults(7)), injections(&faults(8)));
    }

    #[test]
    fn faults_come_about_as_often_as_asked_for() {
        let conflicts = injections(&Faults { conflict: 0.25, ..Faults::default() });
        let conflicts = conflicts.iter().filter(|(fault, _)| *fault == Some(Fault::Conflict)).count();
        assert!((30..=70).contains(&conflicts), "{conflicts} of 200");
        assert!(injections(&Faults::default()).iter().all(|(fault, delay)| fault.is_none() && delay.is_zero()));
    }

    #[test]
    fn a_fault_comes_only_to_requests_it_fits() {
        let faults = Faults { conflict: 1.0, gone: 1.0, ..Faults::default() };
        for (method, uri, fault) in [
            ("PUT", "/api/v1/nodes/n1", Some(Fault::Conflict)),
            ("POST", "/api/v1/nodes", None),
            ("GET", "/api/v1/nodes", None),
            ("GET", "/api/v1/nodes?continue=abc", Some(Fault::Gone)),
            ("GET", "/api/v1/nodes?watch=1", Some(Fault::Gone)),
        ] {
            assert_eq!(faults.decide(1, &exchange(method, uri)).fault, fault, "{method} {uri}");
        }
    }
}
