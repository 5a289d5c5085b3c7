//! What `plan`, `why` and `status` answer, compared with what kubectl and the operator then do.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::egress::ask;
use crate::up::Up;
use crate::{program, ran, until};

fn file(up: &Up, name: &str, text: &str) -> anyhow::Result<String> {
    let path = up.folder().join(name);
    std::fs::create_dir_all(path.parent().unwrap_or(up.folder()))?;
    std::fs::write(&path, text)?;
    Ok(path.display().to_string())
}

const GATEWAY: &str = "
{apiVersion: egressgateway.spidernet.io/v1beta1, kind: EgressGateway, metadata: {name: g}, spec: {
  ippools: {ipv4: [10.9.0.1-10.9.0.4]}, nodeSelector: {selector: {matchLabels: {egress: 'true'}}}}}
";
const NODE_SELECTOR_ONLY: &str = "
{apiVersion: egressgateway.spidernet.io/v1beta1, kind: EgressGateway, metadata: {name: g}, spec: {
  nodeSelector: {selector: {matchLabels: {egress: 'true'}}}}}
";
const POLICY: &str = "
{apiVersion: egressgateway.spidernet.io/v1beta1, kind: EgressPolicy, metadata: {name: p}, spec: {
  egressGatewayName: g, appliedTo: {podSelector: {matchLabels: {app: p}}}}}
";

#[test]
fn a_plan_means_what_kubectl_apply_would_do() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &[])?;
    let whole = file(&up, "whole.yaml", GATEWAY)?;
    let part = file(&up, "part.yaml", NODE_SELECTOR_ONLY)?;
    up.kubectl(&format!("apply -f {whole}"))?;
    // by now the operator has written to it as well, and kubectl's record of what was applied is still there
    up.kubectl("wait egw/g --for condition=Ready --timeout 60s")?;
    let pool = "get egw g -o jsonpath={.spec.ippools.ipv4[0]}";
    for flags in ["", " --server-side"] {
        assert_eq!(up.kubectl(pool)?, "10.9.0.1-10.9.0.4");
        let same = ask(&up, &format!("plan -f {whole}{flags}"));
        assert_eq!((same.exit, same.stdout.as_str()), (Some(0), "nothing would change\n"), "{flags}: {same:?}");
        let plan = ask(&up, &format!("plan -f {part}{flags} -o json"));
        let plan: Value = serde_json::from_str(&plan.stdout)?;
        let row = &plan["rows"][0];
        assert_eq!((&row["what"], &row["change"]), (&"gateway g".into(), &"pool".into()), "{flags}: {plan}");
        assert_eq!((&row["from"], &row["to"]), (&"4 IPv4".into(), &"none".into()), "{flags}: {plan}");
    }
    up.kubectl(&format!("apply -f {part}"))?;
    assert_eq!(up.kubectl(pool)?, "", "kubectl does what the plan says");

    // over an object that kubectl never applied, fields that are left out stay
    let seeded = file(&up, "seeded.yaml", &NODE_SELECTOR_ONLY.replace("name: g", "name: eg1"))?;
    for flags in ["", " --server-side"] {
        let plan = ask(&up, &format!("plan -f {seeded}{flags}"));
        assert_eq!((plan.exit, plan.stdout.as_str()), (Some(0), "nothing would change\n"), "{flags}: {plan:?}");
    }
    up.stop()?;
    Ok(())
}

#[test]
fn what_the_api_server_would_refuse_is_said_with_server_side() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &[])?;
    let whole = file(&up, "whole.yaml", GATEWAY)?;
    up.kubectl(&format!("apply --server-side --field-manager somebody -f {whole}"))?;
    let other = file(&up, "other.yaml", &GATEWAY.replace("10.9.0.4", "10.9.0.9"))?;
    let plan = ask(&up, &format!("plan -f {other} --server-side"));
    assert_eq!(plan.exit, Some(2), "{plan:?}");
    assert!(
        plan.stderr.contains("applying EgressGateway `g` would be refused") && plan.stderr.contains("somebody"),
        "{plan:?}"
    );
    assert!(plan.stderr.ends_with("hint: to take these fields over: --force-conflicts\n"), "{plan:?}");
    let plan = ask(&up, &format!("plan -f {other} --server-side --force-conflicts"));
    assert!(plan.exit == Some(1) && plan.stdout.contains("9 IPv4"), "{plan:?}");
    let unknown = file(&up, "unknown.yaml", &GATEWAY.replace("ippools", "ipools"))?;
    let plan = ask(&up, &format!("plan -f {unknown} --server-side"));
    assert!(plan.exit == Some(2) && plan.stderr.contains("ipools"), "{plan:?}");
    assert_eq!(
        up.kubectl("get egw g -o jsonpath={.spec.ippools.ipv4[0]}")?,
        "10.9.0.1-10.9.0.4",
        "nothing was written"
    );
    up.stop()?;
    Ok(())
}

#[test]
fn a_folder_and_standard_input_can_be_planned() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &[])?;
    let kubeconfig = up.folder().join("kubeconfig");
    file(&up, "change/b.yaml", GATEWAY)?;
    file(&up, "change/a.json", &serde_json::to_string(&serde_saphyr::from_str::<Value>(POLICY)?)?)?;
    file(&up, "change/README.md", "not an object")?;
    let folder = up.folder().join("change");
    let plan = ask(&up, &format!("plan -f {}", folder.display()));
    assert!(
        plan.exit == Some(1) && plan.stdout.contains("policy default/p") && plan.stdout.contains("gateway g"),
        "{plan:?}"
    );
    let both = format!("{GATEWAY}---{POLICY}");
    let mut command = program(Path::new(env!("CARGO_BIN_EXE_portolan")));
    command.args(["plan", "-f", "-", "--kubeconfig"]).arg(&kubeconfig);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    child.stdin.take().map(|mut stdin| stdin.write_all(both.as_bytes())).transpose()?;
    assert_eq!(ran(child.wait_with_output()).stdout, plan.stdout);
    up.kubectl(&format!("apply -f {}", folder.display()))?;
    up.kubectl("wait egp/p --for condition=Ready --timeout 60s")?;
    let plan = ask(&up, &format!("plan -f {}", folder.display()));
    assert_eq!((plan.exit, plan.stdout.as_str()), (Some(0), "nothing would change\n"), "{plan:?}");
    up.stop()?;
    Ok(())
}

/// The rows of `status egress`, by gateway.
fn gateway(up: &Up, name: &str) -> anyhow::Result<(bool, Value)> {
    let status = ask(up, "status egress -o json");
    let status: Value = serde_json::from_str(&status.stdout)?;
    let row = status["rows"].as_array().into_iter().flatten().find(|row| row["gateway"] == name);
    Ok((status["ok"] == true, row.cloned().unwrap_or_default()))
}

#[test]
fn status_says_what_the_conditions_say_and_counts_every_policy() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &[])?;
    up.kubectl("wait egw/eg1 egp/web egp/payments --for condition=Ready --timeout 60s")?;
    let (ok, eg1) = gateway(&up, "eg1")?;
    assert!(ok && eg1["ready"] == "True" && eg1["problem"].is_null(), "{eg1}");
    assert_eq!(eg1["nodes"], serde_json::json!({ "ready": 3, "total": 3 }));
    assert_eq!(eg1["ipv4"], serde_json::json!({ "used": 2, "total": 7 }));
    assert_eq!(eg1["policies"], serde_json::json!({ "ready": 2, "total": 2 }));

    // one that the operator refuses, with a policy, and a policy of one that is not there
    let refused = GATEWAY.replace("10.9.0.1-10.9.0.4", "10.6.1.60-10.6.1.61");
    let lost =
        POLICY.replace("name: p}", "name: lost}").replace("egressGatewayName: g,", "egressGatewayName: nowhere,");
    let path = file(&up, "more.yaml", &format!("{refused}---{POLICY}---{lost}"))?;
    up.kubectl(&format!("apply -f {path}"))?;
    up.kubectl("wait egw/g egp/p egp/lost --for condition=Ready=False --timeout 60s")?;
    let (ok, g) = gateway(&up, "g")?;
    assert!(!ok && g["ready"] == "False", "{g}");
    assert_eq!(g["policies"], serde_json::json!({ "ready": 0, "total": 1 }));
    let message = up.kubectl("get egw g -o jsonpath={.status.conditions[?(@.type==\"Ready\")].message}")?;
    assert!(g["problem"].as_str().is_some_and(|problem| problem.ends_with(&message)), "{g}: {message}");
    let (_, nowhere) = gateway(&up, "nowhere")?;
    assert!(
        nowhere["problem"].as_str().is_some_and(|problem| problem.contains("default/lost: GatewayNotFound")),
        "{nowhere}"
    );
    let table = ask(&up, "status egress");
    assert!(table.exit == Some(1) && table.stdout.contains("PROBLEM") && table.stdout.contains("2/7"), "{table:?}");

    // all capabilities, and one that is not installed
    let all = ask(&up, "status");
    for capability in ["egress", "gateway", "gateway-client", "ipam", "mesh", "mirror"] {
        assert!(all.stdout.lines().any(|line| line.starts_with(&format!("{capability}: "))), "{capability}: {all:?}");
    }
    up.kubectl("delete crd remoteclusters.portolan.dev")?;
    until("the kind is gone", || Ok(ask(&up, "status mirror").exit == Some(1)))?;
    let mirror = ask(&up, "status mirror");
    assert!(mirror.stdout.starts_with("not installed; to install its definitions: portolan crds"), "{mirror:?}");
    up.kubectl(&format!("delete -f {path}"))?;
    until("everything that is installed is well", || Ok(ask(&up, "status").exit == Some(0)))?;
    up.stop()?;
    Ok(())
}

#[test]
fn why_knows_what_is_inside_the_cluster_families_free_addresses_and_the_default_namespace() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &[])?;
    up.kubectl("wait egp/web --for condition=Ready --timeout 60s")?;
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: web-0, labels: {app: web}}, spec: {
        nodeName: node-1, containers: [{name: c, image: c}]}}";
    let path = file(&up, "pod.yaml", pod)?;
    up.kubectl(&format!("apply -f {path}"))?;
    up.kubectl("wait pod/web-0 --for jsonpath={.status.podIP} --timeout 60s")?;
    let outside = ask(&up, "why pod web-0 203.0.113.7");
    assert!(
        outside.exit == Some(0) && outside.stdout.ends_with("policy default/web applies to pod default/web-0\n"),
        "{outside:?}"
    );
    let node = up.kubectl("get node node-2 -o jsonpath={.status.addresses[?(@.type==\"InternalIP\")].address}")?;
    let inside = ask(&up, &format!("why pod web-0 {node}"));
    assert!(inside.exit == Some(1) && inside.stdout.contains(&format!("{node} is inside the cluster")), "{inside:?}");
    assert!(inside.stdout.ends_with(&format!("no policy of pod default/web-0 matches {node}\n")), "{inside:?}");
    let other_family = ask(&up, "why pod web-0 2001:db8::1");
    assert!(
        other_family.exit == Some(1) && other_family.stdout.contains("the pod has no IPv6 address"),
        "{other_family:?}"
    );

    let free = ask(&up, "why eip 10.6.1.65");
    assert_eq!(free.exit, Some(1), "{free:?}");
    assert!(free.stdout.contains("10.6.1.65 is number 7 in the pool of gateway eg1"), "{free:?}");
    assert!(free.stdout.ends_with("10.6.1.65 is not in use\n") && free.stdout.contains("it is free"), "{free:?}");
    let foreign = ask(&up, "why eip 10.6.1.66");
    assert!(foreign.stderr.starts_with("error: no gateway has address 10.6.1.66\n"), "{foreign:?}");

    let web = ask(&up, "why policy web");
    assert!(web.exit == Some(0) && web.stdout.contains("serves 1 policy on 1 address"), "{web:?}");
    assert_eq!(web, ask(&up, "why policy default/web"));
    let lost = POLICY.replace("egressGatewayName: g,", "egressGatewayName: nowhere,");
    let of_cluster = POLICY.replace("EgressPolicy", "EgressClusterPolicy").replace("name: p}", "name: all}");
    let path = file(&up, "lost.yaml", &format!("{lost}---{of_cluster}"))?;
    up.kubectl(&format!("apply -f {path}"))?;
    let why = ask(&up, "why policy p");
    assert_eq!((why.exit, why.stdout.matches("nowhere").count()), (Some(1), 1), "a refusal is said once: {why:?}");
    let missing = ask(&up, "why policy all");
    assert!(missing.stderr.ends_with("portolan why egcp all\n"), "{missing:?}");
    assert!(ask(&up, "why egcp all").stdout.contains("policy all has no egress address"));
    up.stop()?;
    Ok(())
}

#[test]
fn first_applies_leave_no_warning_and_a_gateway_that_is_held_says_by_whom() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &[])?;
    up.kubectl("wait egw/eg1 egp/web egp/payments --for condition=Ready --timeout 60s")?;
    // the policy comes before its gateway
    let path = file(&up, "both.yaml", &format!("{POLICY}---{GATEWAY}"))?;
    up.kubectl(&format!("apply -f {path}"))?;
    up.kubectl("wait egw/g egp/p --for condition=Ready --timeout 60s")?;
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    up.kubectl(&format!("apply -f {}", examples.join("mesh-1").display()))?;
    up.kubectl("wait vsvc/gateway-vsvc vsvc/transcoder-vsvc --for condition=Programmed --timeout 60s")?;
    let warnings = up.kubectl("get events -A --field-selector type=Warning")?;
    assert_eq!(warnings, "", "nothing is wrong");

    up.kubectl("delete egw g --wait=false")?;
    let shown = || up.kubectl("get egw g");
    until("its columns say why it stays", || {
        Ok(shown()?.contains("Deleting") && shown()?.contains("held by policy `default/p`"))
    })?;
    up.kubectl("delete egp p")?;
    until("it goes", || Ok(up.kubectl("get egw g --ignore-not-found")?.is_empty()))?;

    // columns name the first condition that is not met
    let lost = file(&up, "lost.yaml", POLICY)?;
    up.kubectl(&format!("apply -f {lost}"))?;
    until("the policy says what it lacks", || {
        let shown = up.kubectl("get egp p")?;
        Ok(shown.contains("REASON")
            && shown.contains("GatewayNotFound")
            && shown.contains("gateway `g` does not exist"))
    })?;
    assert!(!up.kubectl("get egp web")?.contains("Programmed"), "nothing to say about what is ready");
    let vsvc = "{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {name: v}, spec: {selector: {matchLabels: {app: none}},
        listener: {spec: {UDP: {port: 9}}}, rules: [{action: {route: {destination: nobody}}}]}}";
    let path = file(&up, "vsvc.yaml", vsvc)?;
    up.kubectl(&format!("apply -f {path}"))?;
    until("the VirtualService does, too", || Ok(up.kubectl("get vsvc v")?.contains("RefNotFound")))?;
    up.stop()?;
    Ok(())
}
