//! ConfigMaps and Secrets.

use base64::Engine as _;
use serde_json::Value;

use super::super::Kind;
use super::super::json::{entries, text};
use super::{Faults, names, quoted};

/// Keys and values together.
const MOST_BYTES: usize = 1024 * 1024;

pub(super) fn config_map(new: &Value, faults: &mut Faults) {
    let mut size = 0;
    for (key, value) in entries(new, "/data") {
        let path = format!("data[{key}]");
        faults.invalid_text(&path, key, names::config_key(key));
        if new["binaryData"].get(key).is_some() {
            faults.invalid(&path, &quoted(key), "duplicate of key present in binaryData");
        }
        size += value.as_str().map_or(0, str::len);
    }
    for (key, value) in entries(new, "/binaryData") {
        faults.invalid_text(&format!("binaryData[{key}]"), key, names::config_key(key));
        size += decoded(value).len();
    }
    if size > MOST_BYTES {
        faults.too_long("[]", MOST_BYTES);
    }
}

pub(super) fn secret(new: &Value, faults: &mut Faults) {
    let mut size = 0;
    for (key, value) in entries(new, "/data") {
        faults.invalid_text(&format!("data[{key}]"), key, names::config_key(key));
        size += decoded(value).len();
    }
    if size > MOST_BYTES {
        faults.too_long("data", MOST_BYTES);
    }
    let has = |key: &str| new["data"].get(key).is_some();
    let kind = text(new, "/type");
    let needed: &[&str] = match kind {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => &["username", "password"],
        _ => &[],
    };
    for key in needed.iter().filter(|key| !has(key)) {
        faults.required(&format!("data[{key}]"), "");
    }
    if kind.starts_with("kubernetes.io/dockerc") {
        for key in needed.iter().filter(|key| has(key)) {
            if let Some(fault) = json_fault(&decoded(&new["data"][key])) {
                faults.invalid(&format!("data[{key}]"), "\"<secret contents redacted>\"", &fault);
            }
        }
    }
    let account = "kubernetes.io/service-account.name";
    if kind == "kubernetes.io/service-account-token"
        && text(&new["metadata"]["annotations"], &pointer(account)).is_empty()
    {
        faults.required(&format!("metadata.annotations[{account}]"), "");
    }
}

/// What `immutable` and the type of a Secret forbid.
pub(super) fn immutable(kind: &Kind, new: &Value, old: &Value, faults: &mut Faults) {
    if kind.kind == "Secret" {
        faults.immutable("type", new.get("type"), old.get("type"));
    }
    if old["immutable"] != true {
        return;
    }
    let why = "field is immutable when `immutable` is set";
    if new["immutable"] != true {
        faults.forbidden("immutable", why);
    }
    for key in ["data", "binaryData"] {
        if new.get(key) != old.get(key) {
            faults.forbidden(key, why);
        }
    }
}

fn decoded(value: &Value) -> Vec<u8> {
    base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap_or_default()).unwrap_or_default()
}

/// What Go's JSON decoder says of the first bytes.
fn json_fault(bytes: &[u8]) -> Option<String> {
    if serde_json::from_slice::<serde_json::Map<String, Value>>(bytes).is_ok() {
        return None;
    }
    let first = String::from_utf8_lossy(bytes).trim_start().chars().next();
    Some(match first {
        None => "unexpected end of JSON input".to_owned(),
        Some(c) => format!("invalid character '{c}' looking for beginning of value"),
    })
}

fn pointer(key: &str) -> String {
    format!("/{}", key.replace('~', "~0").replace('/', "~1"))
}
