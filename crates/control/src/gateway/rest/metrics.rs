//! REST in numbers.

use std::time::Duration;

use http::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    route: &'static str,
    code: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: &'static str,
}

#[derive(Clone)]
pub(in super::super) struct Metrics {
    requests: Family<Request, Counter>,
    seconds: Family<Route, Histogram, fn() -> Histogram>,
    pub(super) watches: Gauge,
    pub(super) login_failures: Counter,
}

impl Metrics {
    pub(in super::super) fn register(registry: &mut Registry) -> Self {
        let registry = registry.sub_registry_with_prefix("portolan_gateway");
        let metrics = Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0005, 4.0, 9))),
            watches: Gauge::default(),
            login_failures: Counter::default(),
        };
        registry.register("rest_requests", "Requests by route and status code", metrics.requests.clone());
        registry.register("rest_request_seconds", "Time until a request was answered", metrics.seconds.clone());
        registry.register("rest_watches", "Open watches", metrics.watches.clone());
        registry.register("rest_login_failures", "Logins that were refused", metrics.login_failures.clone());
        metrics
    }

    pub(super) fn answered(&self, route: &'static str, status: StatusCode, took: Duration) {
        self.requests.get_or_create(&Request { route, code: status.as_u16() }).inc();
        self.seconds.get_or_create(&Route { route }).observe(took.as_secs_f64());
    }
}
