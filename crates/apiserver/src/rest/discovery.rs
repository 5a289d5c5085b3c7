//! Which groups, versions and resources there are: the old documents and the aggregated one.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use crate::kinds::{Kind, events};

/// Groups of Kubernetes in the order in which it lists them; custom groups follow.
const ORDER: [&str; 20] = [
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
];

/// `/version`. The version is that of the server whose answers are kept to, marked as ours.
pub fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35", "gitVersion": "v1.36.4+portolan",
        "gitCommit": "", "gitTreeState": "", "buildDate": "1970-01-01T00:00:00Z", "goVersion": "",
        "compiler": "rustc", "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// `/api`; `address` is where the server listens, such as `127.0.0.1:6443`.
pub fn core_versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": address }],
    })
}

/// `/apis`.
pub fn groups(kinds: &[&Kind]) -> Value {
    let groups: Vec<Value> =
        sorted_groups(kinds).into_iter().map(|(name, versions)| group_entry(name, &versions)).collect();
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

/// `/apis/G`; none for a group that is not there.
pub fn group(kinds: &[&Kind], name: &str) -> Option<Value> {
    let (name, versions) = sorted_groups(kinds).into_iter().find(|(group, _)| *group == name)?;
    let mut entry = group_entry(name, &versions);
    entry["kind"] = "APIGroup".into();
    entry["apiVersion"] = "v1".into();
    Some(entry)
}

/// `/api/v1` and `/apis/G/V`; none for a version that is not there.
pub fn resources(kinds: &[&Kind], group: &str, version: &str) -> Option<Value> {
    let served = served(kinds, group, version);
    let first = served.first()?;
    let mut list = Vec::new();
    for kind in &served {
        let mut entry = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": verbs(kind),
        });
        names(kind, &mut entry);
        entry["storageVersionHash"] = storage_hash(kind).into();
        list.push(entry);
        for part in parts(kind) {
            let mut entry = json!({
                "name": format!("{}/{}", kind.plural, part.name), "singularName": "", "namespaced": kind.namespaced,
                "kind": part.kind(kind), "verbs": part.verbs,
            });
            if part.scale {
                entry["group"] = "autoscaling".into();
                entry["version"] = "v1".into();
            }
            list.push(entry);
        }
    }
    let mut document = json!({ "kind": "APIResourceList", "groupVersion": first.api_version(), "resources": list });
    if !group.is_empty() {
        document["apiVersion"] = "v1".into();
    }
    Some(document)
}

/// `/api` (`core`) and `/apis` in the aggregated form.
pub fn aggregated(kinds: &[&Kind], core: bool) -> Value {
    let groups: Vec<(&str, Vec<&str>)> = if core { vec![("", vec!["v1"])] } else { sorted_groups(kinds) };
    let items: Vec<Value> = groups
        .into_iter()
        .map(|(group, versions)| {
            let versions: Vec<Value> =
                versions.into_iter().map(|version| aggregated_version(kinds, group, version)).collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
            json!({ "metadata": metadata, "versions": versions })
        })
        .collect();
    json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items })
}

/// A short hash of the type in which objects of a kind are stored: clients see by it whether that changed.
fn storage_hash(kind: &Kind) -> String {
    let group = if events::is_view(kind) { "" } else { &kind.group };
    // Definitions are known by the version that they were once stored in.
    let is_definition = !kind.custom && kind.kind == "CustomResourceDefinition";
    let version = if is_definition { "v1beta1" } else { &kind.storage_version };
    let stored = format!("{group}/{version}/{}", kind.kind);
    let rustls::SupportedCipherSuite::Tls13(suite) = rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256
    else {
        return String::new();
    };
    let hash = suite.common.hash_provider.hash(stored.as_bytes());
    STANDARD.encode(&hash.as_ref()[..8])
}

/// A fingerprint of a document, for `ETag` and the hashes of the OpenAPI index.
pub fn fingerprint(document: &Value) -> String {
    let text = document.to_string();
    let half = |seed: u8| {
        let mut hasher = DefaultHasher::new();
        (seed, &text).hash(&mut hasher);
        hasher.finish()
    };
    format!("{:016X}{:016X}", half(0), half(1))
}

fn aggregated_version(kinds: &[&Kind], group: &str, version: &str) -> Value {
    // Built-in kinds leave the group and version of what they answer with to the reader.
    let own = |kind: &Kind| {
        let (group, version) = if kind.custom { (kind.group.as_str(), kind.version.as_str()) } else { ("", "") };
        json!({ "group": group, "version": version, "kind": kind.kind })
    };
    let resources: Vec<Value> = served(kinds, group, version)
        .into_iter()
        .map(|kind| {
            let mut entry = json!({
                "resource": kind.plural, "responseKind": own(kind), "singularResource": kind.singular,
                "scope": if kind.namespaced { "Namespaced" } else { "Cluster" }, "verbs": verbs(kind),
            });
            names(kind, &mut entry);
            let parts: Vec<Value> = parts(kind)
                .into_iter()
                .map(|part| {
                    let scale = json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" });
                    let response = if part.scale { scale } else { own(kind) };
                    json!({ "subresource": part.name, "responseKind": response, "verbs": part.verbs })
                })
                .collect();
            if !parts.is_empty() {
                entry["subresources"] = parts.into();
            }
            entry
        })
        .collect();
    json!({ "version": version, "resources": resources, "freshness": "Current" })
}

fn group_entry(name: &str, versions: &[&str]) -> Value {
    let entry = |version: &&str| json!({ "groupVersion": format!("{name}/{version}"), "version": version });
    let versions: Vec<Value> = versions.iter().map(entry).collect();
    json!({ "name": name, "preferredVersion": versions.first(), "versions": versions })
}

fn names(kind: &Kind, entry: &mut Value) {
    for (field, list) in [("shortNames", &kind.short_names), ("categories", &kind.categories)] {
        if !list.is_empty() {
            entry[field] = list.clone().into();
        }
    }
}

fn verbs(kind: &Kind) -> Vec<&'static str> {
    let mut verbs = if kind.custom {
        vec!["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
    } else {
        vec!["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    };
    if is_namespaces(kind) {
        verbs.retain(|verb| *verb != "deletecollection");
    }
    verbs
}

/// A subresource.
struct Part {
    name: &'static str,
    scale: bool,
    verbs: &'static [&'static str],
}

impl Part {
    fn kind<'k>(&self, kind: &'k Kind) -> &'k str {
        if self.scale { "Scale" } else { &kind.kind }
    }
}

/// The subresources of a kind: by name for built-in ones, the status first for custom ones.
fn parts(kind: &Kind) -> Vec<Part> {
    const VERBS: &[&str] = &["get", "patch", "update"];
    let finalize = is_namespaces(kind).then_some(Part { name: "finalize", scale: false, verbs: &["update"] });
    let scale = kind.scale.is_some().then_some(Part { name: "scale", scale: true, verbs: VERBS });
    let status = kind.status.then_some(Part { name: "status", scale: false, verbs: VERBS });
    let order = if kind.custom { [status, scale, None] } else { [finalize, scale, status] };
    order.into_iter().flatten().collect()
}

fn is_namespaces(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.plural == "namespaces"
}

fn served<'k>(kinds: &[&'k Kind], group: &str, version: &str) -> Vec<&'k Kind> {
    let mut served: Vec<&Kind> =
        kinds.iter().copied().filter(|kind| kind.group == group && kind.version == version).collect();
    served.sort_by(|a, b| a.plural.cmp(&b.plural));
    served
}

/// All groups but the core one, with their versions, best first.
fn sorted_groups<'k>(kinds: &[&'k Kind]) -> Vec<(&'k str, Vec<&'k str>)> {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for kind in kinds.iter().filter(|kind| !kind.group.is_empty()) {
        let list = versions.entry(&kind.group).or_default();
        if !list.contains(&kind.version.as_str()) {
            list.push(&kind.version);
        }
    }
    let mut groups: Vec<(&str, Vec<&str>)> = versions.into_iter().collect();
    for (_, versions) in &mut groups {
        versions.sort_by(|a, b| compare_versions(a, b));
    }
    // The sort is stable: custom groups stay in the order of their names.
    groups.sort_by_key(|(group, _)| ORDER.iter().position(|known| known == group).unwrap_or(ORDER.len()));
    groups
}

/// Orders versions as Kubernetes prefers them: v2, v1, v1beta2, v1beta1, v1alpha1, and last what is no such version.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (parse_version(a), parse_version(b)) {
        (Some(a), Some(b)) => Reverse(a).cmp(&Reverse(b)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Stability (alpha 0, beta 1, stable 2), major and minor.
fn parse_version(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(digits);
    let (stability, minor) = match rest {
        "" => (2, "0"),
        _ => match rest.strip_prefix("beta") {
            Some(minor) => (1, minor),
            None => (0, rest.strip_prefix("alpha")?),
        },
    };
    if major.starts_with('0') || minor.starts_with('+') {
        return None;
    }
    Some((stability, major.parse().ok()?, minor.parse().ok()?))
}

/// `/`: the paths there are.
pub fn root(kinds: &[&Kind]) -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for path in [
        "/api",
        "/api/v1",
        "/apis",
        "/apis/",
        "/healthz",
        "/livez",
        "/openapi/v3",
        "/openapi/v3/",
        "/readyz",
        "/version",
    ] {
        paths.insert(path.to_owned(), Value::Null);
    }
    for (group, versions) in sorted_groups(kinds) {
        paths.insert(format!("/apis/{group}"), Value::Null);
        for version in versions {
            paths.insert(format!("/apis/{group}/{version}"), Value::Null);
        }
    }
    json!({ "paths": paths.keys().collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests;
