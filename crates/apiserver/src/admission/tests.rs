//! Webhooks on a real socket.

mod server;

use std::sync::atomic::Ordering;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use self::server::Server;
use super::*;
use crate::auth::User;

fn configuration(kind: &str, name: &str, hooks: &[Value]) -> Value {
    json!({ "kind": format!("{kind}WebhookConfiguration"), "metadata": { "name": name }, "webhooks": hooks })
}

fn object() -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "probe", "namespace": "default", "labels": { "probe": "yes" } }, "data": { "k": "v" } })
}

/// A request as the tests need it; what it borrows must live somewhere.
struct Case {
    user: User,
    options: Value,
    labels: Value,
    versions: Vec<String>,
}

impl Case {
    fn new() -> Self {
        Self {
            user: User::new("admin", &["system:masters"]),
            options: json!({ "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1" }),
            labels: json!({ "team": "a" }),
            versions: vec!["v1".to_owned()],
        }
    }

    fn create(&self) -> Attributes<'_> {
        Attributes {
            operation: Operation::Create,
            group: "",
            version: "v1",
            kind: "ConfigMap",
            resource: "configmaps",
            subresource: "",
            name: "probe",
            namespace: "default",
            user: &self.user,
            old: None,
            options: &self.options,
            dry_run: false,
            namespace_labels: Some(&self.labels),
            versions: &self.versions,
        }
    }
}

async fn validate(server: &Server, hook: Value) -> (Result<(), Failure>, Vec<String>) {
    let hooks = Hooks::new(&[], &[configuration("Validating", "c", &[hook])], server.caller());
    let case = Case::new();
    let mut warnings = Vec::new();
    let result = hooks.validate(&case.create(), &object(), &mut warnings).await;
    (result, warnings)
}

#[tokio::test]
async fn a_failed_call_is_an_internal_error_or_ignored_as_the_hook_says() {
    let server = Server::start("127.0.0.1").await;
    let paths = ["uid", "kind", "noresp", "nokind", "slow", "500", "404", "302", "garbage", "empty", "patchtype"];
    for path in paths {
        let failure = validate(&server, server.hook(path)).await.0.unwrap_err();
        assert_eq!((failure.code.as_u16(), &*failure.reason), (500, "InternalError"), "{path}");
        assert!(failure.message.contains("failed calling webhook \"x.hook.io\": "), "{}", failure.message);

        let mut hook = server.hook(path);
        hook["failurePolicy"] = json!("Ignore");
        assert_eq!(validate(&server, hook).await.0, Ok(()), "{path} is ignored if the hook says so");
    }
}

#[tokio::test]
async fn only_a_certificate_of_the_bundle_is_trusted() {
    let server = Server::start("127.0.0.1").await;
    let other = Server::start("other.example").await;
    let port = server.port;
    let with = |url: String, bundle: &str| {
        let mut hook = server.hook("ok");
        hook["clientConfig"] = json!({ "url": url, "caBundle": STANDARD.encode(bundle) });
        hook
    };
    let mut service = server.hook("ok");
    service["clientConfig"] = json!({ "service": { "name": "s", "namespace": "n", "path": "/p" } });
    for (hook, told) in [
        (with("https://127.0.0.1:1/ok".to_owned(), &server.certificate), "Connection refused"),
        (with(format!("https://127.0.0.1:{port}/ok"), &other.certificate), "invalid peer certificate"),
        (with(format!("https://127.0.0.1:{port}/ok"), ""), "invalid peer certificate"),
        (with(format!("https://127.0.0.1:{}/ok", other.port), &other.certificate), "not valid for name"),
        (service, "write clientConfig.url"),
    ] {
        let message = validate(&server, hook).await.0.unwrap_err().message;
        assert!(message.contains(told), "{told}: {message}");
    }
    assert!(server.requests.lock().is_empty() && other.requests.lock().is_empty());
}

#[tokio::test]
async fn denials_keep_code_reason_details_and_warnings() {
    let server = Server::start("127.0.0.1").await;
    let by = "admission webhook \"x.hook.io\" denied the request";
    for (path, code, reason, text) in [
        ("deny", 400, "", format!("{by} without explanation")),
        ("denymsg", 400, "", format!("{by}: no way")),
        ("denyreason", 400, "Odd", format!("{by}: Odd")),
        ("denycode", 422, "Invalid", format!("{by}: bad")),
    ] {
        let (result, warnings) = validate(&server, server.hook(path)).await;
        let failure = result.unwrap_err();
        assert_eq!((failure.code.as_u16(), &*failure.reason, failure.message), (code, reason, text), "{path}");
        assert_eq!(warnings.is_empty(), path != "denymsg");
        assert_eq!(failure.details.is_empty(), path != "denycode");
    }
    let (result, warnings) = validate(&server, server.hook("warn")).await;
    assert_eq!((result, warnings), (Ok(()), vec!["w1".to_owned(), "w 2".to_owned()]));
}

#[tokio::test]
async fn a_review_says_what_the_real_server_says_and_connections_are_kept() {
    let server = Server::start("127.0.0.1").await;
    let hooks = Hooks::new(&[], &[configuration("Validating", "c", &[server.hook("ok")])], server.caller());
    let case = Case::new();
    let old = object();
    let delete = json!({ "kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1" });
    for attributes in
        [case.create(), Attributes { operation: Operation::Delete, old: Some(&old), options: &delete, ..case.create() }]
    {
        let object = if attributes.old.is_some() { Value::Null } else { object() };
        hooks.validate(&attributes, &object, &mut Vec::new()).await.unwrap();
    }

    let requests = server.requests.lock();
    let (path, mut review) = requests[0].clone();
    assert_eq!(path, "/ok?timeout=1s");
    let uid = review["request"]["uid"].take();
    assert_eq!(uid.as_str().unwrap().len(), 36);
    let kind = json!({ "group": "", "version": "v1", "kind": "ConfigMap" });
    let resource = json!({ "group": "", "version": "v1", "resource": "configmaps" });
    assert_eq!(
        review,
        json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
            "uid": null, "kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource,
            "name": "probe", "namespace": "default", "operation": "CREATE",
            "userInfo": { "username": "admin", "groups": ["system:masters"] },
            "object": object(), "oldObject": null, "dryRun": false,
            "options": { "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1" },
        } })
    );
    assert_eq!(requests[1].1["request"]["object"], Value::Null);
    assert_eq!(requests[1].1["request"]["oldObject"], object());
    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn patches_are_applied_in_order_of_the_configurations() {
    let server = Server::start("127.0.0.1").await;
    let case = Case::new();
    let hook = |name: &str| configuration("Mutating", name, &[server.hook(&format!("add-{name}"))]);
    let hooks = Hooks::new(&[hook("b"), hook("a")], &[], server.caller());
    let mut object = object();
    hooks.mutate(&case.create(), &mut object, &mut Vec::new()).await.unwrap();
    assert_eq!(object["data"]["calls"], "ab");
}

#[tokio::test]
async fn bad_patches_are_refused_and_change_nothing() {
    let server = Server::start("127.0.0.1").await;
    let case = Case::new();
    for path in ["badpatch", "testpatch", "badpatch2", "patchnotype", "patchtype", "patchother", "badb64"] {
        let hooks = Hooks::new(&[configuration("Mutating", "c", &[server.hook(path)])], &[], server.caller());
        let mut changed = object();
        let result = hooks.mutate(&case.create(), &mut changed, &mut Vec::new()).await;
        assert_eq!(result.unwrap_err().code.as_u16(), 500, "{path}");
        assert_eq!(changed, object());
    }
}

#[tokio::test]
async fn dry_run_is_refused_for_hooks_with_side_effects() {
    let server = Server::start("127.0.0.1").await;
    let mut hook = server.hook("ok");
    hook["sideEffects"] = json!("Some");
    let hooks = Hooks::new(&[], &[configuration("Validating", "c", &[hook])], server.caller());
    let case = Case::new();

    let dry = Attributes { dry_run: true, ..case.create() };
    let failure = hooks.validate(&dry, &object(), &mut Vec::new()).await.unwrap_err();

    assert_eq!(
        (failure.code.as_u16(), failure.message.as_str()),
        (400, "admission webhook \"x.hook.io\" does not support dry run")
    );
    assert!(server.requests.lock().is_empty());
}

/// Who is asked, by rules and selectors alone.
#[test]
fn a_hook_is_asked_only_about_what_it_wants_to_see() {
    let case = Case::new();
    let rule = |operations: &[&str], groups: &[&str], versions: &[&str], resources: &[&str], scope: &str| json!({ "rules": [{ "operations": operations, "apiGroups": groups, "apiVersions": versions, "resources": resources, "scope": scope }] });
    let all = rule(&["*"], &["*"], &["*"], &["*/*"], "*");
    let and = |extra: Value| {
        let mut hook = all.clone();
        json_patch::merge(&mut hook, &extra);
        hook
    };
    let create = case.create();
    let status = Attributes { subresource: "status", ..create };
    let node = Attributes { kind: "Node", resource: "nodes", namespace: "", ..create };
    let namespace = Attributes { kind: "Namespace", resource: "namespaces", namespace: "default", ..create };
    let versions = vec!["v1".to_owned(), "v2".to_owned()];
    let two = Attributes { group: "g", kind: "Box", resource: "boxes", versions: &versions, ..create };
    let cases: Vec<(&str, Value, Attributes<'_>, bool)> = vec![
        ("everything", all.clone(), create, true),
        ("another operation", rule(&["UPDATE"], &["*"], &["*"], &["*"], "*"), create, false),
        ("another group", rule(&["*"], &["apps"], &["*"], &["*"], "*"), create, false),
        ("all resources without subresources", rule(&["*"], &["*"], &["*"], &["*"], "*"), status, false),
        ("one subresource", rule(&["*"], &["*"], &["*"], &["configmaps/status"], "*"), status, true),
        ("subresources of all", rule(&["*"], &["*"], &["*"], &["*/status"], "*"), status, true),
        ("namespaced only", rule(&["*"], &["*"], &["*"], &["*"], "Namespaced"), node, false),
        ("cluster-wide only", rule(&["*"], &["*"], &["*"], &["*"], "Cluster"), node, true),
        ("a Namespace is cluster-wide", rule(&["*"], &["*"], &["*"], &["*"], "Namespaced"), namespace, false),
        ("namespace selected", and(json!({ "namespaceSelector": { "matchLabels": { "team": "a" } } })), create, true),
        (
            "namespace not selected",
            and(json!({ "namespaceSelector": { "matchLabels": { "team": "b" } } })),
            create,
            false,
        ),
        (
            "cluster-wide is never excluded",
            and(json!({ "namespaceSelector": { "matchLabels": { "team": "b" } } })),
            node,
            true,
        ),
        (
            "a Namespace by its own labels",
            and(json!({ "namespaceSelector": { "matchLabels": { "probe": "yes" } } })),
            namespace,
            true,
        ),
        ("object selected", and(json!({ "objectSelector": { "matchLabels": { "probe": "yes" } } })), create, true),
        ("object not selected", and(json!({ "objectSelector": { "matchLabels": { "probe": "no" } } })), create, false),
        ("another version, equivalent", rule(&["*"], &["g"], &["v2"], &["boxes"], "*"), two, true),
    ];
    for (what, hook, attributes, wanted) in cases {
        assert_eq!(Hook::new(&hook, false).wants(&attributes, &object()).unwrap().is_some(), wanted, "{what}");
    }
    let exact = {
        let mut hook = rule(&["*"], &["g"], &["v2"], &["boxes"], "*");
        hook["matchPolicy"] = json!("Exact");
        hook
    };
    assert_eq!(Hook::new(&exact, false).wants(&two, &object()).unwrap(), None);

    let nowhere = Attributes { namespace_labels: None, ..create };
    let missing = Hook::new(&and(json!({ "namespaceSelector": { "matchLabels": { "a": "b" } } })), false)
        .wants(&nowhere, &object());
    assert_eq!(missing.unwrap_err().message, "namespaces \"default\" not found");
}
