//! From a request to its answer: who asks, for what, in which form; then the verb.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Limited};
use jiff::Timestamp;
use parking_lot::Mutex;
use tower::BoxError;

use super::negotiate::{self, Accepted};
use super::options::{ListOptions, Query};
use super::path::{self, ResourcePath, Target};
use super::response::{self, Reply};
use super::route::{self, Subresource, Verb};
use super::{body, create, delete, discovery, patch, read, update, watching};
use crate::auth::{Access, User, review};
use crate::crd::ServedKind;
use crate::kinds::Kind;
use crate::server::Inner;
use crate::status::{About, Failure};

/// The body of a request or an answer.
pub type Body = UnsyncBoxBody<Bytes, BrokenBody>;

/// A body that ended before its end.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BrokenBody(String);

/// One request for objects, taken apart.
pub(super) struct Call<'a> {
    pub(super) server: &'a Arc<Inner>,
    pub(super) served: Arc<ServedKind>,
    pub(super) user: &'a User,
    pub(super) headers: &'a HeaderMap,
    pub(super) query: Query,
    /// Empty for all namespaces, and for cluster-wide kinds.
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) subresource: Subresource,
    pub(super) accepted: Accepted,
    pub(super) now: Timestamp,
    /// What the client is told whatever becomes of its request, each once.
    pub(super) warnings: Mutex<Vec<String>>,
}

/// Turns any body into ours.
pub(crate) fn boxed<B>(body: B) -> Body
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(|broken| BrokenBody(broken.into().to_string())).boxed_unsync()
}

/// Answers a request of a user, or of someone who could not be made out. Never fails: what goes wrong is a `Status`.
pub(crate) async fn answer(server: &Arc<Inner>, request: Request<Body>, user: Result<User, Failure>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let answered = match (user, path::parse(head.uri.path())) {
        (Err(unknown), _) => Err(unknown),
        (Ok(user), Target::Objects(place)) => objects(server, &place, &head, body, &user).await,
        (Ok(user), target) => document(server, &target, &head, &user),
    };
    answered.unwrap_or_else(|failure| response::status(&failure, Accepted::JSON))
}

/// Discovery, `OpenAPI`, version and health.
fn document(server: &Inner, target: &Target, head: &Parts, user: &User) -> Result<Response<Body>, Failure> {
    let verb = head.method.as_str().to_ascii_lowercase();
    authorize(server, user, Access::Path { verb: &verb, path: head.uri.path() })?;
    if head.method != Method::GET && *target != Target::NotFound {
        return Err(Failure::method_not_allowed());
    }
    if *target == Target::Health {
        return Ok(response::bytes(StatusCode::OK, "text/plain; charset=utf-8", "ok"));
    }
    let served = server.served();
    let (document, accepted) = discovery::answer(&served.kinds(), target, text(&head.headers, header::ACCEPT))?;
    Ok(response::value(StatusCode::OK, &document, accepted))
}

async fn objects(
    server: &Arc<Inner>,
    place: &ResourcePath,
    head: &Parts,
    body: Body,
    user: &User,
) -> Result<Response<Body>, Failure> {
    let query = Query::parse(head.uri.query().unwrap_or_default());
    let name = place.name.clone().unwrap_or_default();
    let namespace = place.namespace.clone().unwrap_or_default();
    let verb = match Verb::of(&head.method, place.name.is_some()) {
        Some(Verb::List) if query.is_watch() => "watch",
        verb => verb.map_or("", Verb::as_str),
    };
    // Who asks for the objects of one name needs rights on that name only, as with a role's `resourceNames`.
    let mut fields = query.text("fieldSelector").split(',');
    let one = fields.find_map(|term| term.strip_prefix("metadata.name=")).unwrap_or_default();
    let selected = one.trim_start_matches('=').to_owned();
    let access = Access::Resource {
        verb,
        group: &place.group,
        resource: &place.resource,
        subresource: place.subresource.as_deref().unwrap_or_default(),
        // A Namespace is in itself.
        namespace: if place.resource == "namespaces" { &name } else { &namespace },
        name: if name.is_empty() { &selected } else { &name },
    };
    authorize(server, user, access)?;
    if head.method == Method::POST && matches!(place.group.as_str(), "authorization.k8s.io" | "authentication.k8s.io") {
        return reviewed(server, place, head, user, body).await;
    }
    let served = server.served().get(&place.group, &place.version, &place.resource).cloned();
    let served = served.ok_or_else(Failure::no_such_path)?;
    let (verb, subresource) = route::resolve(&served.kind, place, &head.method)?;
    let accepted = negotiate::accept(text(&head.headers, header::ACCEPT), negotiate::OBJECTS)?;
    let (headers, now) = (&head.headers, server.clock.now());
    let warnings = Mutex::new(served.kind.warning.iter().cloned().collect());
    let call = Call { server, served, user, headers, query, namespace, name, subresource, accepted, now, warnings };
    let answered = call.carry_out(verb, body).await.and_then(|said| response::response(&call, said));
    let mut response = answered.unwrap_or_else(|failure| response::status(&failure, accepted));
    for warning in call.warnings.into_inner() {
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {warning:?}")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    Ok(response)
}

/// Answers a review: it is created, answered and not kept.
async fn reviewed(
    server: &Inner,
    place: &ResourcePath,
    head: &Parts,
    user: &User,
    body: Body,
) -> Result<Response<Body>, Failure> {
    let form = negotiate::content(text(&head.headers, header::CONTENT_TYPE))?;
    let asked = body::decode(form, &collect(body).await?)?;
    let which = (place.group.as_str(), place.resource.as_str());
    let answered = review(server.authorizer, user, which, &asked);
    let answered = answered.ok_or_else(Failure::no_such_path)??;
    let accepted = negotiate::accept(text(&head.headers, header::ACCEPT), negotiate::OBJECTS)?;
    Ok(response::value(StatusCode::CREATED, &answered, accepted))
}

fn authorize(server: &Inner, user: &User, access: Access<'_>) -> Result<(), Failure> {
    server.recorder.note(user, access);
    server.authorizer.authorize(user, access)
}

impl Call<'_> {
    pub(super) fn kind(&self) -> &Kind {
        &self.served.kind
    }

    /// What the request is about, for refusals.
    pub(super) fn about(&self) -> About<'_> {
        About { group: &self.kind().group, resource: &self.kind().plural, name: &self.name }
    }

    /// `status`, `scale`, `finalize`, or empty.
    pub(super) fn subresource(&self) -> &'static str {
        match self.subresource {
            Subresource::Main => "",
            Subresource::Status => "status",
            Subresource::Scale => "scale",
            Subresource::Finalize => "finalize",
        }
    }

    /// Tells the client something, also when its request fails.
    pub(super) fn warn(&self, warnings: impl IntoIterator<Item = String>) {
        let mut known = self.warnings.lock();
        for warning in warnings {
            if !known.contains(&warning) {
                known.push(warning);
            }
        }
    }

    pub(super) fn header(&self, name: header::HeaderName) -> Option<&str> {
        text(self.headers, name)
    }

    async fn carry_out(&self, verb: Verb, body: Body) -> Result<Reply, Failure> {
        match verb {
            Verb::Get => read::get(self),
            Verb::List => {
                let options = ListOptions::parse(&self.query, self.kind())?;
                if self.query.is_watch() { watching::watch(self, &options) } else { read::list(self, &options) }
            }
            Verb::Create => create::create(self, &collect(body).await?).await,
            Verb::Update => update::update(self, &collect(body).await?).await,
            Verb::Patch => patch::patch(self, &collect(body).await?).await,
            Verb::Delete => delete::delete(self, &collect(body).await?).await,
            Verb::DeleteCollection => delete::delete_collection(self, &collect(body).await?).await,
        }
    }
}

/// Reads a body, up to the limit.
async fn collect(body: Body) -> Result<Bytes, Failure> {
    match Limited::new(body, body::LIMIT).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(body::too_large()),
        Err(error) => Err(Failure::bad_request(format!("reading the body failed: {error}"))),
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
