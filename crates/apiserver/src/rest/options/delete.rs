//! Options of delete: from the body when there is one, else from the query.

use serde_json::Value;

use super::{Query, checked, dry_run, invalid, not_supported};
use crate::rest::body::{decode, json_type};
use crate::rest::negotiate::Form;
use crate::rest::text::quote;
use crate::status::Failure;

/// How objects are deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    pub dry_run: bool,
    pub grace_period_seconds: Option<i64>,
    pub preconditions: Preconditions,
    pub propagation: Option<Propagation>,
    pub orphan_dependents: Option<bool>,
}

/// What an object must still be to be deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions {
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

/// What happens to those that an object owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    Foreground,
    Background,
    Orphan,
}

impl DeleteOptions {
    /// Reads the options; a body that is not empty makes the query count for nothing.
    pub fn parse(query: &Query, form: Form, body: &[u8]) -> Result<Self, Failure> {
        let written = if body.is_empty() {
            Written {
                dry_run: query.all("dryRun"),
                grace_period_seconds: query.integer("gracePeriodSeconds")?,
                orphan_dependents: query.flag("orphanDependents"),
                propagation_policy: query.first("propagationPolicy").map(str::to_owned),
                preconditions: Preconditions::default(),
            }
        } else {
            let value = decode(form, body).map_err(Failure::bad_request)?.value;
            Written::read(&value).map_err(Failure::bad_request)?
        };
        written.checked()
    }
}

/// Options as the client wrote them.
struct Written {
    dry_run: Vec<String>,
    grace_period_seconds: Option<i64>,
    orphan_dependents: Option<bool>,
    propagation_policy: Option<String>,
    preconditions: Preconditions,
}

impl Written {
    fn read(value: &Value) -> Result<Self, String> {
        check_type(value)?;
        let kind = "DeleteOptions";
        let dry_run = list(&value["dryRun"], "dryRun")?;
        let seconds = &value["gracePeriodSeconds"];
        let grace_period_seconds = seconds.as_i64();
        if grace_period_seconds.is_none() && !seconds.is_null() {
            let what = if seconds.is_number() { format!("number {seconds}") } else { json_type(seconds).to_owned() };
            return Err(wrong(&what, kind, "gracePeriodSeconds", "int64"));
        }
        let orphan = &value["orphanDependents"];
        let orphan_dependents = orphan.as_bool();
        if orphan_dependents.is_none() && !orphan.is_null() {
            return Err(wrong(json_type(orphan), kind, "orphanDependents", "bool"));
        }
        let set = &value["preconditions"];
        if !set.is_null() && !set.is_object() {
            return Err(wrong(json_type(set), kind, "preconditions", "v1.Preconditions"));
        }
        let preconditions = Preconditions {
            uid: text(&set["uid"], "Preconditions", "preconditions.uid", "types.UID")?,
            resource_version: text(
                &set["resourceVersion"],
                "Preconditions",
                "preconditions.resourceVersion",
                "string",
            )?,
        };
        let propagation_policy =
            text(&value["propagationPolicy"], kind, "propagationPolicy", "v1.DeletionPropagation")?;
        Ok(Self { dry_run, grace_period_seconds, orphan_dependents, propagation_policy, preconditions })
    }

    fn checked(self) -> Result<DeleteOptions, Failure> {
        let field = "propagationPolicy";
        let mut faults = Vec::new();
        let mut propagation = None;
        if let Some(policy) = &self.propagation_policy {
            if self.orphan_dependents.is_some() {
                faults.push(invalid(field, policy, "orphanDependents and deletionPropagation cannot be both set"));
            }
            propagation = match policy.as_str() {
                "Foreground" => Some(Propagation::Foreground),
                "Background" => Some(Propagation::Background),
                "Orphan" => Some(Propagation::Orphan),
                other => {
                    let supported = ["Foreground", "Background", "Orphan", "nil"];
                    faults.push(not_supported(field, &quote(other), &supported));
                    None
                }
            };
        }
        let dry_run = dry_run(&self.dry_run, &mut faults);
        checked("DeleteOptions", &faults)?;
        Ok(DeleteOptions {
            dry_run,
            grace_period_seconds: self.grace_period_seconds,
            preconditions: self.preconditions,
            propagation,
            orphan_dependents: self.orphan_dependents,
        })
    }
}

/// `DeleteOptions` are known in every group and version, and assumed when no kind is written.
fn check_type(value: &Value) -> Result<(), String> {
    let (version, kind) = crate::rest::body::type_of(value)?;
    if version.matches('/').count() > 1 {
        return Err(format!("unexpected GroupVersion string: {version}"));
    }
    if matches!(kind.as_str(), "" | "DeleteOptions") {
        return Ok(());
    }
    let version = if version.is_empty() { "meta.k8s.io/v1" } else { &version };
    Err(format!("no kind \"{kind}\" is registered for version \"{version}\" in scheme \"pkg/runtime/scheme.go:111\""))
}

fn list(value: &Value, field: &str) -> Result<Vec<String>, String> {
    let Some(items) = value.as_array() else {
        let missing = value.is_null().then(Vec::new);
        return missing.ok_or_else(|| wrong(json_type(value), "DeleteOptions", field, "[]string"));
    };
    let texts = items.iter().map(|item| text(item, "DeleteOptions", field, "string"));
    texts.map(|text| text.map(Option::unwrap_or_default)).collect()
}

fn text(value: &Value, kind: &str, field: &str, wanted: &str) -> Result<Option<String>, String> {
    if value.is_null() {
        return Ok(None);
    }
    let text = value.as_str().ok_or_else(|| wrong(json_type(value), kind, field, wanted))?;
    Ok(Some(text.to_owned()))
}

fn wrong(what: &str, kind: &str, field: &str, wanted: &str) -> String {
    format!("json: cannot unmarshal {what} into Go struct field {kind}.{field} of type {wanted}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_query(query: &str) -> Result<DeleteOptions, Failure> {
        DeleteOptions::parse(&Query::parse(query), Form::Json, b"")
    }

    fn from_body(body: &str) -> Result<DeleteOptions, Failure> {
        DeleteOptions::parse(&Query::parse("dryRun=x"), Form::Json, body.as_bytes())
    }

    #[test]
    fn a_body_replaces_the_query() {
        let options = from_query("gracePeriodSeconds=0&propagationPolicy=Foreground&dryRun=All").unwrap();
        assert_eq!((options.grace_period_seconds, options.propagation), (Some(0), Some(Propagation::Foreground)));
        assert!(options.dry_run);
        for body in ["{}", "null", r#"{"kind":"DeleteOptions","apiVersion":"nope.io/v2"}"#] {
            assert_eq!(from_body(body), Ok(DeleteOptions::default()), "{body}");
        }
        let guarded =
            from_body(r#"{"preconditions":{"uid":"u","resourceVersion":"1"},"orphanDependents":false}"#).unwrap();
        assert_eq!(guarded.preconditions.uid.as_deref(), Some("u"));
        assert_eq!(guarded.orphan_dependents, Some(false));
    }

    #[test]
    fn bodies_that_are_no_options_get_the_words_of_the_real_server() {
        let unmarshal = |what: &str| format!("json: cannot unmarshal {what}");
        let version = "couldn't get version/kind; json parse error: ";
        let scheme = r#"in scheme "pkg/runtime/scheme.go:111""#;
        for (body, expected) in [
            (
                r#"{"kind":"Foo","apiVersion":"v1"}"#,
                format!(r#"no kind "Foo" is registered for version "v1" {scheme}"#),
            ),
            (r#"{"kind":"Foo"}"#, format!(r#"no kind "Foo" is registered for version "meta.k8s.io/v1" {scheme}"#)),
            (r#"{"kind":"DeleteOptions","apiVersion":"a/b/c"}"#, "unexpected GroupVersion string: a/b/c".to_owned()),
            ("x", format!("{version}invalid character 'x' looking for beginning of value")),
            (r#"{"kind":5}"#, version.to_owned() + &unmarshal("number into Go struct field .kind of type string")),
            (r#"{"dryRun":"All"}"#, unmarshal("string into Go struct field DeleteOptions.dryRun of type []string")),
            (r#"{"dryRun":[1]}"#, unmarshal("number into Go struct field DeleteOptions.dryRun of type string")),
            (
                r#"{"gracePeriodSeconds":1.5}"#,
                unmarshal("number 1.5 into Go struct field DeleteOptions.gracePeriodSeconds of type int64"),
            ),
            (
                r#"{"preconditions":[]}"#,
                unmarshal("array into Go struct field DeleteOptions.preconditions of type v1.Preconditions"),
            ),
            (
                r#"{"preconditions":{"uid":1}}"#,
                unmarshal("number into Go struct field Preconditions.preconditions.uid of type types.UID"),
            ),
        ] {
            let failure = from_body(body).unwrap_err();
            assert_eq!((failure.code.as_u16(), failure.message), (400, expected), "{body}");
        }
    }

    #[test]
    fn rules_are_those_of_the_real_server() {
        let text = |query: &str| from_query(query).unwrap_err().message;
        let head = "DeleteOptions.meta.k8s.io \"\" is invalid: ";
        let both = "orphanDependents and deletionPropagation cannot be both set";
        let unknown = r#"Unsupported value: "X": supported values: "Foreground", "Background", "Orphan", "nil""#;
        assert_eq!(
            text("propagationPolicy=Orphan&orphanDependents=true"),
            format!(r#"{head}propagationPolicy: Invalid value: "Orphan": {both}"#)
        );
        assert_eq!(text("gracePeriodSeconds=x"), r#"strconv.ParseInt: parsing "x": invalid syntax"#);
        let failure =
            from_body(r#"{"propagationPolicy":"X","orphanDependents":true,"dryRun":["Foo","All"]}"#).unwrap_err();
        assert_eq!(
            failure.message,
            format!(
                "{head}[propagationPolicy: Invalid value: \"X\": {both}, propagationPolicy: {unknown}, \
                 dryRun: Unsupported value: [\"Foo\",\"All\"]: supported values: \"All\"]"
            )
        );
    }
}
