//! The client for the API server: its errors name the address and every cause, and an outage is logged when it begins and
//! when it ends, however many requests fail meanwhile.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::{Request, Response};
use kube::client::{AuthError, Body, ClientBuilder};
use kube::{Client, Config};
use parking_lot::Mutex;
use tokio::time::Instant;
use tower::BoxError;
use tower::layer::layer_fn;
use tracing::{info, warn};

/// A client for the API server of this configuration.
pub fn client(config: Config) -> kube::Result<Client> {
    let server: Arc<str> = config.cluster_url.to_string().trim_end_matches('/').into();
    let outage = Outage::default();
    let layer = layer_fn(move |inner| Reported { inner, server: server.clone(), outage: outage.clone() });
    Ok(ClientBuilder::try_from(config)?.with_layer(&layer).build())
}

/// True when the request did not reach the API server, or its answer did not reach us: who made the client reports that.
pub fn is_unreachable(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(cause) if cause.is::<Unreachable>())
}

/// A request that got no answer.
#[derive(Debug)]
struct Unreachable {
    server: Arc<str>,
    cause: BoxError,
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} does not respond: {}", self.server, chain(self.cause.as_ref()))
    }
}

impl StdError for Unreachable {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(self.cause.as_ref())
    }
}

/// An error and its causes, each said once.
fn chain(error: &(dyn StdError + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

/// Whether requests fail, and since when. Clones share it.
#[derive(Debug, Clone, Default)]
struct Outage(Arc<Mutex<Contact>>);

#[derive(Debug, Clone, Default)]
struct Contact {
    answered: Option<Instant>,
    failing: Option<Failing>,
}

#[derive(Debug, Clone, Copy)]
struct Failing {
    since: Instant,
    requests: u64,
}

impl Outage {
    /// A request that began at this time failed; true if an outage begins with it. One that began before the last answer
    /// says nothing about the time after it.
    fn failed(&self, began: Instant) -> bool {
        let mut contact = self.0.lock();
        let is_late = contact.answered.is_some_and(|answered| began < answered);
        let begins = contact.failing.is_none();
        if begins && is_late {
            return false;
        }
        contact.failing.get_or_insert_with(|| Failing { since: Instant::now(), requests: 0 }).requests += 1;
        begins
    }

    /// A request was answered; gives how long none was, and how many failed.
    fn answered(&self) -> Option<(Duration, u64)> {
        let mut contact = self.0.lock();
        contact.answered = Some(Instant::now());
        contact.failing.take().map(|failing| (failing.since.elapsed(), failing.requests))
    }
}

struct Reported<S> {
    inner: S,
    server: Arc<str>,
    outage: Outage,
}

impl<S, B> tower::Service<Request<Body>> for Reported<S>
where
    S: tower::Service<Request<Body>, Response = Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<B>, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (server, outage) = (self.server.clone(), self.outage.clone());
        let began = Instant::now();
        let answer = self.inner.call(request);
        Box::pin(async move {
            match answer.await {
                Ok(answer) => {
                    if let Some((after, failed_requests)) = outage.answered() {
                        info!(%server, ?after, failed_requests, "the API server responds again");
                    }
                    Ok(answer)
                }
                // what stops a request before it is sent says nothing of the server
                Err(cause) if cause.is::<kube::Error>() || cause.is::<AuthError>() => Err(cause),
                Err(cause) => {
                    let problem = Unreachable { server, cause };
                    if outage.failed(began) {
                        warn!(%problem, "no answer from the API server; requests are retried");
                    }
                    Err(problem.into())
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use kube::Api;

    use super::*;

    #[tokio::test]
    async fn an_error_names_the_address_and_its_cause() {
        let reserved = portolan_testkit::ReservedAddress::new().unwrap();
        let address = reserved.address();
        let mut config = Config::new(format!("http://{address}").parse().unwrap());
        config.default_retry = false;
        let error = Api::<Node>::all(client(config).unwrap()).get("n").await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&address.to_string()) && text.contains("Connection refused"), "{text}");
        assert!(is_unreachable(&error));
    }

    #[tokio::test]
    async fn missing_credentials_are_no_outage() {
        let inner = tower::service_fn(|_: Request<Body>| async {
            Err::<Response<Body>, BoxError>(AuthError::AuthExec("no such program".to_owned()).into())
        });
        let mut reported = Reported { inner, server: "https://server".into(), outage: Outage::default() };
        let error = tower::Service::call(&mut reported, Request::new(Body::empty())).await.unwrap_err();
        assert!(error.is::<AuthError>(), "{error}");
        assert_eq!(reported.outage.answered(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_is_reported_once_and_summed_up() {
        let outage = Outage::default();
        let early = Instant::now();
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(outage.answered(), None);
        assert!(!outage.failed(early), "it was sent before that answer");
        let now = Instant::now();
        assert_eq!([outage.failed(now), outage.clone().failed(now), outage.failed(early)], [true, false, false]);
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(outage.answered(), Some((Duration::from_mins(1), 3)));
        assert!(outage.failed(Instant::now()), "another outage");
    }
}
