//! Webhooks on a real socket; every text was taken from kube-apiserver 1.36.4 in the same situation.

mod server;

use std::sync::atomic::Ordering;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use self::server::Server;
use super::*;

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
            defaults: None,
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

/// The message of a refusal, with the review's uid left out.
fn message(result: Result<(), Failure>) -> String {
    let message = result.unwrap_err().message;
    match message.split_once("response.uid=") {
        Some((head, tail)) => format!("{head}response.uid=...{}", &tail[38..]),
        None => message,
    }
}

#[tokio::test]
async fn failures_speak_as_the_real_server_does() {
    let server = Server::start("127.0.0.1").await;
    let url = format!("https://127.0.0.1:{}", server.port);
    let calling = "Internal error occurred: failed calling webhook \"x.hook.io\": ";
    for (path, text) in [
        ("uid", "received invalid webhook response: expected response.uid=..., got \"x\"".to_owned()),
        ("kind", "failed to call webhook: no kind \"Foo\" is registered for version \"admission.k8s.io/v1\" in scheme \"pkg/runtime/scheme.go:111\"".to_owned()),
        ("noresp", "received invalid webhook response: webhook response was absent".to_owned()),
        ("nokind", "received invalid webhook response: expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=".to_owned()),
        ("slow", format!("failed to call webhook: Post \"{url}/slow?timeout=1s\": context deadline exceeded")),
        ("500", "failed to call webhook: an error on the server (\"unknown\") has prevented the request from succeeding".to_owned()),
        ("404", "failed to call webhook: the server could not find the requested resource".to_owned()),
        ("403", "failed to call webhook: unknown".to_owned()),
        ("401", "failed to call webhook: the server has asked for the client to provide credentials".to_owned()),
        ("302", "failed to call webhook: the server responded with the status code 302 but did not return more information".to_owned()),
        ("garbage", "failed to call webhook: couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }".to_owned()),
        ("empty", "failed to call webhook: 0-length response with status code: 200 and content type: application/json".to_owned()),
        ("truncated", "failed to call webhook: couldn't get version/kind; json parse error: unexpected end of JSON input".to_owned()),
        ("patchtype", "received invalid webhook response: validating webhook may not return response.patchType".to_owned()),
    ] {
        let (result, _) = validate(&server, server.hook(path)).await;
        let failure = result.clone().unwrap_err();
        assert_eq!((failure.code.as_u16(), &*failure.reason), (500, "InternalError"), "{path}");
        assert_eq!(failure.details["causes"][0]["message"].as_str(), failure.message.strip_prefix("Internal error occurred: "));
        assert_eq!(message(result), format!("{calling}{text}"), "{path}");

        let mut hook = server.hook(path);
        hook["failurePolicy"] = json!("Ignore");
        assert_eq!(validate(&server, hook).await.0, Ok(()), "{path} is ignored if the hook says so");
    }
}

#[tokio::test]
async fn what_cannot_be_reached_is_told_in_gos_words() {
    let server = Server::start("127.0.0.1").await;
    let other = Server::start("other.example").await;
    let calling = "Internal error occurred: failed calling webhook \"x.hook.io\": failed to call webhook: ";
    let unknown = "tls: failed to verify certificate: x509: certificate signed by unknown authority";
    let port = server.port;
    let with = |url: String, bundle: &str| {
        let mut hook = server.hook("ok");
        hook["clientConfig"] = json!({ "url": url, "caBundle": STANDARD.encode(bundle) });
        hook
    };
    let mut service = server.hook("ok");
    service["clientConfig"] = json!({ "service": { "name": "s", "namespace": "n", "path": "/p" } });
    for (hook, text) in [
        (with("https://127.0.0.1:1/ok".to_owned(), ""), "Post \"https://127.0.0.1:1/ok?timeout=1s\": dial tcp 127.0.0.1:1: connect: connection refused".to_owned()),
        (with(format!("https://127.0.0.1:{port}/ok"), &other.certificate), format!("Post \"https://127.0.0.1:{port}/ok?timeout=1s\": {unknown}")),
        (with(format!("https://127.0.0.1:{port}/ok"), ""), format!("Post \"https://127.0.0.1:{port}/ok?timeout=1s\": {unknown}")),
        (with(format!("https://127.0.0.1:{}/ok", other.port), &other.certificate), format!("Post \"https://127.0.0.1:{}/ok?timeout=1s\": tls: failed to verify certificate: x509: cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs", other.port)),
        (service, "Post \"https://s.n.svc:443/p?timeout=1s\": service \"s\" in namespace \"n\" cannot be reached: this API server has no service network; write clientConfig.url instead".to_owned()),
    ] {
        assert_eq!(message(validate(&server, hook).await.0), format!("{calling}{text}"));
    }
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
async fn patches_are_applied_in_order_and_hooks_are_asked_again_once() {
    let server = Server::start("127.0.0.1").await;
    let named = |name: &str, reinvocation: &str| {
        let mut hook = server.hook(&format!("add-{name}"));
        hook["reinvocationPolicy"] = json!(reinvocation);
        hook
    };
    let case = Case::new();
    for (hooks, calls) in [
        (vec![("b", "Never"), ("a", "Never")], "ab"),
        (vec![("a", "IfNeeded"), ("b", "Never")], "aba"),
        (vec![("a", "Never"), ("b", "IfNeeded")], "ab"),
        (vec![("a", "IfNeeded"), ("b", "IfNeeded")], "abab"),
    ] {
        let configurations: Vec<Value> =
            hooks.iter().map(|(name, policy)| configuration("Mutating", name, &[named(name, policy)])).collect();
        let hooks = Hooks::new(&configurations, &[], server.caller());
        let mut object = object();
        hooks.mutate(&case.create(), &mut object, &mut Vec::new()).await.unwrap();
        assert_eq!(object["data"]["calls"], calls);
    }
}

#[tokio::test]
async fn bad_patches_are_refused_in_the_real_servers_words_and_change_nothing() {
    let server = Server::start("127.0.0.1").await;
    let calling = "failed calling webhook \"x.hook.io\": ";
    let case = Case::new();
    for (path, text) in [
        (
            "badpatch",
            "error in remove for path: '/nothing': Unable to remove nonexistent key: nothing: missing value".to_owned(),
        ),
        ("testpatch", "testing value /data failed: test failed".to_owned()),
        (
            "badpatch2",
            format!(
                "{calling}received undecodable patch in webhook response: invalid character 'x' looking for beginning of value"
            ),
        ),
        (
            "patchnotype",
            format!(
                "{calling}received invalid webhook response: webhook returned response.patch but not response.patchType"
            ),
        ),
        (
            "patchtype",
            format!(
                "{calling}received invalid webhook response: webhook returned response.patchType but not response.patch"
            ),
        ),
        ("patchother", format!("{calling}unsupported patch type \"Foo\"")),
        ("badb64", format!("{calling}failed to call webhook: illegal base64 data at input byte 0")),
    ] {
        let hooks = Hooks::new(&[configuration("Mutating", "c", &[server.hook(path)])], &[], server.caller());
        let mut changed = object();
        let result = hooks.mutate(&case.create(), &mut changed, &mut Vec::new()).await;
        assert_eq!(message(result), format!("Internal error occurred: {text}"));
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

/// Who is asked, by rules, selectors and conditions alone.
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
    let condition = |expression: &str| and(json!({ "matchConditions": [{ "name": "c", "expression": expression }] }));
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
        (
            "a condition that holds",
            condition("object.data.k == 'v' && request.operation == 'CREATE' && oldObject == null"),
            create,
            true,
        ),
        ("a condition that does not", condition("request.userInfo.username == 'bob'"), create, false),
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
    let failing = Hook::new(&condition("object.data.zz == \"q\""), false).wants(&create, &object());
    let failure = failing.unwrap_err();
    assert_eq!(
        failure.message,
        "configmaps \"probe\" is forbidden: expression 'object.data.zz == \"q\"' resulted in error: no such key: zz"
    );
    assert_eq!(failure.code.as_u16(), 403);
}

#[test]
fn conditions_that_cannot_work_are_refused_when_written() {
    let configuration =
        |expression: &str| json!({ "webhooks": [{ "matchConditions": [{ "name": "a", "expression": expression }] }] });
    assert!(faults(&configuration("object.metadata.labels.all(x, x != 'a')")).is_empty());
    assert!(faults(&configuration("has(object.spec) && object.spec.replicas > 1")).is_empty());
    assert_eq!(faults(&configuration("1+1"))[0].message, "Invalid value: \"1+1\": must evaluate to bool but got int");
    for bad in ["object.data.", "foo == 1", "authorizer.group('').resource('pods').check('get').allowed()"] {
        let faults = faults(&configuration(bad));
        assert_eq!(faults.len(), 1, "{bad}");
        assert_eq!(faults[0].field, "webhooks[0].matchConditions[0].expression");
        assert!(
            faults[0].message.starts_with(&format!("Invalid value: {bad:?}: compilation failed: ERROR: ")),
            "{}",
            faults[0].message
        );
    }
}
