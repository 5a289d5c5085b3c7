//! A session with the real kubectl, the same on the real server and on the embedded one.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child as Process, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use portolan_testkit::{Binaries, ControlPlane};

use crate::child::Child;

/// How long anything may take here before a test fails.
const LIMIT: Duration = Duration::from_mins(3);

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: boats.harbour.portolan.dev
spec:
  group: harbour.portolan.dev
  scope: Namespaced
  names: {plural: boats, singular: boat, kind: Boat, shortNames: [bt], categories: [fleet]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.crew, statusReplicasPath: .status.crew}
    additionalPrinterColumns:
    - {name: Length, type: integer, jsonPath: .spec.length}
    - {name: Flag, type: string, jsonPath: .spec.flag, priority: 1}
    schema:
      openAPIV3Schema:
        description: A boat in a harbour.
        type: object
        properties:
          spec:
            description: What is wanted of the boat.
            type: object
            required: [length]
            properties:
              length: {description: How long it is in metres., type: integer, minimum: 1}
              flag: {description: The flag it flies., type: string, default: none}
              crew: {type: integer}
          status:
            type: object
            properties:
              crew: {type: integer}
              phase: {type: string}
              conditions:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [type]
                items:
                  type: object
                  required: [type, status]
                  properties:
                    type: {type: string}
                    status: {type: string}
";

const BOAT: &str = "
apiVersion: harbour.portolan.dev/v1
kind: Boat
metadata: {name: argo}
spec: {length: 12}
";

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: crane}
spec:
  replicas: 1
  selector: {matchLabels: {app: crane}}
  template:
    metadata: {labels: {app: crane}}
    spec:
      containers:
      - {name: arm, image: 'arm:1'}
      - {name: hook, image: 'hook:1'}
";

const CHART: &str = "
apiVersion: v1
kind: ConfigMap
metadata: {name: chart}
data: {scale: '1', ink: black}
";

#[test]
fn kubectl_works_on_the_real_server() {
    session(ControlPlane::shared().kubeconfig_path());
}

#[test]
fn kubectl_works_on_the_embedded_server() {
    let (server, _) = Child::start(None).unwrap();
    session(&server.kubeconfig());
}

#[test]
fn kubectl_works_on_the_embedded_server_with_a_data_folder() {
    let data = tempfile::tempdir().unwrap();
    let (server, _) = Child::start(Some(data.path())).unwrap();
    session(&server.kubeconfig());
}

#[test]
fn a_namespace_has_an_account_and_the_certificate_whatever_is_deleted() {
    let (server, _) = Child::start(None).unwrap();
    let user = User::new(&server.kubeconfig());
    user.does(&["create", "namespace", "port"]);
    user.eventually(&["get", "serviceaccount", "default", "-o", "name"]);
    let certificate = ["get", "configmap", "kube-root-ca.crt", "-o", "jsonpath={.data.ca\\.crt}"];
    assert!(user.eventually(&certificate).starts_with("-----BEGIN CERTIFICATE-----\n"));
    user.does(&["delete", "configmap/kube-root-ca.crt", "serviceaccount/default"]);
    user.eventually(&["get", "serviceaccount", "default", "-o", "name"]);
    user.eventually(&certificate);
    assert_eq!(user.does(&["delete", "namespace", "port", "--timeout=60s"]), "namespace \"port\" deleted\n");
}

#[test]
fn what_pods_lack_is_said_with_the_reason() {
    let (server, _) = Child::start(None).unwrap();
    let user = User::new(&server.kubeconfig());
    user.does(&["create", "namespace", "port"]);
    let on_a_node = r#"--overrides={"spec":{"nodeName":"node-1"}}"#;
    assert_eq!(user.does(&["run", "one", "--image=one:1", on_a_node]), "pod/one created\n");
    let running = r#"{"status":{"phase":"Running"}}"#;
    user.does(&["patch", "pod", "one", "--type=merge", "--subresource=status", "-p", running]);
    for (arguments, part) in [
        (&["logs", "one"][..], "log"),
        (&["exec", "one", "--", "ls"], "exec"),
        (&["attach", "one"], "attach"),
        (&["port-forward", "one", ":80"], "portforward"),
    ] {
        let (code, _, said) = user.runs(arguments);
        assert_ne!(code, 0, "{arguments:?}");
        assert!(said.contains(&format!("pods/{part} is not served: no container runs here")), "{arguments:?}: {said}");
    }
}

/// Everything a user does with kubectl, from a new kind to a namespace's end.
fn session(kubeconfig: &Path) {
    let user = User::new(kubeconfig);
    assert_eq!(user.does(&["create", "namespace", "port"]), "namespace/port created\n");
    objects_are_created_from_flags(&user);
    rights_are_listed(&user);
    a_list_is_applied(&user);
    a_kind_is_made(&user);
    objects_are_applied_and_shown(&user);
    kinds_are_explained_and_listed(&user);
    a_watch_sees_a_change(&user);
    patches_of_four_kinds(&user);
    waiting_for_status(&user);
    owners_of_fields_conflict(&user);
    editing_and_marking(&user);
    describing(&user);
    a_finalizer_holds_an_object(&user);
    bad_objects_are_refused(&user);
    tells_its_version(&user);
    everything_ends(&user);
}

/// These commands send protobuf.
fn objects_are_created_from_flags(user: &User) {
    for (command, created) in [
        ("configmap sails --from-literal=main=up", "configmap/sails created\n"),
        ("secret generic cargo --from-literal=gold=yes", "secret/cargo created\n"),
        ("serviceaccount sailor", "serviceaccount/sailor created\n"),
        ("deployment mast --image=mast:1 --replicas=0", "deployment.apps/mast created\n"),
        ("service clusterip hull --tcp=80", "service/hull created\n"),
        ("role watch --verb=get --resource=pods", "role.rbac.authorization.k8s.io/watch created\n"),
        ("rolebinding watch --role=watch --user=me", "rolebinding.rbac.authorization.k8s.io/watch created\n"),
    ] {
        let arguments: Vec<&str> = std::iter::once("create").chain(command.split(' ')).collect();
        assert_eq!(user.does(&arguments), created);
        let again = user.fails(&arguments);
        assert!(again.contains(" already exists"), "{again}");
    }
    let gold = user.does(&["get", "secret", "cargo", "-o", "jsonpath={.data.gold} {.type}"]);
    assert_eq!(gold, "eWVz Opaque");
    let mast = user.does(&["get", "deployment", "mast", "-o", "jsonpath={.spec.replicas} {.spec.strategy.type}"]);
    assert_eq!(mast, "0 RollingUpdate");
}

fn rights_are_listed(user: &User) {
    assert_eq!(user.does(&["auth", "can-i", "create", "pods"]), "yes\n");
    let all = user.does(&["auth", "can-i", "--list"]);
    assert!(all.lines().any(|line| words(line) == ["*.*", "[]", "[]", "[*]"]), "{all}");
    let groups = user.does(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.groups}"]);
    assert!(groups.contains("system:masters"), "{groups}");
}

fn a_list_is_applied(user: &User) {
    let map = |name: &str| format!("- {{ apiVersion: v1, kind: ConfigMap, metadata: {{ name: {name} }} }}\n");
    let list = format!("apiVersion: v1\nkind: List\nitems:\n{}{}", map("port-side"), map("starboard"));
    let applied = user.does(&["apply", "-f", &user.file("list.yaml", &list)]);
    assert_eq!(applied, "configmap/port-side created\nconfigmap/starboard created\n");
    let raw = user.does(&["get", "--raw", "/openapi/v2"]);
    assert!(raw.starts_with('{') && raw.contains("\"swagger\":\"2.0\""), "{}", &raw[..raw.len().min(200)]);
}

fn a_kind_is_made(user: &User) {
    let created = user.does(&["create", "-f", &user.file("crd.yaml", DEFINITION)]);
    assert_eq!(created, "customresourcedefinition.apiextensions.k8s.io/boats.harbour.portolan.dev created\n");
    let definition = "crd/boats.harbour.portolan.dev";
    let met = user.does(&["wait", "--for=condition=Established", definition, "--timeout=30s"]);
    assert_eq!(met, "customresourcedefinition.apiextensions.k8s.io/boats.harbour.portolan.dev condition met\n");
    let again = user.fails(&["create", "-f", &user.file("crd.yaml", DEFINITION)]);
    assert!(again.starts_with("Error from server (AlreadyExists): "), "{again}");
}

fn objects_are_applied_and_shown(user: &User) {
    let boat = user.file("boat.yaml", BOAT);
    // the real server serves a kind a moment after it is established
    assert_eq!(user.eventually(&["apply", "-f", &boat]), "boat.harbour.portolan.dev/argo created\n");
    assert_eq!(user.does(&["apply", "-f", &boat]), "boat.harbour.portolan.dev/argo unchanged\n");
    assert_eq!(user.does(&["apply", "-f", &boat, "--dry-run=server"]), {
        "boat.harbour.portolan.dev/argo unchanged (server dry run)\n"
    });
    assert_eq!(user.does(&["get", "boats"]), "NAME   LENGTH\nargo   12\n");
    assert_eq!(user.does(&["get", "bt", "-o", "wide"]), "NAME   LENGTH   FLAG\nargo   12       none\n");
    assert_eq!(user.eventually(&["get", "fleet"]), "NAME   LENGTH\nargo   12\n");
    assert_eq!(user.does(&["get", "boat/argo", "-o", "name"]), "boat.harbour.portolan.dev/argo\n");
    assert_eq!(user.does(&["get", "boats", "-o", "jsonpath={.items[*].spec}"]), r#"{"flag":"none","length":12}"#);
    let longer = user.file("boat.yaml", &BOAT.replace("12", "13"));
    assert_eq!(user.does(&["apply", "-f", &longer]), "boat.harbour.portolan.dev/argo configured\n");
    assert_eq!(user.does(&["get", "boats", "--field-selector=metadata.name=argo", "-o", "name"]).lines().count(), 1);
    assert_eq!(user.does(&["get", "boats", "-l", "no in (such)", "-o", "name"]), "");
}

fn kinds_are_explained_and_listed(user: &User) {
    // the real server publishes a new kind's schema a little later
    let field = user.eventually(&["explain", "boats.spec.length"]);
    let explained = "GROUP:      harbour.portolan.dev\nKIND:       Boat\nVERSION:    v1\n\nFIELD: length <integer>\n";
    assert!(field.starts_with(explained), "{field}");
    assert!(field.contains("    How long it is in metres.\n"), "{field}");
    let whole = user.does(&["explain", "boats", "--recursive"]);
    assert!(whole.contains("    A boat in a harbour.\n"), "{whole}");
    for line in
        ["  spec\t<Object>", "    length\t<integer> -required-", "  metadata\t<ObjectMeta>", "    uid\t<string>"]
    {
        assert!(whole.lines().any(|found| found == line), "{line:?} is not in:\n{whole}");
    }
    let field = user.does(&["explain", "pods.spec.nodeName"]);
    assert!(field.starts_with("KIND:       Pod\nVERSION:    v1\n\nFIELD: nodeName <string>\n"), "{field}");
    assert!(field.contains("    NodeName indicates in which node this pod is scheduled."), "{field}");
    let unknown = user.fails(&["explain", "pods.spec.nope"]);
    assert_eq!(unknown, "error: field \"nope\" does not exist\n");

    let listed = user.does(&["api-resources", "--api-group=harbour.portolan.dev"]);
    let (head, row) = listed.split_once('\n').unwrap();
    assert_eq!(words(head), ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND"]);
    assert_eq!(words(row), ["boats", "bt", "harbour.portolan.dev/v1", "true", "Boat"]);
    let apps = user.does(&["api-resources", "--api-group=apps", "-o", "name"]);
    for kind in ["deployments.apps", "daemonsets.apps"] {
        assert!(apps.lines().any(|found| found == kind), "{kind} is not in:\n{apps}");
    }
}

fn a_watch_sees_a_change(user: &User) {
    let mut watch = user.watches(&["get", "boats", "-w"]);
    assert_eq!(words(&watch.line()), ["NAME", "LENGTH"]);
    assert_eq!(words(&watch.line()), ["argo", "13"]);
    user.does(&["patch", "boat", "argo", "--type=merge", "-p", r#"{"spec":{"length":14}}"#]);
    assert_eq!(words(&watch.line()), ["argo", "14"]);
}

fn patches_of_four_kinds(user: &User) {
    let patched = "boat.harbour.portolan.dev/argo patched\n";
    // JSON patch
    let replace = r#"[{"op":"replace","path":"/spec/length","value":15}]"#;
    assert_eq!(user.does(&["patch", "boat", "argo", "--type=json", "-p", replace]), patched);
    let test = r#"[{"op":"test","path":"/spec/length","value":99}]"#;
    let refused = user.fails(&["patch", "boat", "argo", "--type=json", "-p", test]);
    assert!(refused.starts_with("The request is invalid: "), "{refused}");
    // merge patch
    let red = r#"{"spec":{"flag":"red"}}"#;
    assert_eq!(user.does(&["patch", "boat", "argo", "--type=merge", "-p", red]), patched);
    let unchanged = user.does(&["patch", "boat", "argo", "--type=merge", "-p", red]);
    assert_eq!(unchanged, "boat.harbour.portolan.dev/argo patched (no change)\n");
    // strategic merge patch: a list by its key on a built-in kind, refused on a custom one
    let refused = user.fails(&["patch", "boat", "argo", "-p", red]);
    assert!(refused.contains("application/strategic-merge-patch+json is not supported by"), "{refused}");
    let created = user.does(&["apply", "-f", &user.file("deployment.yaml", DEPLOYMENT)]);
    assert_eq!(created, "deployment.apps/crane created\n");
    let hook = r#"{"spec":{"template":{"spec":{"containers":[{"name":"hook","image":"hook:2"}]}}}}"#;
    assert_eq!(user.does(&["patch", "deployment", "crane", "-p", hook]), "deployment.apps/crane patched\n");
    let images = "jsonpath={.spec.template.spec.containers[*].image}";
    assert_eq!(user.does(&["get", "deployment", "crane", "-o", images]), "arm:1 hook:2");
    // server-side apply
    let applied =
        user.does(&["apply", "--server-side", "--field-manager=pilot", "-f", &user.file("chart.yaml", CHART)]);
    assert_eq!(applied, "configmap/chart serverside-applied\n");

    assert_eq!(user.does(&["scale", "deployment", "crane", "--replicas=0"]), "deployment.apps/crane scaled\n");
    assert_eq!(user.does(&["scale", "boat", "argo", "--replicas=3"]), "boat.harbour.portolan.dev/argo scaled\n");
    let spec = user.does(&["get", "boat", "argo", "-o", "jsonpath={.spec}"]);
    assert_eq!(spec, r#"{"crew":3,"flag":"red","length":15}"#);
    let shown = user.does(&["get", "deployments"]);
    let (head, row) = shown.split_once('\n').unwrap();
    assert_eq!((&words(head)[..2], &words(row)[..2]), (&["NAME", "READY"][..], &["crane", "0/0"][..]));
}

fn waiting_for_status(user: &User) {
    let status = r#"{"status":{"phase":"Afloat","conditions":[{"type":"Ready","status":"True"}]}}"#;
    let patched = user.does(&["patch", "boat", "argo", "--type=merge", "--subresource=status", "-p", status]);
    assert_eq!(patched, "boat.harbour.portolan.dev/argo patched\n");
    let met = "boat.harbour.portolan.dev/argo condition met\n";
    assert_eq!(user.does(&["wait", "--for=condition=Ready", "boat/argo", "--timeout=10s"]), met);
    assert_eq!(user.does(&["wait", "--for=jsonpath={.status.phase}=Afloat", "boat/argo", "--timeout=10s"]), met);
    let missed = user.fails(&["wait", "--for=jsonpath={.status.phase}=Sunk", "boat/argo", "--timeout=1s"]);
    assert_eq!(missed, "error: timed out waiting for the condition on boats/argo\n");
    // a wait that begins before what it waits for
    let mut waiting = user.watches(&["wait", "--for=jsonpath={.status.phase}=Moored", "boat/argo", "--timeout=30s"]);
    let moored = r#"{"status":{"phase":"Moored"}}"#;
    user.does(&["patch", "boat", "argo", "--type=merge", "--subresource=status", "-p", moored]);
    assert_eq!(waiting.line() + "\n", met);
}

fn owners_of_fields_conflict(user: &User) {
    let (first, second) = (user.file("chart.yaml", CHART), user.file("mate.yaml", &CHART.replace("'1'", "'2'")));
    let apply = ["apply", "--server-side", "--field-manager=mate", "-f", &second];
    let conflict = user.fails(&apply);
    let said = "error: Apply failed with 1 conflict: conflict with \"pilot\": .data.scale\n";
    assert!(conflict.starts_with(said), "{conflict}");
    let forced = user.does(&[&apply[..], &["--force-conflicts"]].concat());
    assert_eq!(forced, "configmap/chart serverside-applied\n");
    let owners = "jsonpath={.data.scale} {.metadata.managedFields[*].manager}";
    assert_eq!(user.does(&["get", "configmap", "chart", "--show-managed-fields", "-o", owners]), "2 pilot mate");

    let (code, diff, _) = user.runs(&["diff", "-f", &first]);
    assert_eq!(code, 1, "{diff}");
    assert!(diff.contains("\n-  scale: \"2\"\n+  scale: \"1\"\n"), "{diff}");
    assert_eq!(user.does(&["diff", "-f", &second]), "");
}

fn editing_and_marking(user: &User) {
    assert_eq!(
        user.edits("sed -i s/black/blue/ \"$1\"", &["edit", "configmap", "chart"]).0,
        "configmap/chart edited\n"
    );
    assert_eq!(user.edits("true", &["edit", "configmap", "chart"]).1, "Edit cancelled, no changes made.\n");
    assert_eq!(user.does(&["get", "configmap", "chart", "-o", "jsonpath={.data.ink}"]), "blue");
    assert_eq!(user.does(&["label", "configmap", "chart", "old=yes"]), "configmap/chart labeled\n");
    assert_eq!(user.does(&["annotate", "configmap", "chart", "note=seen"]), "configmap/chart annotated\n");
    let refused = user.fails(&["label", "configmap", "chart", "old=no"]);
    assert_eq!(refused, "error: 'old' already has a value (yes), and --overwrite is false\n");
    assert_eq!(user.does(&["get", "configmaps", "-l", "old=yes", "-o", "name"]), "configmap/chart\n");
    assert_eq!(user.does(&["label", "configmap", "chart", "old=no", "--overwrite"]), "configmap/chart labeled\n");
    assert_eq!(user.does(&["label", "configmap", "chart", "old-"]), "configmap/chart unlabeled\n");
    let edited = user.file("replaced.yaml", &CHART.replace("black", "green"));
    assert_eq!(user.does(&["replace", "-f", &edited]), "configmap/chart replaced\n");
}

fn describing(user: &User) {
    let chart = user.does(&["describe", "configmap", "chart"]);
    let expected = "Name:         chart\nNamespace:    port\nLabels:       <none>\nAnnotations:  <none>\n\nData\n====\n\
                    ink:\n----\ngreen\n\nscale:\n----\n1\n\n\nBinaryData\n====\n\nEvents:  <none>\n";
    assert_eq!(chart, expected);
    let boat = user.does(&["describe", "boat", "argo"]);
    assert!(boat.starts_with("Name:         argo\nNamespace:    port\nLabels:       <none>\n"), "{boat}");
    assert!(boat.contains("Spec:\n  Crew:    3\n  Flag:    red\n  Length:  15\nStatus:\n"), "{boat}");
    assert!(boat.ends_with("Events:      <none>\n"), "{boat}");
    let crane = user.does(&["describe", "deployment", "crane"]);
    assert!(crane.contains("Selector:               app=crane\n"), "{crane}");
    let namespace = user.does(&["describe", "namespace", "port"]);
    assert!(namespace.contains("Labels:       kubernetes.io/metadata.name=port\n"), "{namespace}");
    assert!(namespace.contains("Status:       Active\n"), "{namespace}");
}

fn a_finalizer_holds_an_object(user: &User) {
    let anchor = r#"{"metadata":{"finalizers":["portolan.dev/anchor"]}}"#;
    user.does(&["patch", "boat", "argo", "--type=merge", "-p", anchor]);
    let deleted = user.does(&["delete", "boat", "argo", "--wait=false"]);
    assert_eq!(deleted, "boat.harbour.portolan.dev \"argo\" deleted from port namespace\n");
    let held =
        user.does(&["get", "boat", "argo", "-o", "jsonpath={.metadata.finalizers} {.metadata.deletionTimestamp}"]);
    assert!(held.starts_with("[\"portolan.dev/anchor\"] 2"), "{held}");
    let away = r#"[{"op":"remove","path":"/metadata/finalizers"}]"#;
    let patched = user.does(&["patch", "boat", "argo", "--type=json", "-p", away]);
    assert_eq!(patched, "boat.harbour.portolan.dev/argo patched\n");
    let gone = user.fails(&["get", "boat", "argo"]);
    assert_eq!(gone, "Error from server (NotFound): boats.harbour.portolan.dev \"argo\" not found\n");
}

fn bad_objects_are_refused(user: &User) {
    let short = user.file("bad.yaml", &BOAT.replace("12", "0"));
    let refused = user.fails(&["create", "-f", &short]);
    let said = "The Boat \"argo\" is invalid: spec.length: Invalid value: 0: spec.length in body should be greater than or \
                equal to 1\n";
    assert_eq!(refused, said);
    let unknown = user.file("bad.yaml", &BOAT.replace("length: 12", "length: 12, mast: 1"));
    let refused = user.fails(&["create", "-f", &unknown]);
    assert!(refused.starts_with("Error from server (BadRequest): error when creating "), "{refused}");
    assert!(refused.ends_with("strict decoding error: unknown field \"spec.mast\"\n"), "{refused}");
    assert_eq!(user.fails(&["get", "nopes"]), "error: the server doesn't have a resource type \"nopes\"\n");
}

fn tells_its_version(user: &User) {
    assert!(user.does(&["version", "-o", "json"]).contains("\"serverVersion\""));
}

fn everything_ends(user: &User) {
    user.does(&["apply", "-f", &user.file("boat.yaml", BOAT)]);
    let deleted = user.does(&["delete", "namespace", "port", "--timeout=60s"]);
    assert_eq!(deleted, "namespace \"port\" deleted\n");
    let gone = user.fails(&["get", "namespace", "port"]);
    assert_eq!(gone, "Error from server (NotFound): namespaces \"port\" not found\n");
    assert_eq!(user.does(&["get", "boats", "-A", "-o", "name"]), "");
    let deleted = user.does(&["delete", "crd", "boats.harbour.portolan.dev", "--timeout=60s"]);
    assert_eq!(deleted, "customresourcedefinition.apiextensions.k8s.io \"boats.harbour.portolan.dev\" deleted\n");
    user.fails(&["get", "boats"]);
}

/// Somebody with kubectl, a kubeconfig and a folder of files, at work in the namespace `port`.
struct User {
    kubectl: PathBuf,
    kubeconfig: PathBuf,
    folder: tempfile::TempDir,
}

impl User {
    fn new(kubeconfig: &Path) -> Self {
        let kubectl = Binaries::locate().unwrap().program("kubectl");
        Self { kubectl, kubeconfig: kubeconfig.to_owned(), folder: tempfile::tempdir().unwrap() }
    }

    /// Writes a file and gives its path.
    fn file(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[expect(clippy::disallowed_methods, reason = "kubectl is what is tried here")]
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.kubectl);
        command.env("KUBECONFIG", &self.kubeconfig).env("HOME", self.folder.path());
        // kubectl remembers by address what a server serves, and the next server may get the same port
        command.env("KUBECACHEDIR", self.folder.path().join("cache"));
        command.args(["--namespace", "port"]).args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs kubectl; gives its exit code and what it said on both channels.
    fn runs(&self, arguments: &[&str]) -> (i32, String, String) {
        outcome(self.command(arguments))
    }

    /// Runs kubectl, which must succeed, and gives what it printed.
    #[track_caller]
    fn does(&self, arguments: &[&str]) -> String {
        let (code, printed, said) = self.runs(arguments);
        assert_eq!(code, 0, "kubectl {arguments:?}:\n{printed}{said}");
        printed
    }

    /// Runs kubectl, which must fail with code 1, and gives what it complained.
    #[track_caller]
    fn fails(&self, arguments: &[&str]) -> String {
        let (code, printed, said) = self.runs(arguments);
        assert_eq!(code, 1, "kubectl {arguments:?}:\n{printed}{said}");
        said
    }

    /// Runs kubectl again and again until it succeeds: for what the real server does in its own time.
    #[track_caller]
    fn eventually(&self, arguments: &[&str]) -> String {
        let start = Instant::now();
        loop {
            match self.runs(arguments) {
                (0, printed, said) if !said.contains("No resources found") => return printed,
                (code, printed, said) => {
                    assert!(start.elapsed() < LIMIT, "kubectl {arguments:?} gives {code}:\n{printed}{said}");
                }
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Runs kubectl with a shell line as the editor; gives what it said on both channels.
    #[track_caller]
    fn edits(&self, editor: &str, arguments: &[&str]) -> (String, String) {
        let mut command = self.command(arguments);
        command.env("KUBE_EDITOR", format!("sh {}", self.file("editor.sh", editor)));
        let (code, printed, said) = outcome(command);
        assert_eq!(code, 0, "kubectl {arguments:?}:\n{printed}{said}");
        (printed, said)
    }

    /// Starts kubectl and lets it run.
    fn watches(&self, arguments: &[&str]) -> Running {
        let mut process = self.command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let printed = process.stdout.take().unwrap();
        let (send, lines) = mpsc::channel();
        // ends with the process, whose end closes the pipe
        std::thread::spawn(move || BufReader::new(printed).lines().try_for_each(|line| send.send(line.unwrap())));
        Running { process, lines }
    }
}

/// A kubectl that runs beside the test; it ends when dropped.
struct Running {
    process: Process,
    lines: mpsc::Receiver<String>,
}

impl Running {
    /// The next line it prints.
    fn line(&mut self) -> String {
        self.lines.recv_timeout(LIMIT).expect("kubectl prints a line in time")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // both fail only when it has ended, which is what they are for
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn outcome(mut command: Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}
