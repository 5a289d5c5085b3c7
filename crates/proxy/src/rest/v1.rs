//! `/api/v1`: l7mp's API, answer for answer.

use super::exchange::{Request, Response};
use super::format::Style;
use super::response::{self, Version};
use super::target::Target;
use super::{Api, Failed, body, sessions, term};
use crate::config::delete::Delete;
use crate::config::engine::{Ending, Page, SessionFilter};
use crate::config::json::{Json, Object};
use crate::config::kind::Kind;
use crate::config::refusal::Refusal;
use crate::config::state::State;
use crate::config::{document, strict, view};

/// An API operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call<'a> {
    Config,
    SetConfig,
    Admin,
    SetAdmin,
    List(Kind),
    Get(Kind, &'a str),
    Add(Kind),
    Delete(Kind, &'a str),
    Endpoints(&'a str),
    AddEndpoint(&'a str),
    RuleAt(&'a str, &'a str),
    InsertRule(&'a str, &'a str),
    RemoveRule(&'a str, &'a str),
    Sessions,
    Session(&'a str),
    EndSession(&'a str),
}

impl<'a> Call<'a> {
    /// What a method on a path means, if anything.
    pub(super) fn find(method: &str, path: &[&'a str]) -> Option<Self> {
        Some(match (method, path) {
            ("GET", ["config"]) => Self::Config,
            ("POST", ["config"]) => Self::SetConfig,
            ("GET", ["admin"]) => Self::Admin,
            ("POST", ["admin"]) => Self::SetAdmin,
            ("GET", ["sessions"]) => Self::Sessions,
            ("GET", ["sessions", name]) => Self::Session(name),
            ("DELETE", ["sessions", name]) => Self::EndSession(name),
            ("GET", ["clusters", name, "endpoints"]) => Self::Endpoints(name),
            ("POST", ["clusters", name, "endpoints"]) => Self::AddEndpoint(name),
            ("GET", ["rulelists", name, "rules", at]) => Self::RuleAt(name, at),
            ("POST", ["rulelists", name, "rules", at]) => Self::InsertRule(name, at),
            ("DELETE", ["rulelists", name, "rules", at]) => Self::RemoveRule(name, at),
            ("GET", [kind]) => Self::List(listed(kind)?),
            ("POST", [kind]) => Self::Add(listed(kind)?),
            ("GET", [kind, name]) => Self::Get(plural(kind)?, name),
            ("DELETE", [kind, name]) => Self::Delete(plural(kind)?, name),
            _ => return None,
        })
    }

    /// The query keys allowed in strict mode.
    fn allowed(self) -> &'static [&'static str] {
        match self {
            Self::List(_) | Self::Get(..) | Self::Endpoints(_) | Self::RuleAt(..) => &["recursive", "format"],
            Self::Config | Self::Admin | Self::Sessions | Self::Session(_) => &["format"],
            Self::Delete(Kind::Listener, _) | Self::SetConfig => &["recursive", "force"],
            Self::Delete(..) | Self::RemoveRule(..) => &["recursive"],
            Self::SetAdmin | Self::Add(_) | Self::AddEndpoint(_) | Self::InsertRule(..) | Self::EndSession(_) => &[],
        }
    }

    fn has_body(self) -> bool {
        matches!(self, Self::SetConfig | Self::SetAdmin | Self::Add(_) | Self::AddEndpoint(_) | Self::InsertRule(..))
    }
}

impl Api {
    pub(super) fn v1(&self, request: &Request, target: &Target, path: &[&str]) -> Result<Response, Failed> {
        let Some(call) = Call::find(&request.method, path) else { return Ok(response::unknown()) };
        let term = term::of_request(request)?;
        let admin = std::sync::Arc::clone(&self.registry.lock().state().snapshot.admin);
        let body = if call.has_body() { body::read(request, &admin.limits, Version::V1)? } else { Json::Null };
        if admin.strict {
            check_strictly(call, target, &body)?;
        }
        let style = Style::find(target.get("format").unwrap_or_default());
        self.call(call, target, &body, style, term)
    }

    /// Runs a call; `term` is that of a call that changes something.
    pub(super) fn call(
        &self,
        call: Call<'_>,
        target: &Target,
        body: &Json,
        style: Style,
        term: Option<u64>,
    ) -> Result<Response, Failed> {
        let recursive = target.is("recursive");
        let shown = match call {
            Call::Config => self.config_view(),
            Call::Admin => self.admin_view(),
            Call::Sessions => self.session_views(&SessionFilter::default()),
            Call::Session(name) => self.session_view(name)?,
            Call::List(kind) => view::list(self.registry.lock().state(), kind, recursive),
            Call::Get(kind, name) => one(self.registry.lock().state(), kind, name, recursive)?,
            Call::Endpoints(cluster) => {
                let registry = self.registry.lock();
                let found = registry.state().snapshot.clusters.get(cluster);
                let found = found.ok_or_else(|| Refusal::missing(format!("No such cluster: {cluster}")))?;
                view::endpoints(registry.state(), &found.endpoints)
            }
            Call::RuleAt(list, at) => rule_at(self.registry.lock().state(), list, at, recursive)?,
            Call::SetConfig => {
                self.set_config(body, target.is("force"), term)?;
                return Ok(response::done(style));
            }
            Call::SetAdmin => {
                self.set_admin(body, term)?;
                return Ok(response::done(style));
            }
            Call::EndSession(name) => {
                self.end_session(name, term)?;
                return Ok(response::done(style));
            }
            Call::Add(_) | Call::Delete(..) | Call::AddEndpoint(_) | Call::InsertRule(..) | Call::RemoveRule(..) => {
                self.edit(call, target, body, term)?;
                return Ok(response::done(style));
            }
        };
        Ok(response::value(&shown, style))
    }

    /// The whole configuration, not recursive.
    fn config_view(&self) -> Json {
        let mut config = Object::default();
        config.set("admin", self.admin_view());
        {
            let registry = self.registry.lock();
            for kind in Kind::ALL {
                config.set(kind.plural(), view::list(registry.state(), kind, false));
            }
        }
        config.set("sessions", self.session_views(&SessionFilter::default()));
        Json::Object(config)
    }

    pub(super) fn session_views(&self, filter: &SessionFilter) -> Json {
        let page = self.engine.sessions(filter, &Page::default());
        let registry = self.registry.lock();
        Json::Array(page.sessions.iter().map(|dump| sessions::view(registry.state(), dump)).collect())
    }

    pub(super) fn session_view(&self, name: &str) -> Result<Json, Refusal> {
        let page = self.engine.sessions(&named(name), &Page { limit: Some(1), from: None });
        let found = page.sessions.first().ok_or_else(|| Refusal::missing("No such session"))?;
        Ok(sessions::view(self.registry.lock().state(), found))
    }

    fn end_session(&self, name: &str, term: Option<u64>) -> Result<(), Refusal> {
        // held until the sessions have ended: a higher term comes before or after
        let _registry = self.registry_to_change(term)?;
        match self.engine.end(&named(name), Ending::End("Session removed from the API")) {
            0 => Err(Refusal::missing("No such session")),
            _ => Ok(()),
        }
    }

    fn set_config(&self, config: &Json, force: bool, term: Option<u64>) -> Result<(), Refusal> {
        let mut registry = self.registry_to_change(term)?;
        registry.change(|change| {
            if let Some(admin) = config.get("admin") {
                document::set_admin(change, admin)?;
            }
            let strict = change.state.snapshot.admin.strict;
            document::replace(change, config, document::Replace { owner: None, strict, force })
        })?;
        (self.settings.on_admin)(&registry.state().snapshot.admin);
        Ok(())
    }

    fn set_admin(&self, body: &Json, term: Option<u64>) -> Result<(), Refusal> {
        let mut registry = self.registry_to_change(term)?;
        registry.change(|change| document::set_admin(change, body.get("admin").unwrap_or(&Json::Null)))?;
        (self.settings.on_admin)(&registry.state().snapshot.admin);
        Ok(())
    }

    fn edit(&self, call: Call<'_>, target: &Target, body: &Json, term: Option<u64>) -> Result<(), Refusal> {
        let (recursive, force) = (target.is("recursive"), target.is("force"));
        let edited = self.registry_to_change(term)?.change(|change| {
            match call {
                Call::Add(kind) => drop(change.writer(None, false).write(kind, body.get(kind.key()))?),
                Call::AddEndpoint(cluster) => drop(change.writer(None, false).endpoint(cluster, body.get("endpoint"))?),
                Call::InsertRule(list, at) => change.writer(None, false).insert_rule(list, at, body.get("rule"))?,
                Call::RemoveRule(list, which) => change.remove_rule(list, which, recursive)?,
                Call::Delete(kind, name) => change.delete(Delete { kind, name, recursive, force })?,
                Call::Config
                | Call::SetConfig
                | Call::Admin
                | Call::SetAdmin
                | Call::List(_)
                | Call::Get(..)
                | Call::Endpoints(_)
                | Call::RuleAt(..)
                | Call::Sessions
                | Call::Session(_)
                | Call::EndSession(_) => {}
            }
            Ok(())
        });
        edited.map(drop)
    }
}

fn check_strictly(call: Call<'_>, target: &Target, body: &Json) -> Result<(), Refusal> {
    let query = target.query.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let mut violations = strict::query(query, call.allowed());
    violations.extend(body_violations(call, body));
    if let Call::RuleAt(_, at) = call
        && at.parse::<i64>().is_err()
    {
        violations.extend(strict::position());
    }
    found(violations)
}

/// Violations of what a body must be like.
pub(super) fn body_violations(call: Call<'_>, body: &Json) -> Vec<Json> {
    match call {
        Call::Add(kind) => strict::body(kind, body),
        Call::AddEndpoint(_) => strict::body(Kind::Endpoint, body),
        Call::InsertRule(..) => strict::rule_item(body),
        Call::RuleAt(..)
        | Call::Config
        | Call::SetConfig
        | Call::Admin
        | Call::SetAdmin
        | Call::List(_)
        | Call::Get(..)
        | Call::Delete(..)
        | Call::Endpoints(_)
        | Call::RemoveRule(..)
        | Call::Sessions
        | Call::Session(_)
        | Call::EndSession(_) => Vec::new(),
    }
}

pub(super) fn found(violations: Vec<Json>) -> Result<(), Refusal> {
    if violations.is_empty() { Ok(()) } else { Err(Refusal::invalid(violations)) }
}

fn one(state: &State, kind: Kind, name: &str, recursive: bool) -> Result<Json, Refusal> {
    let meta = state.meta(kind, name).ok_or_else(Refusal::not_found)?;
    Ok(if recursive { view::deep(state, kind, meta) } else { view::shallow(state, kind, meta) })
}

fn rule_at(state: &State, list: &str, at: &str, recursive: bool) -> Result<Json, Refusal> {
    let found = state.snapshot.rulelists.get(list);
    let found = found.ok_or_else(|| Refusal::missing(format!("No such rule list: {list}")))?;
    let position: i64 = at.parse().map_err(|_| Refusal::not_found())?;
    let rule = usize::try_from(position).ok().and_then(|position| found.rules.get(position));
    let rule = rule.ok_or_else(|| Refusal::missing(format!("No rule at position {at} in RuleList \"{list}\"")))?;
    one(state, Kind::Rule, rule, recursive)
}

fn named(name: &str) -> SessionFilter {
    SessionFilter { name: Some(name.to_owned()), ..SessionFilter::default() }
}

fn plural(word: &str) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| kind.plural() == word)
}

/// Endpoints are listed by cluster only.
fn listed(word: &str) -> Option<Kind> {
    plural(word).filter(|kind| *kind != Kind::Endpoint)
}
