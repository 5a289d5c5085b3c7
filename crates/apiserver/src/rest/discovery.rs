//! Discovery of groups, versions and resources: the unaggregated documents, the aggregated one, and the index of `OpenAPI`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Map, Value, json};

use super::negotiate::{Accepted, Offered, Shape, accept};
use super::openapi;
use super::path::Target;
use super::route::is_namespaces;
use crate::auth::{REVIEWS, ReviewKind};
use crate::kinds::Kind;
use crate::status::Failure;

/// Groups of Kubernetes in the order in which it lists them; custom groups follow.
const ORDER: [&str; 19] = [
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
    "flowcontrol.apiserver.k8s.io",
];

/// The document at a path without objects, in an encoding that the client accepts.
pub fn answer(kinds: &[&Kind], target: &Target, wanted: Option<&str>) -> Result<(Value, Accepted), Failure> {
    let roots = matches!(target, Target::CoreVersions | Target::Groups);
    let shapes: &[Shape] = if roots { &[Shape::Plain, Shape::Discovery] } else { &[Shape::Plain] };
    let accepted = accept(wanted, Offered::text(shapes))?;
    let aggregates = accepted.shape == Shape::Discovery;
    let document = match target {
        Target::Version => Some(version()),
        Target::CoreVersions if aggregates => Some(aggregated(kinds, &[("", vec!["v1"])])),
        Target::CoreVersions => Some(json!({
            "kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": [{ "clientCIDR": "0.0.0.0/0", "serverAddress": "" }],
        })),
        Target::Groups if aggregates => Some(aggregated(kinds, &groups(kinds))),
        Target::Groups => {
            let list: Vec<Value> = groups(kinds).iter().map(|(name, versions)| group(name, versions)).collect();
            Some(json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": list }))
        }
        Target::Group(name) => groups(kinds).iter().find(|(group, _)| group == name).map(|(name, versions)| {
            let mut entry = group(name, versions);
            entry["kind"] = "APIGroup".into();
            entry["apiVersion"] = "v1".into();
            entry
        }),
        Target::Resources { group, version } => resources(kinds, group, version),
        Target::OpenApiIndex => Some(openapi_index(kinds)),
        Target::OpenApiDocument(path) => {
            let of_version = |kind: &&&Kind| openapi::document_path(&kind.group, &kind.version) == *path;
            let kinds: Vec<&Kind> = kinds.iter().filter(of_version).copied().collect();
            (!kinds.is_empty()).then(|| openapi::document(&kinds))
        }
        Target::Health | Target::OpenApiV2 | Target::Objects(_) | Target::NotFound => None,
    };
    document.map(|document| (document, accepted)).ok_or_else(Failure::no_such_path)
}

/// `/version`: the version of kube-apiserver whose behaviour this server has, marked as ours.
fn version() -> Value {
    json!({
        "major": "1", "minor": "36", "gitVersion": "v1.36.4+portolan", "gitCommit": "", "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

fn group(name: &str, versions: &[&str]) -> Value {
    let entry = |version: &&str| json!({ "groupVersion": format!("{name}/{version}"), "version": version });
    let versions: Vec<Value> = versions.iter().map(entry).collect();
    json!({ "name": name, "preferredVersion": versions.first(), "versions": versions })
}

/// `/api/v1` and `/apis/G/V`; none for a version that is not there.
fn resources(kinds: &[&Kind], group: &str, version: &str) -> Option<Value> {
    let served = served(kinds, group, version);
    let mut list = Vec::new();
    for kind in &served {
        let mut entry = json!({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": verbs(kind),
        });
        add_names(kind, &mut entry);
        list.push(entry);
        for (name, verbs) in parts(kind) {
            let mut entry = json!({
                "name": format!("{}/{name}", kind.plural), "singularName": "", "namespaced": kind.namespaced,
                "kind": kind.kind, "verbs": verbs,
            });
            if name == "scale" {
                for (field, value) in [("kind", "Scale"), ("group", "autoscaling"), ("version", "v1")] {
                    entry[field] = value.into();
                }
            }
            list.push(entry);
        }
    }
    for review in reviews(group, version) {
        list.push(json!({
            "name": review.plural, "singularName": review.kind.to_lowercase(), "namespaced": review.namespaced,
            "kind": review.kind, "verbs": ["create"],
        }));
    }
    if list.is_empty() {
        return None;
    }
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut document = json!({ "kind": "APIResourceList", "groupVersion": group_version, "resources": list });
    if !group.is_empty() {
        document["apiVersion"] = "v1".into();
    }
    Some(document)
}

/// Groups with all their resources.
fn aggregated(kinds: &[&Kind], groups: &[(&str, Vec<&str>)]) -> Value {
    let of_version = |group: &str, version: &str| {
        let stored = served(kinds, group, version).into_iter().map(aggregated_resource);
        let resources: Vec<Value> = stored.chain(reviews(group, version).map(aggregated_review)).collect();
        json!({ "version": version, "resources": resources, "freshness": "Current" })
    };
    let of_group = |(group, versions): &(&str, Vec<&str>)| {
        let versions: Vec<Value> = versions.iter().map(|version| of_version(group, version)).collect();
        let metadata = if group.is_empty() { json!({}) } else { json!({ "name": group }) };
        json!({ "metadata": metadata, "versions": versions })
    };
    let items: Vec<Value> = groups.iter().map(of_group).collect();
    json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items })
}

fn aggregated_resource(kind: &Kind) -> Value {
    // Built-in kinds omit the group and version of their response kind.
    let (group, version) = if kind.custom { (kind.group.as_str(), kind.version.as_str()) } else { ("", "") };
    let own = json!({ "group": group, "version": version, "kind": kind.kind });
    let mut entry = json!({
        "resource": kind.plural, "responseKind": own, "singularResource": kind.singular,
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" }, "verbs": verbs(kind),
    });
    add_names(kind, &mut entry);
    let scale = json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" });
    let part = |(name, verbs): (&str, Value)| {
        let response = if name == "scale" { &scale } else { &own };
        json!({ "subresource": name, "responseKind": response, "verbs": verbs })
    };
    let parts: Vec<Value> = parts(kind).into_iter().map(part).collect();
    if !parts.is_empty() {
        entry["subresources"] = parts.into();
    }
    entry
}

fn aggregated_review(review: &ReviewKind) -> Value {
    json!({
        "resource": review.plural, "responseKind": { "group": "", "version": "", "kind": review.kind },
        "singularResource": review.kind.to_lowercase(),
        "scope": if review.namespaced { "Namespaced" } else { "Cluster" }, "verbs": ["create"],
    })
}

fn add_names(kind: &Kind, entry: &mut Value) {
    for (field, list) in [("shortNames", &kind.short_names), ("categories", &kind.categories)] {
        if !list.is_empty() {
            entry[field] = list.clone().into();
        }
    }
}

fn verbs(kind: &Kind) -> Value {
    match (kind.custom, is_namespaces(kind)) {
        (true, _) => json!(["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]),
        (false, false) => json!(["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]),
        (false, true) => json!(["create", "delete", "get", "list", "patch", "update", "watch"]),
    }
}

/// The subresources of a kind with their verbs: by name for built-in ones, the status first for custom ones.
fn parts(kind: &Kind) -> Vec<(&'static str, Value)> {
    let verbs = json!(["get", "patch", "update"]);
    let finalize = is_namespaces(kind).then(|| ("finalize", json!(["update"])));
    let scale = kind.scale.as_ref().map(|_| ("scale", verbs.clone()));
    let status = kind.status.then_some(("status", verbs));
    let order = if kind.custom { [status, scale, finalize] } else { [finalize, scale, status] };
    order.into_iter().flatten().collect()
}

fn served<'k>(kinds: &[&'k Kind], group: &str, version: &str) -> Vec<&'k Kind> {
    kinds.iter().copied().filter(|kind| kind.group == group && kind.version == version).collect()
}

/// The kinds of a group that are answered and never stored.
fn reviews(group: &str, version: &str) -> impl Iterator<Item = &'static ReviewKind> {
    REVIEWS.iter().filter(move |review| review.group == group && version == "v1")
}

/// All groups but the core one, with their versions, best first.
fn groups<'k>(kinds: &[&'k Kind]) -> Vec<(&'k str, Vec<&'k str>)> {
    let mut versions: BTreeMap<&str, Vec<&str>> = REVIEWS.iter().map(|review| (review.group, vec!["v1"])).collect();
    for kind in kinds.iter().filter(|kind| !kind.group.is_empty()) {
        let list = versions.entry(&kind.group).or_default();
        if !list.contains(&kind.version.as_str()) {
            list.push(&kind.version);
        }
    }
    let mut groups: Vec<(&str, Vec<&str>)> = versions.into_iter().collect();
    for (_, versions) in &mut groups {
        versions.sort_by_key(|version| (Reverse(preference(version)), *version));
    }
    // The sort is stable: custom groups stay in the order of their names.
    groups.sort_by_key(|(group, _)| ORDER.iter().position(|known| known == group).unwrap_or(ORDER.len()));
    groups
}

/// How much a version is preferred: v2, v1, v1beta2, v1beta1, v1alpha1, and last what is no such version.
fn preference(version: &str) -> Option<(u8, u32, u32)> {
    let rest = version.strip_prefix('v')?;
    let (major, rest) = rest.split_at(rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len()));
    let (stability, minor) = match (rest, rest.strip_prefix("beta")) {
        ("", _) => (2, "0"),
        (_, Some(minor)) => (1, minor),
        (_, None) => (0, rest.strip_prefix("alpha")?),
    };
    Some((stability, major.parse().ok()?, minor.parse().ok()?))
}

/// `/openapi/v3`: each document with a hash that changes when its kinds do.
fn openapi_index(kinds: &[&Kind]) -> Value {
    let mut documents: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for kind in kinds {
        // Only custom kinds change while the server runs.
        let schema = kind.custom.then(|| format!("{:?}", kind.schema));
        let shown = json!([kind.kind, schema]);
        documents.entry(openapi::document_path(&kind.group, &kind.version)).or_default().push(shown);
    }
    let entry = |(path, kinds): (String, Vec<Value>)| {
        let mut hasher = DefaultHasher::new();
        Value::from(kinds).to_string().hash(&mut hasher);
        let url = format!("/openapi/v3/{path}?hash={:016X}", hasher.finish());
        (path, json!({ "serverRelativeURL": url }))
    };
    json!({ "paths": documents.into_iter().map(entry).collect::<Map<_, _>>() })
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{builtin_kind, planet, widget};
    use super::*;

    fn ask(target: &Target, wanted: Option<&str>) -> Result<Value, Failure> {
        let map = builtin_kind("", "configmaps", "ConfigMap", true);
        let deployment = builtin_kind("apps", "deployments", "Deployment", true);
        let alpha = Kind { version: "v1alpha1".to_owned(), ..widget() };
        let kinds = [&map, &deployment, &planet(), &widget(), &alpha];
        answer(&kinds, target, wanted).map(|(document, _)| document)
    }

    #[test]
    fn groups_have_their_best_version_first() {
        let groups = ask(&Target::Groups, None).unwrap();
        let names: Vec<&Value> = groups["groups"].as_array().unwrap().iter().map(|group| &group["name"]).collect();
        assert_eq!(names, ["apps", "authentication.k8s.io", "authorization.k8s.io", "d.portolan.dev"]);
        assert_eq!(groups["groups"][3]["preferredVersion"]["version"], "v1");
        assert_eq!(ask(&Target::Group("nope".to_owned()), None).unwrap_err().code, 404);
        let mut versions = ["foo", "v1alpha1", "v1", "v10", "v1beta1", "v2", "v1beta2", "bar"];
        versions.sort_by_key(|version| (Reverse(preference(version)), *version));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "bar", "foo"]);
    }

    #[test]
    fn resources_are_listed_with_their_parts() {
        let target = Target::Resources { group: "d.portolan.dev".to_owned(), version: "v1".to_owned() };
        let list = ask(&target, None).unwrap()["resources"].clone();
        let names: Vec<&str> = list.as_array().unwrap().iter().filter_map(|entry| entry["name"].as_str()).collect();
        assert_eq!(names, ["planets", "widgets", "widgets/status", "widgets/scale"]);
        assert_eq!((&list[3]["kind"], &list[1]["shortNames"]), (&json!("Scale"), &json!(["wd"])));
    }

    #[test]
    fn the_aggregated_form_tells_all_at_once() {
        let wanted = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let list = ask(&Target::Groups, Some(wanted)).unwrap();
        let review = &list["items"][1]["versions"][0]["resources"][1];
        assert_eq!((&review["resource"], &review["verbs"]), (&json!("tokenreviews"), &json!(["create"])));
        let custom = &list["items"][3]["versions"][0];
        assert_eq!((&custom["version"], &custom["resources"][1]["resource"]), (&json!("v1"), &json!("widgets")));
        assert_eq!(custom["resources"][1]["subresources"][1]["responseKind"]["kind"], "Scale");
        let core = ask(&Target::CoreVersions, Some(wanted)).unwrap();
        assert_eq!(core["items"][0]["versions"][0]["resources"][0]["resource"], "configmaps");
    }

    #[test]
    fn the_index_follows_the_schemas() {
        let index = |kind: &Kind| openapi_index(&[kind])["paths"]["apis/d.portolan.dev/v1"].to_string();
        let other = Kind { schema: planet().schema, ..widget() };
        assert_eq!(index(&widget()), index(&widget()));
        assert_ne!(index(&widget()), index(&other));
    }
}
