//! From a request to its answer: who asks, for what, in which form; then the verb.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tower::BoxError;

use super::negotiate::{self, Accepted, Endpoint, Form, Shape};
use super::options::Query;
use super::path::{self, Place, Target};
use super::route::{self, Part, Verb};
use super::table::{self, Include, Style};
use super::{Refusal, body, discovery, health, openapi, read, watching, write};
use crate::auth::{Access, Identity, User, review};
use crate::kinds::Kind;
use crate::server::{Inner, ServedKind};
use crate::status::{About, Failure};
use crate::store::{Key, Resource};

/// The body of a request or an answer.
pub type Body = UnsyncBoxBody<Bytes, BrokenBody>;

/// A body that ended before its end.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BrokenBody(String);

/// Who is at the other end.
pub(crate) enum Peer<'a> {
    /// Someone on the network, perhaps with a certificate.
    Certificate(Option<&'a Identity>),
    /// Someone in this process.
    Trusted(&'a User),
}

/// One request, taken apart.
pub(super) struct Call<'a> {
    pub(super) server: &'a Arc<Inner>,
    pub(super) served: Arc<ServedKind>,
    pub(super) user: &'a User,
    pub(super) headers: &'a HeaderMap,
    pub(super) query: Query,
    /// Empty for all namespaces, and for cluster-wide kinds.
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) part: Part,
    pub(super) accepted: Accepted,
    pub(super) now: Timestamp,
    /// What the client is told whatever becomes of its request.
    pub(super) warnings: Mutex<Vec<String>>,
}

/// What a verb says.
pub(super) enum Said {
    /// An object of the kind, or a Status.
    Object { code: StatusCode, object: Value, warnings: Vec<String> },
    /// A list of the kind: its metadata and its items.
    List { metadata: Value, items: Vec<Value> },
    /// Events as they come.
    Stream(Body),
}

/// Turns any body into ours.
pub(crate) fn boxed<B>(body: B) -> Body
where
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    body.map_err(|broken| BrokenBody(broken.into().to_string())).boxed_unsync()
}

/// Answers a request. Never fails: what goes wrong is a `Status`.
pub(crate) async fn answer(server: &Arc<Inner>, request: Request<Body>, peer: Peer<'_>) -> Response<Body> {
    let (head, body) = request.into_parts();
    match respond(server, &head, body, peer).await {
        Ok(response) => response,
        Err(Refusal::Status(failure)) => {
            status(&failure, Accepted { form: Form::Json, shape: Shape::Plain, pretty: false })
        }
        Err(Refusal::Page { code, body }) => {
            let mut response = Response::new(full(body.into()));
            *response.status_mut() = code;
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
            response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
            response
        }
    }
}

async fn respond(
    server: &Arc<Inner>,
    head: &http::request::Parts,
    body: Body,
    peer: Peer<'_>,
) -> Result<Response<Body>, Refusal> {
    let user = match peer {
        Peer::Trusted(user) => user.clone(),
        Peer::Certificate(identity) => server.authenticator.authenticate(&head.headers, identity)?,
    };
    let target = path::parse(head.uri.path())?;
    let query = Query::parse(head.uri.query().unwrap_or_default());
    let Target::Objects(place) = &target else {
        let verb = head.method.as_str().to_ascii_lowercase();
        let access = Access::Path { verb: &verb, path: head.uri.path() };
        server.recorder.note(&user, access);
        server.authorizer.authorize(&user, access)?;
        return fixed(server, &target, head, &query);
    };
    objects(server, place, head, query, body, &user).await
}

/// Discovery, OpenAPI, version and health.
fn fixed(
    server: &Arc<Inner>,
    target: &Target,
    head: &http::request::Parts,
    query: &Query,
) -> Result<Response<Body>, Refusal> {
    let served = server.served();
    let kinds = served.kinds();
    let group_is_builtin = match target {
        Target::Resources { group, .. } | Target::Group(group) => served.is_builtin(group),
        Target::Root
        | Target::Version
        | Target::Health { .. }
        | Target::CoreVersions
        | Target::Groups
        | Target::OpenApiIndex
        | Target::OpenApiDocument(_)
        | Target::OpenApiV2
        | Target::Objects(_)
        | Target::Nowhere => true,
    };
    route::read_only(target, &head.method, group_is_builtin)?;
    let accept = |endpoint| negotiate::accept(text(&head.headers, header::ACCEPT), endpoint);
    let address = head.headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let (document, accepted) = match target {
        Target::Version => (discovery::version(), accept(Endpoint::Version)?),
        Target::Health { endpoint, check } => {
            let said = health::answer(endpoint, check.as_deref(), query.first("verbose").is_some())?;
            let mut response = Response::new(full(said.into()));
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
            return Ok(response);
        }
        Target::Root => (discovery::root(&kinds), accept(Endpoint::Groups)?),
        Target::CoreVersions => {
            let accepted = accept(Endpoint::CoreVersions)?;
            let aggregated = accepted.shape == Shape::Discovery;
            (if aggregated { discovery::aggregated(&kinds, true) } else { discovery::core_versions(address) }, accepted)
        }
        Target::Groups => {
            let accepted = accept(Endpoint::Groups)?;
            let aggregated = accepted.shape == Shape::Discovery;
            (if aggregated { discovery::aggregated(&kinds, false) } else { discovery::groups(&kinds) }, accepted)
        }
        Target::Group(group) => {
            let found = discovery::group(&kinds, group).ok_or_else(Refusal::page_not_found)?;
            (found, accept(Endpoint::CustomResources)?)
        }
        Target::Resources { group, version } => {
            let found = discovery::resources(&kinds, group, version).ok_or_else(|| route::unknown(group_is_builtin))?;
            (found, accept(if group_is_builtin { Endpoint::Resources } else { Endpoint::CustomResources })?)
        }
        Target::OpenApiIndex => (openapi_index(&kinds), accept(Endpoint::Groups)?),
        Target::OpenApiDocument(path) => {
            let of_version = |kind: &&Kind| openapi::document_path(&kind.group, &kind.version) == *path;
            let kinds: Vec<&Kind> = kinds.into_iter().filter(of_version).collect();
            if kinds.is_empty() {
                return Err(Refusal::empty_not_found());
            }
            (openapi::document(&kinds), accept(Endpoint::Groups)?)
        }
        Target::OpenApiV2 | Target::Nowhere | Target::Objects(_) => return Err(Refusal::page_not_found()),
    };
    let etag = (accepted.shape == Shape::Discovery).then(|| discovery::fingerprint(&document));
    let mut response = encoded(StatusCode::OK, &document, accepted)?;
    if let Some(etag) = etag.and_then(|etag| HeaderValue::from_str(&format!("\"{etag}\"")).ok()) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    Ok(response)
}

fn openapi_index(kinds: &[&Kind]) -> Value {
    let mut documents: Vec<(String, String)> = Vec::new();
    for kind in kinds {
        let path = openapi::document_path(&kind.group, &kind.version);
        if documents.iter().any(|(known, _)| *known == path) {
            continue;
        }
        let same: Vec<&Kind> = kinds
            .iter()
            .copied()
            .filter(|other| (&other.group, &other.version) == (&kind.group, &kind.version))
            .collect();
        // The names of kinds and the revision of their schemas are what a change changes.
        let hash = discovery::fingerprint(&discovery::resources(&same, &kind.group, &kind.version).unwrap_or_default());
        documents.push((path, hash));
    }
    openapi::index(documents.iter().map(|(path, hash)| (path.as_str(), hash.as_str())))
}

async fn objects(
    server: &Arc<Inner>,
    place: &Place,
    head: &http::request::Parts,
    query: Query,
    body: Body,
    user: &User,
) -> Result<Response<Body>, Refusal> {
    let served = server.served();
    let found = served.get(&place.group, &place.version, &place.resource).cloned();
    let namespace = place.namespace.clone().unwrap_or_default();
    let name = place.name.clone().unwrap_or_default();
    let routed = found.as_ref().map(|found| route::admit(&found.kind, place, &head.method));
    let watches = query.flag("watch") == Some(true);
    let verb = match &routed {
        Some(Ok((Verb::List, _))) if watches => "watch",
        Some(Ok((verb, _))) => verb.word(),
        _ => method_word(&head.method, place.name.is_some()),
    };
    let access = Access::Resource {
        verb,
        group: &place.group,
        resource: &place.resource,
        subresource: place.subresource.as_deref().unwrap_or_default(),
        // A Namespace is in itself.
        namespace: if place.resource == "namespaces" { &name } else { &namespace },
        name: &name,
    };
    server.recorder.note(user, access);
    server.authorizer.authorize(user, access)?;
    if head.method == Method::POST && matches!(place.group.as_str(), "authorization.k8s.io" | "authentication.k8s.io") {
        return reviewed(server, place, head, user, body).await;
    }
    let (Some(found), Some(routed)) = (found, routed) else {
        return Err(route::unknown(served.is_builtin(&place.group)));
    };
    let (verb, part) = routed.map_err(|refusal| missing_pod(server, place, &head.method).unwrap_or(refusal))?;
    let list = matches!(verb, Verb::List | Verb::Watch | Verb::DeleteCollection);
    let endpoint = if found.kind.custom { Endpoint::Custom } else { Endpoint::Builtin { list } };
    let accepted = negotiate::accept(text(&head.headers, header::ACCEPT), endpoint)?;
    let call = Call {
        server,
        served: found,
        user,
        headers: &head.headers,
        query,
        namespace,
        name,
        part,
        accepted,
        now: Timestamp::now(),
        warnings: Mutex::default(),
    };
    let answered = call.carry_out(verb, place.watch, body).await.and_then(|said| call.response(said));
    let mut response =
        answered.unwrap_or_else(|failure| status(&failure, Accepted { shape: Shape::Plain, ..call.accepted() }));
    let warnings = std::mem::take(&mut *call.warnings.lock());
    for warning in call.kind().warning.iter().chain(&warnings) {
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {}", super::text::quote(warning))) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    Ok(response)
}

/// Logs are not served here, but whoever asks for those of no pod is told so.
fn missing_pod(server: &Inner, place: &Place, method: &Method) -> Option<Refusal> {
    let asks = method == Method::GET && place.group.is_empty() && place.resource == "pods";
    let (namespace, name) = (place.namespace.as_deref()?, place.name.as_deref()?);
    if !asks || place.subresource.as_deref() != Some("log") {
        return None;
    }
    let pods = Resource::new("", "pods");
    let there = server.store.get(&Key::new(&pods, namespace, name)).is_some();
    (!there).then(|| Failure::not_found(About { group: "", resource: "pods", name }).into())
}

impl Call<'_> {
    pub(super) fn kind(&self) -> &Kind {
        &self.served.kind
    }

    /// `status`, `scale`, `finalize`, or empty.
    pub(super) fn subresource(&self) -> &'static str {
        match self.part {
            Part::Whole => "",
            Part::Status => "status",
            Part::Scale => "scale",
            Part::Finalize => "finalize",
        }
    }

    async fn carry_out(&self, verb: Verb, watch_path: bool, body: Body) -> Result<Said, Failure> {
        match verb {
            Verb::Get => read::get(self),
            Verb::List | Verb::Watch => {
                let options = read::options(self, watch_path)?;
                if options.watch { watching::watch(self, &options) } else { read::list(self, &options) }
            }
            Verb::Create => write::create(self, &collect(body).await?).await,
            Verb::Update => write::update(self, &collect(body).await?).await,
            Verb::Patch => write::patch(self, &collect(body).await?).await,
            Verb::Delete => write::delete(self, &collect(body).await?).await,
            Verb::DeleteCollection => write::delete_collection(self, &collect(body).await?).await,
        }
    }

    /// Keeps what the client is to be told, also when its request fails; a new attempt tells anew.
    pub(super) fn warn(&self, warnings: Vec<String>) {
        *self.warnings.lock() = warnings;
    }

    pub(super) fn header(&self, name: header::HeaderName) -> Option<&str> {
        text(self.headers, name)
    }

    fn response(&self, said: Said) -> Result<Response<Body>, Failure> {
        let include = Include::parse(&self.query)?;
        let style = |version| Style { version, include, headers: true, now: self.now };
        match said {
            Said::Stream(body) => {
                let mut response = Response::new(body);
                let kind = HeaderValue::from_str(&negotiate::content_type(self.accepted));
                response
                    .headers_mut()
                    .insert(header::CONTENT_TYPE, kind.unwrap_or(HeaderValue::from_static("application/json")));
                Ok(response)
            }
            Said::Object { code, object, warnings } => {
                let is_status = object["kind"] == "Status" && object["apiVersion"] == "v1";
                let shown = match self.accepted.shape {
                    _ if is_status => object,
                    Shape::Table(version) => {
                        let metadata = json!({ "resourceVersion": object["metadata"]["resourceVersion"] });
                        table::table(self.kind(), &[object], &metadata, style(version))
                    }
                    Shape::Partial(version) => table::partial(&object, version),
                    Shape::PartialList(_) => return Err(table::partial_list_of_object(self.kind())),
                    Shape::Plain | Shape::Discovery => object,
                };
                self.warnings.lock().extend(warnings);
                encoded(code, &shown, self.accepted())
            }
            Said::List { metadata, items } => {
                let shown = match self.accepted.shape {
                    Shape::Table(version) => table::table(self.kind(), &items, &metadata, style(version)),
                    Shape::PartialList(version) => table::partial_list(&items, &metadata, version),
                    Shape::Partial(_) => return Err(table::partial_of_list(self.kind())),
                    Shape::Plain | Shape::Discovery => {
                        let kind = self.kind();
                        let (mut items, mut metadata) = (items, metadata);
                        if kind.custom {
                            // Lists of custom kinds have the field even when there is nothing in it.
                            if metadata.get("continue").is_none() {
                                metadata["continue"] = "".into();
                            }
                        } else {
                            for item in items.iter_mut().filter_map(Value::as_object_mut) {
                                item.remove("kind");
                                item.remove("apiVersion");
                            }
                        }
                        json!({ "kind": kind.list_kind, "apiVersion": kind.api_version(), "metadata": metadata, "items": items })
                    }
                };
                encoded(StatusCode::OK, &shown, self.accepted())
            }
        }
    }

    fn accepted(&self) -> Accepted {
        let agent = self.header(header::USER_AGENT);
        Accepted { pretty: negotiate::pretty(self.accepted, self.query.first("pretty"), agent), ..self.accepted }
    }
}

/// Answers a review: it is created, answered and not kept.
async fn reviewed(
    server: &Arc<Inner>,
    place: &Place,
    head: &http::request::Parts,
    user: &User,
    body: Body,
) -> Result<Response<Body>, Refusal> {
    let form = negotiate::content(text(&head.headers, header::CONTENT_TYPE))?;
    let decoded = body::decode(form, &collect(body).await?).map_err(Failure::bad_request)?;
    let asked = (place.group.as_str(), place.resource.as_str());
    let answered = review(&server.authenticator, server.authorizer, user, asked, &decoded.value);
    let answered = answered.ok_or_else(|| route::unknown(true))??;
    let accepted = negotiate::accept(text(&head.headers, header::ACCEPT), Endpoint::Builtin { list: false })?;
    Ok(encoded(StatusCode::CREATED, &answered, accepted)?)
}

/// Reads a body, up to the limit.
async fn collect(body: Body) -> Result<Bytes, Failure> {
    match Limited::new(body, body::LIMIT).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(body::too_large()),
        Err(error) => Err(Failure::bad_request(format!("reading the body failed: {error}"))),
    }
}

fn method_word(method: &Method, named: bool) -> &'static str {
    match (method.as_str(), named) {
        ("GET" | "HEAD", true) => "get",
        ("GET" | "HEAD", false) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => "",
    }
}

fn encoded(code: StatusCode, value: &Value, accepted: Accepted) -> Result<Response<Body>, Failure> {
    let mut response = Response::new(full(negotiate::encode(value, accepted.form, accepted.pretty)?.into()));
    *response.status_mut() = code;
    if let Ok(kind) = HeaderValue::from_str(&negotiate::content_type(accepted)) {
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
    }
    Ok(response)
}

fn status(failure: &Failure, accepted: Accepted) -> Response<Body> {
    let mut response = encoded(failure.code, &failure.to_json(), accepted)
        .unwrap_or_else(|_| Response::new(full(Bytes::from_static(b"{}"))));
    let seconds = failure.details.get("retryAfterSeconds").and_then(Value::as_u64);
    if let Some(seconds) = seconds {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn full(bytes: Bytes) -> Body {
    boxed(Full::new(bytes))
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
