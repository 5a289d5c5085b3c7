//! A node that is lost, and comes back.

use anyhow::{Context as _, ensure};

use crate::installation::{Installation, until};
use crate::traffic::Application;

#[test]
fn when_the_leaders_node_is_lost_another_leads_and_packets_go_to_the_other_nodes() -> anyhow::Result<()> {
    let mut installation = Installation::alone()?;
    let leader = installation.leader()?;
    let lost =
        installation.kubectl(&format!("get pod --namespace portolan {leader} --output=jsonpath={{.spec.nodeName}}"))?;
    let safe = installation.cluster.nodes().map(|(plan, _)| plan.name.clone()).find(|name| *name != lost);
    let safe = safe.context("there is one node only")?;

    // One pod of the application on every node, and the gateway on a node that stays.
    let spread = |objects: String| {
        let gateway = format!("    spec:\n      nodeSelector: {{kubernetes.io/hostname: {safe}}}\n");
        let objects = objects.replacen("    spec:\n", &gateway, 1);
        objects.replace("kind: Deployment\nmetadata: {name: app}", "kind: DaemonSet\nmetadata: {name: app}")
    };
    let application = Application::start(&installation, "lost", spread)?;
    until("a pod on each node answers", || application.is_answered_by(3).map(drop))?;
    let gateway = application.gateway().to_owned();

    installation.cluster.stop_node(&lost)?;
    until("another replica leads", || {
        ensure!(installation.leader()? != leader);
        Ok(())
    })?;
    let application = Application::running(&installation, "lost", gateway.clone());
    until("the pods on the other nodes answer", || application.is_answered_by(2).map(drop))?;

    installation.cluster.restart_node(&lost)?;
    let application = Application::running(&installation, "lost", gateway);
    until("a pod on each node answers again", || application.is_answered_by(3).map(drop))?;
    application.end()?;
    installation.rolled_out()
}
