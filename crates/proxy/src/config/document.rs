//! Complete configurations: the file, `--inline`, and `POST /config`.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::delete::{Delete, carries_api};
use super::json::Json;
use super::kind::Kind;
use super::refusal::Refusal;
use super::registry::Change;
use super::strict;
use super::types::{Admin, Name};

/// Owner of objects from the config file.
pub const FILE_OWNER: &str = "file";
/// Objects are added and listed in this order.
const ORDER: [Kind; 5] = [Kind::Listener, Kind::Cluster, Kind::RuleList, Kind::Rule, Kind::Route];
/// `admin` keys that can be changed at run time.
const CHANGEABLE: [&str; 3] = ["log_level", "strict", "drain_timeout"];

/// The language of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Json,
    Yaml,
}

/// How a configuration replaces the current one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Replace<'a> {
    /// Objects of this owner that are missing in the new configuration are deleted; `None`: of any owner.
    pub owner: Option<&'a str>,
    pub strict: bool,
    /// Also deletes the listener that serves the API.
    pub force: bool,
}

impl Language {
    /// By file extension.
    pub fn of(path: &Path) -> Self {
        let yaml =
            path.extension().is_some_and(|end| end.eq_ignore_ascii_case("yaml") || end.eq_ignore_ascii_case("yml"));
        if yaml { Self::Yaml } else { Self::Json }
    }
}

/// Parses a text; the error says what is wrong and where.
pub fn parse(text: &str, language: Language) -> Result<Json, String> {
    match language {
        Language::Json => serde_json::from_str(text).map_err(|error| error.to_string()),
        Language::Yaml if text.trim().is_empty() => Ok(Json::Null),
        Language::Yaml => {
            let one_line = |error: serde_saphyr::Error| error.to_string().lines().next().unwrap_or_default().to_owned();
            // only `true` and `false` are booleans, as in JSON: a listener may be named `y`
            let options = serde_saphyr::options! {
                strict_booleans: true,
                duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::LastWins,
                with_snippet: false,
            };
            serde_saphyr::from_str_with_options(text, options).map_err(one_line)
        }
    }
}

/// Reads the `admin` section of a config file, on top of the defaults.
pub fn admin(config: &Json) -> Result<Admin, Refusal> {
    let Some(given) = config.get("admin") else { return Ok(Admin::default()) };
    given.read().map_err(|path| Refusal::bad(format!("admin: Property {path} is invalid")))
}

/// Replaces the current objects with those of a configuration. Unchanged objects are left alone.
pub fn replace(change: &mut Change, config: &Json, how: Replace<'_>) -> Result<(), Refusal> {
    if config.as_object().is_none() {
        return Err(Refusal::bad("Cannot set config: An object (a set of key-value pairs) is expected"));
    }
    for kind in ORDER {
        remove_others(change, kind, objects(config, kind)?, how)?;
    }
    for kind in ORDER {
        let mut names = BTreeSet::new();
        for (index, object) in objects(config, kind)?.iter().enumerate() {
            let place = |refusal| at(refusal, kind, index);
            if let Some(name) = object.get("name").and_then(Json::as_str).filter(|name| !names.insert(*name)) {
                let content = format!("Cannot add {}: {} \"{name}\" already defined", kind.noun(), kind.title());
                return Err(place(Refusal::conflict(content)));
            }
            if how.strict {
                let violations = strict::object_alone(kind, object);
                if !violations.is_empty() {
                    return Err(place(Refusal::invalid(violations)));
                }
            }
            change.writer(how.owner.map(Name::from), true).write(kind, Some(object)).map_err(place)?;
        }
    }
    Ok(())
}

/// Changes the `admin` keys that can be changed at run time; others are refused.
pub fn set_admin(change: &mut Change, given: &Json) -> Result<(), Refusal> {
    let Some(fields) = given.as_object() else {
        return Err(Refusal::bad("Cannot set admin: An object (a set of key-value pairs) is expected"));
    };
    let fixed = |key: &str| !CHANGEABLE.contains(&key) && !READ_ONLY.contains(&key);
    if let Some((key, _)) = fields.iter().find(|(key, _)| fixed(key)) {
        return Err(Refusal::bad(format!("Cannot set admin: Property {key} is set in the config file only")));
    }
    let read: Admin =
        given.read().map_err(|path| Refusal::bad(format!("Cannot set admin: Property {path} is invalid")))?;
    let mut admin = Admin::clone(&change.state.snapshot.admin);
    if fields.get("log_level").is_some() {
        admin.log_level = read.log_level;
    }
    if fields.get("strict").is_some() {
        admin.strict = read.strict;
    }
    if fields.get("drain_timeout").is_some() {
        admin.drain_timeout = read.drain_timeout;
    }
    put_admin(change, admin);
    Ok(())
}

/// Read-only keys in `admin`; accepted and ignored on writes.
const READ_ONLY: [&str; 5] = ["offload", "version", "log_file", "access_log_path", "portolan"];

/// Replaces the `admin` section.
pub fn put_admin(change: &mut Change, mut admin: Admin) {
    admin.endpoint_policy.own.clone_from(&change.state.snapshot.admin.endpoint_policy.own);
    if *change.state.snapshot.admin != admin {
        change.state.snapshot.admin = Arc::new(admin);
        change.state.changed = true;
    }
}

fn objects(config: &Json, kind: Kind) -> Result<&[Json], Refusal> {
    match config.get(kind.plural()) {
        None | Some(Json::Null) => Ok(&[]),
        Some(Json::Array(objects)) => Ok(objects),
        Some(_) => Err(Refusal::bad(format!("{}: expected a list", kind.plural()))),
    }
}

fn remove_others(change: &mut Change, kind: Kind, kept: &[Json], how: Replace<'_>) -> Result<(), Refusal> {
    let kept: BTreeSet<&str> = kept.iter().filter_map(|object| object.get("name")?.as_str()).collect();
    let state = &change.state;
    let goes = |meta: &&super::state::Meta| {
        let theirs = how.owner.is_none() || meta.owner.as_deref() == how.owner;
        let carries = kind == Kind::Listener && !how.force && carries_api(state, meta.name());
        theirs && !meta.auto && !kept.contains(meta.name()) && (how.owner.is_some() || !carries)
    };
    let gone: Vec<String> = state.list(kind).into_iter().filter(goes).map(|meta| meta.name().to_owned()).collect();
    for name in gone {
        change.delete(Delete { kind, name: &name, recursive: false, force: true })?;
    }
    Ok(())
}

fn at(refusal: Refusal, kind: Kind, index: usize) -> Refusal {
    Refusal { content: format!("{}[{index}]: {}", kind.plural(), refusal.content), ..refusal }
}
