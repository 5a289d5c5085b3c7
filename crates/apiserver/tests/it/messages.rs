//! The table of protobuf messages, `src/protobuf/messages.txt`, against the sources of Kubernetes that it was read from:
//! numbers and types of fields stand in `generated.proto`, their names in JSON in the tags of the Go types.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use portolan_testkit::Binaries;

/// Packages by Go module: the folder in the module, and the name that protobuf gives the package.
const PACKAGES: &[(&str, &str, &str)] = &[
    ("k8s.io/api", "admissionregistration/v1", "k8s.io.api.admissionregistration.v1"),
    ("k8s.io/api", "apps/v1", "k8s.io.api.apps.v1"),
    ("k8s.io/api", "authentication/v1", "k8s.io.api.authentication.v1"),
    ("k8s.io/api", "authorization/v1", "k8s.io.api.authorization.v1"),
    ("k8s.io/api", "autoscaling/v1", "k8s.io.api.autoscaling.v1"),
    ("k8s.io/api", "autoscaling/v2", "k8s.io.api.autoscaling.v2"),
    ("k8s.io/api", "batch/v1", "k8s.io.api.batch.v1"),
    ("k8s.io/api", "certificates/v1", "k8s.io.api.certificates.v1"),
    ("k8s.io/api", "coordination/v1", "k8s.io.api.coordination.v1"),
    ("k8s.io/api", "core/v1", "k8s.io.api.core.v1"),
    ("k8s.io/api", "discovery/v1", "k8s.io.api.discovery.v1"),
    ("k8s.io/api", "events/v1", "k8s.io.api.events.v1"),
    ("k8s.io/api", "flowcontrol/v1", "k8s.io.api.flowcontrol.v1"),
    ("k8s.io/api", "networking/v1", "k8s.io.api.networking.v1"),
    ("k8s.io/api", "node/v1", "k8s.io.api.node.v1"),
    ("k8s.io/api", "policy/v1", "k8s.io.api.policy.v1"),
    ("k8s.io/api", "rbac/v1", "k8s.io.api.rbac.v1"),
    ("k8s.io/api", "scheduling/v1", "k8s.io.api.scheduling.v1"),
    ("k8s.io/api", "storage/v1", "k8s.io.api.storage.v1"),
    (
        "k8s.io/apiextensions-apiserver",
        "pkg/apis/apiextensions/v1",
        "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1",
    ),
    ("k8s.io/apimachinery", "pkg/api/resource", "k8s.io.apimachinery.pkg.api.resource"),
    ("k8s.io/apimachinery", "pkg/apis/meta/v1", "k8s.io.apimachinery.pkg.apis.meta.v1"),
    ("k8s.io/apimachinery", "pkg/runtime", "k8s.io.apimachinery.pkg.runtime"),
    ("k8s.io/apimachinery", "pkg/util/intstr", "k8s.io.apimachinery.pkg.util.intstr"),
    ("k8s.io/kube-aggregator", "pkg/apis/apiregistration/v1", "k8s.io.kube_aggregator.pkg.apis.apiregistration.v1"),
];

/// What clients send and are sent; a kind that has a list is listed here by that.
const ROOTS: &str = "
    admissionregistration.v1: MutatingWebhookConfigurationList ValidatingWebhookConfigurationList
    apiextensions.v1: CustomResourceDefinitionList
    apiregistration.v1: APIServiceList
    apps.v1: ControllerRevisionList DaemonSetList DeploymentList ReplicaSetList StatefulSetList
    authentication.v1: SelfSubjectReview TokenReview
    authorization.v1: LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview
    autoscaling.v1: HorizontalPodAutoscalerList Scale
    autoscaling.v2: HorizontalPodAutoscalerList
    batch.v1: CronJobList JobList
    certificates.v1: CertificateSigningRequestList
    coordination.v1: LeaseList
    core.v1: ConfigMapList EndpointsList EventList LimitRangeList NamespaceList NodeList PersistentVolumeClaimList
    core.v1: PersistentVolumeList PodList PodTemplateList ReplicationControllerList ResourceQuotaList SecretList
    core.v1: ServiceAccountList ServiceList
    discovery.v1: EndpointSliceList
    events.v1: EventList
    flowcontrol.v1: FlowSchemaList PriorityLevelConfigurationList
    meta.v1: DeleteOptions PartialObjectMetadataList Status WatchEvent
    networking.v1: IngressClassList IngressList NetworkPolicyList
    node.v1: RuntimeClassList
    policy.v1: PodDisruptionBudgetList
    rbac.v1: ClusterRoleBindingList ClusterRoleList RoleBindingList RoleList
    scheduling.v1: PriorityClassList
    storage.v1: CSIDriverList CSINodeList StorageClassList
";

/// The table of all messages that the roots need, a line each; `folder` finds the sources of a Go module.
fn table(folder: impl Fn(&str) -> PathBuf) -> String {
    let mut messages = BTreeMap::new();
    for (module, path, package) in PACKAGES {
        let folder = folder(module).join(path);
        let proto = fs::read_to_string(folder.join("generated.proto")).unwrap();
        messages.extend(read(&proto, package, &tags(&folder)));
    }
    let roots = ROOTS.lines().filter_map(|line| line.split_once(':'));
    let mut due: Vec<String> = roots
        .flat_map(|(package, kinds)| kinds.split_whitespace().map(move |kind| format!("{}.{kind}", package.trim())))
        .collect();
    let mut needed = BTreeSet::new();
    while let Some(name) = due.pop() {
        let message = messages.get(&name).unwrap_or_else(|| panic!("{name} is not there"));
        if needed.insert(name) {
            due.extend(message.iter().filter_map(|field| field.message.clone()));
        }
    }
    needed.iter().map(|name| line(name, &messages[name])).collect()
}

struct Field {
    /// As the table writes it: name, number and type.
    text: String,
    /// The message that it holds.
    message: Option<String>,
}

fn line(name: &str, fields: &[Field]) -> String {
    let fields = fields.iter().fold(String::new(), |line, field| line + " " + &field.text);
    format!("{name}{fields}\n")
}

/// The messages of a `generated.proto`; each field has a line of its own.
fn read(proto: &str, package: &str, tags: &Tags) -> BTreeMap<String, Vec<Field>> {
    let mut messages: BTreeMap<String, Vec<Field>> = BTreeMap::new();
    let mut message = String::new();
    for line in proto.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("message ").and_then(|rest| rest.strip_suffix(" {")) {
            name.clone_into(&mut message);
            messages.insert(format!("{}.{name}", short(package)), Vec::new());
            continue;
        }
        let Some((declared, number)) = line.strip_suffix(';').and_then(|line| line.rsplit_once(" = ")) else {
            continue;
        };
        let Some((type_, name)) = declared.rsplit_once(' ') else { continue };
        let (form, type_) = match (type_.strip_prefix("optional "), type_.strip_prefix("repeated ")) {
            (Some(type_), _) => ("", type_),
            (_, Some(type_)) => ("*", type_),
            (None, None) => match type_.strip_prefix("map<string, ").and_then(|rest| rest.strip_suffix('>')) {
                Some(type_) => ("%", type_),
                None => continue,
            },
        };
        let scalar = type_.starts_with(|letter: char| letter.is_ascii_lowercase());
        let reference = type_.strip_prefix('.').map_or_else(|| format!("{}.{type_}", short(package)), short);
        let tagged = tags.get(&(message.clone(), number.to_owned()));
        let (name, inline) = tagged.map_or((name, false), |(name, inline)| (name.as_str(), *inline));
        if name == "-" {
            continue;
        }
        let shown = if scalar { type_.to_owned() } else { reference.replace(&format!("{}.", short(package)), "") };
        let name = if inline { "+" } else { name };
        let field = Field { text: format!("{name}={number}:{form}{shown}"), message: (!scalar).then_some(reference) };
        messages.get_mut(&format!("{}.{message}", short(package))).unwrap().push(field);
    }
    messages
}

/// The name of a field in JSON and whether its fields stand in its place, by Go type and number.
type Tags = BTreeMap<(String, String), (String, bool)>;

fn tags(folder: &Path) -> Tags {
    let mut tags = Tags::new();
    for file in fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
        if file.extension().is_none_or(|extension| extension != "go") {
            continue;
        }
        let mut type_ = String::new();
        // A comment may show a field, too.
        for line in fs::read_to_string(&file).unwrap().lines().filter(|line| !line.trim_start().starts_with("//")) {
            if let Some(name) = line.strip_prefix("type ").and_then(|rest| rest.strip_suffix(" struct {")) {
                name.clone_into(&mut type_);
            }
            let tag = |key: &str| line.split_once(&format!("{key}:\"")).and_then(|(_, rest)| rest.split('"').next());
            let (Some(json), Some(protobuf)) = (tag("json"), tag("protobuf")) else { continue };
            let Some(number) = protobuf.split(',').nth(1) else { continue };
            let name = json.split(',').next().unwrap_or_default();
            let inline = json.split(',').any(|word| word == "inline");
            tags.insert((type_.clone(), number.to_owned()), (name.to_owned(), inline));
        }
    }
    tags
}

/// `core.v1` for `k8s.io.api.core.v1`, and so on.
fn short(name: &str) -> String {
    let heads = [
        "k8s.io.apiextensions_apiserver.pkg.apis.",
        "k8s.io.kube_aggregator.pkg.apis.",
        "k8s.io.apimachinery.pkg.apis.",
        "k8s.io.apimachinery.pkg.",
        "k8s.io.api.",
    ];
    let rest = heads.iter().find_map(|head| name.strip_prefix(head));
    rest.unwrap_or(name).to_owned()
}

#[test]
fn the_table_of_messages_is_that_of_kubernetes() {
    let published = table(|module| Binaries::sources(module).unwrap());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/protobuf/messages.txt");
    if std::env::var_os("PORTOLAN_WRITE").is_some() {
        fs::write(&path, &published).unwrap();
    }
    let ours = fs::read_to_string(&path).unwrap();
    assert!(ours == published, "src/protobuf/messages.txt is stale: run this test with PORTOLAN_WRITE=1");
}
