//! The vocabulary of queries: what `portolan plan`, `why` and `status` return.
//!
//! A capability answers for its own kinds, from the same pure plan that its controller acts on, and writes nothing.
//! Every result is a table, so that all of them print the same way and have the same JSON form.

use serde_json::{Map, Value};

/// A column of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// The key in JSON.
    pub key: &'static str,
    /// The heading in a table.
    pub title: &'static str,
    /// Shown only with `-o wide`.
    pub wide: bool,
}

/// A column of every table.
pub const fn column(key: &'static str, title: &'static str) -> Column {
    Column { key, title, wide: false }
}

/// A column of wide tables.
pub const fn wide(key: &'static str, title: &'static str) -> Column {
    Column { key, title, wide: true }
}

/// One row: values by the key of their column. A key without a column appears in JSON and YAML only.
pub type Row = Map<String, Value>;

/// A row from keys and values.
pub fn row<const N: usize>(fields: [(&str, Value); N]) -> Row {
    fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// How many of all: `{"ready": 2, "total": 3}`, and `2/3` in a table.
pub fn part(what: &str, count: impl Into<Value>, total: impl Into<Value>) -> Value {
    Value::Object(row([(what, count.into()), ("total", total.into())]))
}

/// A table of what was asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryResult {
    pub columns: &'static [Column],
    pub rows: Vec<Row>,
    /// The result in one sentence.
    pub summary: String,
    /// True for exit code 0: nothing would change, everything is healthy, the object was found.
    pub yes: bool,
    /// Problems of the request that did not prevent a result.
    pub warnings: Vec<String>,
}

/// The columns of a plan.
pub const CHANGES: &[Column] = &[
    column("what", "WHAT"),
    column("change", "CHANGE"),
    column("from", "FROM"),
    column("to", "TO"),
    column("why", "WHY"),
    wide("gateway", "GATEWAY"),
];

impl QueryResult {
    /// What would change; yes if nothing would.
    pub fn of_changes(rows: Vec<Row>) -> Self {
        let summary = match rows.len() {
            0 => "nothing would change".to_owned(),
            1 => "1 change".to_owned(),
            count => format!("{count} changes"),
        };
        Self { columns: CHANGES, yes: rows.is_empty(), rows, summary, warnings: Vec::new() }
    }
}

/// Why a query has no result.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The query itself is wrong.
    #[error("{what}")]
    Invalid { what: String, hint: String },
    /// The object does not exist.
    #[error("{what}")]
    NotFound { what: String, hint: String },
    /// The API server did not return the objects that the query needs.
    #[error("reading {what} failed: {}", cause_of(cause))]
    Unreachable { what: &'static str, cause: Box<kube::Error> },
}

/// What was wrong, without the layer of the client that noticed it.
fn cause_of(error: &kube::Error) -> String {
    if let kube::Error::Service(cause) = error { cause.to_string() } else { error.to_string() }
}
