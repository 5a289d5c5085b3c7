//! The REST API of a provider's gateway, as a tenant's cluster uses it.
//!
//! Calls are independent of each other: each takes a connection that no other uses, or opens one. What the gateway
//! says is given as the planner's types. Redirects are followed by hand and only on the same host, as every request
//! carries the login.

mod connection;
mod error;
mod login;
#[cfg(test)]
mod tests;
mod url;
mod wire;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{ETAG, LOCATION, RETRY_AFTER};
use http::{HeaderMap, Method, StatusCode};
use parking_lot::Mutex;
use portolan_core::gateway_client::{Endpoint, LbName, NodeEndpoints, Port, Seen};
use rustls::ClientConfig;
use serde_json::Value;
use tokio::time::timeout;

pub use self::connection::MAX_RESPONSE_BYTES;
use self::connection::{Answer, Connection, Head};
pub use self::error::GatewayError;
pub use self::login::{Login, LoginError};
pub use self::url::{GroupUrl, UrlError};
pub use self::wire::Listed;

/// A gateway that does not take a connection within this time is taken for unreachable.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// A request that is not answered within this time has failed, and may have had its effect. The gateway takes ten
/// seconds at most.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(12);
/// Idle connections that are kept.
const MOST_IDLE: usize = 16;
/// Redirects that are followed.
const MOST_REDIRECTS: usize = 2;
/// Objects per page of a list.
const PAGE: usize = 200;
/// Pages of a list, at most: a gateway that always has another one is broken.
const MOST_PAGES: usize = 1000;

/// A client of one account and group.
pub struct GatewayClient {
    url: GroupUrl,
    authorization: http::HeaderValue,
    tls: Option<Arc<ClientConfig>>,
    idle: Mutex<Vec<Connection>>,
}

/// A request.
struct Request<'a> {
    method: Method,
    path: &'a str,
    body: Option<&'a Value>,
    /// `Idempotency-Key` or `If-Match`.
    header: Option<(&'static str, &'a str)>,
}

impl<'a> Request<'a> {
    fn get(path: &'a str) -> Self {
        Self { method: Method::GET, path, body: None, header: None }
    }
}

impl GatewayClient {
    /// Connects with the first call.
    pub fn new(url: GroupUrl, login: &Login, ca: Option<&[u8]>) -> Result<Self, LoginError> {
        let tls = if url.is_tls() { Some(login::tls(ca)?) } else { None };
        Ok(Self { authorization: login.header()?, url, tls, idle: Mutex::default() })
    }

    /// Reads a load balancer.
    pub async fn read(&self, name: &LbName) -> Result<Seen, GatewayError> {
        match self.call(Request::get(&self.service(name))).await {
            Ok((_, body)) => wire::seen(&body),
            Err(refused) if refused.is_not_found() => Ok(Seen::Absent),
            Err(refused) => Err(refused),
        }
    }

    /// Creates a load balancer; one that exists already is read. `key` is the same for every try.
    pub async fn create(
        &self,
        name: &LbName,
        ports: &[Port],
        address: Option<IpAddr>,
        key: &str,
    ) -> Result<Seen, GatewayError> {
        let path = format!("{}/services", self.url.group_path());
        let body = wire::service(name, ports, address);
        let request =
            Request { method: Method::POST, path: &path, body: Some(&body), header: Some(("idempotency-key", key)) };
        match self.call(request).await {
            Ok((_, body)) => wire::seen(&body),
            Err(refused) if refused.is_conflict() => self.read(name).await,
            Err(refused) => Err(refused),
        }
    }

    /// Replaces the ports of a load balancer.
    pub async fn update(&self, name: &LbName, ports: &[Port]) -> Result<Seen, GatewayError> {
        let path = self.service(name);
        let (headers, body) = match self.call(Request::get(&path)).await {
            Ok(read) => read,
            Err(refused) if refused.is_not_found() => return Ok(Seen::Absent),
            Err(refused) => return Err(refused),
        };
        let tag = headers.get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
        let tag = tag.or_else(|| wire::version(&body)).unwrap_or_default();
        let body = wire::service(name, ports, None);
        let request = Request {
            method: Method::PUT,
            path: &path,
            body: Some(&body),
            header: (!tag.is_empty()).then_some(("if-match", tag.as_str())),
        };
        match self.call(request).await {
            Ok((_, body)) if wire::is_service(&body) => wire::seen(&body),
            Ok(_) => self.read(name).await,
            Err(refused) if refused.is_not_found() => Ok(Seen::Absent),
            Err(refused) => Err(refused),
        }
    }

    /// Deletes a load balancer; gone already is fine.
    pub async fn delete(&self, name: &LbName) -> Result<(), GatewayError> {
        let path = self.service(name);
        match self.call(Request { method: Method::DELETE, path: &path, body: None, header: None }).await {
            Ok(_) => Ok(()),
            Err(refused) if refused.is_not_found() => Ok(()),
            Err(refused) => Err(refused),
        }
    }

    /// Reads the endpoints of a load balancer; none if there is no such load balancer.
    pub async fn endpoints(&self, name: &LbName) -> Result<Option<NodeEndpoints>, GatewayError> {
        let path = format!("{}/endpoints", self.service(name));
        match self.pages(&path, "endpoints").await {
            Ok(items) => wire::endpoints(&items).map(Some),
            Err(refused) if refused.is_not_found() => Ok(None),
            Err(refused) => Err(refused),
        }
    }

    /// Replaces the endpoints of a load balancer on a node.
    pub async fn put_endpoints(
        &self,
        name: &LbName,
        node: IpAddr,
        endpoints: &BTreeSet<Endpoint>,
    ) -> Result<(), GatewayError> {
        let path = format!("{}/nodes/{node}/endpoints", self.service(name));
        let body = wire::node_endpoints(node, endpoints);
        self.call(Request { method: Method::PUT, path: &path, body: Some(&body), header: None }).await.map(drop)
    }

    /// Reads all load balancers of the account.
    pub async fn list(&self) -> Result<Vec<Listed>, GatewayError> {
        let items = self.pages(&format!("{}/services", self.url.account_path()), "services").await?;
        items.iter().map(wire::listed).collect()
    }

    fn service(&self, name: &LbName) -> String {
        format!("{}/services/{name}", self.url.account_path())
    }

    /// Every item of a list, page by page.
    async fn pages(&self, path: &str, key: &str) -> Result<Vec<Value>, GatewayError> {
        let mut items = Vec::new();
        let mut next = format!("{path}?limit={PAGE}");
        for _ in 0..MOST_PAGES {
            let (_, mut body) = self.call(Request::get(&next)).await?;
            let Value::Array(page) = body[key].take() else {
                return Err(GatewayError::InvalidResponse(format!("a list without `{key}`")));
            };
            items.extend(page);
            match body["link"]["next"].as_str().filter(|link| !link.is_empty()) {
                None => return Ok(items),
                Some(link) => next = self.url.same_host(link)?,
            }
        }
        Err(GatewayError::InvalidResponse(format!("a list of more than {MOST_PAGES} pages")))
    }

    /// Makes a call, and follows redirects; gives headers and body of the answer if it was accepted.
    async fn call(&self, request: Request<'_>) -> Result<(HeaderMap, Value), GatewayError> {
        let mut answer = self.exchange(request).await?;
        for _ in 0..MOST_REDIRECTS {
            if !matches!(answer.status, StatusCode::FOUND | StatusCode::SEE_OTHER) {
                break;
            }
            let location = answer.headers.get(LOCATION).and_then(|location| location.to_str().ok());
            let location = location.ok_or_else(|| GatewayError::InvalidResponse("a redirect to nowhere".to_owned()))?;
            let path = self.url.same_host(location)?;
            answer = self.exchange(Request::get(&path)).await?;
        }
        let Answer { status, headers, body } = answer;
        let body: Option<Value> = serde_json::from_slice(&body).ok();
        if status.is_success() {
            let body = body.ok_or_else(|| GatewayError::InvalidResponse("an answer that is no JSON".to_owned()))?;
            return Ok((headers, body));
        }
        let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        Err(GatewayError::refused(status, body.as_ref(), seconds.map(Duration::from_secs)))
    }

    /// Sends a request and reads the whole answer.
    async fn exchange(&self, Request { method, path, body, header }: Request<'_>) -> Result<Answer, GatewayError> {
        let head = Head { method, path, host: self.url.authority(), authorization: &self.authorization, header };
        let mut message = connection::message(&head, body)?;
        // One that the gateway closed since its last call is noticed now, before anything of this one was sent.
        while let Some(kept) = { self.idle.lock().pop() } {
            match self.send(kept, message).await {
                Err((_, Some(unsent))) => message = unsent,
                answered => return answered.map_err(|(failed, _)| failed),
            }
        }
        let opening = Connection::open(&self.url, self.tls.as_ref());
        let opened = timeout(CONNECT_TIMEOUT, opening)
            .await
            .unwrap_or_else(|_| Err(GatewayError::Unreachable(format!("no connection within {CONNECT_TIMEOUT:?}"))))?;
        self.send(opened, message).await.map_err(|(failed, _)| failed)
    }

    /// A connection that carried a whole answer is kept.
    async fn send(
        &self,
        mut connection: Connection,
        message: connection::Message,
    ) -> Result<Answer, connection::NotAnswered> {
        let answer =
            timeout(CALL_TIMEOUT, connection.send(message)).await.unwrap_or(Err((GatewayError::TimedOut, None)))?;
        let mut idle = self.idle.lock();
        if connection.is_open() && idle.len() < MOST_IDLE {
            idle.push(connection);
        }
        Ok(answer)
    }
}
