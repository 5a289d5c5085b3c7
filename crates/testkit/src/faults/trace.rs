//! What passed through a proxy.

use std::time::{Duration, Instant};

use http::{Method, header, request};

use super::{fault::Fault, target::Target};

/// One request and what became of it.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// Its place in the trace; the first is 1.
    pub number: u64,
    /// When its head had come.
    pub received: Instant,
    /// When its answer was ready or its connection given up; a watch is finished when it ends.
    pub finished: Option<Instant>,
    /// The HTTP method.
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// The query as the client sent it, without the question mark.
    pub query: String,
    /// Who sent it.
    pub user_agent: String,
    /// What the API server answered, if the request was sent on.
    pub upstream: Option<u16>,
    /// What the client was answered, if it was.
    pub answered: Option<u16>,
    /// What went wrong on purpose.
    pub fault: Option<Fault>,
    /// How long the request was held up on purpose.
    pub delayed: Duration,
}

impl Exchange {
    pub(super) fn new(number: u64, head: &request::Parts) -> Self {
        let user_agent = head.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
        Self {
            number,
            received: Instant::now(),
            finished: None,
            method: head.method.clone(),
            path: head.uri.path().to_owned(),
            query: head.uri.query().unwrap_or_default().to_owned(),
            user_agent: user_agent.unwrap_or_default().to_owned(),
            upstream: None,
            answered: None,
            fault: None,
            delayed: Duration::ZERO,
        }
    }

    /// Whether it asks to change something that is stored.
    pub fn is_write(&self) -> bool {
        [Method::POST, Method::PUT, Method::PATCH, Method::DELETE].contains(&self.method)
            && self.parameter("dryRun").is_none()
            && !["/apis/authorization.k8s.io/", "/apis/authentication.k8s.io/"]
                .iter()
                .any(|reviews| self.path.starts_with(reviews))
    }

    /// Whether it reads all objects of a resource at once.
    pub fn is_list(&self) -> bool {
        self.method == Method::GET && !self.is_watch() && matches!(Target::of(&self.path), Target::Collection { .. })
    }

    /// Whether it asks for events as they come.
    pub fn is_watch(&self) -> bool {
        self.method == Method::GET && self.parameter("watch").is_some_and(|value| ["1", "true"].contains(&value))
    }

    /// Whether it is about a Lease, as leader election uses them.
    pub fn is_lease(&self) -> bool {
        self.path.starts_with("/apis/coordination.k8s.io/") && self.resource() == Some("leases")
    }

    /// The resource it is about, in the plural, such as `pods`.
    pub fn resource(&self) -> Option<&str> {
        Target::of(&self.path).resource()
    }

    /// The value of a query parameter that is not empty, as it stands in the URL.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let mut pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(key, value)| *key == name && !value.is_empty()).map(|(_, value)| value)
    }
}

#[cfg(test)]
pub(super) fn exchange(method: &str, uri: &str) -> Exchange {
    Exchange::new(1, &http::Request::builder().method(method).uri(uri).body(()).unwrap().into_parts().0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_and_a_review_are_no_writes() {
        assert!(exchange("POST", "/api/v1/namespaces/x/pods").is_write());
        assert!(exchange("DELETE", "/api/v1/namespaces/x/pods/y?gracePeriodSeconds=0").is_write());
        assert!(!exchange("POST", "/api/v1/namespaces/x/pods?dryRun=All").is_write());
        assert!(!exchange("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").is_write());
        assert!(!exchange("GET", "/api/v1/pods").is_write());
    }

    #[test]
    fn a_watch_is_no_list() {
        assert!(exchange("GET", "/api/v1/pods?limit=500").is_list());
        assert!(exchange("GET", "/api/v1/pods?watch=true&resourceVersion=5").is_watch());
        assert!(!exchange("GET", "/api/v1/pods?watch=true").is_list());
        assert!(!exchange("GET", "/api/v1/nodes/n1").is_list());
    }
}
