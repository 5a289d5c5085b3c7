//! From a request to its response: authorization, routing and content negotiation, then the verb.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::Full;
use parking_lot::Mutex;
use serde_json::json;

use super::body::{self, Body, boxed, collect};
use super::call::{Call, header_text};
use super::negotiate::{self, Accepted, Form, Offered, Shape};
use super::options::{ListOptions, Query};
use super::path::{self, ResourcePath, Target};
use super::response::{self, Reply};
use super::route::{self, Verb};
use super::{create, delete, discovery, openapi_v2, patch, read, update, watching};
use crate::auth::{Access, Reviewer, User};
use crate::state::ServerState;
use crate::status::Failure;

/// Answers a request of a user, or one whose user is unknown. Never fails: failures are a `Status`.
pub(crate) async fn handle(
    server: &Arc<ServerState>,
    request: Request<Body>,
    user: Result<User, Failure>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let answered = match (user, path::parse(head.uri.path())) {
        (Err(unknown), _) => Err(unknown),
        (Ok(user), Target::Objects(place)) => objects(server, &place, &head, body, &user).await,
        (Ok(user), target) => document(server, &target, &head, &user),
    };
    answered.unwrap_or_else(|failure| response::status(&failure, for_refusals(&head)))
}

/// The form of a refusal: it has a protobuf encoding, whatever was asked for.
fn for_refusals(head: &Parts) -> Accepted {
    let offered = Offered { shapes: &[Shape::Plain], protobuf: true };
    let accepted = negotiate::accept(header_text(&head.headers, header::ACCEPT), offered);
    accepted.ok().filter(|accepted| accepted.form == Form::Protobuf).unwrap_or(Accepted::JSON)
}

/// Creates a namespace that must always exist.
pub(crate) async fn create_namespace(server: &Arc<ServerState>, name: &str) {
    let user = User::new("system:apiserver", &["system:masters"]);
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
    let mut request = Request::new(boxed(Full::<Bytes>::from(object.to_string())));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::from_static("/api/v1/namespaces?fieldManager=kube-apiserver");
    let response = handle(server, request, Ok(user)).await;
    if !response.status().is_success() {
        tracing::error!(code = %response.status(), namespace = name, "creating a namespace failed");
    }
}

/// Discovery, `OpenAPI`, version and health.
fn document(server: &ServerState, target: &Target, head: &Parts, user: &User) -> Result<Response<Body>, Failure> {
    let verb = head.method.as_str().to_ascii_lowercase();
    authorize(server, user, Access::Path { verb: &verb, path: head.uri.path() })?;
    if head.method != Method::GET && *target != Target::NotFound {
        return Err(Failure::method_not_allowed());
    }
    if *target == Target::Health {
        return Ok(response::bytes(StatusCode::OK, "text/plain; charset=utf-8", "ok"));
    }
    let served = server.served();
    if *target == Target::OpenApiV2 {
        let (document, content_type) = openapi_v2::answer(&served.kinds(), header_text(&head.headers, header::ACCEPT))?;
        return Ok(response::cached(head, content_type, document));
    }
    let (document, accepted) = discovery::answer(&served.kinds(), target, header_text(&head.headers, header::ACCEPT))?;
    let is_cached =
        accepted.shape == Shape::Discovery || matches!(target, Target::OpenApiIndex | Target::OpenApiDocument(_));
    if let Some(encoded) = negotiate::encode(&document, accepted.form).filter(|_| is_cached) {
        return Ok(response::cached(head, accepted.content_type(), encoded));
    }
    Ok(response::value(StatusCode::OK, &document, accepted))
}

async fn objects(
    server: &Arc<ServerState>,
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
        // a subresource may be created: a binding
        None if head.method == Method::POST => Verb::Create.as_str(),
        verb => verb.map_or("", Verb::as_str),
    };
    // A list of one name needs rights on that name only, as with a role's `resourceNames`.
    let mut fields = query.text("fieldSelector").split(',');
    let one = fields.find_map(|term| term.strip_prefix("metadata.name=")).unwrap_or_default();
    let selected = one.trim_start_matches('=').to_owned();
    let access = Access::Resource {
        verb,
        group: &place.group,
        resource: &place.resource,
        subresource: place.subresource.as_deref().unwrap_or_default(),
        // The namespace of a Namespace is its own name.
        namespace: if place.resource == "namespaces" { &name } else { &namespace },
        name: if name.is_empty() { &selected } else { &name },
    };
    authorize(server, user, access)?;
    if head.method == Method::POST && matches!(place.group.as_str(), "authorization.k8s.io" | "authentication.k8s.io") {
        return reviewed(server, place, head, user, body).await;
    }
    let served = server.served().get(&place.group, &place.version, &place.resource).cloned();
    let Some(served) = served else {
        // what no built-in group serves is looked for among custom kinds, and refused as theirs are
        let built_in = server.served().kinds().iter().any(|kind| !kind.custom && kind.group == place.group);
        let form = if built_in { for_refusals(head) } else { Accepted::JSON };
        return Ok(response::status(&Failure::no_such_path(), form));
    };
    let (verb, subresource) = route::resolve(&served.kind, place, &head.method)?;
    let offered = Offered { shapes: negotiate::OBJECTS, protobuf: !served.kind.custom };
    let accepted = negotiate::accept(header_text(&head.headers, header::ACCEPT), offered)?;
    let refused = Some(for_refusals(head)).filter(|form| form.form == Form::Protobuf).unwrap_or(accepted);
    let (headers, now) = (&head.headers, server.clock.now());
    let warnings = Mutex::new(served.kind.warning.iter().cloned().collect());
    let call = Call { server, served, user, headers, query, namespace, name, subresource, accepted, now, warnings };
    let answered = call.execute(verb, body).await.and_then(|said| response::response(&call, said));
    let mut response = answered.unwrap_or_else(|failure| response::status(&failure, refused));
    for warning in call.warnings.into_inner() {
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {warning:?}")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    Ok(response)
}

/// Answers a review: it is created and not stored.
async fn reviewed(
    server: &ServerState,
    place: &ResourcePath,
    head: &Parts,
    user: &User,
    body: Body,
) -> Result<Response<Body>, Failure> {
    let form = negotiate::content(header_text(&head.headers, header::CONTENT_TYPE))?;
    let asked = body::decode(form, &collect(body).await?, ("", ""))?;
    let which = (place.group.as_str(), place.resource.as_str());
    let reviewer = Reviewer { authenticator: &server.authenticator, authorizer: server.authorizer, user };
    let answered = reviewer.review(which, &asked).ok_or_else(Failure::no_such_path)??;
    // A review has no metadata to show alone, and no table.
    let offered = Offered { shapes: &[Shape::Plain], protobuf: true };
    let accepted = negotiate::accept(header_text(&head.headers, header::ACCEPT), offered)?;
    Ok(response::value(StatusCode::CREATED, &answered, accepted))
}

fn authorize(server: &ServerState, user: &User, access: Access<'_>) -> Result<(), Failure> {
    server.recorder.note(user, access);
    server.authorizer.authorize(user, access)
}

impl Call<'_> {
    async fn execute(&self, verb: Verb, body: Body) -> Result<Reply, Failure> {
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
