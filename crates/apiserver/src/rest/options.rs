//! Query parameters of every verb, parsed and checked.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

use super::body::decode;
use super::negotiate::Form;
use super::select::{FieldSelector, LabelSelector};
use crate::kinds::Kind;
use crate::status::{About, Cause, Failure};

/// The parameters of a query, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the part of a URL behind `?`.
    pub fn parse(text: &str) -> Self {
        Self(form_urlencoded::parse(text.as_bytes()).into_owned().collect())
    }

    /// The first value of a parameter; empty if it is not there.
    pub fn text(&self, name: &str) -> &str {
        self.first(name).unwrap_or_default()
    }

    /// A flag: every value but `false` and `0` is true, even the empty one.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.first(name).map(|value| !(value.eq_ignore_ascii_case("false") || value == "0"))
    }

    /// Whether a list is a watch.
    pub fn is_watch(&self) -> bool {
        self.flag("watch") == Some(true)
    }

    fn first(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn all(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(key, _)| key == name).map(|(_, value)| value.clone()).collect()
    }

    fn integer(&self, name: &str) -> Result<Option<i64>, Failure> {
        let number = self.first(name).map(str::parse).transpose();
        number.map_err(|_| Failure::bad_request(format!("{name}: {:?} is not a number", self.text(name))))
    }
}

/// The options of a list, a watch or a deletion of a collection.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListOptions {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    pub bookmarks: bool,
    /// As it was written: empty and `0` mean different things.
    pub resource_version: String,
    /// Whether the list must have exactly this version; otherwise a newer one is fine.
    pub exact: bool,
    pub timeout_seconds: Option<i64>,
    /// 0 or less is no limit.
    pub limit: i64,
    /// The page to continue with.
    pub page: Option<Token>,
    pub send_initial_events: bool,
}

/// Where the next page of a list starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The revision of the whole list; 0 is the present one.
    pub revision: u64,
    /// When its first page was read, in seconds.
    pub issued: i64,
    /// Name, or namespace and name, of the first object of the page.
    pub start: String,
}

impl ListOptions {
    /// Whether an object matches the selectors.
    pub fn select(&self, object: &serde_json::Value) -> bool {
        self.labels.matches(object) && self.fields.matches(object)
    }

    /// Whether there are no selectors.
    pub fn select_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Reads the options for a kind.
    pub fn parse(query: &Query, kind: &Kind) -> Result<Self, Failure> {
        let mut options = Self {
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or_default(),
            resource_version: query.text("resourceVersion").to_owned(),
            exact: query.text("resourceVersionMatch") == "Exact",
            timeout_seconds: query.integer("timeoutSeconds")?,
            limit: query.integer("limit")?.unwrap_or_default(),
            page: None,
            send_initial_events: query.flag("sendInitialEvents").unwrap_or_default(),
            labels: LabelSelector::parse(query.text("labelSelector"))?,
            fields: FieldSelector::parse(query.text("fieldSelector"))?,
        };
        let watch = query.is_watch();
        options.check(query, watch)?;
        options.fields.check(kind)?;
        let from_any = matches!(options.resource_version.as_str(), "" | "0");
        // A watch without a resource version begins with the existing objects.
        options.send_initial_events |= watch && from_any && query.first("sendInitialEvents").is_none();
        let page = query.text("continue");
        if !page.is_empty() {
            options.page = Some(Token::decode(page)?);
            if !from_any {
                return Err(Failure::bad_request("resourceVersion is not allowed with continue"));
            }
        }
        Ok(options)
    }

    /// Refuses options that contradict each other.
    fn check(&self, query: &Query, watch: bool) -> Result<(), Failure> {
        let (matching, version) = (query.text("resourceVersionMatch"), self.resource_version.as_str());
        let (set, initial) = (!matching.is_empty(), query.first("sendInitialEvents").is_some());
        let (pages, newer) = (!query.text("continue").is_empty(), matching == "NotOlderThan");
        let mut errors = OptionErrors::of("ListOptions");
        let field = "resourceVersionMatch";
        if watch {
            errors.note(initial && !newer, FORBIDDEN, field, "sendInitialEvents needs NotOlderThan");
            errors.note(set && !initial, FORBIDDEN, field, "a watch needs sendInitialEvents for it");
            errors.note(set && !newer, NOT_SUPPORTED, field, "a watch knows NotOlderThan only");
        } else {
            errors.note(set && version.is_empty(), FORBIDDEN, field, "it needs a resourceVersion");
            errors.note(set && !newer && !self.exact, NOT_SUPPORTED, field, "it may be Exact or NotOlderThan");
            errors.note(self.exact && version == "0", FORBIDDEN, field, "0 is no exact version");
            errors.note(initial, FORBIDDEN, "sendInitialEvents", "it is for watches only");
        }
        errors.note(set && pages, FORBIDDEN, field, "it is not allowed with continue");
        errors.check()
    }
}

impl Token {
    /// The text that clients send back.
    pub fn encode(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(serde_json::json!(self).to_string())
    }

    /// Decodes what a client sent back.
    pub fn decode(text: &str) -> Result<Self, Failure> {
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        let token = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        token.ok_or_else(|| Failure::bad_request("the continue token is not valid"))
    }
}

/// The revision that a request names: none for empty and `0`, which mean any.
pub fn revision(text: &str) -> Result<Option<u64>, Failure> {
    if matches!(text, "" | "0") {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| Failure::bad_request(format!("resourceVersion: {text:?} is not a revision")))
}

/// The query parameter `fieldValidation`: what to do with unknown and duplicate fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// The options of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriteOptions {
    pub dry_run: bool,
    /// Empty when the client names none.
    pub field_manager: String,
    /// What to do with unknown and duplicate fields.
    pub field_validation: FieldValidation,
    /// Take fields from other managers; apply only.
    pub force: bool,
}

/// Which write it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    Create,
    Update,
    /// JSON, merge and strategic merge.
    Patch,
    Apply,
}

impl WriteOptions {
    /// Reads the options of a write.
    pub fn parse(query: &Query, kind: WriteKind) -> Result<Self, Failure> {
        let mut errors = OptionErrors::of(match kind {
            WriteKind::Create => "CreateOptions",
            WriteKind::Update => "UpdateOptions",
            WriteKind::Patch | WriteKind::Apply => "PatchOptions",
        });
        let (manager, force, applies) = (query.text("fieldManager"), query.flag("force"), kind == WriteKind::Apply);
        errors.note(applies && manager.is_empty(), "FieldValueRequired", "fieldManager", "an apply patch needs it");
        let forced = kind == WriteKind::Patch && force.is_some();
        errors.note(forced, FORBIDDEN, "force", "it is for apply patches only");
        errors.note(manager.len() > 128, "FieldValueTooLong", "fieldManager", "it has more than 128 bytes");
        let unprintable = manager.chars().any(char::is_control);
        errors.note(unprintable, "FieldValueInvalid", "fieldManager", "it is not printable");
        let dry_run = errors.dry_run(&query.all("dryRun"));
        let field_validation = match query.text("fieldValidation") {
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let unknown = !matches!(other, "" | "Warn");
                errors.note(unknown, NOT_SUPPORTED, "fieldValidation", "it may be Ignore, Warn or Strict");
                FieldValidation::Warn
            }
        };
        errors.check()?;
        let force = applies && force.unwrap_or_default();
        Ok(Self { dry_run, field_manager: manager.to_owned(), field_validation, force })
    }
}

/// The options of a deletion.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    pub dry_run: bool,
    pub grace_period_seconds: Option<i64>,
    pub preconditions: Preconditions,
    pub propagation: Option<Propagation>,
}

/// What must hold for an object to be deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Preconditions {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

/// What happens to the dependents of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    Foreground,
    Background,
    Orphan,
}

/// The options of a deletion as the client sent them.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDeleteOptions {
    kind: Option<String>,
    dry_run: Option<Vec<String>>,
    grace_period_seconds: Option<i64>,
    propagation_policy: Option<String>,
    /// What clients wrote before there was a policy.
    orphan_dependents: Option<bool>,
    preconditions: Option<Preconditions>,
}

impl DeleteOptions {
    /// Reads the options; a body that is not empty makes the query count for nothing.
    pub fn parse(query: &Query, form: Form, body: &[u8]) -> Result<Self, Failure> {
        let written = if body.is_empty() {
            RawDeleteOptions {
                dry_run: Some(query.all("dryRun")),
                grace_period_seconds: query.integer("gracePeriodSeconds")?,
                propagation_policy: query.first("propagationPolicy").map(str::to_owned),
                orphan_dependents: query.flag("orphanDependents"),
                ..RawDeleteOptions::default()
            }
        } else {
            serde_json::from_value(decode(form, body, ("v1", "DeleteOptions"))?)
                .map_err(|fault| Failure::bad_request(format!("the body is no DeleteOptions: {fault}")))?
        };
        if let Some(kind) = written.kind.filter(|kind| !matches!(kind.as_str(), "" | "DeleteOptions")) {
            return Err(Failure::bad_request(format!("a deletion takes DeleteOptions, not a {kind}")));
        }
        let mut errors = OptionErrors::of("DeleteOptions");
        let propagation = match written.propagation_policy.as_deref() {
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Background") => Some(Propagation::Background),
            Some("Orphan") => Some(Propagation::Orphan),
            other => {
                let message = "it may be Foreground, Background or Orphan";
                errors.note(other.is_some(), NOT_SUPPORTED, "propagationPolicy", message);
                None
            }
        };
        let old = written.orphan_dependents.is_some();
        errors.note(old, "FieldValueInvalid", "propagationPolicy", "it takes the place of orphanDependents");
        let dry_run = errors.dry_run(&written.dry_run.unwrap_or_default());
        errors.check()?;
        let (grace_period_seconds, preconditions) = (written.grace_period_seconds, written.preconditions);
        Ok(Self { dry_run, grace_period_seconds, preconditions: preconditions.unwrap_or_default(), propagation })
    }
}

const NOT_SUPPORTED: &str = "FieldValueNotSupported";
const FORBIDDEN: &str = "FieldValueForbidden";

/// The errors of options, collected.
struct OptionErrors {
    /// Such as `ListOptions`.
    kind: &'static str,
    found: Vec<Cause>,
}

impl OptionErrors {
    fn of(kind: &'static str) -> Self {
        Self { kind, found: Vec::new() }
    }

    fn note(&mut self, is_error: bool, reason: &'static str, field: &str, message: &str) {
        if is_error {
            self.found.push(Cause { reason, message: message.to_owned(), field: field.to_owned() });
        }
    }

    /// Reads `dryRun`, whose only value is `All`.
    fn dry_run(&mut self, values: &[String]) -> bool {
        self.note(values.iter().any(|value| value != "All"), NOT_SUPPORTED, "dryRun", "it may only be All");
        !values.is_empty()
    }

    fn check(self) -> Result<(), Failure> {
        let about = About { group: "meta.k8s.io", resource: self.kind, name: "" };
        if self.found.is_empty() { Ok(()) } else { Err(Failure::invalid(about, &self.found)) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::widget;
    use super::*;

    fn list(query: &str) -> Result<ListOptions, Failure> {
        ListOptions::parse(&Query::parse(query), &widget())
    }

    fn write(query: &str, kind: WriteKind) -> Result<WriteOptions, Failure> {
        WriteOptions::parse(&Query::parse(query), kind)
    }

    fn delete(query: &str, body: &str) -> Result<DeleteOptions, Failure> {
        DeleteOptions::parse(&Query::parse(query), Form::Json, body.as_bytes())
    }

    #[test]
    fn a_list_is_read() {
        let options = list("limit=2&resourceVersion=5&resourceVersionMatch=Exact&labelSelector=a%3Db").unwrap();
        assert!(options.limit == 2 && options.exact && !options.labels.is_empty() && !options.send_initial_events);
        let watch = list("watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1");
        assert!(watch.is_ok_and(|watch| watch.bookmarks && watch.send_initial_events));
        assert!(list("watch=1").unwrap().send_initial_events && !list("watch=1&resourceVersion=7").unwrap().exact);
    }

    #[test]
    fn list_options_that_contradict_each_other_are_refused() {
        let token = Token { revision: 3, issued: 7, start: "default/x".to_owned() };
        assert_eq!(Token::decode(&token.encode()), Ok(token.clone()));
        for (query, code) in [
            ("limit=x", 400),
            ("continue=nonsense", 400),
            (&format!("continue={}&resourceVersion=5", token.encode()), 400),
            ("fieldSelector=spec.nope=1", 400),
            ("resourceVersionMatch=Exact", 422),
            ("resourceVersion=0&resourceVersionMatch=Exact", 422),
            ("resourceVersion=1&resourceVersionMatch=Roughly", 422),
            ("sendInitialEvents=true", 422),
            ("watch=1&sendInitialEvents=true", 422),
            ("watch=1&resourceVersionMatch=NotOlderThan", 422),
        ] {
            assert_eq!(list(query).unwrap_err().code, code, "{query}");
        }
        assert_eq!((revision("many").unwrap_err().code.as_u16(), revision("0")), (400, Ok(None)));
    }

    #[test]
    fn a_write_is_read() {
        let query = "dryRun=All&dryRun=All&fieldManager=€&fieldValidation=Strict&force=1";
        let field_validation = FieldValidation::Strict;
        let expected = WriteOptions { dry_run: true, field_manager: "€".to_owned(), field_validation, force: true };
        assert_eq!(write(query, WriteKind::Apply), Ok(expected));
        assert!(write("fieldValidation=&force=true", WriteKind::Create).is_ok_and(|options| !options.force));
    }

    #[test]
    fn each_error_of_a_write_names_its_field() {
        let long = format!("fieldManager={}", "a".repeat(130));
        for (query, kind, expected) in [
            ("dryRun=All&dryRun=x", WriteKind::Update, &["dryRun"][..]),
            ("fieldManager=%01&fieldValidation=y", WriteKind::Create, &["fieldManager", "fieldValidation"]),
            (&long, WriteKind::Patch, &["fieldManager"]),
            ("force=x", WriteKind::Patch, &["force"]),
            ("force=x", WriteKind::Apply, &["fieldManager"]),
        ] {
            let causes = write(query, kind).unwrap_err().to_json()["details"]["causes"].clone();
            let fields: Vec<_> =
                causes.as_array().unwrap().iter().filter_map(|cause| cause["field"].as_str()).collect();
            assert_eq!(fields, expected, "{query}");
        }
    }

    #[test]
    fn a_body_takes_the_place_of_the_query_of_a_deletion() {
        let query = delete("propagationPolicy=Orphan&gracePeriodSeconds=3&dryRun=All", "").unwrap();
        assert_eq!((query.propagation, query.grace_period_seconds), (Some(Propagation::Orphan), Some(3)));
        assert!(query.dry_run);
        let body = r#"{"kind":"DeleteOptions","preconditions":{"uid":"u"},"gracePeriodSeconds":null}"#;
        let body = delete("propagationPolicy=Orphan", body).unwrap();
        assert_eq!((body.propagation, body.preconditions.uid.as_deref()), (None, Some("u")));
        for (query, body, code) in [
            ("gracePeriodSeconds=x", "", 400),
            ("", r#"{"gracePeriodSeconds":"x"}"#, 400),
            ("", r#"{"kind":"Pod"}"#, 400),
            ("", "[", 400),
            ("propagationPolicy=Never", "", 422),
            ("dryRun=x", "", 422),
        ] {
            assert_eq!(delete(query, body).unwrap_err().code, code, "{query} {body}");
        }
    }
}
