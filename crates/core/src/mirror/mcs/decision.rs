//! What is decided about one name: whether there is an import, why not, and what is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::condition::ExportStatus;
use super::conflicts::Conflict;
use super::derived::DesiredDerived;
use super::exporters::ExcludedExport;
use super::slices::ImportSliceAction;
use super::status::ImportStatus;
use super::types::{ClusterId, ImportSpec};
use crate::mirror::{Copied, Unmet};

/// What is done about one name.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Whether there is an import, and why not.
    pub outcome: Outcome,
    /// Clusters whose exports count, the one that decides first.
    pub exporters: Vec<ClusterId>,
    /// Exports that do not count, and why.
    pub excluded: Vec<ExcludedExport>,
    /// Properties in which the exports differ.
    pub conflicts: Vec<Conflict>,
    /// What happens to the ServiceImport; it is never made anew.
    pub import: Action<DesiredImport>,
    /// The status of the ServiceImport, where it differs.
    pub import_status: Option<ImportStatus>,
    /// What happens to the Service that gives the import its addresses.
    pub derived: Action<DesiredDerived>,
    /// EndpointSlices that differ, by name.
    pub slices: BTreeMap<Arc<str>, ImportSliceAction>,
    /// Conditions of this cluster's ServiceExport, where they differ.
    pub export_status: Option<ExportStatus>,
    /// What cannot be met.
    pub unmet: Vec<Unmet>,
}

/// Whether there is an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// There is one, made from the exports that count.
    Imported,
    /// These clusters took part in it and are not known well enough: it loses nothing that it has.
    Held(BTreeSet<ClusterId>),
    /// There is none.
    NotImported(NotImported),
}

/// Why there is no import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotImported {
    /// No cluster has an export that counts.
    NotExported,
    /// No known cluster has an export that counts, and some are not known yet.
    NotKnown,
    /// The namespace does not exist here.
    NamespaceMissing,
    /// The namespace is being deleted.
    NamespaceTerminating,
    /// Somebody else made a ServiceImport of this name.
    NameConflict,
}

impl NotImported {
    /// What `portolan why` says.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotExported => "no cluster has an export of this name that counts",
            Self::NotKnown => "no export of this name is known, and some clusters are not listed yet",
            Self::NamespaceMissing => "its namespace does not exist here: create it to import the Service",
            Self::NamespaceTerminating => "its namespace is being deleted",
            Self::NameConflict => {
                "a ServiceImport of this name exists that Portolan did not make: delete it to import the Service"
            }
        }
    }
}

/// What happens to an object.
#[derive(Debug, Clone, PartialEq)]
pub enum Action<T> {
    /// Nothing.
    None,
    /// It is made.
    Create(Box<T>),
    /// It is changed.
    Update(Box<T>),
    /// It is deleted, to be made again.
    Recreate,
    /// It is deleted.
    Delete,
}

/// A ServiceImport as it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredImport {
    /// Its spec.
    pub spec: ImportSpec,
    /// Labels and annotations from the oldest export.
    pub exported: Copied,
    /// Annotation `multicluster.kubernetes.io/derived-service`. None: there is no such Service.
    pub derived: Option<Arc<str>>,
}

impl Decision {
    /// True if nothing is to be written.
    pub fn is_settled(&self) -> bool {
        self.import == Action::None
            && self.import_status.is_none()
            && self.derived == Action::None
            && self.slices.is_empty()
            && self.export_status.is_none()
    }
}
