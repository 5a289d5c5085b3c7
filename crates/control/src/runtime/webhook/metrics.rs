//! What the webhook counts; every label is bounded by its type.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Handlers are pure and answer in microseconds; the rest of the range shows a starved process.
const SECONDS: [f64; 8] = [0.0001, 0.0005, 0.001, 0.005, 0.025, 0.1, 1.0, 10.0];

/// The webhook's metrics; clones share them.
#[derive(Clone)]
pub(super) struct Metrics {
    pub(super) requests: Family<Request, Counter>,
    pub(super) duration: Family<Path, Histogram, fn() -> Histogram>,
    pub(super) handshake_failures: Counter,
    pub(super) expiry: Family<Certificate, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Request {
    /// A registered path, or `other`.
    pub(super) path: &'static str,
    pub(super) outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Path {
    pub(super) path: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Certificate {
    pub(super) certificate: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum Kind {
    Authority,
    Serving,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
pub(super) enum Outcome {
    Allowed,
    Denied,
    Defaulted,
    /// The request was not one that this server answers.
    Malformed,
    /// The handler panicked.
    Panicked,
}

impl Metrics {
    /// Registers the metrics under their names.
    pub(super) fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            handshake_failures: Counter::default(),
            expiry: Family::default(),
        };
        registry.register(
            "portolan_webhook_requests",
            "Admission requests by path and outcome",
            metrics.requests.clone(),
        );
        registry.register(
            "portolan_webhook_request_duration_seconds",
            "Time from the request's head to its answer",
            metrics.duration.clone(),
        );
        registry.register(
            "portolan_webhook_handshake_failures",
            "TLS handshakes that failed; the log at DEBUG says why",
            metrics.handshake_failures.clone(),
        );
        registry.register(
            "portolan_webhook_certificate_expiry_timestamp_seconds",
            "When a certificate in use expires",
            metrics.expiry.clone(),
        );
        metrics
    }
}
