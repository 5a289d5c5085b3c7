//! Sends requests on to the API server.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Request, Response, Uri, header, request};
use http_body_util::BodyExt;
use kube::client::Body;

use super::{
    fault::Fault,
    replica::{Admitted, Replica},
    response::Closed,
    trace::Exchange,
};

/// Headers that concern one connection only, and those that the upstream client sets on its own. Encodings
/// are among them because the proxy reads what passes.
const NOT_PASSED_ON: [HeaderName; 12] = [
    header::ACCEPT_ENCODING,
    header::AUTHORIZATION,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::HOST,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
];

/// Sends a request on and reads the whole answer; of a watch, which has no end, only the head. A write goes on when the connection of the replica is cut
/// meanwhile: it may commit, and the trace must tell.
pub(super) async fn whole(
    replica: &Arc<Replica>,
    admitted: &Admitted,
    request: Request<Body>,
) -> Result<Response<Bytes>, Closed> {
    let number = admitted.record.number();
    if admitted.exchange.is_watch() {
        return Ok(send(replica, number, request).await?.map(|_| Bytes::new()));
    }
    let sender = Arc::clone(replica);
    let sending = async move {
        let (head, body) = send(&sender, number, request).await?.into_parts();
        let body = body.collect().await.map_err(|_| unreachable(&sender, number))?.to_bytes();
        Ok(Response::from_parts(head, body))
    };
    if admitted.exchange.is_write() {
        admitted.life.tasks.spawn(sending).await.map_err(|_| Closed)?
    } else {
        sending.await
    }
}

/// Sends a request on and returns once the head of the answer is there.
pub(super) async fn send(replica: &Replica, number: u64, request: Request<Body>) -> Result<Response<Body>, Closed> {
    let mut answer = replica.upstream.send(request).await.map_err(|_| unreachable(replica, number))?;
    replica.note(number, |exchange| exchange.upstream = Some(answer.status().as_u16()));
    strip(answer.headers_mut());
    Ok(answer)
}

/// The request as it is sent on; a list of a frozen view asks for the version it is frozen at.
pub(super) fn request(
    mut head: request::Parts,
    body: Bytes,
    exchange: &Exchange,
    frozen: Option<u64>,
) -> anyhow::Result<Request<Body>> {
    strip(&mut head.headers);
    let mut request = Request::new(Body::from(body));
    *request.method_mut() = head.method;
    *request.headers_mut() = head.headers;
    *request.uri_mut() = match frozen {
        Some(version) if exchange.is_list() => as_of(exchange, version)?,
        _ => head.uri.path_and_query().map_or("/", |path| path.as_str()).parse()?,
    };
    Ok(request)
}

fn as_of(exchange: &Exchange, version: u64) -> anyhow::Result<Uri> {
    // A page that continues carries the version of the first in its token, and may not name another.
    if exchange.parameter("continue").is_some() {
        return Ok(format!("{}?{}", exchange.path, exchange.query).parse()?);
    }
    let exact = format!("resourceVersion={version}&resourceVersionMatch=Exact");
    let kept = exchange.query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("resourceVersion"));
    let query: Vec<&str> = kept.chain([exact.as_str()]).collect();
    Ok(format!("{}?{}", exchange.path, query.join("&")).parse()?)
}

fn strip(headers: &mut HeaderMap) {
    for name in NOT_PASSED_ON {
        headers.remove(name);
    }
}

fn unreachable(replica: &Replica, number: u64) -> Closed {
    replica.note(number, |exchange| exchange.fault = exchange.fault.or(Some(Fault::Unreachable)));
    Closed
}

#[cfg(test)]
mod tests {
    use super::{super::trace::exchange, *};

    #[test]
    fn a_list_of_a_frozen_view_asks_for_its_version_and_keeps_the_rest() {
        let list = exchange("GET", "/api/v1/pods?limit=5&resourceVersion=0&resourceVersionMatch=NotOlderThan");
        let uri = as_of(&list, 42).unwrap().to_string();
        assert_eq!(uri, "/api/v1/pods?limit=5&resourceVersion=42&resourceVersionMatch=Exact");
        let page = exchange("GET", "/api/v1/pods?limit=5&continue=abc");
        assert_eq!(as_of(&page, 42).unwrap().to_string(), "/api/v1/pods?limit=5&continue=abc");
    }

    #[test]
    fn credentials_and_connection_headers_stay_here() {
        let mut headers = HeaderMap::new();
        for name in ["authorization", "host", "connection", "keep-alive", "accept"] {
            headers.insert(name, header::HeaderValue::from_static("x"));
        }
        strip(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }
}
