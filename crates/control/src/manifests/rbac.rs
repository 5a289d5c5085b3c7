//! The roles of the operator: what its capabilities do with their kinds, and what every operator needs.

use super::form::{Form, metadata};
use crate::runtime::capability::{Capability, Kind, Leftover};

/// The operator's service account with its roles.
pub fn rbac(table: &[&Capability], form: Form) -> String {
    let about = "# The permissions of the operator. A test compares them with what it asks an API server for.\n";
    let name = format!("{}-operator", form.name());
    let roles = (cluster_rules(table, form), process_rules(table, form));
    let annotations = match form {
        Form::Plain => "",
        Form::Chart => {
            "  {{- with .Values.serviceAccountAnnotations }}\n  annotations:\n    {{- toYaml . | nindent 4 }}\n  {{- end }}\n"
        }
    };
    let objects = account(form, &name, ("", annotations), &roles);
    format!("{}{about}{objects}", form.notice())
}

/// The service account of the Job that cleans up when the chart's release was deleted, with its roles.
pub fn cleanup_rbac(table: &[&Capability]) -> String {
    let form = Form::Chart;
    let about = "# What `portolan cleanup` may do when the release was deleted.\n";
    let name = format!("{}-cleanup", form.name());
    let hook = "  annotations:\n    {{- include \"portolan.cleanup\" . | nindent 4 }}\n";
    let own = cleanup_process_rules(form) + &cleanup_rules(table, form, true);
    let roles = (cleanup_rules(table, form, false), own);
    let objects = account(form, &name, (hook, ""), &roles);
    format!("{}{about}{objects}", form.notice())
}

/// A service account with its roles: what it may do in the cluster, and what in its namespace. `annotations` are those of
/// all of them, and those of the service account alone.
fn account(form: Form, name: &str, annotations: (&str, &str), (cluster, namespace): &(String, String)) -> String {
    let (of_all, of_account) = annotations;
    let metadata = |namespaced: bool| metadata(form, name, namespaced) + of_all;
    let role = |kind: &str, namespaced: bool, rules: &str| {
        format!("{RBAC}kind: {kind}\n{}rules:\n{rules}", metadata(namespaced))
    };
    let binding = |kind: &str, namespaced: bool| {
        format!(
            "{RBAC}kind: {kind}Binding\n{}roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  \
             name: {name}\nsubjects:\n  - kind: ServiceAccount\n    name: {name}\n    namespace: {}\n",
            metadata(namespaced),
            form.namespace(),
        )
    };
    let objects = [
        format!("apiVersion: v1\nkind: ServiceAccount\n{}{of_account}", metadata(true)),
        role("ClusterRole", false, cluster),
        binding("ClusterRole", false),
        role("Role", true, namespace),
        binding("Role", true),
    ];
    objects.join("---\n")
}

const RBAC: &str = "apiVersion: rbac.authorization.k8s.io/v1\n";

fn cluster_rules(table: &[&Capability], form: Form) -> String {
    let mut rules = String::new();
    for capability in table {
        rules.push_str(&capability_rules(capability, form, |kind| !kind.own_namespace));
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

/// The rules of a capability for some of its kinds.
fn capability_rules(capability: &Capability, form: Form, is_meant: impl Fn(&Kind) -> bool) -> String {
    let kinds = capability.kinds.iter().filter(|kind| is_meant(kind));
    let lines: String = kinds.map(|kind| kind_rules(capability, kind, form)).collect();
    if lines.is_empty() { lines } else { form.only_with(capability, &lines) }
}

/// The rules of one kind: its objects, and their status.
fn kind_rules(capability: &Capability, kind: &Kind, form: Form) -> String {
    let Kind { group, plural, verbs, status_verbs, named_by, named, purpose, .. } = kind;
    let name = named_by.map(|flag| match form {
        Form::Plain => default_of(capability, flag),
        Form::Chart => format!("{{{{ .Values.{} | quote }}}}", super::flags::value_path(capability, flag)),
    });
    let name = name.or_else(|| named.map(str::to_owned));
    let mut lines = if purpose.is_empty() { String::new() } else { format!("  # {purpose}.\n") };
    lines.push_str(&rule(group, plural, name.as_deref(), verbs));
    if !status_verbs.is_empty() {
        lines.push_str(&rule(group, &format!("{plural}/status"), None, status_verbs));
    }
    match kind.with_flag {
        Some(flag) => form.only_if(&format!(".Values.{}", super::flags::value_path(capability, flag)), &lines),
        None => lines,
    }
}

fn default_of(capability: &Capability, flag: &str) -> String {
    let flags = capability.flags();
    let flag = flags.iter().find(|arg| arg.get_long() == Some(flag));
    let value = flag.and_then(|flag| flag.get_default_values().first());
    value.map(|value| value.to_string_lossy().into_owned()).unwrap_or_default()
}

/// What an operator needs in its own namespace: to elect a leader, to keep the webhook's CA, and what its capabilities
/// keep there.
fn process_rules(table: &[&Capability], form: Form) -> String {
    let election = format!(
        "  # Leader election. RBAC cannot limit create to a name.\n{}{}",
        rule("coordination.k8s.io", "leases", None, &["create"]),
        rule("coordination.k8s.io", "leases", Some("portolan-operator"), &["get", "update"]),
    );
    let authority = format!(
        "  # The webhook's CA.\n{}{}",
        rule("", "secrets", None, &["create"]),
        rule("", "secrets", Some(&webhook_secret(form)), &["get", "update"]),
    );
    let own: String = table.iter().map(|one| capability_rules(one, form, |kind| kind.own_namespace)).collect();
    election + &form.only_if(".Values.webhook.enabled", &authority) + &own
}

fn webhook_secret(form: Form) -> String {
    format!("\"{}-webhook\"", form.name())
}

/// What is needed to remove what the capabilities leave: in the operator's namespace, or in all.
fn cleanup_rules(table: &[&Capability], form: Form, in_own_namespace: bool) -> String {
    let rules = table.iter().map(|capability| {
        let kinds = capability.kinds.iter().filter(|kind| kind.own_namespace == in_own_namespace);
        let lines = kinds.filter_map(|Kind { group, plural, leftover, .. }| {
            let verbs: &[&str] = match leftover.as_ref()? {
                Leftover::Objects(_) => &["list", "get", "patch", "delete"],
                Leftover::Finalizer(..) => &["list", "get", "patch"],
            };
            Some(rule(group, plural, None, verbs))
        });
        let lines: String = lines.collect();
        if lines.is_empty() { lines } else { form.only_with(capability, &lines) }
    });
    rules.collect()
}

/// What is needed to take the operator's place, and to remove the Lease and the webhook's CA.
fn cleanup_process_rules(form: Form) -> String {
    format!(
        "  # RBAC cannot limit create to a name.\n{}{}{}",
        rule("coordination.k8s.io", "leases", None, &["create"]),
        rule("coordination.k8s.io", "leases", Some("portolan-operator"), &["get", "update", "delete"]),
        rule("", "secrets", Some(&webhook_secret(form)), &["get", "delete"]),
    )
}

fn rule(group: &str, resource: &str, name: Option<&str>, verbs: &[&str]) -> String {
    let group = if group.is_empty() { "\"\"" } else { group };
    let names = name.map(|name| format!("    resourceNames: [{name}]\n")).unwrap_or_default();
    let verbs = verbs.join(", ");
    format!("  - apiGroups: [{group}]\n    resources: [{resource}]\n{names}    verbs: [{verbs}]\n")
}
