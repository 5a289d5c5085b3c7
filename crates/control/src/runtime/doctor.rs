//! The vocabulary of `portolan doctor`: what a capability checks, what it finds, and what it can repair.
//!
//! A check only reads. A repair is a value that says what it does; it writes to the API server once it is run, and only
//! what still is as it was seen.

use std::fmt::Debug;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::api::{Api, Patch, PatchParams};
use kube::{Resource, ResourceExt as _};
use portolan_drivers::cloud::aws::LazyAws;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::query::{QueryError, QueryResult, Row};

/// What is to be examined.
#[derive(Clone, Default)]
pub struct Examination {
    /// Only what concerns the object of this name.
    pub name: Option<String>,
    /// The cloud of the nodes. None: checks that need it say so.
    pub cloud: Option<ExaminedCloud>,
}

/// A cloud that says what its credentials allow, too.
pub type ExaminedCloud = Arc<LazyAws>;

/// Checks that are still running.
pub type Checks = BoxFuture<'static, Result<Vec<Check>, QueryError>>;

/// What a check came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    Ok,
    /// Somebody should know, but everything is served.
    Warn,
    Fail,
}

/// One check, about one object or about all that are well.
#[derive(Debug)]
pub struct Check {
    /// What was checked, such as `hostsubnet-addresses`.
    pub name: &'static str,
    /// `Kind/name`; empty if it is about no single object.
    pub object: String,
    pub verdict: Verdict,
    /// What was seen.
    pub seen: String,
    /// What to do; empty if nothing.
    pub advice: String,
    pub repair: Option<Repair>,
}

/// How something is put right.
pub struct Repair {
    /// What it does, as an order: `write ...`, `remove ...`.
    pub does: String,
    /// The operator puts it right; this only asks it to look.
    pub asks_operator: bool,
    run: BoxFuture<'static, Result<(), kube::Error>>,
}

impl Examination {
    /// Whether it is about an object, written as `Kind/NAME` or `Kind/NAMESPACE/NAME`.
    pub fn concerns(&self, object: &str) -> bool {
        let Some(name) = &self.name else { return true };
        let own = object.split_once('/').map_or("", |(_, own)| own);
        own == name || own.rsplit('/').next() == Some(name)
    }

    /// Fails unless it is about one of these objects.
    pub fn require(&self, objects: impl IntoIterator<Item = String>, hint: &str) -> Result<(), QueryError> {
        let name = self.name.as_deref().unwrap_or_default();
        if self.name.is_none() || objects.into_iter().any(|object| self.concerns(&object)) {
            return Ok(());
        }
        Err(QueryError::NotFound { what: format!("there is no `{name}` to examine"), hint: hint.to_owned() })
    }
}

impl Verdict {
    /// As tables and JSON spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}

impl Check {
    /// All is well.
    pub fn ok(name: &'static str, seen: impl Into<String>) -> Self {
        Self::new(name, "", Verdict::Ok, seen, "")
    }

    /// A user should know.
    pub fn warn(
        name: &'static str,
        object: impl Into<String>,
        seen: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::new(name, object, Verdict::Warn, seen, advice)
    }

    /// Something is wrong.
    pub fn fail(
        name: &'static str,
        object: impl Into<String>,
        seen: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::new(name, object, Verdict::Fail, seen, advice)
    }

    fn new(
        name: &'static str,
        object: impl Into<String>,
        verdict: Verdict,
        seen: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { name, object: object.into(), verdict, seen: seen.into(), advice: advice.into(), repair: None }
    }
}

impl Repair {
    /// Writes something.
    pub fn new(does: impl Into<String>, run: impl Future<Output = Result<(), kube::Error>> + Send + 'static) -> Self {
        Self { does: does.into(), asks_operator: false, run: run.boxed() }
    }

    /// Asks the operator to look at something.
    pub fn by_operator(
        does: impl Into<String>,
        run: impl Future<Output = Result<(), kube::Error>> + Send + 'static,
    ) -> Self {
        Self { asks_operator: true, ..Self::new(does, run) }
    }

    /// Does it.
    pub async fn run(self) -> Result<(), kube::Error> {
        self.run.await
    }
}

impl Debug for Repair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Repair").field(&self.does).finish()
    }
}

/// Checks made of a status: one for each row that something is said about, or one for all of them.
pub fn of_status(
    name: &'static str,
    status: QueryResult,
    examination: &Examination,
    judge: impl Fn(&Row) -> Option<Check>,
) -> Vec<Check> {
    let QueryResult { rows, summary, .. } = status;
    let found = rows.iter().filter_map(judge).filter(|check| examination.concerns(&check.object));
    let found: Vec<Check> = found.collect();
    if found.is_empty() { vec![Check::ok(name, summary)] } else { found }
}

/// Tries of a write while others change the same object.
const TRIES: usize = 5;

/// Changes an object by a merge patch, made from the object as it is then. Nothing is written if the change is none or
/// the object is gone.
pub async fn edit<K>(api: &Api<K>, name: &str, change: impl Fn(&K) -> Option<Value>) -> Result<(), kube::Error>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let parameters = PatchParams { field_manager: Some("portolan-doctor".to_owned()), ..PatchParams::default() };
    let mut tries = 0;
    loop {
        let Some(seen) = api.get_opt(name).await? else { return Ok(()) };
        let Some(mut body) = change(&seen) else { return Ok(()) };
        body["metadata"]["resourceVersion"] = seen.resource_version().into();
        tries += 1;
        match api.patch(name, &parameters, &Patch::Merge(&body)).await {
            Err(kube::Error::Api(status)) if status.code == 409 && tries < TRIES => {}
            written => return written.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::runtime::query::row;

    fn status() -> QueryResult {
        let rows = ["a", "b"].map(|name| row([("name", json!(name)), ("ready", json!(name == "a"))]));
        QueryResult { columns: &[], rows: rows.into(), summary: "1 of 2".to_owned(), yes: false, warnings: Vec::new() }
    }

    fn judge(row: &Row) -> Option<Check> {
        let object = format!("Thing/shop/{}", row["name"].as_str().unwrap_or_default());
        (row["ready"] == false).then(|| Check::fail("things", object, "not ready", "wait"))
    }

    #[test]
    fn a_status_gives_a_check_for_each_problem_or_one_for_all() {
        let objects = |name: Option<&str>| {
            let examination = Examination { name: name.map(str::to_owned), cloud: None };
            let found = of_status("things", status(), &examination, judge);
            found.into_iter().map(|check| (check.verdict, check.object)).collect::<Vec<_>>()
        };
        let problem = vec![(Verdict::Fail, "Thing/shop/b".to_owned())];
        assert_eq!(objects(None), problem);
        assert_eq!(objects(Some("b")), problem);
        assert_eq!(objects(Some("shop/b")), problem);
        assert_eq!(objects(Some("a")), [(Verdict::Ok, String::new())]);
    }

    #[test]
    fn a_name_that_nothing_has_is_not_found() {
        let required = |name: Option<&str>| {
            let examination = Examination { name: name.map(str::to_owned), cloud: None };
            examination.require(["Thing/shop/a".to_owned()], "list them").is_ok()
        };
        assert!(required(None) && required(Some("a")) && required(Some("shop/a")));
        assert!(!required(Some("shop")) && !required(Some("b")));
    }
}
