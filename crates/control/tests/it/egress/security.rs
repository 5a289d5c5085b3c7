//! Attacks on the control plane by tenants, past admission: each is answered, and hurts nobody else.

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use portolan_api::egress::EgressEndpointSlice;
use portolan_testkit::{FaultProxy, Faults};
use serde_json::json;

use super::harness::{Hooks, Operator, World, agents, app, is_ready, running, selector};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    a_status_that_a_tenant_wrote_is_restored,
    a_status_that_a_tenant_wrote_while_nobody_looked_is_restored,
    a_gateway_serves_only_the_namespaces_it_allows,
    an_exclusive_address_serves_one_namespace,
    an_exclusive_address_is_not_won_by_a_status_that_a_tenant_wrote,
    a_policy_made_again_under_its_name_inherits_nothing,
    a_namespace_made_again_under_its_name_inherits_nothing,
    names_of_253_characters_and_odd_strings_break_nothing,
}

async fn a_status_that_a_tenant_wrote_is_restored(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    for node in ["n1", "n2"] {
        world.node(node).await?;
    }
    world.gateway("eg1", &["10.6.1.60-10.6.1.65"]).await?;
    world.policy("shop", "eg1", json!({})).await?;
    world.policy("none", "nowhere", json!({})).await?;
    let before = world.granted("shop").await?;
    world.refused("none", "Accepted", "GatewayNotFound").await?;
    let lie = json!({ "status": { "eip": { "ipv4": "10.6.1.65", "ipv6": "fd00::1" }, "node": "n9" } });
    for policy in ["shop", "none"] {
        world.policies().patch_status(policy, &PatchParams::default(), &Patch::Merge(&lie)).await?;
    }
    eventually("both say again what was granted", async || {
        let (shop, none) = (world.status("shop").await?, world.status("none").await?);
        let eip = shop.eip.unwrap_or_default();
        Ok((eip.ipv4, eip.ipv6, shop.node) == (Some(before.0.clone()), None, Some(before.1.clone()))
            && (none.eip, none.node) == (None, None))
    })
    .await?;
    world.claimed(&[&before.0]).await?;
    operator.stop().await
}

async fn a_status_that_a_tenant_wrote_while_nobody_looked_is_restored(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let _agents = agents(&world)?;
    world.node("n1").await?;
    world.gateway("eg1", &["10.6.1.60-10.6.1.62"]).await?;
    world.gateway("eg2", &["10.6.1.70-10.6.1.71"]).await?;
    world.policy("shop", "eg1", json!({})).await?;
    world.policy("neighbour", "eg1", json!({ "ipv4": "10.6.1.62" })).await?;
    world.policy("other", "eg2", json!({})).await?;
    let proxy = FaultProxy::start(world.client.clone(), Faults::default()).await?;
    let operator = Operator::start(&proxy)?;
    for policy in ["shop", "neighbour", "other"] {
        world.granted(policy).await?;
    }
    world.gateway_shows("eg1", "its policies", |status| status.policy_count == Some(2)).await?;
    operator.stop().await?;
    for (whose, lie) in [
        ("an unused address of its own gateway", json!({ "ipv4": "10.6.1.61" })),
        ("an address of its own gateway that another policy has", json!({ "ipv4": "10.6.1.62" })),
        ("an address of another gateway", json!({ "ipv4": "10.6.1.70" })),
        ("an address that no gateway has", json!({ "ipv4": "10.9.9.9" })),
        ("the node's own", json!(null)),
    ] {
        let status = json!({ "status": { "eip": lie, "node": "n9" } });
        world.policies().patch_status("shop", &PatchParams::default(), &Patch::Merge(status)).await?;
        let operator = Operator::start(&proxy)?;
        eventually(&format!("{whose} is taken back"), async || {
            let status = world.status("shop").await?;
            let eip = status.eip.clone().unwrap_or_default();
            Ok(is_ready(&status) && (eip.ipv4.as_deref(), status.node.as_deref()) == (Some("10.6.1.60"), Some("n1")))
        })
        .await?;
        operator.stop().await?;
        world.claimed(&["10.6.1.60", "10.6.1.62", "10.6.1.70"]).await?;
    }
    Ok(())
}

async fn a_gateway_serves_only_the_namespaces_it_allows(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.node("n1").await?;
    let object = json!({
        "metadata": { "name": "eg1", "annotations": { "portolan.dev/allowed-namespaces": "team in (a,b)" } },
        "spec": { "ippools": { "ipv4": ["10.6.1.60"] }, "nodeSelector": selector() }
    });
    world.gateways().create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    world.policy("shop", "eg1", json!({})).await?;
    world.refused("shop", "Accepted", "NotAllowed").await?;
    assert!(world.ledger().await?.is_empty());
    world.label_namespace("team", "a").await?;
    world.granted("shop").await?;
    operator.stop().await?;

    world.label_namespace("team", "c").await?;
    let hooks = Hooks::start(&world).await?;
    hooks.sees_gateway("eg1").await?;
    let refused = world.policy("late", "eg1", json!({})).await.expect_err("the webhook must refuse it");
    assert!(refused.to_string().contains("not for this namespace"), "{refused}");
    hooks.stop().await
}

async fn an_exclusive_address_serves_one_namespace(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.node("n1").await?;
    let object = json!({
        "metadata": { "name": "eg1", "annotations": { "portolan.dev/exclusive-eips": "true" } },
        "spec": { "ippools": { "ipv4": ["10.6.1.60-10.6.1.69"] }, "nodeSelector": selector() }
    });
    world.gateways().create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    world.policy("mine", "eg1", json!({ "ipv4": "10.6.1.65" })).await?;
    world.granted("mine").await?;
    let (_, policies) = world.other_namespace().await?;
    let spec = json!({ "egressGatewayName": "eg1", "egressIP": { "ipv4": "10.6.1.65" }, "appliedTo": app("x") });
    let object = json!({ "metadata": { "name": "theirs" }, "spec": spec });
    policies.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    eventually("it is refused", async || {
        let status = policies.get("theirs").await?.status.unwrap_or_default();
        let reason = status.conditions.iter().find(|condition| condition.type_ == "Accepted").map(|c| c.reason.clone());
        Ok(reason.as_deref() == Some("NotAllowed") && status.eip.is_none())
    })
    .await?;
    world.policy("mine-too", "eg1", json!({ "ipv4": "10.6.1.65" })).await?;
    world.granted("mine-too").await?;
    operator.stop().await
}

async fn an_exclusive_address_is_not_won_by_a_status_that_a_tenant_wrote(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let _agents = agents(&world)?;
    world.node("n1").await?;
    let object = json!({
        "metadata": { "name": "eg1", "annotations": { "portolan.dev/exclusive-eips": "true" } },
        "spec": { "ippools": { "ipv4": ["10.6.1.60-10.6.1.69"] }, "nodeSelector": selector() }
    });
    world.gateways().create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    world.policy("mine", "eg1", json!({ "ipv4": "10.6.1.65" })).await?;
    let proxy = FaultProxy::start(world.client.clone(), Faults::default()).await?;
    let operator = Operator::start(&proxy)?;
    world.granted("mine").await?;
    world.gateway_shows("eg1", "its policy", |status| status.policy_count == Some(1)).await?;
    operator.stop().await?;

    let (_, policies) = world.other_namespace().await?;
    for (name, egress_ip) in [("by-name", json!({ "ipv4": "10.6.1.65" })), ("given", json!({}))] {
        let spec = json!({ "egressGatewayName": "eg1", "egressIP": egress_ip, "appliedTo": app("x") });
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        policies.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        let lie = json!({ "status": { "eip": { "ipv4": "10.6.1.65" }, "node": "n1" } });
        policies.patch_status(name, &PatchParams::default(), &Patch::Merge(lie)).await?;
    }
    let operator = Operator::start(&proxy)?;
    eventually("both have what is theirs", async || {
        let eip = async |name: &str| anyhow::Ok(policies.get(name).await?.status.unwrap_or_default().eip);
        let given = eip("given").await?.and_then(|eip| eip.ipv4);
        Ok(eip("by-name").await?.is_none() && given.as_deref() == Some("10.6.1.60"))
    })
    .await?;
    assert_eq!(world.granted("mine").await?.0, "10.6.1.65");
    operator.stop().await
}

async fn a_policy_made_again_under_its_name_inherits_nothing(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let _agents = agents(&world)?;
    world.node("n1").await?;
    world.gateway("eg1", &["10.6.1.60-10.6.1.69"]).await?;
    world.policy("shop", "eg1", json!({ "ipv4": "10.6.1.65" })).await?;
    let proxy = FaultProxy::start(world.client.clone(), Faults::default()).await?;
    let operator = Operator::start(&proxy)?;
    world.granted("shop").await?;
    world.gateway_shows("eg1", "the policy", |status| status.policy_count == Some(1)).await?;
    operator.stop().await?;
    world.policies().delete("shop", &DeleteParams::default()).await?;
    world.policy("shop", "eg1", json!({})).await?;
    let operator = Operator::start(&proxy)?;
    assert_eq!(world.granted("shop").await?.0, "10.6.1.60", "the default address, not that of its namesake");
    world.claimed(&["10.6.1.60"]).await?;
    operator.stop().await
}

async fn a_namespace_made_again_under_its_name_inherits_nothing(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let _agents = agents(&world)?;
    world.node("n1").await?;
    world.gateway("eg1", &["10.6.1.60-10.6.1.69"]).await?;
    let (namespace, policies) = world.other_namespace().await?;
    let make = async |egress_ip: serde_json::Value| -> anyhow::Result<()> {
        let spec = json!({ "egressGatewayName": "eg1", "egressIP": egress_ip, "appliedTo": app("shop") });
        let object = json!({ "metadata": { "name": "shop" }, "spec": spec });
        policies.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    };
    let has = async |address: &str| {
        eventually(&format!("the policy has {address}"), async || {
            let status = policies.get("shop").await?.status.unwrap_or_default();
            Ok(is_ready(&status) && status.eip.and_then(|eip| eip.ipv4).as_deref() == Some(address))
        })
        .await
    };
    make(json!({ "ipv4": "10.6.1.65" })).await?;
    let proxy = FaultProxy::start(world.client.clone(), Faults::default()).await?;
    let operator = Operator::start(&proxy)?;
    has("10.6.1.65").await?;
    world.gateway_shows("eg1", "the policy", |status| status.policy_count == Some(1)).await?;
    operator.stop().await?;

    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    namespaces.delete(&namespace, &DeleteParams::default()).await?;
    eventually("the namespace is gone", async || Ok(namespaces.get_opt(&namespace).await?.is_none())).await?;
    let again = json!({ "metadata": { "name": namespace } });
    namespaces.create(&PostParams::default(), &serde_json::from_value(again)?).await?;
    make(json!({})).await?;
    let operator = Operator::start(&proxy)?;
    has("10.6.1.60").await?;
    world.claimed(&["10.6.1.60"]).await?;
    operator.stop().await
}

async fn names_of_253_characters_and_odd_strings_break_nothing(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.node("n1").await?;
    let long = |end: &str| {
        format!("{}{end}", &"x234567890123456789012345678901234567890123456789.".repeat(6)[..253 - end.len()])
    };
    let gateway = long("gateway");
    world.gateway(&gateway, &["10.6.1.60-10.6.1.69"]).await?;
    world.pod(&world.namespace, "pod", "long", "10.40.0.1").await?;
    for end in ["one", "two"] {
        let spec = json!({ "egressGatewayName": gateway, "appliedTo": app("long"), "priority": 1 });
        world.policy_like(&long(end), spec).await?;
    }
    let odd = "ünï\n\t\u{202e}\u{1f980} \"'`$(reboot)%s";
    let gateway_like = json!({ "ippools": { "ipv4": [odd, "10.7.0.1"], "ipv4DefaultEIP": odd },
        "nodeSelector": { "selector": { "matchLabels": { "egress": "true" } }, "policy": odd } });
    world.gateway_like("odd", gateway_like).await?;
    let spec = json!({ "egressGatewayName": odd, "egressIP": { "allocatorPolicy": odd }, "appliedTo": app("x") });
    world.policy_like("odd", spec).await?;
    world.gateway_refused("odd", "Accepted", "Invalid").await?;
    world.refused("odd", "Accepted", "GatewayNotFound").await?;

    assert_eq!(world.granted(&long("one")).await?.0, "10.6.1.60");
    eventually("the pods of both long names are listed", async || {
        let slices = world.namespaced::<EgressEndpointSlice>().list(&kube::api::ListParams::default()).await?;
        let owners = slices.iter().flat_map(|slice| slice.metadata.owner_references.iter().flatten());
        let owners: std::collections::BTreeSet<&str> = owners.map(|owner| owner.name.as_str()).collect();
        Ok(owners == [long("one").as_str(), long("two").as_str()].into())
    })
    .await?;
    let turns = operator.turns();
    world.policy("last", &gateway, json!({})).await?;
    world.granted("last").await?;
    eventually("turns end well", async || Ok(operator.turns() > turns)).await?;
    operator.stop().await
}
