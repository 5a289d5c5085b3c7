//! `helm uninstall`, and what is left.

use std::collections::BTreeSet;
use std::process::Stdio;

use anyhow::ensure;

use crate::installation::{Installation, until, workspace};
use crate::traffic::Application;

#[test]
fn uninstalling_leaves_what_users_made_and_nothing_else() -> anyhow::Result<()> {
    let installation = Installation::alone()?;
    let application = Application::start(&installation, "leftovers", |objects| objects)?;
    installation.kubectl_on(
        "create",
        r#"{"apiVersion":"egressgateway.spidernet.io/v1beta1","kind":"EgressGateway","metadata":{"name":"users"},
            "spec":{"ippools":{"ipv4":["10.6.1.60"]},"nodeSelector":{"selector":{"matchLabels":{"egress":"true"}}}}}"#,
    )?;
    installation.kubectl_on(
        "create --namespace leftovers",
        "{apiVersion: v1, kind: Pod, metadata: {name: naked, labels: {app: naked}}, spec: {terminationGracePeriodSeconds: 1,
  containers: [{name: app, image: 'docker.io/library/portolan-testapp:1', args: [echo, --udp, '9999']}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: naked}, spec: {selector: {app: naked}, ports: [{protocol: UDP, port: 9999}]}}
---
{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {name: users}, spec: {selector: {matchLabels: {app: gateway}},
  listener: {protocol: UDP, port: 9002}, rules: [{action: {route: {destination: naked}}}]}}",
    )?;
    until("the operator has made what it makes", || {
        let tunnels = installation.kubectl("get egresstunnels --output=name")?;
        ensure!(tunnels.lines().count() == 3, "{tunnels}");
        installation.kubectl("get egressclusterinfo default")?;
        installation.kubectl("get target --namespace leftovers naked").map(drop)
    })?;

    // The kubelet tells how a container ended before its pod is gone.
    let mut watch = installation.cluster.kubectl();
    watch.args(["get", "pods", "--namespace=portolan", "--watch", "--selector=app.kubernetes.io/component=operator"]);
    watch.arg(r#"--output=jsonpath={.metadata.name} {.status.containerStatuses[*].state.terminated.exitCode}{"\n"}"#);
    let mut watch = watch.stdout(Stdio::piped()).spawn()?;
    let uninstalled = installation.helm(&["uninstall", "portolan", "--namespace=portolan", "--wait", "--timeout=5m"]);
    let gone = until("the operator's pods are gone", || {
        let pods = installation.kubectl("get pods --namespace portolan --output=name")?;
        ensure!(pods.is_empty(), "{pods}");
        Ok(())
    });
    watch.kill()?;
    let seen = String::from_utf8(watch.wait_with_output()?.stdout)?;
    uninstalled?;
    gone?;
    let ended: BTreeSet<&str> = seen.lines().map(str::trim).filter(|line| line.contains(' ')).collect();
    ensure!(ended.len() == 2 && ended.iter().all(|line| line.ends_with(" 0")), "operators ended so: {ended:?}");

    let left = [
        "get lease,secret,configmap,role,rolebinding,service,job,pdb --namespace portolan --output=name",
        "get clusterrole,clusterrolebinding --selector app.kubernetes.io/name=portolan --output=name",
        "get validatingwebhookconfiguration,mutatingwebhookconfiguration --output=name",
        "get egresstunnels,egressclusterinfos,egressendpointslices,addressclaims --all-namespaces --output=name",
    ];
    for line in left {
        let left = installation.kubectl(line)?;
        let left: Vec<&str> = left.lines().filter(|name| *name != "configmap/kube-root-ca.crt").collect();
        ensure!(left.is_empty(), "{line}: {left:?}");
    }
    let kept = installation.kubectl("get vsvc,route,target,egw --namespace leftovers --output=name")?;
    let kept: BTreeSet<&str> = kept.lines().collect();
    let users = [
        "egressgateway.egressgateway.spidernet.io/users",
        "target.l7mp.io/app-target",
        "virtualservice.l7mp.io/app-vsvc",
        "virtualservice.l7mp.io/gateway-vsvc",
        "virtualservice.l7mp.io/users",
    ];
    ensure!(kept == BTreeSet::from(users), "{kept:?}");
    // What proxies were told stays in force: nobody's packets stop because the operator goes.
    application.is_answered_by(1)?;
    // Nothing holds what users delete, nor the definitions.
    installation.kubectl("delete egw users --timeout=1m")?;
    application.end()?;
    installation.kubectl(&format!("delete --filename={} --timeout=1m", workspace("deploy/crds")))?;
    installation.install("install", &[])
}
