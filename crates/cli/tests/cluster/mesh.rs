//! The mesh between real pods.

use std::process::Stdio;

use anyhow::{Context as _, ensure};
use parking_lot::Mutex;

use crate::installation::{Installation, portolan_command, portolan_on, until, workspace};
use crate::traffic::{Answers, Application};

/// The gateways of both examples are on the network of their nodes, with the same port.
static NODE_NETWORK: Mutex<()> = Mutex::new(());

#[test]
fn the_first_example_carries_packets_between_pods_on_different_nodes() -> anyhow::Result<()> {
    let installation = Installation::shared()?;
    let _alone = NODE_NETWORK.lock();
    installation.namespace("mesh-1")?;
    installation.kubectl(&format!("apply --namespace mesh-1 -f {}", workspace("examples/mesh-1")))?;
    installation.programmed("mesh-1", "vsvc/gateway-vsvc vsvc/transcoder-vsvc")?;
    // A gateway is on every node, so for two of the three the worker is on another one.
    for (plan, host) in installation.cluster.nodes() {
        let sent = |port: u16, seconds: u8| {
            let line = format!("send udp://127.0.0.1:9001 hello --from 127.0.0.1:{port} --timeout {seconds}");
            portolan_on(host, &line)
        };
        until(&format!("the gateway on {} answers", plan.name), || {
            let output = sent(9000, 2)?;
            let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
            ensure!(stdout == "hello\n", "{stdout}{stderr}");
            Ok(())
        })?;
        let refused = sent(8999, 1)?;
        ensure!(!refused.status.success(), "{}: a port out of the rule's range got an answer", plan.name);
    }
    let nodes = installation
        .kubectl("get pods --namespace mesh-1 --selector app=worker --output=jsonpath={.items[*].spec.nodeName}")?;
    installation.node(nodes.trim()).context("the worker runs on a node")?;
    installation.kubectl("delete namespace mesh-1 --timeout=5m").map(drop)
}

#[test]
fn two_users_of_the_second_example_meet_at_a_worker_and_at_another_when_it_goes() -> anyhow::Result<()> {
    let installation = Installation::shared()?;
    let _alone = NODE_NETWORK.lock();
    installation.namespace("mesh-2")?;
    installation.kubectl(&format!("apply --namespace mesh-2 -f {}", workspace("examples/mesh-2/pods.yaml")))?;
    // Both users are outside of the cluster.
    let (users, user_host) = (installation.cluster.outside_address(), installation.cluster.outside());
    let objects = std::fs::read_to_string(workspace("examples/mesh-2/mesh.yaml"))?;
    let objects = objects.replace("connect: {address: 127.0.0.1,", &format!("connect: {{address: {users},"));
    installation.kubectl_on("apply --namespace mesh-2", &objects)?;
    installation.programmed("mesh-2", "vsvc/gateway-user-a-vsvc vsvc/gateway-user-b-vsvc vsvc/worker-vsvc")?;
    let gateway = installation
        .kubectl("get pods --namespace mesh-2 --selector app=gateway --output=jsonpath={.items[0].status.podIP}")?;
    let meet = || {
        let line = format!("send udp://{gateway}:8002 --from {users}:8002 --timeout 3");
        let listening = portolan_command(user_host, &line).stdout(Stdio::piped()).spawn()?;
        // User B need not be there yet when user A speaks.
        for _ in 0..4 {
            std::thread::sleep(std::time::Duration::from_millis(500));
            let line = format!("send udp://{gateway}:8001 hello --from {users}:8001 --answers 0");
            portolan_on(user_host, &line)?;
        }
        let heard = listening.wait_with_output()?;
        ensure!(heard.stdout == b"hello\n", "user B heard `{}`", String::from_utf8_lossy(&heard.stdout));
        Ok(())
    };
    until("user B hears user A", meet)?;
    // The call is at one of three workers: when two of them go, it is at the last.
    for _ in 0..2 {
        let workers = installation
            .kubectl("get pods --namespace mesh-2 --selector app=worker --output=jsonpath={.items[0].metadata.name}")?;
        installation.kubectl(&format!("delete pod --namespace mesh-2 {workers}"))?;
        until("user B hears user A again", meet)?;
    }
    installation.kubectl("delete namespace mesh-2 --timeout=5m").map(drop)
}

#[test]
fn a_sidecar_leads_to_its_application_and_endpoints_follow_scaling_under_traffic() -> anyhow::Result<()> {
    let installation = Installation::shared()?;
    let application = Application::start(&installation, "scaling", |objects| objects)?;
    until("the application answers", || {
        let answers = application.is_answered_by(1)?;
        ensure!(answers.asked_from == ["127.0.0.1"], "not asked by its sidecar: {answers:?}");
        Ok(())
    })?;
    let traffic = application.sending(50)?;
    let scale = |replicas: usize| {
        installation.kubectl(&format!("scale --namespace scaling deployment/app --replicas={replicas}"))?;
        until(&format!("{replicas} pods answer"), || application.is_answered_by(replicas).map(drop))
    };
    scale(3)?;
    scale(2)?;
    scale(1)?;
    let answers = Answers::of(traffic)?;
    ensure!(answers.sent > 0 && answers.by_pod.len() >= 3, "{answers:?}");
    ensure!(answers.lost.is_empty(), "packets were lost: {answers:?}");
    application.end()
}
