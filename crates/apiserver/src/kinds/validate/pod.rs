//! Pods and pod templates: the rules that users meet first.

use serde_json::Value;

use super::super::json::{has, list, number, text};
use super::super::quantity::Quantity;
use super::{Faults, metadata, names, probe, quoted, volume};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
/// What may change in the spec of a pod.
const UPDATABLE: &str = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn pod(new: &Value, old: Option<&Value>, faults: &mut Faults) {
    spec(&new["spec"], "spec", faults);
    for key in ["containers", "initContainers"] {
        for (at, container) in list(&new["spec"], &format!("/{key}")).iter().enumerate() {
            let image = text(container, "/image");
            if image.trim() != image {
                let path = format!("spec.{key}[{at}].image");
                faults.invalid(&path, &quoted(image), "must not have leading or trailing whitespace");
            }
        }
    }
    if let Some(old) = old {
        update(&new["spec"], &old["spec"], faults);
    }
}

/// The spec of a pod or of a template, at `path`.
pub(super) fn spec(spec: &Value, path: &str, faults: &mut Faults) {
    let volumes = volume::volumes(list(spec, "/volumes"), &format!("{path}.volumes"), faults);
    containers(spec, path, &volumes, faults);
    let restarts = ["Always", "OnFailure", "Never"];
    faults.one_of(&format!("{path}.restartPolicy"), text(spec, "/restartPolicy"), &restarts);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    faults.one_of(&format!("{path}.dnsPolicy"), text(spec, "/dnsPolicy"), &policies);
    metadata::labels(spec, "/nodeSelector", &format!("{path}.nodeSelector"), faults);
    for (at, secret) in list(spec, "/imagePullSecrets").iter().enumerate() {
        if text(secret, "/name").is_empty() {
            faults.required(&format!("{path}.imagePullSecrets[{at}].name"), "");
        }
    }
    for key in ["serviceAccountName", "nodeName"] {
        let name = text(spec, &format!("/{key}"));
        if !name.is_empty() {
            faults.invalid_text(&format!("{path}.{key}"), name, names::dns_subdomain(name));
        }
    }
    if let Some(deadline) = spec.get("activeDeadlineSeconds").and_then(Value::as_i64)
        && !(1..=i64::from(i32::MAX)).contains(&deadline)
    {
        let message = "must be between 1 and 2147483647, inclusive";
        faults.invalid(&format!("{path}.activeDeadlineSeconds"), &deadline.to_string(), message);
    }
    for key in ["hostname", "subdomain"] {
        let name = text(spec, &format!("/{key}"));
        if !name.is_empty() {
            faults.invalid_text(&format!("{path}.{key}"), name, names::dns_label(name));
        }
    }
    for (at, toleration) in list(spec, "/tolerations").iter().enumerate() {
        self::toleration(&format!("{path}.tolerations[{at}]"), toleration, faults);
    }
    for (at, alias) in list(spec, "/hostAliases").iter().enumerate() {
        super::network::ip(&format!("{path}.hostAliases[{at}].ip"), text(alias, "/ip"), faults);
        for (host, name) in list(alias, "/hostnames").iter().filter_map(Value::as_str).enumerate() {
            let field = format!("{path}.hostAliases[{at}].hostnames[{host}]");
            faults.invalid_text(&field, name, names::dns_subdomain(name));
        }
    }
}

fn containers(spec: &Value, path: &str, volumes: &[String], faults: &mut Faults) {
    let main = list(spec, "/containers");
    if main.is_empty() {
        faults.required(&format!("{path}.containers"), "");
    }
    let init = list(spec, "/initContainers");
    for (key, group) in [("containers", main), ("initContainers", init)] {
        for (at, container) in group.iter().enumerate() {
            let path = format!("{path}.{key}[{at}]");
            common(&path, container, volumes, faults);
            let name = text(container, "/name");
            let mut earlier = group[..at].iter().chain(if key == "containers" { &[] } else { main });
            if !name.is_empty() && earlier.any(|other| text(other, "/name") == name) {
                faults.duplicate(&format!("{path}.name"), &quoted(name));
            }
            if key == "containers" || text(container, "/restartPolicy") == "Always" {
                probe::lifecycle_and_probes(&path, container, faults);
            } else {
                for probe in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                    if has(container, &format!("/{probe}")) {
                        let why = "may not be set for init containers without restartPolicy=Always";
                        faults.forbidden(&format!("{path}.{probe}"), why);
                    }
                }
            }
        }
    }
}

fn common(path: &str, container: &Value, volumes: &[String], faults: &mut Faults) {
    let name = text(container, "/name");
    if name.is_empty() {
        faults.required(&format!("{path}.name"), "");
    } else {
        faults.invalid_text(&format!("{path}.name"), name, names::dns_label(name));
    }
    if text(container, "/image").is_empty() {
        faults.required(&format!("{path}.image"), "");
    }
    let policy = text(container, "/terminationMessagePolicy");
    faults.one_of(&format!("{path}.terminationMessagePolicy"), policy, &["File", "FallbackToLogsOnError"]);
    ports(&format!("{path}.ports"), list(container, "/ports"), faults);
    env(&format!("{path}.env"), list(container, "/env"), faults);
    mounts(&format!("{path}.volumeMounts"), list(container, "/volumeMounts"), volumes, faults);
    let policy = text(container, "/imagePullPolicy");
    faults.one_of(&format!("{path}.imagePullPolicy"), policy, &["Always", "IfNotPresent", "Never"]);
    resources(&format!("{path}.resources"), &container["resources"], faults);
}

fn ports(path: &str, ports: &[Value], faults: &mut Faults) {
    for (at, port) in ports.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let name = text(port, "/name");
        if !name.is_empty() {
            let wrong = names::port_name(name);
            if wrong.is_empty() && ports[..at].iter().any(|other| text(other, "/name") == name) {
                faults.duplicate(&format!("{path}.name"), &quoted(name));
            }
            faults.invalid_text(&format!("{path}.name"), name, wrong);
        }
        match number(port, "/containerPort") {
            0 => faults.required(&format!("{path}.containerPort"), ""),
            number => faults.port(&format!("{path}.containerPort"), number),
        }
        let host = number(port, "/hostPort");
        if host != 0 {
            faults.port(&format!("{path}.hostPort"), host);
        }
        faults.one_of(&format!("{path}.protocol"), text(port, "/protocol"), &PROTOCOLS);
    }
}

fn env(path: &str, variables: &[Value], faults: &mut Faults) {
    for (at, variable) in variables.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let name = text(variable, "/name");
        if name.is_empty() {
            faults.required(&format!("{path}.name"), "");
        } else if !name.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
            let message =
                "a valid environment variable name must consist only of printable ASCII characters other than '='";
            faults.invalid(&format!("{path}.name"), &quoted(name), message);
        }
        let Some(from) = variable.get("valueFrom") else { continue };
        let sources = from.as_object().map_or(0, serde_json::Map::len);
        let path = format!("{path}.valueFrom");
        if sources == 0 {
            faults.invalid(
                &path,
                "\"\"",
                "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
            );
        }
        if let Some(field) = from.get("fieldRef") {
            volume::field_path(&format!("{path}.fieldRef"), field, &volume::ENV_FIELDS, faults);
        }
        for key in ["configMapKeyRef", "secretKeyRef"] {
            if let Some(reference) = from.get(key) {
                for field in ["name", "key"] {
                    if text(reference, &format!("/{field}")).is_empty() {
                        faults.required(&format!("{path}.{key}.{field}"), "");
                    }
                }
            }
        }
        if !text(variable, "/value").is_empty() {
            if sources > 0 {
                faults.invalid(&path, "\"\"", "may not be specified when `value` is not empty");
            }
        } else if sources > 1 {
            faults.invalid(&path, "\"\"", "may not have more than one field specified at a time");
        }
    }
}

fn mounts(path: &str, mounts: &[Value], volumes: &[String], faults: &mut Faults) {
    for (at, mount) in mounts.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let (name, at_path) = (text(mount, "/name"), text(mount, "/mountPath"));
        if name.is_empty() {
            faults.required(&format!("{path}.name"), "");
        }
        if !volumes.iter().any(|volume| volume == name) {
            faults.not_found(&format!("{path}.name"), &quoted(name));
        }
        if at_path.is_empty() {
            faults.required(&format!("{path}.mountPath"), "");
        } else if mounts[..at].iter().any(|other| text(other, "/mountPath") == at_path) {
            faults.invalid(&format!("{path}.mountPath"), &quoted(at_path), "must be unique");
        }
    }
}

fn resources(path: &str, resources: &Value, faults: &mut Faults) {
    for key in ["limits", "requests"] {
        for (name, amount) in resources.get(key).and_then(Value::as_object).into_iter().flatten() {
            let quantity = Quantity::read(amount);
            if key == "requests"
                && let Some(limit) = resources.pointer(&format!("/limits/{name}")).and_then(Quantity::read)
                && quantity.is_some_and(|request| request.compare(limit).is_gt())
            {
                let message = format!("must be less than or equal to {name} limit of {limit}");
                faults.invalid(&format!("{path}.requests"), &amount.to_string(), &message);
            }
            let path = format!("{path}.{key}[{name}]");
            let standard =
                ["cpu", "memory", "ephemeral-storage"].contains(&name.as_str()) || name.starts_with("hugepages-");
            if !name.contains('/') && !standard {
                faults.invalid(&path, &quoted(name), "must be a standard resource type or fully qualified");
                faults.invalid(&path, &quoted(name), "must be a standard resource for containers");
            }
            if quantity.is_some_and(Quantity::is_negative) {
                faults.invalid(&path, &amount.to_string(), "must be greater than or equal to 0");
            }
        }
    }
    // Devices and the like are not lent twice: what is requested is also the limit.
    let limited = |name: &String| resources.get("limits").is_some_and(|limits| limits.get(name).is_some());
    let requested = resources.get("requests").and_then(Value::as_object).into_iter().flatten();
    if requested
        .map(|(name, _)| name)
        .any(|name| (name.contains('/') || name.starts_with("hugepages-")) && !limited(name))
    {
        faults.required(&format!("{path}.limits"), "Limit must be set for non overcommitable resources");
    }
}

fn toleration(path: &str, toleration: &Value, faults: &mut Faults) {
    let (key, operator) = (text(toleration, "/key"), text(toleration, "/operator"));
    let (value, effect) = (text(toleration, "/value"), text(toleration, "/effect"));
    if !key.is_empty() {
        faults.invalid_text(&format!("{path}.key"), key, names::qualified(key));
    } else if operator != "Exists" {
        let message = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        faults.invalid(&format!("{path}.operator"), &quoted(operator), message);
    }
    if has(toleration, "/tolerationSeconds") && effect != "NoExecute" {
        let message = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        faults.invalid(&format!("{path}.effect"), &quoted(effect), message);
    }
    match operator {
        "Equal" | "" => faults.invalid_text(&format!("{path}.operator"), value, names::label_value(value)),
        "Exists" if !value.is_empty() => {
            faults.invalid(
                &format!("{path}.operator"),
                &quoted(value),
                "value must be empty when `operator` is 'Exists'",
            );
        }
        "Exists" => {}
        _ => faults.not_supported(&format!("{path}.operator"), &quoted(operator), &["Equal", "Exists"]),
    }
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if !effect.is_empty() && !effects.contains(&effect) {
        faults.not_supported(&format!("{path}.effect"), &quoted(effect), &effects);
    }
}

fn update(new: &Value, old: &Value, faults: &mut Faults) {
    for key in ["containers", "initContainers"] {
        let (after, before) = (list(new, &format!("/{key}")), list(old, &format!("/{key}")));
        if after.len() != before.len() {
            faults.forbidden(&format!("spec.{key}"), "pod updates may not add or remove containers");
            return;
        }
        for (at, container) in after.iter().enumerate() {
            if text(container, "/image").trim().is_empty() {
                faults.required(&format!("spec.{key}[{at}].image"), "");
            }
        }
    }
    let deadline = |spec: &Value| spec.get("activeDeadlineSeconds").and_then(Value::as_i64);
    let path = "spec.activeDeadlineSeconds";
    match (deadline(new), deadline(old)) {
        (Some(after), Some(before)) if after > before => {
            faults.invalid(path, &after.to_string(), "must be less than or equal to previous value");
            return;
        }
        (None, Some(_)) => faults.invalid(path, "null", "must not update from a positive integer to nil value"),
        _ => {}
    }
    let (after, before) = (list(new, "/tolerations"), list(old, "/tolerations"));
    if before.iter().any(|kept| !after.contains(kept)) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        let kept = |one: &Value| after.iter().any(|other| same_toleration(one, other));
        if !before.iter().all(kept) {
            faults.forbidden("spec.tolerations", why);
        }
    }
    if frozen(new, old) != *old {
        faults.forbidden("spec", UPDATABLE);
    }
}

fn same_toleration(a: &Value, b: &Value) -> bool {
    ["key", "operator", "value", "effect"].into_iter().all(|key| a.get(key) == b.get(key))
}

/// The new spec with all that may change set back.
fn frozen(new: &Value, old: &Value) -> Value {
    let mut spec = new.clone();
    for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        super::super::json::restore(&mut spec, old, key);
    }
    for key in ["containers", "initContainers"] {
        for (container, before) in super::super::json::items(&mut spec, key).zip(list(old, &format!("/{key}"))) {
            super::super::json::restore(container, before, "image");
        }
    }
    if number(old, "/terminationGracePeriodSeconds") < 0 && number(new, "/terminationGracePeriodSeconds") == 1 {
        super::super::json::restore(&mut spec, old, "terminationGracePeriodSeconds");
    }
    spec
}
