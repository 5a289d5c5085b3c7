//! Calling the admission webhooks for a write.

use serde_json::{Value, json};

use super::call::Call;
use crate::admission::{Attributes, Operation};
use crate::object::get_meta;
use crate::status::Failure;

/// A write as webhooks receive it.
pub(super) struct Review<'a, 'c> {
    pub(super) call: &'a Call<'c>,
    pub(super) dry_run: bool,
    /// The field manager, if the client names one.
    pub(super) manager: &'a str,
    pub(super) operation: Operation,
    pub(super) name: &'a str,
    pub(super) old: Option<&'a Value>,
}

/// Which webhooks are called.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Mutate,
    Validate,
}

impl Review<'_, '_> {
    /// Calls the webhooks that match; the object is null for a delete.
    pub(super) async fn send(&self, object: &mut Value, stage: Stage) -> Result<(), Failure> {
        let (call, kind) = (self.call, self.call.kind());
        let hooks = call.server.hooks();
        if hooks.is_empty() {
            return Ok(());
        }
        let options = self.options();
        let labels = call.server.namespace(&call.namespace).map(|namespace| get_meta(&namespace, "labels"));
        let versions = call.server.served().versions(&kind.group, &kind.plural);
        let attributes = Attributes {
            operation: self.operation,
            group: &kind.group,
            version: &kind.version,
            kind: &kind.kind,
            resource: &kind.plural,
            subresource: call.subresource_name(),
            name: self.name,
            namespace: if call.is_core("Namespace") { self.name } else { &call.namespace },
            user: call.user,
            old: self.old,
            options: &options,
            dry_run: self.dry_run,
            namespace_labels: labels.as_ref(),
            versions: &versions,
        };
        let mut warnings = Vec::new();
        let admitted = match stage {
            Stage::Mutate => hooks.mutate(&attributes, object, &mut warnings).await,
            Stage::Validate => hooks.validate(&attributes, object, &mut warnings).await,
        };
        call.warn(warnings);
        admitted
    }

    fn options(&self) -> Value {
        let kind = match self.operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
        };
        let mut options = json!({ "kind": kind, "apiVersion": "meta.k8s.io/v1", "fieldManager": self.manager });
        if self.dry_run {
            options["dryRun"] = json!(["All"]);
        }
        options
    }
}
