//! `deploy/`: the chart renders the plain manifests, its values are validated, a real API server accepts what it renders,
//! and the dashboard and the alerts use metrics that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use k8s_openapi::api::admissionregistration::v1::{ServiceReference, WebhookClientConfig};
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::DeleteParams;
use portolan_control::CAPABILITIES;
use portolan_control::runtime::capability::names;
use portolan_testkit::{Binaries, ControlPlane, Interference, builders, helm};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::egress::harness::running;
use crate::harness::{Backend, eventually};

/// Kind and name, and the object.
type Objects = BTreeMap<(String, String), Value>;

/// What Helm adds to every object.
const HELMS_OWN: [&str; 4] =
    ["helm.sh/chart", "app.kubernetes.io/instance", "app.kubernetes.io/version", "app.kubernetes.io/managed-by"];

#[test]
fn the_chart_renders_what_the_manifests_say() -> anyhow::Result<()> {
    let mut plain = String::new();
    for file in ["rbac.yaml", "gateway-tenant.yaml", "operator.yaml", "webhooks.yaml"] {
        plain.push_str("---\n");
        plain.push_str(&std::fs::read_to_string(deploy().join("manifests").join(file))?);
    }
    // hooks run after `helm uninstall`; with plain manifests people run `portolan cleanup`
    let (rendered, plain) = (objects(&rendered(&["--no-hooks"])?)?, objects(&plain)?);
    assert_eq!(rendered.keys().collect::<Vec<_>>(), plain.keys().collect::<Vec<_>>());
    // the plain roles are those of every capability and flag, so that a flag is enough to have one more
    let all = format!("capabilities={{{}}}", names(CAPABILITIES).join(","));
    let envoys = "gateway.envoyImage=envoy:1,gateway.multus=true";
    let with_all = objects(&self::rendered(&["--no-hooks", "--set", &all, "--set", envoys])?)?;
    for (key, object) in &plain {
        let chart = if key.0.ends_with("Role") { &with_all } else { &rendered };
        assert_eq!(&without(&chart[key], &HELMS_OWN), object, "{key:?}");
    }
    Ok(())
}

#[test]
fn the_webhook_configurations_are_those_of_the_operator() -> anyhow::Result<()> {
    let service = |path: &str| WebhookClientConfig {
        service: Some(ServiceReference {
            name: "portolan-webhook".to_owned(),
            namespace: "portolan".to_owned(),
            path: Some(path.to_owned()),
            port: None,
        }),
        ..WebhookClientConfig::default()
    };
    let rendered = objects(&rendered(&[])?)?;
    for admission in CAPABILITIES.iter().filter_map(|capability| capability.admission) {
        for (kind, wanted) in [
            ("ValidatingWebhookConfiguration", serde_json::to_value(admission.validating(service))?),
            ("MutatingWebhookConfiguration", serde_json::to_value(admission.mutating(service))?),
        ] {
            let found = rendered.get(&(kind.to_owned(), admission.name.to_owned())).map(|object| &object["webhooks"]);
            let wanted = Some(&wanted["webhooks"]).filter(|hooks| **hooks != json!([]));
            assert_eq!(found, wanted, "{kind} {}", admission.name);
        }
    }
    Ok(())
}

#[test]
fn a_value_that_differs_from_its_default_sets_the_environment_variable_of_its_flag() -> anyhow::Result<()> {
    for (value, name, text) in [
        ("capabilities={mesh}", "PORTOLAN_CAPABILITIES", "mesh"),
        ("egress.ipv6=false", "PORTOLAN_EGRESS_NO_IPV6", "true"),
        ("mesh.adoptLegacy=false", "PORTOLAN_MESH_ADOPT_LEGACY", "false"),
        ("mesh.crossNamespace=open", "PORTOLAN_MESH_CROSS_NAMESPACE", "open"),
        ("mesh.denyEndpoint={10.0.0.0/8,fd00::/8}", "PORTOLAN_MESH_DENY_ENDPOINT", "10.0.0.0/8,fd00::/8"),
        ("clusterDomain=a.b", "PORTOLAN_CLUSTER_DOMAIN", "a.b"),
    ] {
        let rendered = objects(&rendered(&["--set", value])?)?;
        let deployment = &rendered[&("Deployment".to_owned(), "portolan-operator".to_owned())];
        let env = &deployment["spec"]["template"]["spec"]["containers"][0]["env"];
        let set = env.as_array().into_iter().flatten().find(|one| one["name"] == name);
        assert_eq!(set.and_then(|one| one["value"].as_str()), Some(text), "{value}: {env}");
    }
    Ok(())
}

#[test]
fn the_values_of_barrelmans_chart_work_under_their_names() -> anyhow::Result<()> {
    let values = "mirror.barrelman.resync_period=1h,mirror.barrelman.verbosity=4,mirror.barrelman.necWorkers=8,\
        mirror.barrelman.scWorkers=3,mirror.barrelman.nodePortSvc=true,mirror.barrelman.remote.project=p,\
        mirror.barrelman.remote.zone=z,mirror.barrelman.remote.cluster_name=c,mirror.remoteZone=other";
    // {"type":"service_account"} in the three forms that a key is given in
    let base64 = "eyJ0eXBlIjoic2VydmljZV9hY2NvdW50In0=";
    for key in [
        "mirror.barrelman.gce_service_account=eyJ0eXBlIjoic2VydmljZV9hY2NvdW50In0=",
        r#"mirror.barrelman.gce_service_account=\{"type":"service_account"\}"#,
        "mirror.barrelman.gce_service_account.type=service_account",
    ] {
        let rendered = objects(&rendered(&["--set", values, "--set", key])?)?;
        let secret = &rendered[&("Secret".to_owned(), "portolan-google".to_owned())];
        assert_eq!(secret["data"]["credentials.json"], base64, "{key}");
        let pod = &rendered[&("Deployment".to_owned(), "portolan-operator".to_owned())]["spec"]["template"]["spec"];
        assert_eq!(pod["volumes"][0]["secret"]["secretName"], "portolan-google");
        let container = &pod["containers"][0];
        let folder = container["volumeMounts"][0]["mountPath"].as_str().context("it is mounted")?;
        let env = container["env"].as_array().context("there are variables")?;
        let text = |name: &str| {
            let found: Vec<_> = env.iter().filter(|one| one["name"] == name).collect();
            assert_eq!(found.len(), 1, "{name}: {found:?}");
            found[0]["value"].as_str().unwrap_or_default().to_owned()
        };
        assert_eq!(text("GOOGLE_APPLICATION_CREDENTIALS"), format!("{folder}/credentials.json"));
        for (name, value) in [
            ("PORTOLAN_MIRROR_RESYNC_PERIOD", "1h"),
            ("PORTOLAN_LOG_LEVEL", "debug"),
            ("PORTOLAN_MIRROR_NEC_WORKERS", "8"),
            ("PORTOLAN_MIRROR_SC_WORKERS", "3"),
            ("PORTOLAN_MIRROR_NODEPORTSVC", "true"),
            ("PORTOLAN_MIRROR_REMOTE_PROJECT", "p"),
            ("PORTOLAN_MIRROR_REMOTE_ZONE", "z"),
            ("PORTOLAN_MIRROR_REMOTE_CLUSTER_NAME", "c"),
        ] {
            assert_eq!(text(name), value, "{name}");
        }
    }
    Ok(())
}

#[test]
fn the_operator_can_have_files_and_its_service_account_annotations() -> anyhow::Result<()> {
    let values = "volumes[0].name=aws,volumes[0].secret.secretName=keys,volumeMounts[0].name=aws,\
        volumeMounts[0].mountPath=/etc/portolan/aws,mirror.barrelman.gce_service_account=e30=";
    let role = "serviceAccountAnnotations.eks\\.amazonaws\\.com/role-arn=arn:aws:iam::1:role/edge";
    let rendered = objects(&rendered(&["--set", values, "--set", role])?)?;
    let account = &rendered[&("ServiceAccount".to_owned(), "portolan-operator".to_owned())];
    assert_eq!(account["metadata"]["annotations"]["eks.amazonaws.com/role-arn"], "arn:aws:iam::1:role/edge");
    let pod = &rendered[&("Deployment".to_owned(), "portolan-operator".to_owned())]["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][1]["secret"]["secretName"], "keys", "beside that of mirror: {}", pod["volumes"]);
    assert_eq!(pod["containers"][0]["volumeMounts"][1]["mountPath"], "/etc/portolan/aws");
    Ok(())
}

#[test]
fn the_rest_api_of_the_gateway_is_published_with_its_certificate() -> anyhow::Result<()> {
    let key = ("Service".to_owned(), "portolan-gateway-rest".to_owned());
    assert!(!objects(&rendered(&[])?)?.contains_key(&key), "it is off by default");
    let values = "gateway.rest.tlsSecret=edge-tls,gateway.rest.service.type=LoadBalancer,gateway.rest.service.port=443";
    let rendered = objects(&rendered(&["--set", values])?)?;
    assert_eq!(rendered[&key]["spec"]["type"], "LoadBalancer");
    assert_eq!(rendered[&key]["spec"]["ports"][0]["port"], 443);
    let pod = &rendered[&("Deployment".to_owned(), "portolan-operator".to_owned())]["spec"]["template"]["spec"];
    assert_eq!(pod["volumes"][0]["secret"]["secretName"], "edge-tls");
    let container = &pod["containers"][0];
    let env = |name: &str| container["env"].as_array()?.iter().find(|one| one["name"] == name)?["value"].as_str();
    assert_eq!(env("PORTOLAN_GATEWAY_REST_LISTEN"), Some("[::]:8443"));
    assert_eq!(env("PORTOLAN_GATEWAY_REST_TLS_DIR"), container["volumeMounts"][0]["mountPath"].as_str());
    Ok(())
}

#[test]
fn values_that_cannot_work_are_refused() -> anyhow::Result<()> {
    for (value, says) in [
        ("replicas=0", "/replicas"),
        ("nonsense=1", "nonsense"),
        ("egress.ipv4=false,egress.ipv6=false", "/egress"),
        ("webhook.failurePolicy=Perhaps", "/webhook/failurePolicy"),
        ("capabilities={gatewya}", "/capabilities"),
        ("mesh.crossNamespace=perhaps", "/mesh/crossNamespace"),
        ("mesh.denyEndpoint={everything}", "/mesh/denyEndpoint"),
        ("mirror.barrelman.remote.region=z", "region"),
        ("gateway.rest.service.type=Anything", "/gateway/rest/service/type"),
    ] {
        let output = template(&["--set", value])?;
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(says), "{value}: {said}");
    }
    Ok(())
}

#[tokio::test]
async fn a_real_api_server_takes_what_the_chart_renders() -> anyhow::Result<()> {
    let plane = ControlPlane::shared();
    let namespaces: Api<Namespace> = Api::all(plane.client());
    if namespaces.get_opt("portolan").await?.is_none() {
        builders::create(&namespaces, &builders::namespace("portolan").build()).await?;
    }
    for values in [
        &[][..],
        &["--set", "webhook.enabled=false,replicas=1,egress.ipv6=false"],
        &["--set", "image.tag=x,podLabels.a=b,podAnnotations.c=d,nodeSelector.e=f,webhook.failurePolicy=Ignore"],
        &["--set", "capabilities={egress}"],
        &["--set", "gateway.rest.tlsSecret=edge-tls,gateway.rest.service.annotations.a=b"],
        &["--set", "capabilities={mesh},mesh.crossNamespace=open,mesh.denyEndpoint={10.0.0.0/8}"],
        &[
            "--set",
            "mesh.adoptLegacy=false,mesh.proxyTokenSecret=t,mesh.protectedNamespaces={default},clusterDomain=a.b",
        ],
        &["--set", "mirror.barrelman.gce_service_account=e30=,mirror.barrelman.verbosity=9,mirror.remoteZone=z"],
        &["--set", "tolerations[0].operator=Exists,imagePullSecrets[0].name=s,env[0].name=RUST_LOG,env[0].value=debug"],
    ] {
        let text = rendered(values)?;
        let mut kubectl = Binaries::locate()?.kubectl(plane.kubeconfig_path());
        kubectl.args(["apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"]);
        let mut kubectl = kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        kubectl.stdin.take().context("standard input is a pipe")?.write_all(text.as_bytes())?;
        let output = kubectl.wait_with_output()?;
        anyhow::ensure!(output.status.success(), "{values:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

#[test]
fn a_real_api_server_has_no_warning_for_the_definitions() -> anyhow::Result<()> {
    let mut kubectl = Binaries::locate()?.kubectl(ControlPlane::shared().kubeconfig_path());
    kubectl.args(["apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict", "-f"]);
    let output = kubectl.arg(deploy().join("crds")).output()?;
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_that_is_shown_or_documented_exists() -> anyhow::Result<()> {
    let reference = std::fs::read_to_string(deploy().join("../docs/reference/egress.md"))?;
    let mut shown = BTreeSet::new();
    for file in ["monitoring/dashboard.json", "monitoring/alerts.yaml", "../docs/reference/egress.md"] {
        let text = std::fs::read_to_string(deploy().join(file))?;
        let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
        let prefixes = ["portolan_egress_", "portolan_runtime_", "egress_ip_", "egress_mark_"];
        for name in words.filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix))) {
            let name = name.trim_end_matches("_bucket");
            assert!(reference.contains(&format!("`{name}`")), "{file} shows {name}, which the reference does not have");
            shown.insert(name.trim_end_matches("_total").to_owned());
        }
    }
    // A metric is there from its first value on: an address must be granted, one refused, one must move, and a write
    // must be retried.
    let (world, proxy, operator, agents) = running(Backend::Embedded).await?;
    let fails = AtomicBool::new(true);
    proxy.interfere(move |exchange| {
        let is_status = exchange.is_write() && exchange.path.ends_with("/status");
        (is_status && fails.swap(false, Ordering::Relaxed)).then_some(Interference::Status(503))
    });
    world.node("n1").await?;
    world.gateway("eg1", &["10.6.1.60"]).await?;
    world.policy("web", "eg1", json!({})).await?;
    world.policy("astray", "eg1", json!({ "ipv4": "10.9.9.9" })).await?;
    world.granted("web").await?;
    world.node("n2").await?;
    world.nodes().delete("n1", &DeleteParams::default()).await?;
    let mut missing = BTreeSet::new();
    let complete = eventually("every metric that is shown exists", async || {
        let metrics = metrics(operator.process.admin_at()).await?;
        let known: BTreeSet<&str> =
            metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
        missing = shown.iter().filter(|name| !known.contains(name.as_str())).cloned().collect();
        Ok(missing.is_empty())
    })
    .await;
    complete.with_context(|| format!("missing: {missing:?}"))?;
    operator.stop().await?;
    Ok(agents.stop().await?)
}

pub(crate) async fn metrics(admin: SocketAddr) -> anyhow::Result<String> {
    let mut admin = TcpStream::connect(admin).await?;
    admin.write_all(b"GET /metrics HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n").await?;
    let mut metrics = String::new();
    admin.read_to_string(&mut metrics).await?;
    Ok(metrics)
}

pub(crate) fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn template(values: &[&str]) -> anyhow::Result<Output> {
    let mut helm = helm::command()?;
    helm.args(["template", "portolan"]).arg(deploy().join("chart"));
    helm.args(["--namespace", "portolan", "--kube-version", "v1.36.0"]).args(values);
    helm.output().context("starting helm failed")
}

fn rendered(values: &[&str]) -> anyhow::Result<String> {
    let output = template(values)?;
    anyhow::ensure!(output.status.success(), "{values:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

fn objects(text: &str) -> anyhow::Result<Objects> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    let name = |object: &Value, pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    let objects = documents.into_iter().filter(|object| !object.is_null());
    Ok(objects.map(|object| ((name(&object, "/kind"), name(&object, "/metadata/name")), object)).collect())
}

/// The value without these fields, wherever they are.
fn without(value: &Value, fields: &[&str]) -> Value {
    match value {
        Value::Object(object) => {
            let kept = object.iter().filter(|(name, _)| !fields.contains(&name.as_str()));
            kept.map(|(name, value)| (name.clone(), without(value, fields))).collect()
        }
        Value::Array(items) => items.iter().map(|item| without(item, fields)).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}
