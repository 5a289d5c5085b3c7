//! Every validation rule, by its number: what the API server refuses by itself (S), what the webhook refuses (W), and
//! what the controller says when the webhook was not there (C).

use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use portolan_api::egress::{EgressClusterInfo, EgressClusterPolicy, EgressGateway, EgressPolicy};
use serde_json::{Value, json};

use super::harness::{Hooks, World, app, running, selector};
use crate::harness::{Backend, on_both_servers};

on_both_servers! {
    the_api_server_alone_refuses_what_its_rules_forbid,
    what_cannot_change_cannot_be_changed,
    the_webhook_refuses_what_only_it_can_know,
    the_webhook_judges_updates_against_the_old_object_and_the_ledger,
    the_webhook_fills_in_defaults,
    without_webhook_the_controller_says_what_is_wrong,
    a_gateway_in_use_cannot_be_deleted_with_the_webhook,
}

fn gateway(name: &str, spec: &Value) -> Value {
    json!({ "metadata": { "name": name }, "spec": spec })
}

/// A policy spec with something else in it.
fn spec(more: Value) -> Value {
    let mut spec = json!({ "egressGatewayName": "eg1", "appliedTo": app("web") });
    if let (Value::Object(spec), Value::Object(more)) = (&mut spec, more) {
        spec.extend(more);
    }
    spec
}

/// What the API server says of a request that it must refuse.
fn told<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> String {
    let Err(kube::Error::Api(status)) = answer else { unreachable!("it was not refused: {answer:?}") };
    assert!(matches!(status.code, 400 | 403 | 422), "{status:?}");
    status.message.clone()
}

async fn the_api_server_alone_refuses_what_its_rules_forbid(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    for (rule, object, says) in [
        ("2", gateway("g", &json!({ "ippools": {} })), "nodeSelector.selector is empty"),
        ("2", gateway("g", &json!({ "nodeSelector": { "selector": {} } })), "nodeSelector.selector is empty"),
        ("2", gateway("g", &json!({ "nodeSelector": { "selector": { "matchLabels": {} } } })), "selector is empty"),
    ] {
        let object: EgressGateway = serde_json::from_value(object)?;
        let said = told(world.gateways().create(&PostParams::default(), &object).await);
        assert!(said.contains(says), "rule {rule}: {said}");
    }
    let many: Vec<String> = (0..1001).map(|number| format!("10.{}.{}.0/24", number / 250, number % 250)).collect();
    for (rule, more, says) in [
        ("13", json!({ "egressIP": { "useNodeIP": true, "ipv4": "10.6.1.60" } }), "useNodeIP"),
        ("14", json!({ "egressIP": { "ipv4": "10.6.1.600" } }), "not an IPv4 address"),
        ("14", json!({ "egressIP": { "ipv4": "fd00::1" } }), "not an IPv4 address"),
        ("14", json!({ "egressIP": { "ipv6": "10.6.1.60" } }), "not an IPv6 address"),
        (
            "15",
            json!({ "appliedTo": { "podSelector": { "matchLabels": { "a": "b" } }, "podSubnet": ["10.1.0.0/16"] } }),
            "exclude each other",
        ),
        (
            "15, matchExpressions",
            json!({ "appliedTo": { "podSelector": { "matchExpressions": [{ "key": "a", "operator": "Exists" }] },
                                   "podSubnet": ["10.1.0.0/16"] } }),
            "exclude each other",
        ),
        ("16", json!({ "appliedTo": {} }), "no pod is selected"),
        ("16", json!({ "appliedTo": { "podSelector": {} } }), "no pod is selected"),
        ("16", json!({ "appliedTo": { "podSelector": { "matchLabels": {} }, "podSubnet": [] } }), "no pod is selected"),
        ("17", json!({ "appliedTo": { "podSubnet": ["10.1.0.0"] } }), "not a CIDR"),
        ("17", json!({ "destSubnet": ["10.1.0.0/33"] }), "not a CIDR"),
        ("17", json!({ "destSubnet": many }), "1000"),
        ("priority", json!({ "priority": -1 }), "priority"),
    ] {
        let object = json!({ "metadata": { "name": "p" }, "spec": spec(more) });
        let policy: EgressPolicy = serde_json::from_value(object.clone())?;
        let said = told(world.policies().create(&PostParams::default(), &policy).await);
        assert!(said.contains(says), "rule {rule}: {said}");
        let policy: EgressClusterPolicy = serde_json::from_value(object)?;
        let said = told(world.cluster_policies().create(&PostParams::default(), &policy).await);
        assert!(said.contains(says), "rule {rule}, cluster policy: {said}");
    }
    for subnets in [json!(["0.0.0.0/0"]), json!(["::/0"]), json!(["10.1.2.3/8"])] {
        let object = json!({ "metadata": { "generateName": "p-" }, "spec": spec(json!({ "destSubnet": subnets })) });
        world.policies().create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    }
    let info: EgressClusterInfo = serde_json::from_value(json!({ "metadata": { "name": "mine" }, "spec": {} }))?;
    let infos = kube::Api::<EgressClusterInfo>::all(world.client.clone());
    let said = told(infos.create(&PostParams::default(), &info).await);
    assert!(said.contains("`default`"), "rule 1: {said}");
    Ok(())
}

async fn what_cannot_change_cannot_be_changed(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.policy_like("p", spec(json!({ "egressIP": { "ipv4": "10.6.1.60" } }))).await?;
    for (field, change) in [
        ("egressGatewayName", json!({ "egressGatewayName": "other" })),
        ("egressGatewayName", json!({ "egressGatewayName": null })),
        ("egressIP.ipv4", json!({ "egressIP": { "ipv4": "10.6.1.61" } })),
        ("egressIP.ipv4", json!({ "egressIP": { "ipv4": null } })),
        ("egressIP.ipv6", json!({ "egressIP": { "ipv6": "fd00::1" } })),
        ("egressIP.allocatorPolicy", json!({ "egressIP": { "allocatorPolicy": "rr" } })),
        ("egressIP.useNodeIP", json!({ "egressIP": { "useNodeIP": true, "ipv4": null } })),
    ] {
        let patch = Patch::Merge(json!({ "spec": change }));
        let said = told(world.policies().patch("p", &PatchParams::default(), &patch).await);
        assert!(said.contains(field) && said.contains("cannot change"), "{field}: {said}");
    }
    let patch = Patch::Merge(json!({ "spec": { "priority": 3, "destSubnet": ["0.0.0.0/0"] } }));
    world.policies().patch("p", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Gateways that are refused by the webhook, and by the controller when it was not there: rule, spec, reason, words.
fn bad_gateways() -> Vec<(&'static str, Value, &'static str, &'static str)> {
    let pools = |ippools: Value| json!({ "ippools": ippools, "nodeSelector": selector() });
    vec![
        ("4", json!({ "clusterDefault": true, "nodeSelector": selector() }), "DuplicateDefault", "default already"),
        ("5", pools(json!({ "ipv4": ["10.7.0.1-"] })), "Invalid", "10.7.0.1-"),
        ("5", pools(json!({ "ipv4": ["10.7.0.9-10.7.0.1"] })), "Invalid", "10.7.0.9-10.7.0.1"),
        ("5", pools(json!({ "ipv4": ["fd00::1"] })), "Invalid", "family"),
        ("5", pools(json!({ "ipv4": ["10.0.0.0/8"] })), "Invalid", "65536"),
        ("6", pools(json!({ "ipv4": ["10.7.0.1-10.7.0.2"], "ipv6": ["fd00::1"] })), "PairMismatch", "paired"),
        ("7", pools(json!({ "ipv4": ["10.7.0.1"], "ipv4DefaultEIP": "10.7.0.2" })), "OutsidePool", "10.7.0.2"),
        ("8", pools(json!({ "ipv4": ["10.6.1.59-10.6.1.60"] })), "PoolOverlap", "10.6.1.60"),
        ("8, node", pools(json!({ "ipv4": ["172.20.0.0/24"] })), "PoolOverlap", "inside the cluster"),
    ]
}

async fn the_webhook_refuses_what_only_it_can_know(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1").await?;
    let hooks = Hooks::start(&world).await?;
    world.gateway_like("eg1", json!({ "clusterDefault": true, "ippools": { "ipv4": ["10.6.1.60-10.6.1.61"], "ipv6": ["fd00::60-fd00::61"] }, "nodeSelector": selector() })).await?;
    hooks.sees_gateway("eg1").await?;
    for (rule, spec, _, says) in bad_gateways() {
        let object: EgressGateway = serde_json::from_value(gateway("bad", &spec))?;
        let said = told(world.gateways().create(&PostParams::default(), &object).await);
        assert!(said.contains(says), "rule {rule}: {said}");
    }
    for (rule, more, says) in [
        ("12", json!({ "egressGatewayName": "nowhere" }), "does not exist"),
        ("19", json!({ "egressIP": { "ipv4": "10.9.9.9" } }), "not in the pool"),
        ("21", json!({ "egressIP": { "ipv4": "10.6.1.60", "ipv6": "fd00::61" } }), "goes with fd00::60"),
    ] {
        let object = json!({ "metadata": { "name": "p" }, "spec": spec(more) });
        let said = told(world.policies().create(&PostParams::default(), &serde_json::from_value(object)?).await);
        assert!(said.contains(says), "rule {rule}: {said}");
    }
    let infos = kube::Api::<EgressClusterInfo>::all(world.client.clone());
    let said = told(infos.delete("default", &DeleteParams::default()).await);
    assert!(said.contains("cannot be deleted"), "rule 1: {said}");
    hooks.stop().await
}

async fn the_webhook_judges_updates_against_the_old_object_and_the_ledger(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1").await?;
    let hooks = Hooks::start(&world).await?;
    world.gateway("eg1", &["10.6.1.60-10.6.1.61"]).await?;
    hooks.sees_gateway("eg1").await?;
    world.policy("web", "eg1", json!({ "ipv4": "10.6.1.61" })).await?;
    world.claimed(&["10.6.1.61"]).await?;
    let change = async |ippools: Value| {
        let patch = Patch::Merge(json!({ "spec": { "ippools": ippools } }));
        world.gateways().patch("eg1", &PatchParams::default(), &patch).await
    };
    let said = told(change(json!({ "ipv4": ["10.6.1.60"] })).await);
    assert!(said.contains("10.6.1.61 is in use"), "rule 10: {said}");
    let said = told(change(json!({ "ipv6": ["fd00::1-fd00::2"] })).await);
    assert!(said.contains("a family can be added only while no policy"), "rule 9: {said}");
    change(json!({ "ipv4": ["10.6.1.61-10.6.1.70"], "ipv4DefaultEIP": "10.6.1.61" })).await?;
    hooks.stop().await
}

async fn the_webhook_fills_in_defaults(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1").await?;
    let hooks = Hooks::start(&world).await?;
    let made = world
        .gateway_like("eg1", json!({ "clusterDefault": true, "ippools": { "ipv4": ["10.6.1.60"], "ipv6": ["fd00::60"] }, "nodeSelector": selector() }))
        .await?;
    let pools = made.spec.ippools.unwrap_or_default();
    assert_eq!(pools.ipv4_default_eip.as_deref(), Some("10.6.1.60"));
    assert_eq!(pools.ipv6_default_eip.as_deref(), Some("fd00::60"));
    assert_eq!(made.metadata.finalizers.unwrap_or_default(), ["egressgateway.spidernet.io/egressgateway"]);
    hooks.sees_gateway("eg1").await?;
    let made = world.policy_like("p", json!({ "appliedTo": app("web") })).await?;
    assert_eq!(made.spec.egress_gateway_name.as_deref(), Some("eg1"));
    let egress_ip = made.spec.egress_ip.unwrap_or_default();
    assert_eq!((egress_ip.use_node_ip, egress_ip.allocator_policy.as_deref()), (Some(false), Some("default")));
    hooks.stop().await
}

async fn without_webhook_the_controller_says_what_is_wrong(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.node("n1").await?;
    world.gateway_like("eg1", json!({ "clusterDefault": true, "ippools": { "ipv4": ["10.6.1.60-10.6.1.61"], "ipv6": ["fd00::60-fd00::61"] }, "nodeSelector": selector() })).await?;
    world.policy("good", "eg1", json!({})).await?;
    world.granted("good").await?;
    // Creation times have whole seconds, and the older gateway is right.
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    for (rule, spec, reason, says) in bad_gateways() {
        world.gateway_like("zz-bad", spec).await?;
        let said = world.gateway_refused("zz-bad", "Accepted", reason).await?;
        assert!(said.contains(says), "rule {rule}: {said}");
        world.policy("on-bad", "zz-bad", json!({})).await?;
        world.refused("on-bad", "Accepted", reason).await?;
        assert!(world.status("on-bad").await?.eip.is_none(), "rule {rule}: a refused gateway grants nothing");
        world.policies().delete("on-bad", &DeleteParams::default()).await?;
        world.gateways().delete("zz-bad", &DeleteParams::default()).await?;
        crate::harness::eventually("the bad gateway is gone", async || {
            Ok(world.gateways().get_opt("zz-bad").await?.is_none())
        })
        .await?;
    }
    for (name, more, reason) in [
        ("r12", json!({ "egressGatewayName": "nowhere" }), "GatewayNotFound"),
        ("r19", json!({ "egressIP": { "ipv4": "10.9.9.9" } }), "OutsidePool"),
        ("r21", json!({ "egressIP": { "ipv4": "10.6.1.60", "ipv6": "fd00::61" } }), "PairMismatch"),
    ] {
        world.policy_like(name, spec(more)).await?;
        world.refused(name, "Accepted", reason).await?;
        world.refused(name, "Ready", reason).await?;
    }
    world.granted("good").await?;
    operator.stop().await
}

async fn a_gateway_in_use_cannot_be_deleted_with_the_webhook(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1").await?;
    let hooks = Hooks::start(&world).await?;
    world
        .gateway_like(
            "eg1",
            json!({ "clusterDefault": true, "ippools": { "ipv4": ["10.6.1.60"] }, "nodeSelector": selector() }),
        )
        .await?;
    hooks.sees_gateway("eg1").await?;
    let object = json!({ "metadata": { "name": "everybody" }, "spec": { "appliedTo": app("web") } });
    world.cluster_policies().create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    hooks.sees_policies(1).await?;
    let said = told(world.gateways().delete("eg1", &DeleteParams::default()).await);
    assert!(said.contains("policy `everybody` uses gateway `eg1`"), "rule 11: {said}");
    world.cluster_policies().delete("everybody", &DeleteParams::default()).await?;
    hooks.sees_policies(0).await?;
    world.gateways().delete("eg1", &DeleteParams::default()).await?;
    crate::harness::eventually("it is gone", async || Ok(world.gateways().get_opt("eg1").await?.is_none())).await?;
    hooks.stop().await
}
