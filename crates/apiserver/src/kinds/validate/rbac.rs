//! Roles and bindings.

use serde_json::Value;

use super::super::Kind;
use super::super::json::{has, list, text};
use super::{Faults, names, quoted};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn role(kind: &Kind, new: &Value, faults: &mut Faults) {
    for (at, rule) in list(new, "/rules").iter().enumerate() {
        let path = format!("rules[{at}]");
        if list(rule, "/verbs").is_empty() {
            faults.required(&format!("{path}.verbs"), "verbs must contain at least one value");
        }
        let urls = list(rule, "/nonResourceURLs");
        let (groups, resources) = (list(rule, "/apiGroups"), list(rule, "/resources"));
        if urls.is_empty() {
            if groups.is_empty() {
                faults.required(&format!("{path}.apiGroups"), "resource rules must supply at least one api group");
            }
            if resources.is_empty() {
                faults.required(&format!("{path}.resources"), "resource rules must supply at least one resource");
            }
            continue;
        }
        let (field, shown) = (format!("{path}.nonResourceURLs"), Value::from(urls).to_string());
        if kind.namespaced {
            faults.invalid(&field, &shown, "namespaced rules cannot apply to non-resource URLs");
        }
        if !groups.is_empty() || !resources.is_empty() || !list(rule, "/resourceNames").is_empty() {
            faults.invalid(&field, &shown, "rules cannot apply to both regular resources and non-resource URLs");
        }
    }
    if has(new, "/aggregationRule") {
        let path = "aggregationRule.clusterRoleSelectors";
        let selectors = list(new, "/aggregationRule/clusterRoleSelectors");
        if selectors.is_empty() {
            faults.required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil");
        }
        for (at, selector) in selectors.iter().enumerate() {
            super::workload::label_selector(&format!("{path}[{at}]"), selector, faults);
        }
    }
}

pub(super) fn binding(kind: &Kind, new: &Value, faults: &mut Faults) {
    let group = text(new, "/roleRef/apiGroup");
    if group != GROUP {
        faults.not_supported("roleRef.apiGroup", &quoted(group), &[GROUP]);
    }
    let kinds: &[&str] = if kind.namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    let role = text(new, "/roleRef/kind");
    if !kinds.contains(&role) {
        faults.not_supported("roleRef.kind", &quoted(role), kinds);
    }
    let name = text(new, "/roleRef/name");
    if name.is_empty() {
        faults.required("roleRef.name", "");
    } else {
        faults.invalid_text("roleRef.name", name, names::path_segment(name, false));
    }
    for (at, subject) in list(new, "/subjects").iter().enumerate() {
        self::subject(&format!("subjects[{at}]"), kind.namespaced, subject, faults);
    }
}

pub(super) fn role_ref_update(new: &Value, old: &Value, faults: &mut Faults) {
    if new.get("roleRef") != old.get("roleRef") {
        let part = |key: &str| quoted(text(new, &format!("/roleRef/{key}")));
        let shown =
            format!("{{\"APIGroup\":{},\"Kind\":{},\"Name\":{}}}", part("apiGroup"), part("kind"), part("name"));
        faults.invalid("roleRef", &shown, "cannot change roleRef");
    }
}

fn subject(path: &str, namespaced: bool, subject: &Value, faults: &mut Faults) {
    let (name, group) = (text(subject, "/name"), text(subject, "/apiGroup"));
    if name.is_empty() {
        faults.required(&format!("{path}.name"), "");
    }
    match text(subject, "/kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                faults.invalid_text(&format!("{path}.name"), name, names::dns_subdomain(name));
            }
            if !group.is_empty() {
                faults.not_supported(&format!("{path}.apiGroup"), &quoted(group), &[""]);
            }
            if !namespaced && text(subject, "/namespace").is_empty() {
                faults.required(&format!("{path}.namespace"), "");
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                faults.not_supported(&format!("{path}.apiGroup"), &quoted(group), &[GROUP]);
            }
        }
        other => faults.not_supported(&format!("{path}.kind"), &quoted(other), &["ServiceAccount", "User", "Group"]),
    }
}
