//! Reads a spec into a type, and refuses it in the words that l7mp clients expect.

use std::path::{Component, Path, PathBuf};

use serde::de::DeserializeOwned;

use super::json::Json;
use super::refusal::Refusal;

/// A spec on its way into a type.
pub(crate) struct SpecReader<'a> {
    pub noun: &'static str,
    pub spec: &'a Json,
    pub at: &'static str,
}

impl<'a> SpecReader<'a> {
    pub(crate) fn protocol(&self) -> &'a str {
        self.spec.get("protocol").and_then(Json::as_str).unwrap_or("undefined")
    }

    /// The spec of a JSONSocket's transport.
    pub(crate) fn transport(&self) -> Option<&'a Json> {
        let transport = self.spec.get("transport").or_else(|| self.spec.get("transport_spec"));
        transport.filter(|transport| transport.as_object().is_some())
    }

    pub(crate) fn requires(&self, key: &str) -> Result<(), Refusal> {
        if self.spec.get(key).is_some() {
            return Ok(());
        }
        Err(Refusal::bad(format!("Cannot add {}: Property {}.{key} is required", self.noun, self.at)))
    }

    pub(crate) fn with_port<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        self.requires("port")?;
        self.all()
    }

    pub(crate) fn all<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        self.spec.read().map_err(|path| self.invalid(&path))
    }

    pub(crate) fn nested<T: DeserializeOwned>(&self, outer: &str, inner: &str) -> Result<Option<T>, Refusal> {
        let Some(value) = self.spec.get(outer).and_then(|value| value.get(inner)) else { return Ok(None) };
        value.read().map(Some).map_err(|_| self.invalid(&format!("{outer}.{inner}")))
    }

    fn invalid(&self, path: &str) -> Refusal {
        let field = if path == "." { self.at.to_owned() } else { format!("{}.{path}", self.at) };
        Refusal::bad(format!("Cannot add {}: Property {field} is invalid", self.noun))
    }
}

/// Checks textually that a path lies in one of the directories; opening it follows no link.
pub(crate) fn inside(path: &Path, dirs: &[PathBuf], noun: &str, field: &str, setting: &str) -> Result<(), Refusal> {
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if plain && dirs.iter().any(|dir| path.starts_with(dir) && path != dir) {
        return Ok(());
    }
    let shown: Vec<_> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    let content = format!(
        "Cannot add {noun}: spec.{field} \"{}\" is not inside {setting} ({})",
        path.display(),
        shown.join(", ")
    );
    Err(Refusal::bad(content))
}
