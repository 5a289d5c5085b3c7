//! Volumes of the common types.

use serde_json::Value;

use super::super::json::{list, text};
use super::{Faults, names, quoted};

/// Fields of a pod that an environment variable may show.
pub(super) const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const HOST_PATHS: [&str; 8] =
    ["", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"];

/// Checks volumes and gives the names of those that are sound.
pub(super) fn volumes(volumes: &[Value], path: &str, faults: &mut Faults) -> Vec<String> {
    let mut sound: Vec<String> = Vec::new();
    for (at, volume) in volumes.iter().enumerate() {
        let path = format!("{path}[{at}]");
        let before = faults.0.len();
        source(&path, volume, faults);
        let name = text(volume, "/name");
        if name.is_empty() {
            faults.required(&format!("{path}.name"), "");
        } else {
            faults.invalid_text(&format!("{path}.name"), name, names::dns_label(name));
        }
        if sound.iter().any(|other| other == name) {
            faults.duplicate(&format!("{path}.name"), &quoted(name));
        }
        if faults.0.len() == before {
            sound.push(name.to_owned());
        }
    }
    sound
}

/// A `fieldRef` that names one of the fields on offer.
pub(super) fn field_path(path: &str, reference: &Value, fields: &[&str], faults: &mut Faults) {
    let field = text(reference, "/fieldPath");
    let known =
        fields.contains(&field) || field.starts_with("metadata.annotations[") || field.starts_with("metadata.labels[");
    if field.is_empty() {
        faults.required(&format!("{path}.fieldPath"), "");
    } else if !known {
        let message = format!("error converting fieldPath: field label not supported: {field}");
        faults.invalid(&format!("{path}.fieldPath"), &quoted(field), &message);
    }
}

fn source(path: &str, volume: &Value, faults: &mut Faults) {
    // The order in which the real server looks at them.
    let kinds = ["emptyDir", "hostPath", "secret", "persistentVolumeClaim", "configMap", "downwardAPI", "projected"];
    let mut count = 0;
    for kind in kinds {
        let Some(source) = volume.get(kind) else { continue };
        let path = format!("{path}.{kind}");
        count += 1;
        if count > 1 {
            faults.forbidden(&path, "may not specify more than 1 volume type");
            continue;
        }
        match kind {
            "hostPath" => host_path(&path, source, faults),
            "secret" => keyed(&path, source, "secretName", faults),
            "configMap" => keyed(&path, source, "name", faults),
            "persistentVolumeClaim" if text(source, "/claimName").is_empty() => {
                faults.required(&format!("{path}.claimName"), "");
            }
            "projected" => {
                mode(&path, source, faults);
                for (at, source) in list(source, "/sources").iter().enumerate() {
                    if source.as_object().is_some_and(|map| map.len() > 1) {
                        let why = "may not specify more than 1 volume type per source";
                        faults.forbidden(&format!("{path}.sources[{at}]"), why);
                    }
                }
            }
            _ => {}
        }
    }
}

fn host_path(path: &str, source: &Value, faults: &mut Faults) {
    let field = format!("{path}.path");
    let host = text(source, "/path");
    if host.is_empty() {
        faults.required(&field, "");
        return;
    }
    no_way_up(&field, host, faults);
    let kind = text(source, "/type");
    if !HOST_PATHS.contains(&kind) {
        faults.not_supported(&format!("{path}.type"), &quoted(kind), &HOST_PATHS);
    }
}

fn keyed(path: &str, source: &Value, name: &str, faults: &mut Faults) {
    if text(source, &format!("/{name}")).is_empty() {
        faults.required(&format!("{path}.{name}"), "");
    }
    mode(path, source, faults);
    for (at, item) in list(source, "/items").iter().enumerate() {
        let path = format!("{path}.items[{at}]");
        if text(item, "/key").is_empty() {
            faults.required(&format!("{path}.key"), "");
        }
        let file = text(item, "/path");
        let field = format!("{path}.path");
        if file.is_empty() {
            faults.required(&field, "");
        } else if file.starts_with('/') {
            faults.invalid(&field, &quoted(file), "must be a relative path");
        } else {
            no_way_up(&field, file, faults);
        }
    }
}

fn mode(path: &str, source: &Value, faults: &mut Faults) {
    if let Some(mode) = source.get("defaultMode").and_then(Value::as_i64)
        && !(0..=0o777).contains(&mode)
    {
        let message = "must be a number between 0 and 0777 (octal), both inclusive";
        faults.invalid(&format!("{path}.defaultMode"), &mode.to_string(), message);
    }
}

fn no_way_up(field: &str, path: &str, faults: &mut Faults) {
    if path.split('/').any(|part| part == "..") {
        faults.invalid(field, &quoted(path), "must not contain '..'");
    }
}
