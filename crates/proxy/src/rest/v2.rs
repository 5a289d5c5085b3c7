//! `/api/v2`: the same objects with replace, patch, conditions, owners and plain status codes.

use super::exchange::{Request, Response};
use super::format::Style;
use super::response::{self, Version};
use super::target::Target;
use super::v1::{self, Call};
use super::{Api, Failed, body, sessions, term};
use crate::config::Registry;
use crate::config::delete::Delete;
use crate::config::engine::{Ending, Page, SessionFilter};
use crate::config::json::{Json, Object, object};
use crate::config::kind::Kind;
use crate::config::refusal::Refusal;
use crate::config::registry::{Change, ChangeResult};
use crate::config::state::{Meta, State};
use crate::config::types::{Name, ObjectId};
use crate::config::{strict, view};

/// Default page size of session lists.
const PAGE: usize = 1000;

impl Api {
    pub(super) fn v2(&self, request: &Request, target: &Target, path: &[&str]) -> Result<Response, Failed> {
        let style = Style::find(target.get("format").unwrap_or_default());
        let term = term::of_request(request)?;
        match (request.method.as_str(), path) {
            ("GET", ["config"]) => self.config_v2(request, target, style),
            ("POST", ["apply"]) => self.apply(self.body_v2(request)?, style, term),
            ("GET", ["sessions"]) => Ok(response::value(&self.page(target)?, style)),
            ("DELETE", ["sessions"]) => self.end_many(target, style, term),
            ("PUT", ["clusters", cluster, "endpoints", name]) => {
                let given = self.body_v2(request)?;
                self.put(request, target, Put { kind: Kind::Endpoint, name, cluster: Some(cluster), given })
            }
            ("PUT", [kind, name]) => {
                let Some(kind) = plural(kind) else { return Ok(response::unknown()) };
                let given = self.body_v2(request)?;
                self.put(request, target, Put { kind, name, cluster: None, given })
            }
            ("PATCH", [kind, name]) => match plural(kind) {
                Some(kind) => self.patch(request, target, kind, name),
                None => Ok(response::unknown()),
            },
            ("DELETE", [kind, name]) if plural(kind).is_some() => {
                let kind = plural(kind).unwrap_or(Kind::Rule);
                let what = Delete { kind, name, recursive: target.is("recursive"), force: target.is("force") };
                self.delete_v2(request, what)
            }
            ("GET", [kind, name]) if plural(kind).is_some() => {
                let kind = plural(kind).unwrap_or(Kind::Rule);
                self.get_v2(request, kind, name, target.is("recursive"), style)
            }
            ("GET", [kind]) if plural(kind).is_some() => {
                let kind = plural(kind).unwrap_or(Kind::Rule);
                Ok(self.list_v2(request, kind, target.is("recursive"), style))
            }
            _ => self.like_v1(request, target, path, style),
        }
    }

    /// Calls that both versions share; bodies are checked as in strict mode.
    fn like_v1(&self, request: &Request, target: &Target, path: &[&str], style: Style) -> Result<Response, Failed> {
        let Some(call) = Call::find(&request.method, path) else { return Ok(response::unknown()) };
        let body = if request.method == "POST" { self.body_v2(request)? } else { Json::Null };
        v1::found(v1::body_violations(call, &body))?;
        self.call(call, target, &body, style, term::of_request(request)?)
    }

    fn body_v2(&self, request: &Request) -> Result<Json, Failed> {
        body::read(request, &self.limits(), Version::V2)
    }

    fn get_v2(&self, request: &Request, kind: Kind, name: &str, deep: bool, style: Style) -> Result<Response, Failed> {
        let registry = self.registry.lock();
        let state = registry.state();
        let meta = state.meta(kind, name).ok_or_else(Refusal::not_found)?;
        let tag = etag(state, kind, meta);
        if is_listed(request.header("if-none-match"), &tag) {
            return Ok(not_modified(tag));
        }
        Ok(tagged(response::value(&decorated(state, kind, meta, deep), style), tag))
    }

    fn list_v2(&self, request: &Request, kind: Kind, deep: bool, style: Style) -> Response {
        let registry = self.registry.lock();
        let state = registry.state();
        let tag = format!("\"g{}\"", state.snapshot.generation);
        if is_listed(request.header("if-none-match"), &tag) {
            return not_modified(tag);
        }
        let all = state.list(kind).into_iter().map(|meta| decorated(state, kind, meta, deep)).collect::<Vec<_>>();
        tagged(response::value(&all.into(), style), tag)
    }

    fn config_v2(&self, request: &Request, target: &Target, style: Style) -> Result<Response, Failed> {
        let since = match target.get("since") {
            Some(text) => text.parse().map_err(|_| Refusal::bad("since: expected a generation number"))?,
            None => 0_u64,
        };
        let admin = self.admin_view();
        let registry = self.registry.lock();
        let state = registry.state();
        let tag = format!("\"g{}\"", state.snapshot.generation);
        if is_listed(request.header("if-none-match"), &tag) {
            return Ok(not_modified(tag));
        }
        let mut config = Object::default();
        config.set("generation", state.snapshot.generation);
        config.set("admin", admin);
        for kind in Kind::ALL {
            let fits = |meta: &&Meta| {
                meta.generation > since && target.get("owner").is_none_or(|owner| meta.owner.as_deref() == Some(owner))
            };
            let some = state.list(kind).into_iter().filter(fits).map(|meta| {
                let mut shown = Object::default();
                add_all(&mut shown, &view::writable(state, kind, meta));
                decorate(&mut shown, state, kind, meta);
                Json::Object(shown)
            });
            config.set(kind.plural(), some.collect::<Vec<_>>());
        }
        Ok(tagged(response::value(&config.into(), style), tag))
    }

    fn put(&self, request: &Request, target: &Target, put: Put<'_>) -> Result<Response, Failed> {
        let mut registry = self.registry_to_change(term::of_request(request)?)?;
        Self::put_locked(&mut registry, request, target, put)
    }

    fn put_locked(
        registry: &mut Registry,
        request: &Request,
        target: &Target,
        put: Put<'_>,
    ) -> Result<Response, Failed> {
        let Put { kind, name, .. } = put;
        let before = registry.state().meta(kind, name);
        preconditions(request, registry.state(), kind, before)?;
        let owner = target.get("owner").map(Name::from).or_else(|| before.and_then(|meta| meta.owner.clone()));
        let was = registry.state().snapshot.generation;
        let done = registry.change(|change| put.write(change, owner))?;
        let tag = registry.state().meta(kind, name).map(|meta| etag(registry.state(), kind, meta));
        Ok(tagged(changed(&done, was), tag.unwrap_or_default()))
    }

    fn patch(&self, request: &Request, target: &Target, kind: Kind, name: &str) -> Result<Response, Failed> {
        let patch = self.body_v2(request)?;
        let mut registry = self.registry_to_change(term::of_request(request)?)?;
        let meta = registry.state().meta(kind, name).ok_or_else(Refusal::not_found)?;
        let mut merged = view::writable(registry.state(), kind, meta);
        merged.merge(&unwrapped(kind, patch));
        let cluster = meta.cluster.clone();
        let put = Put { kind, name, cluster: cluster.as_deref(), given: merged };
        Self::put_locked(&mut registry, request, target, put)
    }

    fn delete_v2(&self, request: &Request, what: Delete<'_>) -> Result<Response, Failed> {
        let mut registry = self.registry_to_change(term::of_request(request)?)?;
        let before = registry.state().meta(what.kind, what.name);
        if before.is_some() {
            preconditions(request, registry.state(), what.kind, before)?;
        }
        let was = registry.state().snapshot.generation;
        let done = registry.change(|change| change.delete(what))?;
        Ok(changed(&done, was))
    }

    fn page(&self, target: &Target) -> Result<Json, Refusal> {
        let limit = target.get("limit").map_or(Ok(PAGE), |text| {
            text.parse()
                .ok()
                .filter(|limit| *limit > 0)
                .ok_or_else(|| Refusal::bad("limit: expected a positive number"))
        })?;
        let page = Page { limit: Some(limit), from: target.get("continue").map(str::to_owned) };
        let filter = session_filter(self.registry.lock().state(), target);
        let Some(filter) = filter else { return Ok(object([("sessions", Vec::new().into())])) };
        let found = self.engine.sessions(&filter, &page);
        let registry = self.registry.lock();
        let mut view = Object::default();
        let shown = found.sessions.iter().map(|dump| sessions::view(registry.state(), dump));
        view.set("sessions", shown.collect::<Vec<_>>());
        if let Some(next) = found.next {
            view.set("continue", next);
        }
        Ok(view.into())
    }

    fn end_many(&self, target: &Target, style: Style, term: Option<u64>) -> Result<Response, Failed> {
        // held until the sessions have ended: a higher term comes before or after
        let registry = self.registry_to_change(term)?;
        if !FILTERS.iter().any(|(key, _)| target.get(key).is_some()) {
            return Err(Refusal::bad("Pass listener, cluster or endpoint to select the sessions to end").into());
        }
        let filter = session_filter(registry.state(), target);
        let ended = filter.map_or(0, |it| self.engine.end(&it, Ending::End("Session removed from the API")));
        let view = object([("status", 200_u64.into()), ("message", "OK".into()), ("sessions_cut", ended.into())]);
        Ok(response::value(&view, style))
    }
}

/// The session filter of a query; `None` if it names an unknown object.
fn session_filter(state: &State, target: &Target) -> Option<SessionFilter> {
    let id = |key: &str, kind: Kind| -> Option<Option<ObjectId>> {
        let Some(name) = target.get(key) else { return Some(None) };
        state.meta(kind, name).map(|meta| Some(meta.id))
    };
    Some(SessionFilter {
        listener: id("listener", Kind::Listener)?,
        cluster: id("cluster", Kind::Cluster)?,
        endpoint: id("endpoint", Kind::Endpoint)?,
        ..SessionFilter::default()
    })
}

const FILTERS: [(&str, Kind); 3] =
    [("listener", Kind::Listener), ("cluster", Kind::Cluster), ("endpoint", Kind::Endpoint)];

/// An object to create or to replace.
pub(super) struct Put<'a> {
    pub kind: Kind,
    pub name: &'a str,
    /// The cluster of a new endpoint.
    pub cluster: Option<&'a str>,
    /// The object, or a body that has it under the key of its kind.
    pub given: Json,
}

impl Put<'_> {
    pub(super) fn write(self, change: &mut Change, owner: Option<Name>) -> Result<(), Refusal> {
        let mut given = unwrapped(self.kind, self.given);
        if let Json::Object(fields) = &mut given {
            match fields.get("name").and_then(Json::as_str) {
                Some(name) if name != self.name => {
                    return Err(Refusal::bad(format!("The object's name is \"{name}\", not \"{}\"", self.name)));
                }
                Some(_) | None => fields.set("name", self.name),
            }
        }
        v1::found(strict::object_alone(self.kind, &given))?;
        if self.kind != Kind::Endpoint {
            return change.writer(owner, true).write(self.kind, Some(&given)).map(drop);
        }
        let known = change.state.meta(Kind::Endpoint, self.name).and_then(|meta| meta.cluster.clone());
        let cluster = self.cluster.map(Name::from).or(known);
        let cluster = cluster.ok_or_else(|| Refusal::bad("Cannot add endpoint: no cluster is given"))?;
        change.writer(owner, true).endpoint(&cluster, Some(&given)).map(drop)
    }
}

fn plural(word: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| kind.plural() == word)
}

fn unwrapped(kind: Kind, mut given: Json) -> Json {
    let inner = if let Json::Object(fields) = &mut given { fields.get_mut(kind.key()) } else { None };
    match inner {
        Some(inner @ Json::Object(_)) => std::mem::take(inner),
        Some(_) | None => given,
    }
}

/// An object with its metadata.
fn decorated(state: &State, kind: Kind, meta: &Meta, deep: bool) -> Json {
    let mut shown = Object::default();
    add_all(&mut shown, &if deep { view::deep(state, kind, meta) } else { view::shallow(state, kind, meta) });
    decorate(&mut shown, state, kind, meta);
    Json::Object(shown)
}

fn add_all(shown: &mut Object, view: &Json) {
    if let Json::Object(fields) = view {
        shown.clone_from(fields);
    }
}

fn decorate(shown: &mut Object, state: &State, kind: Kind, meta: &Meta) {
    if kind == Kind::Endpoint {
        if shown.get("state").is_none() {
            shown.set("state", "active");
        }
        shown.set("cluster", meta.cluster.as_deref().unwrap_or_default());
    }
    shown.set("owner", meta.owner.as_deref().map_or(Json::Null, Json::from));
    shown.set("hash", view::hash(state, kind, meta));
    shown.set("generation", meta.generation);
    shown.set("warnings", meta.warnings.iter().map(|text| text.as_str().into()).collect::<Vec<_>>());
}

fn changed(done: &ChangeResult<()>, was: u64) -> Response {
    let view = object([
        ("status", 200_u64.into()),
        ("message", "OK".into()),
        ("generation", done.generation.into()),
        ("changed", (done.generation != was).into()),
        ("sessions_cut", done.sessions_cut.values().sum::<usize>().into()),
    ]);
    response::value(&view, Style::Plain)
}

fn etag(state: &State, kind: Kind, meta: &Meta) -> String {
    format!("\"{}\"", view::hash(state, kind, meta))
}

fn tagged(mut response: Response, tag: String) -> Response {
    response.headers.push(("ETag", tag));
    response
}

fn not_modified(tag: String) -> Response {
    Response { status: 304, reason: "Not Modified".to_owned(), headers: vec![("ETag", tag)], body: Vec::new() }
}

/// Whether a header lists a tag; `*` lists all.
fn is_listed(header: Option<&str>, tag: &str) -> bool {
    let weak = |listed: &str| listed.trim().trim_start_matches("W/").to_owned();
    header.is_some_and(|tags| tags.split(',').map(weak).any(|listed| listed == "*" || listed == tag))
}

fn preconditions(request: &Request, state: &State, kind: Kind, meta: Option<&Meta>) -> Result<(), Failed> {
    let tag = meta.map(|meta| etag(state, kind, meta));
    let listed = |name: &str| tag.as_ref().is_some_and(|tag| is_listed(request.header(name), tag));
    let wrong = request.header("if-match").is_some() && !listed("if-match") || listed("if-none-match");
    if !wrong {
        return Ok(());
    }
    let content = "The object has changed: read it again and retry";
    Err(Failed::Answer(response::error(412, "Precondition Failed", content.into())))
}
