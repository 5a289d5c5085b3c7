//! A load balancer of the gateway: its Envoy is a pod, and kube-proxy takes packets for the public address to it.

use anyhow::{Context as _, ensure};
use portolan_testkit::cluster::Host;
use portolan_testkit::envoy;
use portolan_testkit::image::Image;

use crate::audit::{OPERATOR, nothing_was_forbidden, requests};
use crate::installation::{Installation, until};
use crate::traffic::Answers;

const IMAGE: &str = "docker.io/library/portolan-envoy:1";
const POOL: &str = "198.51.100.0/24";
const PUBLIC: &str = "198.51.100.7";

#[test]
fn http_to_a_public_address_is_answered_from_outside_through_an_envoy_that_is_a_pod() -> anyhow::Result<()> {
    // Envoys are for the whole release, so nobody else may use it meanwhile
    let installation = Installation::alone()?;
    let answered = is_answered(&installation);
    // others use the release and the cluster after this, however it ended
    let left = remove(&installation);
    answered.and(left)
}

fn is_answered(installation: &Installation) -> anyhow::Result<()> {
    load_envoy(installation)?;
    let offset = installation.cluster.audit_log().metadata()?.len();
    let values = format!("--set=gateway.envoyImage={IMAGE},gateway.addressQuarantine=1s");
    installation.install("upgrade", &[&values])?;
    // the cluster has no DNS: Envoys are told the address of the Service
    let address =
        installation.kubectl("get service --namespace portolan portolan-xds --output=jsonpath={.spec.clusterIP}")?;
    installation.install("upgrade", &[&values, &format!("--set=gateway.xdsAddress={address}:18000")])?;
    installation.rolled_out()?;

    installation.namespace("balanced")?;
    installation.kubectl_on("create", PROVIDER)?;
    installation.kubectl("wait --namespace balanced --for=condition=Ready --timeout=5m pod/server")?;
    let pod = installation.kubectl("get pod --namespace balanced server --output=jsonpath={.status.podIP}")?;
    until("the account has a namespace", || installation.kubectl("get namespace egw-acme").map(drop))?;
    installation.kubectl_on("create", &TENANT.replace("POD", &pod))?;
    if let Err(error) = installation
        .kubectl("wait --namespace egw-acme --for=condition=Ready --timeout=5m loadbalancers.egw.acnodal.io/web")
    {
        let shown = installation.kubectl("get pods,services,events --namespace portolan --output=wide")?;
        let seen = installation.kubectl("get loadbalancers.egw.acnodal.io --namespace egw-acme --output=yaml")?;
        let logs = installation.kubectl("logs --namespace portolan --selector role=proxy --tail=30");
        anyhow::bail!("{error:#}\n{seen}\n{shown}\n{logs:?}");
    }

    // nodes send nothing to a pod before the cluster says that it is ready: so does the load balancer
    let ready = installation.kubectl(
        "get endpointslices --namespace portolan --selector portolan.dev/gateway-unit \
         --output=jsonpath={.items[*].endpoints[*].conditions.ready}",
    )?;
    ensure!(ready.contains("true"), "{ready}");

    // packets may arrive at any node; what is below the outside host's router is not announced here
    let outside = installation.cluster.outside();
    let ask = |times: &str| -> anyhow::Result<()> {
        let mut sender = outside.command(installation.cluster.test_app());
        let output = sender.args(["send", "http", &format!("{PUBLIC}:80"), times, "5"]).output()?;
        let answers = Answers::read(&output.stdout)?;
        ensure!(answers.lost.is_empty() && answers.by_pod.keys().eq(["server"]), "{answers:?}");
        Ok(())
    };
    for (plan, node) in installation.cluster.nodes() {
        outside.ip(&[&format!("route replace {POOL} via {}", plan.addresses[0])])?;
        // kube-proxy of each node takes the address when it comes to it
        let answered = until(&format!("the public address answers by way of {}", plan.name), || ask("1"));
        answered.with_context(|| shown(installation, node, &pod))?;
        ask("20").with_context(|| format!("by way of {}", plan.name))?;
    }
    let replicas = installation.kubectl("get deployments --namespace portolan --selector role=proxy --output=name")?;
    ensure!(replicas.lines().count() == 1, "{replicas}");

    installation.kubectl("delete --namespace egw-acme --timeout=5m loadbalancers.egw.acnodal.io/web")?;
    until("its Envoy is gone", || {
        let left = installation.kubectl(
            "get deployments,services,secrets --namespace portolan --selector portolan.dev/gateway-unit --output=name",
        )?;
        ensure!(left.is_empty(), "{left}");
        Ok(())
    })?;
    nothing_was_forbidden(&requests(&installation.cluster.audit_log(), offset, OPERATOR)?)
}

/// Where on the way through a node packets are lost.
fn shown(installation: &Installation, node: &Host, pod: &str) -> String {
    let lines = |text: anyhow::Result<String>| text.unwrap_or_else(|error| format!("{error:#}\n"));
    let objects = lines(installation.kubectl("get services,endpointslices,pods --namespace portolan --output=wide"));
    let rules = lines(node.run(&["nft", "list", "table", "ip", "kube-proxy"]));
    let rules: Vec<&str> = rules.lines().filter(|line| line.contains(PUBLIC) || line.contains("envoy-")).collect();
    let envoy = lines(
        installation
            .kubectl("get pods --namespace portolan --selector role=proxy --output=jsonpath={.items[0].status.podIP}"),
    );
    let app = installation.cluster.test_app().display().to_string();
    let asked = [&format!("{envoy}:80"), &format!("{pod}:8080")]
        .map(|to| lines(node.run(&[&app, "send", "http", to, "1", "5"])));
    let way = lines(installation.cluster.outside().run(&["ip", "route", "get", PUBLIC]));
    let envoys = lines(installation.kubectl("logs --namespace portolan --selector role=proxy --tail=20"));
    let rules = rules.join("\n");
    let seen = "get loadbalancers.egw.acnodal.io,endpoints.egw.acnodal.io --namespace egw-acme --output=yaml";
    let told = "logs --namespace portolan --selector app.kubernetes.io/name=portolan --tail=60 --prefix";
    let (seen, told) = (lines(installation.kubectl(seen)), lines(installation.kubectl(told)));
    format!("{objects}{rules}\n{way}{envoys}{seen}{told}from the node, its Envoy and its pod: {asked:?}")
}

/// Removes everything that the test made.
fn remove(installation: &Installation) -> anyhow::Result<()> {
    installation.cluster.outside().ip(&[&format!("route flush {POOL}")])?;
    for objects in [
        "loadbalancers.egw.acnodal.io --namespace egw-acme web",
        "accounts.egw.acnodal.io --namespace egw acme",
        "serviceprefixes.egw.acnodal.io --namespace egw default",
        "namespace balanced --wait=false",
    ] {
        installation.kubectl(&format!("delete --ignore-not-found --timeout=5m {objects}"))?;
    }
    until("its address is given back", || {
        let claims = installation.kubectl("get addressclaims --output=name")?;
        ensure!(claims.is_empty(), "{claims}");
        Ok(())
    })?;
    installation.install("upgrade", &["--reset-values"])
}

/// An image of the Envoy that the other tests run as a process.
fn load_envoy(installation: &Installation) -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("envoy.tar");
    let image = Image::of_program(IMAGE, &envoy::binary()?)?;
    std::fs::write(&archive, image.archive()?).context("writing the image failed")?;
    installation.cluster.load_image(&archive)
}

const PROVIDER: &str = "
apiVersion: egw.acnodal.io/v1
kind: ServicePrefix
metadata: {name: default, namespace: egw}
spec: {subnet: 198.51.100.0/24, pool: 198.51.100.7-198.51.100.9}
---
apiVersion: egw.acnodal.io/v1
kind: Account
metadata: {name: acme, namespace: egw}
spec: {}
---
apiVersion: v1
kind: Pod
metadata: {name: server, namespace: balanced}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: server
    image: docker.io/library/portolan-testapp:1
    args: [echo, --http, '8080']
    env: [{name: NAME, value: server}]
";

const TENANT: &str = "
apiVersion: egw.acnodal.io/v1
kind: ServiceGroup
metadata: {name: public, namespace: egw-acme}
spec: {service-prefix: egw/default, auth-creds: secret}
---
apiVersion: egw.acnodal.io/v1
kind: LoadBalancer
metadata: {name: web, namespace: egw-acme}
spec:
  service-group: public
  public-ports: [{port: 80, protocol: TCP, targetPort: 8080}]
---
apiVersion: egw.acnodal.io/v1
kind: Endpoint
metadata: {name: server, namespace: egw-acme}
spec: {load-balancer: web, address: POD, node-address: 10.0.0.1, port: {port: 8080, protocol: TCP}}
";
