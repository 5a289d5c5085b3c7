//! Helm: a chart with the kinds of an ordinary application, and our own.

use std::process::Output;

use portolan_testkit::helm;
use serde_json::Value;

use crate::until;
use crate::up::Up;

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/clients/chart");
const OWN_CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/chart");

#[test]
fn a_chart_is_installed_upgraded_rolled_back_and_uninstalled() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &[])?;
    let release = |line: &str| helm(&up, &format!("{line} --namespace shop"));
    let read = |what: &str, path: &str| up.kubectl(&format!("--namespace shop get {what} -o jsonpath={path}"));
    let colour = || read("configmap/shop", "{.data.colour}");

    release(&format!("install shop {CHART} --create-namespace --wait --timeout 3m"))?;
    assert_eq!(read("deployment/shop", "{.status.availableReplicas}")?, "1", "Helm waited for it");
    assert_eq!((colour()?.as_str(), read("configmap/pre-install", "{.data.revision}")?.as_str()), ("white", "1"));
    assert_eq!(read("secret/sh.helm.release.v1.shop.v1", "{.type}")?, "helm.sh/release.v1");
    let objects = "serviceaccount,role,rolebinding,configmap,secret,service,deployment";
    let installed =
        up.kubectl(&format!("--namespace shop get {objects} -l app.kubernetes.io/managed-by=Helm -o name"))?;
    assert_eq!(installed.lines().count(), 7, "{installed}");

    release(&format!("upgrade shop {CHART} --set replicas=3,colour=green,login=false --wait --timeout 3m"))?;
    assert_eq!(read("deployment/shop", "{.status.availableReplicas}")?, "3");
    assert_eq!((colour()?.as_str(), read("configmap/post-upgrade", "{.data.revision}")?.as_str()), ("green", "2"));
    assert_eq!(up.kubectl("--namespace shop get secret shop --ignore-not-found -o name")?, "", "it left the chart");

    // an upgrade that fails half-way leaves a failed revision, and with --atomic the revision before it
    let refused = release(&format!("upgrade shop {CHART} --set label=-,colour=red --atomic --timeout 3m"));
    let refused = format!("{:#}", refused.expect_err("the label is not accepted"));
    assert!(refused.contains("Invalid value") && refused.contains("rolled back"), "{refused}");
    assert_eq!(colour()?, "green");

    release("rollback shop 1 --wait --timeout 3m")?;
    assert_eq!((colour()?.as_str(), read("configmap/pre-rollback", "{.data.revision}")?.as_str()), ("white", "1"));
    assert_eq!(read("secret/shop", "{.data.password}")?, "c2VjcmV0", "it is back");
    until("two replicas are gone", || Ok(read("deployment/shop", "{.status.replicas}")? == "1"))?;
    let history: Value = serde_json::from_str(&release("history shop -o json")?)?;
    let statuses: Vec<&str> =
        history.as_array().into_iter().flatten().filter_map(|one| one["status"].as_str()).collect();
    assert_eq!(statuses, ["superseded", "superseded", "failed", "superseded", "deployed"], "{history}");
    let values: Value = serde_json::from_str(&release("get values shop --all -o json")?)?;
    assert_eq!(values["replicas"], 1, "{values}");

    release("uninstall shop --wait --timeout 3m")?;
    let kept = up.kubectl("--namespace shop get configmap/post-delete -o jsonpath={.data.revision}")?;
    assert_eq!(kept, "1", "the last hook ran");
    assert_eq!(
        up.kubectl(&format!("--namespace shop get {objects},pods -l app.kubernetes.io/managed-by=Helm -o name"))?,
        ""
    );
    assert_eq!(up.kubectl("--namespace shop get deployment,service,secret -o name")?, "");
    until("its pods are gone", || Ok(up.kubectl("--namespace shop get pods -o name")?.is_empty()))?;
    up.stop()?;
    Ok(())
}

#[test]
fn our_own_chart_is_installed_upgraded_rolled_back_and_uninstalled() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &[])?;
    let release = |line: &str| helm(&up, &format!("{line} --namespace edge --timeout 3m"));
    let operator =
        |path: &str| up.kubectl(&format!("--namespace edge get deployment portolan-operator -o jsonpath={path}"));
    let variable = "{.spec.template.spec.containers[0].env[?(@.name==\"PORTOLAN_CLUSTER_DOMAIN\")].value}";
    // its pods are simulated, so nothing answers the webhooks; a flag that has its default has no variable
    let chart = format!("{OWN_CHART} --set image.repository=example.dev/portolan,webhook.enabled=false --wait");

    release(&format!("install portolan {chart} --create-namespace"))?;
    assert_eq!((operator("{.status.availableReplicas}")?.as_str(), operator(variable)?.as_str()), ("2", ""));
    release(&format!("upgrade portolan {chart} --set replicas=1,clusterDomain=example.dev"))?;
    assert_eq!(operator(variable)?, "example.dev");
    until("one replica is left", || Ok(operator("{.status.replicas}")? == "1"))?;
    release("rollback portolan 1 --wait")?;
    assert_eq!((operator("{.status.availableReplicas}")?.as_str(), operator(variable)?.as_str()), ("2", ""));
    // pods of simulated nodes never end, so the Job that cleans up would not
    release("uninstall portolan --wait --no-hooks")?;
    let left = up.kubectl("get clusterroles,clusterrolebindings -o name")?;
    assert!(!left.contains("/portolan-"), "{left}");
    assert_eq!(up.kubectl("--namespace edge get deployments,services,jobs,poddisruptionbudgets -o name")?, "");
    assert!(!up.kubectl("get crds -o name")?.is_empty(), "the definitions stay");
    up.stop()?;
    Ok(())
}

fn helm(up: &Up, line: &str) -> anyhow::Result<String> {
    let mut command = crate::program(&helm::program()?);
    // what Helm keeps stays in the folder
    command.env("HOME", up.folder()).env("KUBECONFIG", up.folder().join("kubeconfig"));
    let Output { status, stdout, stderr } = command.args(line.split_whitespace()).output()?;
    let said = String::from_utf8_lossy(&stdout).into_owned();
    anyhow::ensure!(status.success(), "helm {line}: {said}{}", String::from_utf8_lossy(&stderr));
    Ok(said)
}
