//! Causes of failed validation: field and message. Reasons are those of Kubernetes, messages are similar.

use std::fmt;

use serde_json::Value;

use crate::status::Cause;

pub const REQUIRED: &str = "FieldValueRequired";
pub const INVALID: &str = "FieldValueInvalid";
pub const TYPE_INVALID: &str = "FieldValueTypeInvalid";
pub const NOT_SUPPORTED: &str = "FieldValueNotSupported";
pub const FORBIDDEN: &str = "FieldValueForbidden";
pub const DUPLICATE: &str = "FieldValueDuplicate";
pub const TOO_LONG: &str = "FieldValueTooLong";
pub const TOO_MANY: &str = "FieldValueTooMany";

/// How Go prints the empty path.
pub const NO_PATH: &str = "<nil>";

/// A path that grows on the way down without allocating, and is written out only when something is wrong there.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Path<'a> {
    Root,
    /// `parent.name`
    Field(&'a Path<'a>, &'a str),
    /// `parent[key]`
    Key(&'a Path<'a>, &'a str),
    /// `parent[0]`
    Item(&'a Path<'a>, usize),
}

impl Path<'_> {
    /// The path for a cause, which has a word for the root.
    pub(crate) fn field(self) -> String {
        if matches!(self, Path::Root) { NO_PATH.to_owned() } else { self.to_string() }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Field(Path::Root, name) => formatter.write_str(name),
            Path::Field(parent, name) => write!(formatter, "{parent}.{name}"),
            Path::Key(parent, key) => write!(formatter, "{parent}[{key}]"),
            Path::Item(parent, index) => write!(formatter, "{parent}[{index}]"),
        }
    }
}

pub fn required(field: impl Into<String>, detail: &str) -> Cause {
    cause(REQUIRED, field, "Required value".to_owned(), detail)
}

pub fn forbidden(field: impl Into<String>, detail: &str) -> Cause {
    cause(FORBIDDEN, field, "Forbidden".to_owned(), detail)
}

pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Cause {
    cause(INVALID, field, format!("Invalid value: {value}"), detail)
}

pub fn type_invalid(field: impl Into<String>, found: &str, detail: &str) -> Cause {
    cause(TYPE_INVALID, field, format!("Invalid value: {found:?}"), detail)
}

pub fn duplicate(field: impl Into<String>, value: &Value) -> Cause {
    cause(DUPLICATE, field, format!("Duplicate value: {value}"), "")
}

pub fn too_long(field: impl Into<String>, max: usize) -> Cause {
    cause(TOO_LONG, field, "Too long".to_owned(), &format!("may not be more than {max} characters"))
}

pub fn too_many(field: impl Into<String>, actual: usize, max: usize) -> Cause {
    cause(TOO_MANY, field, format!("Too many: {actual}"), &format!("must have at most {max}"))
}

pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[impl ToString]) -> Cause {
    let supported: Vec<String> = supported.iter().map(ToString::to_string).collect();
    let detail = format!("supported values: {}", supported.join(", "));
    cause(NOT_SUPPORTED, field, format!("Unsupported value: {value}"), &detail)
}

/// Whether rules in CEL are left out because of this cause.
pub fn blocks_rules(cause: &Cause) -> bool {
    [NOT_SUPPORTED, REQUIRED, TOO_LONG, TOO_MANY, TYPE_INVALID].contains(&cause.reason)
}

fn cause(reason: &'static str, field: impl Into<String>, mut message: String, detail: &str) -> Cause {
    if !detail.is_empty() {
        message.push_str(": ");
        message.push_str(detail);
    }
    Cause { reason, message, field: field.into() }
}
