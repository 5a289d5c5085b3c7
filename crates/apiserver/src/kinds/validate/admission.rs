//! Webhook configurations.

use serde_json::Value;

use super::super::json::{has, list, number, text};
use super::workload::label_selector;
use super::{Faults, names, quoted};

pub(super) fn webhooks(new: &Value, old: Option<&Value>, faults: &mut Faults) {
    // Rules that came later bind only those who keep to them already.
    let lenient = old.is_some_and(|old| old.get("webhooks") == new.get("webhooks"));
    if lenient {
        return;
    }
    let webhooks = list(new, "/webhooks");
    for (at, hook) in webhooks.iter().enumerate() {
        let path = format!("webhooks[{at}]");
        webhook(&path, hook, faults);
        review_versions(&format!("{path}.admissionReviewVersions"), list(hook, "/admissionReviewVersions"), faults);
        let name = text(hook, "/name");
        if !name.is_empty() && webhooks[..at].iter().any(|other| text(other, "/name") == name) {
            faults.duplicate(&format!("{path}.name"), &quoted(name));
        }
    }
}

/// What a binding must say; policies themselves are only stored.
pub(super) fn policy_binding(new: &Value, faults: &mut Faults) {
    if text(new, "/spec/policyName").is_empty() {
        faults.required("spec.policyName", "");
    }
    if list(new, "/spec/validationActions").is_empty() {
        faults.required("spec.validationActions", "at least one validation action is required");
    }
}

fn webhook(path: &str, hook: &Value, faults: &mut Faults) {
    qualified_name(&format!("{path}.name"), text(hook, "/name"), faults);
    for (at, rule) in list(hook, "/rules").iter().enumerate() {
        self::rule(&format!("{path}.rules[{at}]"), rule, faults);
    }
    for (key, supported) in [("failurePolicy", ["Fail", "Ignore"]), ("matchPolicy", ["Equivalent", "Exact"])] {
        faults.one_of(&format!("{path}.{key}"), text(hook, &format!("/{key}")), &supported);
    }
    let effects = ["None", "NoneOnDryRun"];
    match text(hook, "/sideEffects") {
        "" => faults.required(&format!("{path}.sideEffects"), "must specify one of None, NoneOnDryRun"),
        other if !effects.contains(&other) => {
            faults.not_supported(&format!("{path}.sideEffects"), &quoted(other), &effects);
        }
        _ => {}
    }
    let seconds = number(hook, "/timeoutSeconds");
    if !(1..=30).contains(&seconds) {
        let message = "the timeout value must be between 1 and 30 seconds";
        faults.invalid(&format!("{path}.timeoutSeconds"), &seconds.to_string(), message);
    }
    for key in ["namespaceSelector", "objectSelector"] {
        label_selector(&format!("{path}.{key}"), &hook[key], faults);
    }
    client_config(&format!("{path}.clientConfig"), &hook["clientConfig"], faults);
    let again = text(hook, "/reinvocationPolicy");
    if !["", "Never", "IfNeeded"].contains(&again) {
        faults.not_supported(&format!("{path}.reinvocationPolicy"), &quoted(again), &["IfNeeded", "Never"]);
    }
}

fn qualified_name(path: &str, name: &str, faults: &mut Faults) {
    let wrong = names::dns_subdomain(name);
    if name.is_empty() {
        faults.required(path, "");
    } else if !wrong.is_empty() {
        faults.invalid_text(path, name, wrong);
    } else if name.split('.').count() < 3 {
        faults.invalid(path, &quoted(name), "should be a domain with at least three segments separated by dots");
    }
}

fn rule(path: &str, rule: &Value, faults: &mut Faults) {
    let operations = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];
    for (key, what) in [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let field = format!("{path}.{key}");
        let values = list(rule, &format!("/{key}"));
        if values.is_empty() {
            faults.required(&field, "");
        }
        if values.len() > 1 && values.iter().any(|value| value == "*") {
            let message = format!("if '*' is present, must not specify other {what}");
            faults.invalid(&field, &Value::from(values).to_string(), &message);
        }
        for (at, value) in values.iter().enumerate() {
            let (field, value) = (format!("{field}[{at}]"), value.as_str().unwrap_or_default());
            if key == "operations" && !operations.contains(&value) {
                faults.not_supported(&field, &quoted(value), &operations);
            } else if key == "apiVersions" && value.is_empty() {
                faults.required(&field, "");
            }
        }
    }
    resources(&format!("{path}.resources"), list(rule, "/resources"), faults);
    let scope = text(rule, "/scope");
    let scopes = ["*", "Cluster", "Namespaced"];
    if !scope.is_empty() && !scopes.contains(&scope) {
        faults.not_supported(&format!("{path}.scope"), &quoted(scope), &scopes);
    }
}

fn resources(path: &str, resources: &[Value], faults: &mut Faults) {
    if resources.is_empty() {
        faults.required(path, "");
        return;
    }
    let names: Vec<&str> = resources.iter().filter_map(Value::as_str).collect();
    let shown = Value::from(resources).to_string();
    if names.contains(&"*/*") && names.len() > 1 {
        faults.invalid(path, &shown, "if '*/*' is present, must not specify other resources");
    }
    // Only the last name without a subresource counts.
    let last = names.iter().rfind(|name| !name.contains('/'));
    if names.contains(&"*") && last.is_some_and(|last| *last != "*") {
        faults.invalid(path, &shown, "if '*' is present, must not specify other resources without subresources");
    }
    for (at, name) in names.iter().enumerate() {
        if name.is_empty() {
            faults.required(&format!("{path}[{at}]"), "");
        }
    }
}

fn client_config(path: &str, config: &Value, faults: &mut Faults) {
    match (has(config, "/url"), has(config, "/service")) {
        (true, false) => url(&format!("{path}.url"), text(config, "/url"), faults),
        (false, true) => {
            let path = format!("{path}.service");
            for key in ["name", "namespace"] {
                if text(config, &format!("/service/{key}")).is_empty() {
                    faults.required(&format!("{path}.{key}"), "");
                }
            }
            let port = number(config, "/service/port");
            if !(1..=65535).contains(&port) {
                let message = "port is not valid: must be between 1 and 65535, inclusive";
                faults.invalid(&format!("{path}.port"), &port.to_string(), message);
            }
            let at = text(config, "/service/path");
            if !at.is_empty() && !at.starts_with('/') {
                faults.invalid(&format!("{path}.path"), &quoted(at), "must start with a '/'");
            }
        }
        _ => faults.required(path, "exactly one of url or service is required"),
    }
}

fn url(path: &str, url: &str, faults: &mut Faults) {
    let form = "; desired format: https://host[/path]";
    let (scheme, rest) = url.split_once("://").unwrap_or(("", ""));
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.split('/').next().unwrap_or_default();
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if scheme != "https" {
        faults.invalid(path, &quoted(scheme), &format!("'https' is the only allowed URL scheme{form}"));
    }
    if host.is_empty() {
        faults.invalid(path, &quoted(host), &format!("host must be specified{form}"));
    }
    for (part, message) in [
        (user, "user information is not permitted in the URL"),
        (fragment, "fragments are not permitted in the URL"),
        (query, "query parameters are not permitted in the URL"),
    ] {
        if !part.is_empty() {
            faults.invalid(path, &quoted(part), message);
        }
    }
}

fn review_versions(path: &str, versions: &[Value], faults: &mut Faults) {
    if versions.is_empty() {
        faults.required(path, "must specify one of v1, v1beta1");
        return;
    }
    for (at, version) in versions.iter().enumerate() {
        let (field, name) = (format!("{path}[{at}]"), version.as_str().unwrap_or_default());
        if versions[..at].contains(version) {
            faults.invalid(&field, &quoted(name), "duplicate version");
            continue;
        }
        faults.invalid_text(&field, name, names::dns_1035_label(name));
    }
    if !versions.iter().any(|version| version == "v1" || version == "v1beta1") {
        let shown = Value::from(versions).to_string();
        faults.invalid(path, &shown, "must include at least one of v1, v1beta1");
    }
}
