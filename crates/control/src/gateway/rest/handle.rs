//! From a request to its answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body;
use serde_json::json;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::context::Context;
use super::login::Peer;
use super::openapi::openapi;
use super::reason;
use super::refusal::{Refusal, Refused};
use super::reply::{self, Reply};
use super::routes::{self, Action, Matched};
use super::tree::{self, Tree};
use super::{bulk, endpoints, lists, services, watch, wishes};

/// Every request is answered within this time.
pub(super) const DEADLINE: Duration = Duration::from_secs(10);
const MAX_BODY: usize = 256 << 10;
/// Five thousand endpoints are more than other bodies hold.
const MAX_BULK: usize = 1 << 20;

/// Answers one request of a connection.
pub(super) async fn answer<B>(
    context: Arc<Context>,
    peer: Peer,
    hang_up: CancellationToken,
    request: Request<B>,
) -> Reply
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<tower::BoxError>,
{
    let began = Instant::now();
    let (parts, body) = request.into_parts();
    let found = routes::find(parts.uri.path());
    let route = found.as_ref().map_or("other", |found| found.route.path);
    let answered = match &found {
        None => Err(Refusal::new(reason::NOT_FOUND, "there is nothing at this path")),
        Some(found) => {
            let late = |_| Err(Refusal::not_ready("this took too long: try again"));
            let acting = act(&context, &peer, hang_up, found, &parts, body);
            tokio::time::timeout_at(began + DEADLINE, acting).await.unwrap_or_else(late)
        }
    };
    let reply = answered.unwrap_or_else(Refusal::reply);
    context.metrics.answered(route, reply.status(), began.elapsed());
    reply
}

async fn act<B>(
    context: &Arc<Context>,
    peer: &Peer,
    hang_up: CancellationToken,
    found: &Matched,
    parts: &Parts,
    body: B,
) -> Refused<Reply>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<tower::BoxError>,
{
    let Some(action) = found.action(&parts.method) else {
        return Err(Refusal::new(reason::METHOD_NOT_ALLOWED, format!("use one of {}", found.allowed()))
            .header(header::ALLOW, &found.allowed()));
    };
    let [account, second, third] = found.names();
    if !matches!(action, Action::OpenApi | Action::Health) {
        admit(context, peer, account, &parts.headers).await?;
    }
    let query = parts.uri.query().unwrap_or_default();
    let headers = &parts.headers;
    match action {
        Action::OpenApi => Ok(reply::json(StatusCode::OK, &openapi())),
        Action::Health => Ok(reply::json(StatusCode::OK, &json!({ "message": "ok" }))),
        Action::ShowAccount => lists::account(context, account),
        Action::ListGroups => lists::groups(context, account, query),
        Action::ShowGroup => lists::group(context, account, second),
        Action::ListServices => lists::services(context, account, query),
        Action::ListEndpoints => lists::endpoints(context, account, second, query),
        Action::ShowService => services::show(context, account, second),
        Action::DeleteService => services::delete(context, account, second).await,
        Action::ShowEndpoint => endpoints::show(context, account, second, third),
        Action::DeleteEndpoint => endpoints::delete(context, account, second, third).await,
        Action::WatchAccount => watch::begin(context, account, None, headers, hang_up),
        Action::WatchService => watch::begin(context, account, Some(second), headers, hang_up),
        Action::CreateService => {
            let wish = wishes::service(&read(headers, body, MAX_BODY).await?)?;
            let (account, group) = (account.to_owned(), second.to_owned());
            let idempotency = services::idempotency(headers);
            services::create(context, services::Creation { account, group, wish, idempotency }).await
        }
        Action::ReplaceService => {
            let wish = wishes::service(&read(headers, body, MAX_BODY).await?)?;
            services::replace(context, account, second, &wish, headers).await
        }
        Action::CreateEndpoint => {
            let wish = wishes::endpoint(&read(headers, body, MAX_BODY).await?)?;
            endpoints::create(context, account, second, &wish).await
        }
        Action::PutEndpoint => {
            let wish = wishes::endpoint(&read(headers, body, MAX_BODY).await?)?;
            endpoints::put(context, account, [second, third], &wish).await
        }
        Action::ReplaceNode => {
            let wishes = wishes::endpoints(&read(headers, body, MAX_BULK).await?)?;
            bulk::replace(context, account, [second, third], &wishes).await
        }
    }
}

/// Ok if the request may act for the account at this moment.
async fn admit(context: &Context, peer: &Peer, account: &str, headers: &HeaderMap) -> Refused<()> {
    if !context.is_ready() {
        return Err(Refusal::not_ready("the server is starting: try again"));
    }
    context.logins.prove(account, headers, peer).await?;
    if !context.buckets.take(account) {
        return Err(Refusal::new(reason::TOO_MANY_REQUESTS, "the account sends too many requests: slow down"));
    }
    if !context.has_account(account) {
        return Err(Refusal::missing("account", account));
    }
    Ok(())
}

async fn read<B>(headers: &HeaderMap, body: B, most: usize) -> Refused<Tree>
where
    B: Body<Data = Bytes> + Send,
    B::Error: Into<tower::BoxError>,
{
    let essence = headers.get(header::CONTENT_TYPE).map(|value| value.to_str().unwrap_or_default());
    let essence = essence.map(|value| value.split(';').next().unwrap_or_default().trim());
    if essence.is_some_and(|essence| !essence.eq_ignore_ascii_case("application/json")) {
        return Err(Refusal::new(reason::MEDIA_TYPE, "send the body as application/json"));
    }
    if body.size_hint().lower() > u64::try_from(most).unwrap_or(u64::MAX) {
        return Err(too_large(most));
    }
    // somewhat less than for the whole request, so that the client learns that it was slow
    let reading = tokio::time::timeout(DEADLINE * 9 / 10, Limited::new(body, most).collect()).await;
    match reading {
        Ok(Ok(body)) => tree::parse(&body.to_bytes()),
        Ok(Err(cause)) if cause.is::<LengthLimitError>() => Err(too_large(most)),
        Ok(Err(_)) => Err(Refusal::malformed("", "the body broke off")),
        Err(_) => Err(Refusal::new(reason::TIMEOUT, "the body took too long")),
    }
}

fn too_large(most: usize) -> Refusal {
    Refusal::new(reason::TOO_LARGE, format!("the body is larger than {most} bytes"))
}
