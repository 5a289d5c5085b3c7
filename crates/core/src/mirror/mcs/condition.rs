//! Conditions as data.

use std::borrow::Cow;

/// A condition without its times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// Its status: True or False.
    pub is_true: bool,
    /// Why, in one word; conflicts are joined by commas.
    pub reason: Cow<'static, str>,
    /// Why, and what to do.
    pub message: String,
}

/// Conditions of a ServiceExport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportStatus {
    /// `Valid`: it names a Service that can be exported.
    pub valid: Condition,
    /// `Ready`: other clusters can import it.
    pub ready: Condition,
    /// `Conflict`: exports of other clusters differ.
    pub conflict: Condition,
}

impl Condition {
    pub(super) fn yes(reason: &'static str, message: impl Into<String>) -> Self {
        Self { is_true: true, reason: reason.into(), message: message.into() }
    }

    pub(super) fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self { is_true: false, reason: reason.into(), message: message.into() }
    }
}
