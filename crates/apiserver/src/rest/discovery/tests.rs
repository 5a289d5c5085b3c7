use super::super::fixtures::{builtin_kind, planet, widget};
use super::*;
use crate::kinds::Scale;

fn kinds() -> Vec<Kind> {
    let old = Kind { version: "v1alpha1".to_owned(), status: false, scale: None, ..widget() };
    let scale = Scale { spec_replicas: String::new(), status_replicas: String::new(), label_selector: None };
    let deployment = Kind {
        short_names: vec!["deploy".to_owned()],
        categories: vec!["all".to_owned()],
        scale: Some(scale),
        ..builtin_kind("apps", "deployments", "Deployment", true)
    };
    let config_map = Kind { status: false, ..builtin_kind("", "configmaps", "ConfigMap", true) };
    let namespace = builtin_kind("", "namespaces", "Namespace", false);
    vec![widget(), old, planet(), namespace, deployment, config_map]
}

fn with_kinds<T>(read: impl FnOnce(&[&Kind]) -> T) -> T {
    let kinds = kinds();
    read(&kinds.iter().collect::<Vec<_>>())
}

/// Recorded from the real server.
fn recorded(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn groups_are_listed_as_the_real_server_does() {
    let expected = recorded(
        r#"{"kind":"APIGroup","apiVersion":"v1","name":"d.portolan.dev","versions":[{"groupVersion":"d.portolan.dev/v1","version":"v1"},{"groupVersion":"d.portolan.dev/v1alpha1","version":"v1alpha1"}],"preferredVersion":{"groupVersion":"d.portolan.dev/v1","version":"v1"}}"#,
    );
    assert_eq!(with_kinds(|kinds| group(kinds, "d.portolan.dev")), Some(expected));
    assert_eq!(with_kinds(|kinds| group(kinds, "nope")), None);
    let list = with_kinds(groups);
    assert_eq!((&list["groups"][0]["name"], &list["groups"][1]["name"]), (&json!("apps"), &json!("d.portolan.dev")));
    assert_eq!(list["groups"].as_array().unwrap().len(), 2);
}

#[test]
fn resources_of_custom_kinds_are_listed_as_the_real_server_does() {
    let expected = recorded(
        r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"d.portolan.dev/v1","resources":[{"name":"planets","singularName":"planet","namespaced":false,"kind":"Planet","storageVersionHash":"eezR4YMqgYs=","verbs":["delete","deletecollection","get","list","patch","create","update","watch"]},{"name":"widgets","singularName":"widget","namespaced":true,"kind":"Widget","storageVersionHash":"y/o0GicacEM=","verbs":["delete","deletecollection","get","list","patch","create","update","watch"],"shortNames":["wd"],"categories":["all","dd"]},{"name":"widgets/status","singularName":"","namespaced":true,"kind":"Widget","verbs":["get","patch","update"]},{"name":"widgets/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale","verbs":["get","patch","update"]}]}"#,
    );
    assert_eq!(with_kinds(|kinds| resources(kinds, "d.portolan.dev", "v1")), Some(expected));
    assert_eq!(with_kinds(|kinds| resources(kinds, "d.portolan.dev", "v2")), None);
}

#[test]
fn resources_of_built_in_kinds_are_listed_as_the_real_server_does() {
    let core = recorded(
        r#"{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"configmaps","singularName":"configmap","namespaced":true,"kind":"ConfigMap","storageVersionHash":"qFsyl6wFWjQ=","verbs":["create","delete","deletecollection","get","list","patch","update","watch"]},{"name":"namespaces","singularName":"namespace","namespaced":false,"kind":"Namespace","storageVersionHash":"Q3oi5N2YM8M=","verbs":["create","delete","get","list","patch","update","watch"]},{"name":"namespaces/finalize","singularName":"","namespaced":false,"kind":"Namespace","verbs":["update"]},{"name":"namespaces/status","singularName":"","namespaced":false,"kind":"Namespace","verbs":["get","patch","update"]}]}"#,
    );
    assert_eq!(with_kinds(|kinds| resources(kinds, "", "v1")), Some(core));
    let apps = recorded(
        r#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"apps/v1","resources":[{"name":"deployments","singularName":"deployment","namespaced":true,"kind":"Deployment","storageVersionHash":"8aSe+NMegvE=","verbs":["create","delete","deletecollection","get","list","patch","update","watch"],"shortNames":["deploy"],"categories":["all"]},{"name":"deployments/scale","singularName":"","namespaced":true,"group":"autoscaling","version":"v1","kind":"Scale","verbs":["get","patch","update"]},{"name":"deployments/status","singularName":"","namespaced":true,"kind":"Deployment","verbs":["get","patch","update"]}]}"#,
    );
    assert_eq!(with_kinds(|kinds| resources(kinds, "apps", "v1")), Some(apps));
}

#[test]
fn the_aggregated_form_is_that_of_the_real_server() {
    let expected = recorded(
        r#"{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[
        {"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[{"resource":"deployments","responseKind":{"group":"","version":"","kind":"Deployment"},"scope":"Namespaced","singularResource":"deployment","verbs":["create","delete","deletecollection","get","list","patch","update","watch"],"shortNames":["deploy"],"categories":["all"],"subresources":[{"subresource":"scale","responseKind":{"group":"autoscaling","version":"v1","kind":"Scale"},"verbs":["get","patch","update"]},{"subresource":"status","responseKind":{"group":"","version":"","kind":"Deployment"},"verbs":["get","patch","update"]}]}],"freshness":"Current"}]},
        {"metadata":{"name":"d.portolan.dev"},"versions":[{"version":"v1","resources":[{"resource":"planets","responseKind":{"group":"d.portolan.dev","version":"v1","kind":"Planet"},"scope":"Cluster","singularResource":"planet","verbs":["delete","deletecollection","get","list","patch","create","update","watch"]},{"resource":"widgets","responseKind":{"group":"d.portolan.dev","version":"v1","kind":"Widget"},"scope":"Namespaced","singularResource":"widget","verbs":["delete","deletecollection","get","list","patch","create","update","watch"],"shortNames":["wd"],"categories":["all","dd"],"subresources":[{"subresource":"status","responseKind":{"group":"d.portolan.dev","version":"v1","kind":"Widget"},"verbs":["get","patch","update"]},{"subresource":"scale","responseKind":{"group":"autoscaling","version":"v1","kind":"Scale"},"verbs":["get","patch","update"]}]}],"freshness":"Current"},{"version":"v1alpha1","resources":[{"resource":"widgets","responseKind":{"group":"d.portolan.dev","version":"v1alpha1","kind":"Widget"},"scope":"Namespaced","singularResource":"widget","verbs":["delete","deletecollection","get","list","patch","create","update","watch"],"shortNames":["wd"],"categories":["all","dd"]}],"freshness":"Current"}]}]}"#,
    );
    assert_eq!(with_kinds(|kinds| aggregated(kinds, false)), expected);
    let core = with_kinds(|kinds| aggregated(kinds, true));
    assert_eq!(core["items"][0]["metadata"], json!({}));
    assert_eq!(core["items"][0]["versions"][0]["resources"][0]["resource"], "configmaps");
}

#[test]
fn fingerprints_follow_the_content() {
    assert_eq!(fingerprint(&json!({ "a": 1 })), fingerprint(&json!({ "a": 1 })));
    assert_ne!(fingerprint(&json!({ "a": 1 })), fingerprint(&json!({ "a": 2 })));
    assert_eq!(fingerprint(&json!({})).len(), 32);
}

#[test]
fn versions_are_preferred_as_kubernetes_does() {
    let mut versions = ["foo", "v1alpha1", "v1", "v10", "v1beta1", "v2", "v1beta2", "v01", "bar"];
    versions.sort_by(|a, b| compare_versions(a, b));
    assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "bar", "foo", "v01"]);
}

#[test]
fn the_root_lists_paths() {
    let root = with_kinds(root);
    let paths: Vec<&str> = root["paths"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(paths.is_sorted() && paths.contains(&"/apis/d.portolan.dev/v1alpha1"), "{paths:?}");
    assert_eq!(core_versions("a:1")["serverAddressByClientCIDRs"][0]["serverAddress"], "a:1");
    assert_eq!(version()["minor"], "36");
}
