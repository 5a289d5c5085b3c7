//! The kinds that are served: built-in ones and those of CustomResourceDefinitions, described alike.

pub mod autoscaler;
pub mod builtin;
mod canonical;
pub mod cluster_ip;
mod columns;
pub mod defaults;
mod error_list;
pub mod events;
mod formats;
pub mod openapi;
pub mod strategy;
pub mod typed;
pub mod validate;

use std::sync::Arc;

use crate::schema::Schema;

/// A resource in one version: everything the REST layer needs to serve it.
#[derive(Debug, Clone)]
pub struct Kind {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    pub kind: String,
    pub list_kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// Whether `status` is a subresource: then neither side can write the other.
    pub status: bool,
    pub scale: Option<Scale>,
    pub schema: Arc<Schema>,
    pub columns: Vec<Column>,
    /// Fields beyond metadata.name and metadata.namespace that a field selector may name, such as `spec.nodeName`.
    pub selectable_fields: Vec<String>,
    /// Version in which objects are stored; equal to `version` for all but multi-version custom kinds.
    pub storage_version: String,
    /// The deprecation warning of this version.
    pub warning: Option<String>,
    /// True for kinds of a CustomResourceDefinition.
    pub custom: bool,
    /// The revision of the definition: objects stored before may lack its defaults, and have fields that it prunes.
    pub defined_at: u64,
}

/// Paths of the `scale` subresource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    /// JSON paths such as `.spec.replicas`.
    pub spec_replicas: String,
    pub status_replicas: String,
    pub label_selector: Option<String>,
}

/// A printer column.
#[derive(Debug, Clone)]
pub struct Column {
    pub name: String,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub type_: String,
    pub format: String,
    pub description: String,
    /// 0 is always shown; more only with `-o wide`.
    pub priority: i32,
    pub value: ColumnValue,
}

/// Where the cell of a column comes from.
#[derive(Debug, Clone)]
pub enum ColumnValue {
    /// A JSON path such as `.spec.desk`.
    Path(String),
    /// Computed from the object; for built-in kinds.
    Computed(fn(&serde_json::Value) -> serde_json::Value),
}

impl Kind {
    /// `v1`, or `group/version`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }
}
