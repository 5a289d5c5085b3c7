//! `POST /api/v2/apply`: a transaction of several changes.

use super::exchange::Response;
use super::format::Style;
use super::response;
use super::v2::Put;
use super::{Api, Failed};
use crate::config::delete::Delete;
use crate::config::json::{Json, Object, object};
use crate::config::kind::Kind;
use crate::config::refusal::Refusal;
use crate::config::registry::{Change, ChangeResult};
use crate::config::types::{EndpointState, Name};

/// One change of many.
struct Operation {
    verb: Verb,
    kind: Kind,
    name: String,
    cluster: Option<String>,
    object: Option<Json>,
    recursive: bool,
    force: bool,
}

#[derive(Clone, Copy)]
enum Verb {
    Put,
    Delete,
    Drain,
}

impl Api {
    pub(super) fn apply(&self, body: Json, style: Style, term: Option<u64>) -> Result<Response, Failed> {
        let wrong = |why: &str| Refusal::bad(format!("Cannot apply: {why}"));
        let mut body = if let Json::Object(fields) = body { fields } else { Object::default() };
        let Some(Json::Array(items)) = body.remove("ops") else { return Err(wrong("Property ops is required").into()) };
        let owner = body.get("owner").and_then(Json::as_str).ok_or_else(|| wrong("Property owner is required"))?;
        let dry = body.get("dry_run").and_then(Json::as_bool).unwrap_or(false);
        let mut registry = self.registry_to_change(term)?;
        let current = registry.state().snapshot.generation;
        if let Some(base) = body.get("base").filter(|base| **base != current.into()) {
            let content = format!("The configuration is at generation {current}, not {}", Style::Terse.write(base));
            return Err(Refusal::conflict(content).into());
        }
        let mut reached = None;
        let edit = |change: &mut Change| all(change, items, owner, &mut reached);
        let done = if dry { registry.dry_run(edit) } else { registry.change(edit) };
        drop(registry);
        match (done, reached) {
            (Ok(done), _) => Ok(response::value(&results(&done), style)),
            (Err(refusal), Some(index)) => Err(self.bad_operation(&refusal, index).into()),
            (Err(refusal), None) => Err(refusal.into()),
        }
    }

    fn bad_operation(&self, refusal: &Refusal, index: usize) -> Response {
        if let Some(limit) = refusal.limit {
            self.count(limit);
        }
        let why = if refusal.violations.is_empty() {
            refusal.content.as_str().into()
        } else {
            Json::Array(refusal.violations.clone())
        };
        let content = object([("index", index.into()), ("content", why)]);
        response::error(422, "Unprocessable Entity", content)
    }
}

/// Runs all operations; `reached` is the index of the failed one, if any.
fn all(change: &mut Change, items: Vec<Json>, owner: &str, reached: &mut Option<usize>) -> Result<Vec<bool>, Refusal> {
    let owner = Name::from(owner);
    let mut changed = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        *reached = Some(index);
        change.operation = index;
        let before = std::mem::take(&mut change.state.changed);
        Operation::read(item)?.run(change, &owner)?;
        changed.push(change.state.changed);
        change.state.changed |= before;
    }
    *reached = None;
    Ok(changed)
}

fn results(done: &ChangeResult<Vec<bool>>) -> Json {
    let results = done.result.iter().enumerate().map(|(index, changed)| {
        let cut = done.sessions_cut.get(&index).copied().unwrap_or(0);
        object([("changed", (*changed).into()), ("sessions_cut", cut.into())])
    });
    object([("generation", done.generation.into()), ("results", Json::Array(results.collect()))])
}

impl Operation {
    fn read(item: Json) -> Result<Self, Refusal> {
        let mut fields = if let Json::Object(fields) = item { fields } else { Object::default() };
        let mut text = |key: &str| if let Some(Json::String(text)) = fields.remove(key) { Some(text) } else { None };
        let verb = match text("op").as_deref() {
            Some("put") => Verb::Put,
            Some("delete") => Verb::Delete,
            Some("drain") => Verb::Drain,
            Some(_) | None => return Err(Refusal::bad("op: expected put, delete or drain")),
        };
        let kind = text("kind").as_deref().and_then(Kind::find);
        let kind = kind.ok_or_else(|| Refusal::bad("kind: unknown kind"))?;
        let name = text("name").ok_or_else(|| Refusal::bad("name: expected a name"))?;
        let cluster = text("cluster");
        let is = |key: &str| fields.get(key).and_then(Json::as_bool).unwrap_or(false);
        let (recursive, force) = (is("recursive"), is("force"));
        Ok(Self { verb, kind, name, cluster, object: fields.remove("object"), recursive, force })
    }

    fn run(self, change: &mut Change, owner: &Name) -> Result<(), Refusal> {
        let Self { verb, kind, name, cluster, object, recursive, force } = self;
        match verb {
            Verb::Put => {
                let given = object.ok_or_else(|| Refusal::bad("object: expected an object"))?;
                let put = Put { kind, name: &name, cluster: cluster.as_deref(), given };
                put.write(change, Some(Name::clone(owner)))
            }
            // already deleted: nothing to do
            Verb::Delete if change.state.meta(kind, &name).is_none() => Ok(()),
            Verb::Delete => change.delete(Delete { kind, name: &name, recursive, force }),
            Verb::Drain if kind == Kind::Endpoint => {
                change.writer(None, true).endpoint_state(&name, EndpointState::Draining)
            }
            Verb::Drain => Err(Refusal::bad("drain: only endpoints can be drained")),
        }
    }
}
