//! The events of the original document, each with what it must cause.

use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use portolan_api::egress::Phase;
use serde_json::json;

use super::harness::{Operator, World, app, is_ready, running, selector, without_agents};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    a_new_policy_is_bound_and_its_address_recorded,
    a_node_that_is_not_ready_loses_its_addresses_to_the_others,
    the_last_policy_of_an_address_takes_it_along,
    the_documents_own_yaml_applies_as_it_stands,
    gateway_deleted,
    gateway_eips_reduced_past_admission,
    gateway_selector_changed,
    policy_points_elsewhere_past_admission,
    node_deleted,
    node_label_leaves_a_selector,
    node_label_enters_a_selector,
    tunnel_phase_changes,
    an_address_is_given_again_only_after_its_node_let_go,
    namespace_default_label_re_resolves,
    drain_label_moves_everything_and_cordoning_nothing,
    a_node_that_is_back_waits_ten_seconds_and_gets_nothing_back,
}

async fn a_new_policy_is_bound_and_its_address_recorded(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.node("n1").await?;
    world.gateway("eg1", &["10.6.1.60-10.6.1.65"]).await?;
    world.policy("shop", "eg1", json!({ "allocatorPolicy": "rr" })).await?;
    assert_eq!(world.granted("shop").await?, ("10.6.1.60".into(), "n1".into()));
    assert_eq!(world.ledger().await?, [("10.6.1.60".to_owned(), "n1".to_owned())].into());
    eventually("the gateway shows it", async || {
        let status = world.gateways().get("eg1").await?.status.unwrap_or_default();
        let usage = status.ip_usage.unwrap_or_default();
        let shown = status.node_list.first().and_then(|node| node.eips.first().cloned()).unwrap_or_default();
        Ok((usage.ipv4_total, usage.ipv4_free) == (6, 5)
            && shown.ipv4 == "10.6.1.60"
            && shown.policies.first().is_some_and(|policy| policy.name == "shop"))
    })
    .await?;
    operator.stop().await
}

async fn a_node_that_is_not_ready_loses_its_addresses_to_the_others(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    for node in ["n1", "n2", "n3"] {
        world.node(node).await?;
    }
    world.gateway("eg1", &["10.6.1.60-10.6.1.71"]).await?;
    let names: Vec<String> = (0..12).map(|number| format!("p{number}")).collect();
    for name in &names {
        world.policy(name, "eg1", json!({ "allocatorPolicy": "rr" })).await?;
    }
    for name in &names {
        world.granted(name).await?;
    }
    let before = world.ledger().await?;
    world.set_ready("n1", false).await?;
    eventually("nothing lives on n1", async || Ok(world.ledger().await?.values().all(|node| node != "n1"))).await?;
    let after = world.ledger().await?;
    for (address, node) in &before {
        assert!(node == "n1" || after[address] == *node, "{address} moved from {node} without a cause");
    }
    for node in ["n2", "n3"] {
        assert_eq!(after.values().filter(|holder| *holder == node).count(), 6, "spread over the survivors: {after:?}");
    }
    operator.stop().await
}

async fn the_last_policy_of_an_address_takes_it_along(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.node("n1").await?;
    world.gateway("eg1", &["10.6.1.60-10.6.1.61"]).await?;
    for name in ["a", "b"] {
        world.policy(name, "eg1", json!({})).await?;
        assert_eq!(world.granted(name).await?.0, "10.6.1.60", "both share the default address");
    }
    world.policies().delete("a", &DeleteParams::default()).await?;
    eventually("the gateway serves one policy", async || {
        Ok(world.gateways().get("eg1").await?.status.unwrap_or_default().policy_count == Some(1))
    })
    .await?;
    world.claimed(&["10.6.1.60"]).await?;
    world.policies().delete("b", &DeleteParams::default()).await?;
    world.claimed(&[]).await?;
    operator.stop().await
}

async fn the_documents_own_yaml_applies_as_it_stands(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.node("node1").await?;
    let document = json!({
        "apiVersion": "egressgateway.spidernet.io/v1beta1",
        "kind": "EgressGateway",
        "metadata": { "name": "eg1" },
        "spec": {
            "ippools": {
                "ipv4": ["10.6.1.55", "10.6.1.60-10.6.1.65", "10.6.1.70/28"],
                "ipv6": [""],
                "ipv4DefaultEIP": "",
                "ipv6DefaultEIP": ""
            },
            "nodeSelector": { "selector": { "matchLabels": { "egress": "true" } }, "policy": "doing" }
        },
        "status": { "nodeList": [{ "name": "node1", "status": "Ready", "epis": [
            { "ipv4": "10.6.1.55", "ipv6": "fd00::55", "policies": [{ "name": "app", "namespace": "default" }] }
        ] }] }
    });
    let gateway = serde_json::from_value(document.clone())?;
    world.gateways().create(&PostParams::default(), &gateway).await?;
    world
        .gateways()
        .patch_status("eg1", &PatchParams::default(), &Patch::Merge(json!({ "status": document["status"] })))
        .await?;
    world.policy_like("app", json!({ "egressGatewayName": "eg1", "appliedTo": app("app") })).await?;
    assert_eq!(world.granted("app").await?.0, "10.6.1.55");
    eventually("its pool is counted and `eips` is written", async || {
        let status = world.gateways().get("eg1").await?.status.unwrap_or_default();
        let usage = status.ip_usage.unwrap_or_default();
        Ok((usage.ipv4_total, usage.ipv4_free) == (21, 20) && status.node_list.iter().all(|node| node.epis.is_empty()))
    })
    .await?;
    operator.stop().await
}

/// Two nodes, a gateway, and four policies with an address each: two addresses on either node.
async fn four_addresses(world: &World) -> anyhow::Result<()> {
    for node in ["n1", "n2"] {
        world.node(node).await?;
        eventually("its tunnel is ready", async || {
            let tunnel = world.tunnels().get_opt(node).await?;
            Ok(tunnel.and_then(|tunnel| tunnel.status?.phase) == Some(Phase::Ready))
        })
        .await?;
    }
    world.gateway("eg1", &["10.6.1.60-10.6.1.69"]).await?;
    for name in ["a", "b", "c", "d"] {
        world.policy(name, "eg1", json!({ "allocatorPolicy": "rr" })).await?;
    }
    for name in ["a", "b", "c", "d"] {
        world.granted(name).await?;
    }
    Ok(())
}

async fn gateway_deleted(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.node("n1").await?;
    world.gateway("eg1", &["10.6.1.60"]).await?;
    world.policy("shop", "eg1", json!({})).await?;
    world.granted("shop").await?;
    world.gateways().delete("eg1", &DeleteParams::default()).await?;
    world.gateway_refused("eg1", "Accepted", "Deleting").await?;
    assert_eq!(world.ledger().await?, [("10.6.1.60".to_owned(), "n1".to_owned())].into(), "its policies keep working");
    world.policy("late", "eg1", json!({})).await?;
    let said = world.refused("late", "Accepted", "Invalid").await?;
    assert!(said.contains("being deleted"), "{said}");
    assert!(is_ready(&world.status("shop").await?), "and it says so");
    world.policies().delete("late", &DeleteParams::default()).await?;
    world.policies().delete("shop", &DeleteParams::default()).await?;
    world.gateway_goes("eg1").await?;
    assert!(world.ledger().await?.is_empty(), "the claims went first");
    operator.stop().await
}

async fn gateway_eips_reduced_past_admission(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.node("n1").await?;
    world.gateway("eg1", &["10.6.1.60-10.6.1.61"]).await?;
    world.policy("shop", "eg1", json!({ "ipv4": "10.6.1.61" })).await?;
    world.granted("shop").await?;
    world.change_gateway("eg1", json!({ "ippools": { "ipv4": ["10.6.1.60"] } })).await?;
    let said = world.gateway_refused("eg1", "Accepted", "PoolShrunkInUse").await?;
    assert!(said.contains("10.6.1.61"), "{said}");
    world.policy("other", "eg1", json!({ "allocatorPolicy": "rr" })).await?;
    assert_eq!(world.granted("other").await?.0, "10.6.1.60");
    assert_eq!(world.granted("shop").await?.0, "10.6.1.61", "in service as before");
    world.policies().delete("shop", &DeleteParams::default()).await?;
    world.claimed(&["10.6.1.60"]).await?;
    operator.stop().await
}

async fn gateway_selector_changed(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    four_addresses(&world).await?;
    world.label_node("n2", "zone", Some("b")).await?;
    let before = world.ledger().await?;
    let selector = json!({ "selector": { "matchLabels": { "egress": null, "zone": "b" } } });
    world.change_gateway("eg1", json!({ "nodeSelector": selector })).await?;
    world.emptied("n1").await?;
    let claims = world.claims().list(&ListParams::default()).await?;
    for claim in claims {
        let record = claim.spec.egress.unwrap_or_default();
        let moved = before[claim.metadata.name.as_deref().unwrap_or_default()] == "n1";
        assert_eq!(record.epoch, if moved { 2 } else { 1 }, "one write per address that moves, none for the others");
    }
    operator.stop().await
}

async fn policy_points_elsewhere_past_admission(backend: Backend) -> anyhow::Result<()> {
    let (world, proxy, operator, _agents) = running(backend).await?;
    world.node("n1").await?;
    let gateway = |default: bool, address: &str| json!({ "clusterDefault": default, "ippools": { "ipv4": [address] }, "nodeSelector": selector() });
    world.gateway_like("eg1", gateway(true, "10.6.1.60")).await?;
    world.gateway_like("eg2", gateway(false, "10.6.1.70")).await?;
    world.policy_like("shop", json!({ "appliedTo": app("shop") })).await?;
    assert_eq!(world.granted("shop").await?.0, "10.6.1.60");
    world.change_gateway("eg1", json!({ "clusterDefault": false })).await?;
    world.change_gateway("eg2", json!({ "clusterDefault": true })).await?;
    world.refused("shop", "Accepted", "ImmutableField").await?;
    assert_eq!(world.ledger().await?, [("10.6.1.60".to_owned(), "n1".to_owned())].into(), "it keeps what it has");
    assert_eq!(world.status("shop").await?.node.as_deref(), Some("n1"));
    // Whose address it is past a restart is what the gateway shows, a second later at most.
    world.gateway_shows("eg1", "its policy", |status| status.policy_count == Some(1)).await?;
    operator.stop().await?;
    let operator = Operator::start(&proxy)?;
    eventually("another operator has planned", async || Ok(operator.turns() > 0)).await?;
    assert_eq!(world.ledger().await?, [("10.6.1.60".to_owned(), "n1".to_owned())].into(), "a restart moves nothing");
    world.refused("shop", "Accepted", "ImmutableField").await?;
    operator.stop().await
}

async fn node_deleted(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    four_addresses(&world).await?;
    let before = world.ledger().await?;
    world.nodes().delete("n1", &DeleteParams::default()).await?;
    world.emptied("n1").await?;
    assert_eq!(world.ledger().await?.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    eventually("its tunnel is gone", async || Ok(world.tunnels().get_opt("n1").await?.is_none())).await?;
    world
        .gateway_shows("eg1", "n2 alone", |status| {
            status.node_list.iter().map(|node| node.name.as_str()).eq(["n2"]) && status.node_list[0].eips.len() == 4
        })
        .await?;
    operator.stop().await
}

async fn node_label_leaves_a_selector(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    four_addresses(&world).await?;
    world.label_node("n1", "egress", None).await?;
    world.emptied("n1").await?;
    for name in ["a", "b", "c", "d"] {
        eventually("the policy follows", async || Ok(world.granted(name).await?.1 == "n2")).await?;
    }
    world
        .gateway_shows("eg1", "n2 alone", |status| status.node_list.iter().map(|node| node.name.as_str()).eq(["n2"]))
        .await?;
    operator.stop().await
}

async fn node_label_enters_a_selector(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    four_addresses(&world).await?;
    let before = world.ledger().await?;
    world.node("n3").await?;
    world
        .gateway_shows("eg1", "the node and its phase", |status| {
            status.node_list.iter().any(|node| node.name == "n3" && node.status == "Ready" && node.eips.is_empty())
        })
        .await?;
    assert_eq!(world.ledger().await?, before, "nothing moves");
    world.policy("e", "eg1", json!({ "allocatorPolicy": "rr" })).await?;
    assert_eq!(world.granted("e").await?.1, "n3", "the next policy finds it empty");
    operator.stop().await
}

async fn tunnel_phase_changes(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator) = without_agents(backend).await?;
    for node in ["n1", "n2"] {
        world.node(node).await?;
    }
    world.set_phase("n1", "Ready").await?;
    world.gateway("eg1", &["10.6.1.60"]).await?;
    world.policy("shop", "eg1", json!({})).await?;
    let lives_on = async |node: &str| {
        let wanted = [("10.6.1.60".to_owned(), node.to_owned())].into();
        eventually(&format!("the address lives on `{node}`"), async || Ok(world.ledger().await? == wanted)).await
    };
    lives_on("n1").await?;
    world.set_phase("n2", "Ready").await?;
    world.set_phase("n1", "HeartbeatTimeout").await?;
    lives_on("n2").await?;
    world.set_phase("n2", "Failed").await?;
    lives_on("").await?;
    world.refused("shop", "Programmed", "NoReadyNode").await?;
    assert!(world.status("shop").await?.eip.is_some(), "what was granted stays granted");
    operator.stop().await
}

async fn namespace_default_label_re_resolves(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.node("n1").await?;
    world.gateway("eg1", &["10.6.1.60"]).await?;
    world.policy_like("shop", json!({ "appliedTo": app("shop") })).await?;
    world.refused("shop", "Accepted", "GatewayNotFound").await?;
    world.label_namespace("spidernet.io/egressgateway-default", "eg1").await?;
    assert_eq!(world.granted("shop").await?.0, "10.6.1.60");
    operator.stop().await
}

async fn drain_label_moves_everything_and_cordoning_nothing(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    four_addresses(&world).await?;
    let before = world.ledger().await?;
    let cordon = Patch::Merge(json!({ "spec": { "unschedulable": true } }));
    world.nodes().patch("n2", &PatchParams::default(), &cordon).await?;
    world.label_node("n1", "portolan.dev/egress-drain", Some("true")).await?;
    world.emptied("n1").await?;
    assert_eq!(world.ledger().await?.keys().collect::<Vec<_>>(), before.keys().collect::<Vec<_>>());
    operator.stop().await
}

async fn a_node_that_is_back_waits_ten_seconds_and_gets_nothing_back(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    four_addresses(&world).await?;
    world.set_ready("n1", false).await?;
    world.emptied("n1").await?;
    let moved = world.ledger().await?;
    let back = std::time::Instant::now();
    world.set_ready("n1", true).await?;
    world.policy("early", "eg1", json!({ "allocatorPolicy": "rr" })).await?;
    assert_eq!(world.granted("early").await?.1, "n2", "not trusted yet");
    let mut number = 0;
    eventually("a new policy goes to the node that is back", async || {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let name = format!("late{number}");
        number += 1;
        world.policy(&name, "eg1", json!({ "useNodeIP": true })).await?;
        Ok(world.granted(&name).await?.1 == "n1")
    })
    .await?;
    assert!(back.elapsed() >= std::time::Duration::from_secs(9), "after {:?}", back.elapsed());
    let after = world.ledger().await?;
    assert!(moved.iter().all(|(address, node)| after[address] == *node), "nothing goes back");
    operator.stop().await
}

async fn an_address_is_given_again_only_after_its_node_let_go(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator) = without_agents(backend).await?;
    world.node("n1").await?;
    world.set_phase("n1", "Ready").await?;
    world.gateway("eg1", &["10.6.1.60"]).await?;
    world.policy("first", "eg1", json!({})).await?;
    let says = async |state: &str| {
        let status = json!({ "status": { "egress": { "node": "n1", "epoch": 1, "state": state } } });
        world.claims().patch_status("10.6.1.60", &PatchParams::default(), &Patch::Merge(status)).await
    };
    world.claimed(&["10.6.1.60"]).await?;
    says("Held").await?;
    world.granted("first").await?;
    let before = world.claims().get("10.6.1.60").await?.metadata.uid;
    world.policies().delete("first", &DeleteParams::default()).await?;
    eventually("the claim is on its way out", async || {
        Ok(world.claims().get("10.6.1.60").await?.metadata.deletion_timestamp.is_some())
    })
    .await?;
    world.policy("second", "eg1", json!({})).await?;
    world.refused("second", "Programmed", "NotProgrammed").await?;
    assert_eq!(world.claims().get("10.6.1.60").await?.metadata.uid, before, "its node has it still");
    assert!(world.status("second").await?.eip.is_none());
    says("Released").await?;
    eventually("the second policy has it", async || Ok(world.status("second").await?.eip.is_some())).await?;
    assert_ne!(world.claims().get("10.6.1.60").await?.metadata.uid, before);
    operator.stop().await
}
