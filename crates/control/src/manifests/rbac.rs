//! The roles of the operator: what its capabilities do with their kinds, and what every operator needs.

use super::form::{Form, metadata};
use crate::runtime::capability::{Capability, Kind};

/// The service account with its roles.
pub fn rbac(table: &[&Capability], form: Form) -> String {
    let operator = format!("{}-operator", form.name());
    let webhook = format!("{}-webhook", form.name());
    let account = format!("apiVersion: v1\nkind: ServiceAccount\n{}", metadata(form, &operator, true));
    let role = |kind: &str, namespaced: bool, rules: &str| {
        format!("{RBAC}kind: {kind}\n{}rules:\n{rules}", metadata(form, &operator, namespaced))
    };
    let binding = |kind: &str, namespaced: bool| {
        format!(
            "{RBAC}kind: {kind}Binding\n{}roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  \
             name: {operator}\nsubjects:\n  - kind: ServiceAccount\n    name: {operator}\n    namespace: {}\n",
            metadata(form, &operator, namespaced),
            form.namespace(),
        )
    };
    let objects = [
        account,
        role("ClusterRole", false, &cluster_rules(table, form)),
        binding("ClusterRole", false),
        role("Role", true, &process_rules(form, &webhook)),
        binding("Role", true),
    ];
    let about = "# The permissions of the operator. A test compares them with what it asks an API server for.\n";
    format!("{}{about}{}", form.notice(), objects.join("---\n"))
}

const RBAC: &str = "apiVersion: rbac.authorization.k8s.io/v1\n";

fn cluster_rules(table: &[&Capability], form: Form) -> String {
    let mut rules = String::new();
    for capability in table {
        let lines: String = capability.kinds.iter().map(|kind| kind_rules(capability, kind, form)).collect();
        rules.push_str(&form.only_with(capability, &lines));
    }
    rules.push_str("  # Events on the objects above.\n");
    rules.push_str(&rule("events.k8s.io", "events", None, &["create"]));
    let mut published = String::from("  # The webhook's CA is published in its configurations.\n");
    for capability in table {
        let Some(admission) = capability.admission else { continue };
        let mut lines = String::new();
        for (resource, hooks) in [
            ("validatingwebhookconfigurations", admission.validating),
            ("mutatingwebhookconfigurations", admission.mutating),
        ] {
            if !hooks.is_empty() {
                let group = "admissionregistration.k8s.io";
                lines.push_str(&rule(group, resource, Some(admission.name), &["get", "patch"]));
            }
        }
        published.push_str(&form.only_with(capability, &lines));
    }
    rules + &form.only_if(".Values.webhook.enabled", &published)
}

/// The rules of one kind: its objects, and their status.
fn kind_rules(capability: &Capability, kind: &Kind, form: Form) -> String {
    let Kind { group, plural, verbs, status_verbs, named_by, purpose, .. } = kind;
    let name = named_by.map(|flag| match form {
        Form::Plain => default_of(capability, flag),
        Form::Chart => format!("{{{{ .Values.{} | quote }}}}", super::flags::value_path(capability, flag)),
    });
    let mut lines = if purpose.is_empty() { String::new() } else { format!("  # {purpose}.\n") };
    lines.push_str(&rule(group, plural, name.as_deref(), verbs));
    if !status_verbs.is_empty() {
        lines.push_str(&rule(group, &format!("{plural}/status"), None, status_verbs));
    }
    lines
}

fn default_of(capability: &Capability, flag: &str) -> String {
    let flags = capability.flags();
    let flag = flags.iter().find(|arg| arg.get_long() == Some(flag));
    let value = flag.and_then(|flag| flag.get_default_values().first());
    value.map(|value| value.to_string_lossy().into_owned()).unwrap_or_default()
}

/// What every operator needs in its own namespace: to elect a leader, and to keep the webhook's CA.
fn process_rules(form: Form, webhook: &str) -> String {
    let election = format!(
        "  # Leader election. RBAC cannot limit create to a name.\n{}{}",
        rule("coordination.k8s.io", "leases", None, &["create"]),
        rule("coordination.k8s.io", "leases", Some("portolan-operator"), &["get", "update"]),
    );
    let authority = format!(
        "  # The webhook's CA.\n{}{}",
        rule("", "secrets", None, &["create"]),
        rule("", "secrets", Some(&format!("\"{webhook}\"")), &["get", "update"]),
    );
    election + &form.only_if(".Values.webhook.enabled", &authority)
}

fn rule(group: &str, resource: &str, name: Option<&str>, verbs: &[&str]) -> String {
    let group = if group.is_empty() { "\"\"" } else { group };
    let names = name.map(|name| format!("    resourceNames: [{name}]\n")).unwrap_or_default();
    let verbs = verbs.join(", ");
    format!("  - apiGroups: [{group}]\n    resources: [{resource}]\n{names}    verbs: [{verbs}]\n")
}
