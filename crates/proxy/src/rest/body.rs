//! Request bodies: JSON or YAML, by content type.

use super::Failed;
use super::exchange::{Request, Response};
use super::response::{self, Version};
use crate::config::document::{Language, parse};
use crate::config::json::Json;
use crate::config::refusal::Refusal;
use crate::config::types::Limits;

const JSON: [&str; 4] = ["application/json", "application/x-json", "text/json", "text/x-json"];
const MERGE_PATCH: &str = "application/merge-patch+json";
const YAML: [&str; 4] = ["text/yaml", "text/x-yaml", "application/yaml", "application/x-yaml"];

/// Reads the body of a request.
pub(super) fn read(request: &Request, limits: &Limits, version: Version) -> Result<Json, Failed> {
    if request.body.len() > limits.body {
        let content = format!("The body exceeds {} bytes (admin.limits.body)", limits.body);
        return Err(response::error(413, "Payload Too Large", content.into()).into());
    }
    let Some(language) = language(request, version) else { return Err(unsupported(version).into()) };
    let name = if language == Language::Json { "JSON" } else { "YAML" };
    let bad = |why: &str| Refusal::bad(format!("Invalid {name} format in request: {why}"));
    let text = std::str::from_utf8(&request.body).map_err(|error| bad(&error.to_string()))?;
    let value = parse(text, language).map_err(|error| bad(&error))?;
    if value.depth() > limits.json_depth {
        let refusal = bad(&format!("nested deeper than {} (admin.limits.json_depth)", limits.json_depth));
        return Err(Refusal { limit: Some("json_depth"), ..refusal }.into());
    }
    Ok(value)
}

fn language(request: &Request, version: Version) -> Option<Language> {
    let kind = request.header("content-type")?;
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if JSON.contains(&kind.as_str()) || (version == Version::V2 && kind == MERGE_PATCH) {
        return Some(Language::Json);
    }
    YAML.contains(&kind.as_str()).then_some(Language::Yaml)
}

fn unsupported(version: Version) -> Response {
    match version {
        Version::V1 => response::error(500, "General Server Error", 415_u64.into()),
        Version::V2 => {
            let content = "Send JSON (application/json) or YAML (application/yaml)";
            response::error(415, "Unsupported Media Type", content.into())
        }
    }
}
