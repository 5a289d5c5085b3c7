//! A Service of another real cluster: kube-proxy here, kube-proxy there, and pods at both ends.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, ensure};

use crate::audit::{OPERATOR, nothing_was_forbidden, requests};
use crate::installation::{Installation, until};
use crate::remote::{Mirror, Remote, WAYS};

/// The account of `examples/mirror/remote-rbac.yaml`.
const READER: &str = "system:serviceaccount:kube-system:portolan-mirror";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

#[test]
fn a_pod_here_reaches_a_pod_there_through_the_mirror_over_both_protocols_and_families() -> anyhow::Result<()> {
    let remote = Remote::alone()?;
    let installation = Installation::shared()?;
    let offset = installation.cluster.audit_log().metadata()?.len();
    let mirror = Mirror::start(&installation, &remote, "mirror-calls")?;
    for way in WAYS {
        let before = remote.arrivals()?;
        let answers = mirror.is_answered(way, 30)?;
        let after = remote.arrivals()?;
        ensure!(after.iter().all(|(node, count)| *count > before[node]), "{way:?}: {before:?}, then {after:?}");
        // The pod is on the first node: what came to the second went on from there, with that node's address.
        let second = remote.cluster.nodes().nth(1).map(|(plan, _)| plan.addresses[way.1].to_string());
        ensure!(answers.asked_from.iter().any(|peer| Some(peer) == second.as_ref()), "{way:?}: {answers:?}");
    }
    nothing_was_forbidden(&requests(&installation.cluster.audit_log(), offset, OPERATOR)?)?;
    let reads = requests(&remote.cluster.audit_log(), 0, READER)?;
    nothing_was_forbidden(&reads)?;
    let verbs: BTreeSet<&str> = reads.iter().filter_map(|read| read["verb"].as_str()).collect();
    ensure!(verbs == BTreeSet::from(["get", "list", "watch"]), "the remote was asked to {verbs:?}");
    mirror.end()
}

#[test]
fn a_remote_node_that_is_drained_or_lost_gets_no_new_connection() -> anyhow::Result<()> {
    let mut remote = Remote::alone()?;
    let installation = Installation::shared()?;
    let mirror = Mirror::start(&installation, &remote, "mirror-drained")?;
    let lost = remote.cluster.nodes().nth(1).context("a second node")?.0.addresses.map(|address| address.to_string());

    // Draining alone excludes no node: that is the label that keeps load balancers away.
    remote.kubectl("drain node-2 --ignore-daemonsets --timeout=1m")?;
    remote.kubectl(&format!("label node node-2 {EXCLUDED}="))?;
    until("nothing arrives at the drained node", || nothing_arrives_at_the_second_node(&mirror, &remote, 10))?;
    nothing_arrives_at_the_second_node(&mirror, &remote, 50)?;

    remote.kubectl("uncordon node-2")?;
    remote.kubectl(&format!("label node node-2 {EXCLUDED}-"))?;
    until("calls arrive at both nodes", || {
        let before = remote.arrivals()?;
        mirror.is_answered(WAYS[0], 10)?;
        ensure!(remote.arrivals()?["node-2"] > before["node-2"]);
        Ok(())
    })?;

    remote.cluster.stop_node("node-2")?;
    until("the lost node is no endpoint", || {
        let endpoints = mirror.endpoints()?;
        ensure!(
            !endpoints.is_empty() && !endpoints.split(' ').any(|address| lost.iter().any(|lost| lost == address)),
            "{endpoints}"
        );
        Ok(())
    })?;
    // A connection that went to it would be lost.
    for way in WAYS {
        until(&format!("{way:?} is answered"), || mirror.is_answered(way, 10).map(drop))?;
        mirror.is_answered(way, 50).or_else(|error| {
            let endpoints = mirror.endpoints()?;
            let shown = remote.kubectl("get nodes,pods,events --all-namespaces --output=wide")?;
            anyhow::bail!("{error:#}\nendpoints: {endpoints}\n{shown}")
        })?;
    }
    mirror.end()?;
    remote.cluster.restart_node("node-2")?;
    remote.kubectl("wait node/node-2 --for=condition=Ready --timeout=5m").map(drop)
}

#[test]
fn without_a_usable_remote_node_connections_are_refused_within_a_second() -> anyhow::Result<()> {
    let remote = Remote::alone()?;
    let installation = Installation::shared()?;
    let mirror = Mirror::start(&installation, &remote, "mirror-refused")?;
    remote.kubectl(&format!("label node --all {EXCLUDED}="))?;
    // One at a time: the kernel limits how many refusals a client gets in a second.
    for way in WAYS {
        until(&format!("{way:?} is refused"), || {
            let answers = mirror.call(way, 1)?;
            ensure!(answers.errors.keys().eq(["connection refused"]), "{answers:?}");
            Ok(())
        })?;
    }
    for way in WAYS {
        let answers = mirror.call(way, 1)?;
        let refused = answers.errors.keys().eq(["connection refused"]);
        ensure!(refused && answers.slowest_error < Duration::from_secs(1), "{way:?}: {answers:?}");
    }
    remote.kubectl(&format!("label node --all {EXCLUDED}-"))?;
    for way in WAYS {
        until(&format!("{way:?} is answered again"), || mirror.is_answered(way, 2).map(drop))?;
    }
    mirror.end()
}

fn nothing_arrives_at_the_second_node(mirror: &Mirror<'_>, remote: &Remote, count: u32) -> anyhow::Result<()> {
    let before = remote.arrivals()?;
    for way in WAYS {
        mirror.is_answered(way, count)?;
    }
    let after = remote.arrivals()?;
    ensure!(after["node-1"] > before["node-1"] && after["node-2"] == before["node-2"], "{before:?}, then {after:?}");
    Ok(())
}
