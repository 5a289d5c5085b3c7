//! What users ask of a cluster: what would change (`plan`), why is it so (`why`), how does it stand (`status`).
//!
//! Each capability answers for its own kinds, from the same pure plan that its controller acts on; nothing is written.
//! An answer is a table, so that every one of them prints, and reads as JSON, alike.

use kube::Client;
use serde_json::{Map, Value};

use crate::egress;

/// A column of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// The name in JSON.
    pub key: &'static str,
    /// The heading in a table.
    pub title: &'static str,
    /// Shown only when asked for more.
    pub wide: bool,
}

/// A table of what was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub columns: &'static [Column],
    pub rows: Vec<Map<String, Value>>,
    /// One sentence that sums it up.
    pub summary: String,
    /// Whether the answer is yes: nothing would change, it is healthy, it was found.
    pub yes: bool,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Unanswered {
    /// The question cannot be answered as it is put.
    #[error("{what}")]
    Unclear { what: String, hint: String },
    /// There is no such thing.
    #[error("{what}")]
    NotFound { what: String, hint: String },
    /// The cluster did not answer.
    #[error("reading {what} failed: {cause}")]
    Unreachable { what: &'static str, cause: Box<kube::Error> },
}

/// What would change if these objects were applied.
pub async fn plan(client: &Client, changes: Vec<Value>) -> Result<Answer, Unanswered> {
    egress::answers::plan(client, changes).await
}

/// Why something is as it is. `rest` is what else the question names, such as a destination.
pub async fn why(client: &Client, kind: &str, name: &str, rest: Option<&str>) -> Result<Answer, Unanswered> {
    match kind {
        "eip" | "addr" | "addressclaim" => egress::answers::why_address(client, name).await,
        "policy" | "egp" | "egcp" | "egresspolicy" | "egressclusterpolicy" => {
            egress::answers::why_policy(client, name).await
        }
        "pod" => egress::answers::why_pod(client, name, rest).await,
        other => Err(Unanswered::Unclear {
            what: format!("there is no answer for `{other}`"),
            hint: "ask for eip, policy or pod".to_owned(),
        }),
    }
}

/// How a capability stands; or how it would without a node.
pub async fn status(client: &Client, capability: &str, without: Option<&str>) -> Result<Answer, Unanswered> {
    match capability {
        "egress" => egress::answers::status(client, without).await,
        other => Err(Unanswered::Unclear {
            what: format!("capability `{other}` has no status"),
            hint: "ask for egress".to_owned(),
        }),
    }
}

/// A row from names and values.
pub(crate) fn row<const N: usize>(fields: [(&str, Value); N]) -> Map<String, Value> {
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}
