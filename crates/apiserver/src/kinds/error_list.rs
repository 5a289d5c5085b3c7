//! The validation errors of an object, as Kubernetes' `field.ErrorList`.

use serde_json::Value;

use super::formats;
use crate::status::Cause;

/// Errors found so far, in the order in which they are reported.
#[derive(Debug, Default)]
pub(super) struct ErrorList(pub(super) Vec<Cause>);

impl ErrorList {
    fn push(&mut self, reason: &'static str, field: &str, message: String) {
        self.0.push(Cause { reason, message, field: field.to_owned() });
    }

    pub(super) fn invalid(&mut self, field: &str, value: &Value, message: &str) {
        self.push("FieldValueInvalid", field, format!("Invalid value: {value}: {message}"));
    }

    /// A text that should have a form.
    pub(super) fn form(&mut self, field: &str, text: &str, form: &str) {
        if let Some(message) = formats::error(form, text) {
            self.invalid(field, &text.into(), message);
        }
    }

    pub(super) fn required(&mut self, field: &str, what: &str) {
        self.push("FieldValueRequired", field, format!("Required value: {what}"));
    }

    pub(super) fn forbidden(&mut self, field: &str, why: &str) {
        self.push("FieldValueForbidden", field, format!("Forbidden: {why}"));
    }

    pub(super) fn duplicate(&mut self, field: &str, value: &Value) {
        self.push("FieldValueDuplicate", field, format!("Duplicate value: {value}"));
    }

    pub(super) fn too_long(&mut self, field: &str, most: usize) {
        self.push("FieldValueTooLong", field, format!("Too long: may not be more than {most} bytes"));
    }

    pub(super) fn not_supported(&mut self, field: &str, value: &Value, supported: &[Value]) {
        let supported: Vec<String> = supported.iter().map(Value::to_string).collect();
        let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
        self.push("FieldValueNotSupported", field, message);
    }
}
