//! What a story file holds.
//!
//! A file is a list of stories; a story is a sentence and its steps. A step is one request:
//!
//! ```yaml
//! - story: a name that is taken is refused
//!   steps:
//!   - do: POST /api/v1/namespaces/{ns}/configmaps
//!     body: { metadata: { name: one }, data: { a: "1" } }
//!     save: { rv: metadata.resourceVersion }
//!   - name: the second comes too late
//!     do: PATCH /api/v1/namespaces/{ns}/configmaps/one?fieldManager=me
//!     type: application/merge-patch+json
//!     raw: '{"metadata": {"resourceVersion": "${rv}"}}'
//! ```
//!
//! - `{ns}` is the story's own namespace, `{id}` a word of its own for cluster-wide names, `${x}` a value that an
//!   earlier step saved from its answer by path, `@(text*1000)` the text a thousand times. Spaces and other characters
//!   that a URI cannot hold are escaped.
//! - `body` is sent as JSON, `raw` as it stands. `type`, `accept` and `agent` set Content-Type (JSON by default; `none` sends
//!   none), Accept (JSON by default) and User-Agent. `anonymous` sends the request without credentials.
//! - `until` repeats the request until the answer's body has these values at these paths (`code`: the status code), for
//!   what happens by itself.
//! - `pick` keeps only those elements of a list whose field has one of the values, for answers that tell of everything
//!   on the server. `volatile` leaves out paths that differ from run to run on one and the same server.
//! - `watch: NAME` opens a watch and keeps it; a step `events: NAME` collects its events since: `count` events and
//!   whatever follows at once, or with `end` all until the server ends it. Bookmarks that a server sends when it likes
//!   are passed over; the one after the initial events counts.

use std::{collections::BTreeMap, fs, path::PathBuf};

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Story {
    /// The file's name without its ending.
    #[serde(skip)]
    pub(crate) file: String,
    #[serde(rename = "story")]
    pub(crate) sentence: String,
    pub(crate) steps: Vec<Step>,
}

impl Story {
    /// Whether it runs in protobuf as well: not when it waits for a time to pass or for an empty value, which is left out
    /// there, and not without built-in kinds.
    pub(crate) fn has_two_encodings(&self) -> bool {
        let waits = |step: &Step| {
            let for_nothing = step.until.values().any(|value| *value == 0);
            step.end || for_nothing || step.accept.as_deref().is_some_and(|accept| accept.contains("yaml"))
        };
        let is_built_in = |step: &Step| !step.path().contains(".test/") && step.path().contains("/v1/");
        !self.steps.iter().any(waits) && self.steps.iter().any(is_built_in)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) name: Option<String>,
    /// `METHOD path?query`; empty for a step that collects events.
    #[serde(rename = "do", default)]
    pub(crate) request: String,
    pub(crate) body: Option<Value>,
    pub(crate) raw: Option<String>,
    #[serde(rename = "type")]
    pub(crate) content_type: Option<String>,
    pub(crate) accept: Option<String>,
    pub(crate) agent: Option<String>,
    #[serde(default)]
    pub(crate) anonymous: bool,
    #[serde(default)]
    pub(crate) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) save: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) until: BTreeMap<String, Value>,
    #[serde(default)]
    pub(crate) pick: BTreeMap<String, BTreeMap<String, Vec<Value>>>,
    #[serde(default)]
    pub(crate) volatile: Vec<String>,
    pub(crate) watch: Option<String>,
    pub(crate) events: Option<String>,
    #[serde(default)]
    pub(crate) count: usize,
    #[serde(default)]
    pub(crate) end: bool,
}

impl Step {
    pub(crate) fn method(&self) -> &str {
        self.request.split_once(' ').map_or("", |(method, _)| method)
    }

    /// Path and query as the file has them.
    pub(crate) fn target(&self) -> &str {
        self.request.split_once(' ').map_or("", |(_, target)| target.trim())
    }

    pub(crate) fn path(&self) -> &str {
        self.target().split('?').next().unwrap_or_default()
    }

    /// The options of the query as the file has them.
    pub(crate) fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        let query = self.target().split_once('?').map_or("", |(_, query)| query);
        query
            .split('&')
            .filter(|option| !option.is_empty())
            .map(|option| option.split_once('=').unwrap_or((option, "")))
    }

    /// What reports call the step.
    pub(crate) fn shown(&self) -> String {
        let what = self.events.as_ref().map_or_else(|| self.request.clone(), |watch| format!("events of {watch}"));
        self.name.as_ref().map_or(what.clone(), |name| format!("{name} ({what})"))
    }
}

/// Every story, in the order of files and in them.
pub(crate) fn load_all() -> Vec<Story> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder().join("cases")).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let stories = files.iter().flat_map(|path| {
        let text = fs::read_to_string(path).unwrap();
        let mut stories: Vec<Story> =
            serde_saphyr::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for story in &mut stories {
            story.file = path.file_stem().unwrap().to_string_lossy().into_owned();
        }
        stories
    });
    stories.collect()
}

/// The custom kinds that stories share, installed before the first.
pub(crate) fn shared_kinds() -> Vec<Value> {
    let files = fs::read_dir(folder().join("kinds")).unwrap().map(|file| file.unwrap().path());
    files.map(|path| serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()).collect()
}

/// Where the data files of the suite are.
pub(crate) fn folder() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/differential"))
}
