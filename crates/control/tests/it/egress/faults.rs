//! Crashes, lost watches, conflicts and old views: the end is always the same, and then nothing is written any more.

use std::collections::BTreeMap;
use std::time::Duration;

use kube::api::{ListParams, Patch, PatchParams, PostParams};
use portolan_api::egress::EgressGatewayStatus;
use portolan_control::egress;
use portolan_testkit::{Exchange, FaultProxy, Faults, Phase, WatchStep};
use serde_json::{Value, json};

use super::harness::{Operator, World, agents, app, egress_options, is_ready, running, selector, wipe};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    a_first_address_takes_one_claim_and_one_status,
    a_crash_at_every_write_converges_without_duplicate_or_leak,
    converged_and_resynced_ten_times_writes_nothing,
    a_leader_with_an_old_view_changes_nothing,
    without_webhooks_no_address_is_in_two_gateways,
}

/// Events tell of what was done; losing one changes nothing.
fn counts(exchange: &Exchange) -> bool {
    exchange.is_write() && exchange.resource() != Some("events")
}

fn writes(proxy: &FaultProxy) -> Vec<Exchange> {
    proxy.writes().into_iter().filter(counts).collect()
}

/// What an operator finds: a policy whose pair lives on a node that is lost, a pair that nobody uses any more, and a
/// policy that has nothing yet.
async fn a_morning_after(world: &World) -> anyhow::Result<()> {
    wipe(&world.client).await?;
    world.node("n1").await?;
    world.node("n2").await?;
    world.set_ready("n1", false).await?;
    let pools = json!({ "ipv4": ["10.6.1.60-10.6.1.63"], "ipv6": ["fd00::60-fd00::63"] });
    world.gateway_like("eg1", json!({ "ippools": pools, "nodeSelector": selector() })).await?;
    for (last, slot, node) in [(60, 2, "n1"), (61, 3, "n2")] {
        let (four, six) = (format!("10.6.1.{last}"), format!("fd00.0000.0000.0000.0000.0000.0000.00{last}"));
        for (name, pair) in [(&four, format!("fd00::{last}")), (&six, four.clone())] {
            let record =
                json!({ "gateway": "eg1", "pair": pair, "slot": slot, "node": node, "standby": [], "epoch": 1 });
            let object = json!({
                "metadata": { "name": name, "labels": { "portolan.dev/use": "egress" }, "finalizers": ["portolan.dev/address-claim"] },
                "spec": { "egress": record }
            });
            world.claims().create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        }
    }
    world.policy("old", "eg1", json!({ "allocatorPolicy": "rr" })).await?;
    let granted = json!({ "status": { "eip": { "ipv4": "10.6.1.60", "ipv6": "fd00::60" }, "node": "n1" } });
    world.policies().patch_status("old", &PatchParams::default(), &Patch::Merge(granted)).await?;
    world.policy("new", "eg1", json!({ "ipv4": "10.6.1.62" })).await?;
    Ok(())
}

/// Where it must end: two pairs on the node that is left, each with a slot of its own.
async fn at_rest(world: &World) -> anyhow::Result<bool> {
    let (mut slots, mut epochs) = (BTreeMap::new(), BTreeMap::new());
    let mut ledger = BTreeMap::new();
    for claim in world.claims().list(&ListParams::default()).await? {
        let record = claim.spec.egress.clone().unwrap_or_default();
        let name = claim.metadata.name.unwrap_or_default();
        let pair = slots.entry(record.slot).or_insert_with(Vec::new);
        pair.push(name.clone());
        anyhow::ensure!(pair.len() <= 2, "a slot stands for two addresses: {slots:?}");
        // How often an address moved depends on when a node was ready; its halves move together.
        let said = claim.status.and_then(|status| status.egress?.epoch);
        let agreed = said == Some(record.epoch) && epochs.entry(record.slot).or_insert(record.epoch) == &record.epoch;
        ledger.insert(name, (record.node.unwrap_or_default(), agreed, claim.metadata.deletion_timestamp.is_some()));
    }
    let six = |last: u8| format!("fd00.0000.0000.0000.0000.0000.0000.00{last}");
    let held = || ("n2".to_owned(), true, false);
    let wanted =
        [("10.6.1.60".to_owned(), held()), ("10.6.1.62".to_owned(), held()), (six(60), held()), (six(62), held())];
    let mut policies = true;
    for (name, four, six) in [("old", "10.6.1.60", "fd00::60"), ("new", "10.6.1.62", "fd00::62")] {
        let status = world.status(name).await?;
        let eip = status.eip.clone().unwrap_or_default();
        policies &= is_ready(&status) && status.node.as_deref() == Some("n2");
        policies &= (eip.ipv4.as_deref(), eip.ipv6.as_deref()) == (Some(four), Some(six));
    }
    let gateway = world.gateway_status("eg1").await?;
    let usage = gateway.ip_usage.unwrap_or_default();
    let shown = (usage.ipv4_free, usage.ipv6_free, gateway.policy_count) == (2, 2, Some(2));
    let names = gateway.node_list.iter().map(|node| (node.name.as_str(), node.eips.len())).eq([("n1", 0), ("n2", 2)]);
    let mut tunnels = 0;
    for tunnel in world.tunnels().list(&ListParams::default()).await? {
        let status = tunnel.status.unwrap_or_default();
        let node = gateway.node_list.iter().find(|node| Some(&node.name) == tunnel.metadata.name.as_ref());
        let phase_is_shown = node.is_some_and(|node| node.status == status.phase.unwrap_or_default().as_str());
        tunnels += usize::from(status.mark.is_some() && phase_is_shown);
    }
    Ok(ledger == wanted.into() && policies && shown && names && tunnels == 2)
}

async fn a_first_address_takes_one_claim_and_one_status(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let _agents = agents(&world)?;
    for node in ["n1", "n2"] {
        world.node(node).await?;
    }
    world.gateway("eg1", &["10.6.1.60-10.6.1.79"]).await?;
    let proxy = FaultProxy::start(world.client.clone(), Faults::default()).await?;
    let patient = egress::Options { await_holder: Duration::from_mins(2), ..egress_options() };
    let operator = Operator::start_with(&proxy, patient)?;
    // one that comes before any node can serve it is told so, which is a write more
    let ready =
        |status: &EgressGatewayStatus| status.node_list.iter().filter(|node| node.status == "Ready").count() == 2;
    world.gateway_shows("eg1", "two nodes that are ready", ready).await?;
    let names: Vec<String> = (0..20).map(|number| format!("p{number}")).collect();
    let rr = json!({ "allocatorPolicy": "rr" });
    futures::future::try_join_all(names.iter().map(|name| world.policy(name, "eg1", rr.clone()))).await?;
    for name in &names {
        world.granted(name).await?;
    }
    world.gateway_shows("eg1", "all of them", |status| status.policy_count == Some(20)).await?;
    quiet(&proxy).await?;
    operator.stop().await?;
    let writes = writes(&proxy);
    for resource in ["egresspolicies", "addressclaims"] {
        let of_kind: Vec<&Exchange> = writes.iter().filter(|write| write.resource() == Some(resource)).collect();
        assert_eq!(of_kind.len(), names.len(), "one write each: {of_kind:#?}");
    }
    Ok(())
}

async fn a_crash_at_every_write_converges_without_duplicate_or_leak(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let agents = agents(&world)?;
    let proxy = FaultProxy::start(world.client.clone(), Faults::default()).await?;
    a_morning_after(&world).await?;
    let operator = Operator::start(&proxy)?;
    eventually("it rests", async || at_rest(&world).await).await?;
    operator.stop().await?;
    let all = writes(&proxy).len() as u64;
    assert!(all >= 12, "the run must write something to crash at: {all}");
    for write in 1..=all {
        for phase in [Phase::BeforeSend, Phase::AfterCommit, Phase::AfterAnswer] {
            let crashed = crash_at(&world, &proxy, write, phase).await;
            crashed.map_err(|cause| cause.context(format!("crash at write {write} of {all}, {phase:?}")))?;
        }
    }
    Ok(agents.stop().await?)
}

async fn crash_at(world: &World, proxy: &FaultProxy, write: u64, phase: Phase) -> anyhow::Result<()> {
    a_morning_after(world).await?;
    let mut killed = proxy.kill_at(write, phase, counts);
    let operator = Operator::start(proxy)?;
    // Which status is written how often depends on who is faster, so the last ones may not come.
    let ended = async {
        tokio::select! {
            killed = &mut killed => Ok(killed?),
            rested = eventually("it rests", async || at_rest(world).await) => rested,
        }
    };
    ended.await?;
    operator.stop().await?;
    proxy.kill().await;
    proxy.revive();

    let operator = Operator::start(proxy)?;
    eventually("it rests again", async || Ok(at_rest(world).await? && operator.is_idle().await?)).await?;
    operator.stop().await?;
    let written = writes(proxy).len();
    let operator = Operator::start(proxy)?;
    eventually("it has looked once more", async || Ok(operator.turns() >= 1)).await?;
    operator.stop().await?;
    let more = writes(proxy).split_off(written);
    anyhow::ensure!(more.is_empty(), "it wrote although nothing was left to do: {more:#?}");
    Ok(())
}

async fn converged_and_resynced_ten_times_writes_nothing(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let _agents = agents(&world)?;
    let proxy = FaultProxy::start(world.client.clone(), Faults::default()).await?;
    a_morning_after(&world).await?;
    world.pod(&world.namespace, "pod", "new", "10.40.0.1").await?;
    world
        .cluster_policy(
            "all",
            json!({ "egressGatewayName": "eg1", "egressIP": { "useNodeIP": true }, "appliedTo": app("new") }),
        )
        .await?;
    let operator = Operator::start(&proxy)?;
    eventually("the cluster policy is served", async || {
        let policy = world.cluster_policies().get("all").await?;
        Ok(policy.status.is_some_and(|status| status.node.is_some()))
    })
    .await?;
    world.gateway_shows("eg1", "three policies", |status| status.policy_count == Some(3)).await?;
    quiet(&proxy).await?;
    operator.stop().await?;
    let written = writes(&proxy).len();
    for round in 0..10 {
        let operator = Operator::start(&proxy)?;
        eventually("the world was planned once more", async || Ok(operator.turns() > 0)).await?;
        // And once more after a watch was cut and everything listed anew.
        let lists = || proxy.trace().iter().filter(|exchange| exchange.is_list()).count();
        let (turns, listed) = (operator.turns(), lists());
        for kind in ["egresspolicies", "egressgateways", "addressclaims", "nodes"] {
            proxy.script_watch(kind, vec![WatchStep::ExpireInStream]);
        }
        eventually("all were listed anew", async || Ok(lists() >= listed + 4 && operator.turns() > turns)).await?;
        operator.stop().await?;
        let more = writes(&proxy).split_off(written);
        assert!(more.is_empty(), "round {round} wrote: {more:#?}");
    }
    Ok(())
}

/// Waits until nothing was written for a while: views are written once a second.
async fn quiet(proxy: &FaultProxy) -> anyhow::Result<()> {
    loop {
        let before = writes(proxy).len();
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        if writes(proxy).len() == before {
            return Ok(());
        }
    }
}

async fn a_leader_with_an_old_view_changes_nothing(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.node("n1").await?;
    world.node("n2").await?;
    world.gateway("eg1", &["10.6.1.60-10.6.1.69"]).await?;
    for name in ["a", "b"] {
        eventually("the tunnels are ready", async || {
            let tunnels = world.tunnels().list(&ListParams::default()).await?;
            let ready = |status: Option<&portolan_api::egress::EgressTunnelStatus>| {
                status.and_then(|status| status.phase).is_some_and(|phase| phase.as_str() == "Ready")
            };
            Ok(tunnels.items.len() == 2 && tunnels.iter().all(|tunnel| ready(tunnel.status.as_ref())))
        })
        .await?;
        world.policy(name, "eg1", json!({ "ipv4": "10.6.1.60" })).await?;
        world.granted(name).await?;
    }
    // The old view: both policies share an address on its node.
    let policies = world.policies().list(&ListParams::default()).await?;
    let old: u64 = policies.metadata.resource_version.unwrap_or_default().parse()?;
    // What happened since: the address moved, one policy went, another came.
    let (_, node) = world.granted("a").await?;
    world.set_ready(&node, false).await?;
    world.emptied(&node).await?;
    world.policies().delete("a", &kube::api::DeleteParams::default()).await?;
    for name in ["passing", "c"] {
        world.policy(name, "eg1", json!({ "allocatorPolicy": "rr" })).await?;
        world.granted(name).await?;
    }
    world.policies().delete("passing", &kube::api::DeleteParams::default()).await?;
    world.claimed(&["10.6.1.60", "10.6.1.62"]).await?;
    eventually("b follows", async || Ok(world.granted("b").await?.1 != node)).await?;
    operator.stop().await?;
    let (now, identities) = (world.ledger().await?, world.claim_identities().await?);

    let stale = FaultProxy::start(world.client.clone(), Faults::default()).await?;
    stale.freeze_at(Some(old));
    let operator = Operator::start(&stale)?;
    eventually("it has planned on its old view", async || Ok(operator.turns() >= 1 || !writes(&stale).is_empty()))
        .await?;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert_eq!(world.ledger().await?, now, "an old view moves nothing");
    // The claim of c is seen long before c.
    let listed =
        || stale.trace().iter().filter(|one| one.is_list() && one.resource() == Some("egresspolicies")).count();
    let before = listed();
    stale.hold_watch_events(Some("egresspolicies"));
    stale.freeze_at(None);
    eventually("policies are listed before a claim goes", async || Ok(listed() > before)).await?;
    stale.hold_watch_events(None);
    world.policy("d", "eg1", json!({ "ipv4": "10.6.1.63" })).await?;
    world.granted("d").await?;
    let mut after = (world.ledger().await?, world.claim_identities().await?);
    assert!(after.0.remove("10.6.1.63").is_some() && after.1.remove("10.6.1.63").is_some());
    assert_eq!(after, (now, identities), "the same claims, where they were");
    assert_eq!(world.granted("c").await?.0, "10.6.1.62", "what was granted meanwhile stays");
    operator.stop().await
}

async fn without_webhooks_no_address_is_in_two_gateways(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.node("n1").await?;
    let gateways: [(&str, Value); 2] =
        [("eg1", json!(["10.6.1.60-10.6.1.63"])), ("eg2", json!(["10.6.1.62-10.6.1.65"]))];
    for (name, pool) in &gateways {
        world.gateway_like(name, json!({ "ippools": { "ipv4": pool }, "nodeSelector": selector() })).await?;
    }
    for (name, gateway) in [("a", "eg1"), ("b", "eg2")] {
        world.policy(name, gateway, json!({ "ipv4": "10.6.1.62" })).await?;
    }
    assert_eq!(world.granted("a").await?.0, "10.6.1.62");
    world.gateway_refused("eg2", "Accepted", "PoolOverlap").await?;
    world.refused("b", "Accepted", "PoolOverlap").await?;
    assert_eq!(world.status("b").await?.eip, None);
    world.change_gateway("eg2", json!({ "ippools": { "ipv4": ["10.6.1.64-10.6.1.65"] } })).await?;
    world.policy("c", "eg2", json!({ "allocatorPolicy": "rr" })).await?;
    assert_eq!(world.granted("c").await?.0, "10.6.1.64");
    operator.stop().await
}
