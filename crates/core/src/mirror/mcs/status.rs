//! Conditions of exports and imports: what they say, and what the user should do.

use std::collections::BTreeSet;

use super::condition::{Condition, ExportStatus};
use super::conflicts::Conflict;
use super::exporters::Excluded;
use super::types::ClusterId;

/// The status of a ServiceImport.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportStatus {
    /// Clusters whose exports it is made from.
    pub clusters: BTreeSet<ClusterId>,
    /// `Ready`: it can be used here.
    pub ready: Condition,
}

impl ExportStatus {
    /// The status of an export that does not count, or that counts and has these conflicts.
    pub(super) fn of(excluded: Option<Excluded>, conflicts: &[Conflict]) -> Self {
        let valid = || Condition::yes("Valid", "the Service can be exported");
        let (valid, ready) = match excluded {
            None => (valid(), Condition::yes("Ready", "other clusters can import the Service")),
            Some(why @ (Excluded::NoService | Excluded::ServiceDeleting)) => {
                (Condition::no("NoService", why.advice()), Condition::no("Pending", why.advice()))
            }
            Some(why @ (Excluded::ExternalName | Excluded::Mirror)) => {
                (Condition::no("InvalidServiceType", why.advice()), Condition::no("Failed", why.advice()))
            }
            Some(
                why @ (Excluded::NotSynced
                | Excluded::Paused
                | Excluded::Deleting
                | Excluded::ClusterIdTaken
                | Excluded::NamespaceDenied
                | Excluded::NamespaceProtected
                | Excluded::NameTooLong
                | Excluded::Limit),
            ) => (valid(), Condition::no("Failed", why.advice())),
        };
        Self { valid, ready, conflict: conflict(if excluded.is_none() { conflicts } else { &[] }) }
    }
}

fn conflict(conflicts: &[Conflict]) -> Condition {
    if conflicts.is_empty() {
        return Condition::no("NoConflicts", "all exports of this Service agree");
    }
    let reasons: Vec<&str> = conflicts.iter().map(|conflict| conflict.reason.as_str()).collect();
    let messages: Vec<&str> = conflicts.iter().map(|conflict| &*conflict.message).collect();
    Condition { is_true: true, reason: reasons.join(",").into(), message: messages.join("; ") }
}
