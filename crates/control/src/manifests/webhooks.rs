//! The webhook configurations of all capabilities.

use super::form::{Form, metadata};
use crate::runtime::capability::Capability;
use crate::runtime::webhook::Hook;

/// What API servers ask the operator before they store an object.
pub fn webhooks(table: &[&Capability], form: Form) -> String {
    let mut text = String::new();
    for capability in table {
        let Some(admission) = capability.admission else { continue };
        let mut objects = String::new();
        for (kind, hooks) in [("Validating", admission.validating), ("Mutating", admission.mutating)] {
            if !hooks.is_empty() {
                let hooks: String = hooks.iter().map(|hook| configured(hook, form)).collect();
                let object = format!(
                    "---\napiVersion: admissionregistration.k8s.io/v1\nkind: {kind}WebhookConfiguration\n{}webhooks:\n{hooks}",
                    metadata(form, admission.name, false),
                );
                objects.push_str(&object);
            }
        }
        text.push_str(&form.only_with(capability, &objects));
    }
    let about = match form {
        Form::Plain => {
            "# Apply this when the operator is ready: requests are refused while the webhook does not answer.\n"
        }
        Form::Chart => "",
    };
    format!("{}{about}{}", form.notice(), form.only_if(".Values.webhook.enabled", &text))
}

fn configured(hook: &Hook, form: Form) -> String {
    let Hook { group, version, path, resource, operations, optional } = hook;
    let policy = match form {
        Form::Plain | Form::Chart if *optional => "Ignore\n    timeoutSeconds: 2",
        Form::Plain => "Fail",
        Form::Chart => "{{ .Values.webhook.failurePolicy }}",
    };
    format!(
        "  - name: {name}.portolan.dev
    clientConfig:
      service:
        name: {prefix}-webhook
        namespace: {namespace}
        path: {path}
    rules:
      - apiGroups: [{group}]
        apiVersions: [{version}]
        operations: [{operations}]
        resources: [{resource}]
    sideEffects: None
    admissionReviewVersions: [v1]
    failurePolicy: {policy}
",
        name = path.trim_start_matches('/'),
        prefix = form.name(),
        namespace = form.namespace(),
        operations = operations.join(", "),
    )
}
