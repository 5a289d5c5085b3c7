//! Every control-plane defect of the shipped original, by the name that the specification gives its test.
//!
//! | rows that are for the node agent | why not here |
//! |---|---|
//! | `peers_are_stored_under_their_own_names`, `stale_v6_neighbours_are_removed` | the agent's neighbours |
//! | `policy_deletion_removes_its_elements_at_once`, `one_pod_change_writes_one_element` | the agent's sets |
//! | `use_node_ip_failover_moves_the_data_path` | here only that the status moves |
//! | `pod_on_active_gateway_node`, `pod_on_idle_gateway_node` | packets |

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use portolan_api::egress::{EgressClusterInfo, EgressEndpointSlice, EgressGateway, EgressPolicy};
use portolan_control::runtime::lease;
use portolan_testkit::{FaultProxy, Faults};
use serde_json::{Value, json};

use super::harness::{Hooks, Operator, World, agents, app, running, selector, without_agents};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    gateway_with_cluster_policies_cannot_be_deleted,
    second_policy_on_default_eip_is_listed_and_keeps_it,
    no_ready_node_is_a_condition_not_a_crash,
    node_with_200_eips_can_still_be_chosen,
    status_conflict_retry_keeps_the_new_value,
    node_status_follows_tunnel_phase,
    node_without_tunnel_stays_listed,
    clock_skew_of_one_hour_moves_nothing,
    update_is_judged_against_old_object,
    match_expressions_exclude_pod_subnet,
    use_node_ip_failover_moves_the_status,
    eip_is_active_on_one_node_only,
    power_off_moves_eips,
    all_gateways_off_then_on_keeps_placement,
    failed_nodes_eips_spread_over_survivors,
    dead_fields_work,
    eight_hundred_policies_at_once_keep_the_lease,
    usage_is_exact_after_churn,
    same_labels_in_two_namespaces_do_not_mix,
    explicit_eip_is_honoured,
    several_policies_in_one_namespace,
    zero_cidr_destination,
    empty_ipv6_item_of_the_seed,
    epis_is_read_eips_is_written,
    doing_means_average,
}

fn rr() -> Value {
    json!({ "allocatorPolicy": "rr" })
}

/// Nodes that the operator has seen ready.
async fn ready_nodes(world: &World, nodes: &[&str]) -> anyhow::Result<()> {
    for node in nodes {
        world.node(node).await?;
    }
    // The operator may see a policy, by another watch, before it sees that a node is ready. A gateway shows what it saw.
    world.gateway("probe", &["10.255.255.1"]).await?;
    world
        .gateway_shows("probe", "its nodes as ready", |status| {
            let is_ready = |node: &str| status.node_list.iter().any(|one| one.name == node && one.status == "Ready");
            nodes.iter().all(|node| is_ready(node))
        })
        .await?;
    world.gateways().delete("probe", &DeleteParams::default()).await?;
    eventually("the probe is gone", async || Ok(world.gateways().get_opt("probe").await?.is_none())).await
}

/// Creates policies `p0`, `p1`, ... for one gateway, several at once.
async fn many(world: &World, count: usize, egress_ip: &Value) -> anyhow::Result<()> {
    let policies: Vec<EgressPolicy> = (0..count)
        .map(|number| {
            let name = format!("p{number}");
            let spec = json!({ "egressGatewayName": "eg1", "egressIP": egress_ip, "appliedTo": app(&name) });
            serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec }))
        })
        .collect::<Result<_, _>>()?;
    let api = world.policies();
    let work = futures::stream::iter(&policies).map(|policy| {
        let api = api.clone();
        async move { api.create(&PostParams::default(), policy).await }
    });
    let made: Vec<_> = work.buffer_unordered(16).collect().await;
    made.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(())
}

/// Waits until every policy of the namespace is ready; gives what each has.
async fn all_granted(world: &World, count: usize) -> anyhow::Result<BTreeMap<String, String>> {
    let mut granted = BTreeMap::new();
    eventually(&format!("{count} policies are ready"), async || {
        let policies = world.policies().list(&ListParams::default()).await?;
        granted = policies
            .into_iter()
            .filter(|policy| policy.status.as_ref().is_some_and(super::harness::is_ready))
            .map(|policy| {
                let eip = policy.status.and_then(|status| status.eip?.ipv4).unwrap_or_default();
                (policy.metadata.name.unwrap_or_default(), eip)
            })
            .collect();
        Ok(granted.len() == count)
    })
    .await?;
    Ok(granted)
}

async fn gateway_with_cluster_policies_cannot_be_deleted(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.node("n1").await?;
    world.gateway("eg1", &["10.6.1.60"]).await?;
    world.cluster_policy("everybody", json!({ "egressGatewayName": "eg1", "appliedTo": app("web") })).await?;
    world.claimed(&["10.6.1.60"]).await?;
    world.gateways().delete("eg1", &DeleteParams::default()).await?;
    world.gateway_refused("eg1", "Accepted", "Deleting").await?;
    world.claimed(&["10.6.1.60"]).await?;
    world.cluster_policies().delete("everybody", &DeleteParams::default()).await?;
    world.gateway_goes("eg1").await?;
    operator.stop().await
}

async fn second_policy_on_default_eip_is_listed_and_keeps_it(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.node("n1").await?;
    world.gateway("eg1", &["10.6.1.60-10.6.1.61"]).await?;
    for name in ["first", "second"] {
        world.policy(name, "eg1", json!({})).await?;
        world.granted(name).await?;
    }
    world
        .gateway_shows("eg1", "both", |status| {
            let entries = status.node_list.iter().flat_map(|node| &node.eips);
            entries
                .map(|eip| eip.policies.iter().map(|policy| policy.name.clone()).collect::<Vec<_>>())
                .eq([["first", "second"]])
        })
        .await?;
    world.policies().delete("first", &DeleteParams::default()).await?;
    world.gateway_shows("eg1", "one policy", |status| status.policy_count == Some(1)).await?;
    assert_eq!(world.granted("second").await?, ("10.6.1.60".into(), "n1".into()));
    world.claimed(&["10.6.1.60"]).await?;
    operator.stop().await
}

async fn no_ready_node_is_a_condition_not_a_crash(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.gateway("eg1", &["10.6.1.60"]).await?;
    world.policy("shop", "eg1", rr()).await?;
    world.refused("shop", "Programmed", "NoReadyNode").await?;
    world.gateway_refused("eg1", "Programmed", "NoReadyNode").await?;
    world.node("n1").await?;
    assert_eq!(world.granted("shop").await?, ("10.6.1.60".into(), "n1".into()));
    operator.stop().await
}

async fn node_with_200_eips_can_still_be_chosen(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    ready_nodes(&world, &["n1"]).await?;
    world.gateway("eg1", &["10.6.1.1-10.6.1.210"]).await?;
    many(&world, 200, &rr()).await?;
    let granted = all_granted(&world, 200).await?;
    assert_eq!(granted.values().collect::<BTreeSet<_>>().len(), 200, "each has its own");
    world.policy("one-more", "eg1", rr()).await?;
    assert_eq!(world.granted("one-more").await?.1, "n1");
    operator.stop().await
}

async fn status_conflict_retry_keeps_the_new_value(backend: Backend) -> anyhow::Result<()> {
    let (world, proxy, operator, _agents) = running(backend).await?;
    ready_nodes(&world, &["n1", "n2"]).await?;
    world.gateway("eg1", &["10.6.1.60-10.6.1.69"]).await?;
    proxy.set_faults(Faults { seed: 7, conflict: 0.5, ..Faults::default() });
    many(&world, 6, &rr()).await?;
    all_granted(&world, 6).await?;
    world.set_ready("n1", false).await?;
    world.emptied("n1").await?;
    for number in 0..6 {
        eventually("the status says where the address went", async || {
            Ok(world.granted(&format!("p{number}")).await?.1 == "n2")
        })
        .await?;
    }
    let refused = proxy.writes().iter().filter(|write| write.answered == Some(409)).count();
    assert!(refused > 0, "there was no conflict to survive");
    operator.stop().await
}

async fn node_status_follows_tunnel_phase(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator) = without_agents(backend).await?;
    world.node("n1").await?;
    world.gateway("eg1", &["10.6.1.60"]).await?;
    for phase in ["Init", "Ready", "HeartbeatTimeout", "Failed", "NodeNotReady", "Pending"] {
        world.set_phase("n1", phase).await?;
        world.gateway_shows("eg1", phase, |status| status.node_list.iter().any(|node| node.status == phase)).await?;
    }
    operator.stop().await
}

async fn node_without_tunnel_stays_listed(backend: Backend) -> anyhow::Result<()> {
    let (world, proxy, operator) = without_agents(backend).await?;
    proxy.refuse(|exchange| exchange.is_write() && exchange.resource() == Some("egresstunnels"));
    world.node("n1").await?;
    world.gateway("eg1", &["10.6.1.60"]).await?;
    world
        .gateway_shows("eg1", "the node", |status| {
            status.node_list.iter().any(|node| node.name == "n1" && node.status == "Pending")
        })
        .await?;
    assert!(world.tunnels().get_opt("n1").await?.is_none());
    operator.stop().await
}

async fn clock_skew_of_one_hour_moves_nothing(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    ready_nodes(&world, &["n1", "n2"]).await?;
    world.gateway("eg1", &["10.6.1.60-10.6.1.63"]).await?;
    many(&world, 4, &rr()).await?;
    all_granted(&world, 4).await?;
    let before = world.ledger().await?;
    let turns = operator.turns();
    for (node, hours) in [("n1", -1), ("n2", 1)] {
        let time = jiff::Timestamp::now().checked_add(jiff::SignedDuration::from_hours(hours))?;
        let skewed = json!({ "status": { "lastHeartbeatTime": time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string() } });
        world.tunnels().patch_status(node, &PatchParams::default(), &Patch::Merge(skewed)).await?;
    }
    eventually("the operator saw it", async || Ok(operator.turns() > turns)).await?;
    world.policy("last", "eg1", rr()).await?;
    world.granted("last").await?;
    assert_eq!(world.ledger().await?, before);
    operator.stop().await
}

async fn update_is_judged_against_old_object(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1").await?;
    let hooks = Hooks::start(&world).await?;
    world.gateway("eg1", &["10.6.1.60"]).await?;
    hooks.sees_gateway("eg1").await?;
    world.policy("shop", "eg1", json!({})).await?;
    world.claimed(&["10.6.1.60"]).await?;
    // A family that was empty in the old object, and an address of the old object that is in use.
    for (ippools, says) in [
        (json!({ "ipv6": ["fd00::60"] }), "a family can be added only while no policy"),
        (json!({ "ipv4": ["10.6.1.61"], "ipv4DefaultEIP": "10.6.1.61" }), "10.6.1.60 is in use"),
    ] {
        let patch = Patch::Merge(json!({ "spec": { "ippools": ippools } }));
        let refused =
            world.gateways().patch("eg1", &PatchParams::default(), &patch).await.expect_err("it must be refused");
        assert!(refused.to_string().contains(says), "{refused}");
    }
    hooks.stop().await
}

async fn match_expressions_exclude_pod_subnet(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let applied_to = json!({
        "podSelector": { "matchExpressions": [{ "key": "app", "operator": "Exists" }] },
        "podSubnet": ["10.40.0.0/16"]
    });
    let refused = world.policy_like("both", json!({ "egressGatewayName": "eg1", "appliedTo": applied_to })).await;
    let said = refused.expect_err("the two exclude each other").to_string();
    assert!(said.contains("exclude each other"), "{said}");
    Ok(())
}

async fn use_node_ip_failover_moves_the_status(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    ready_nodes(&world, &["n1", "n2"]).await?;
    world.gateway_like("eg1", json!({ "nodeSelector": selector() })).await?;
    world.policy("shop", "eg1", json!({ "useNodeIP": true })).await?;
    let (address, node) = world.granted("shop").await?;
    assert_eq!(address, "", "it leaves with the node's own address");
    world.set_ready(&node, false).await?;
    eventually("it leaves through the other node", async || {
        let (address, now) = world.granted("shop").await?;
        Ok(address.is_empty() && !now.is_empty() && now != node)
    })
    .await?;
    assert!(world.ledger().await?.is_empty());
    operator.stop().await
}

async fn eip_is_active_on_one_node_only(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    ready_nodes(&world, &["n1", "n2", "n3"]).await?;
    world.gateway("eg1", &["10.6.1.60-10.6.1.61"]).await?;
    many(&world, 8, &rr()).await?;
    all_granted(&world, 8).await?;
    for node in ["n1", "n2"] {
        world.set_ready(node, false).await?;
        world.emptied(node).await?;
        world
            .gateway_shows("eg1", "every address once", |status| {
                let shown: Vec<&String> =
                    status.node_list.iter().flat_map(|node| &node.eips).map(|eip| &eip.ipv4).collect();
                shown.len() == 2 && shown[0] != shown[1]
            })
            .await?;
        let ledger = world.ledger().await?;
        for policy in world.policies().list(&ListParams::default()).await? {
            let name = policy.metadata.name.unwrap_or_default();
            eventually("all policies of an address name its node", async || {
                let (address, node) = world.granted(&name).await?;
                Ok(ledger[&address] == node)
            })
            .await?;
        }
    }
    operator.stop().await
}

async fn power_off_moves_eips(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    ready_nodes(&world, &["n1", "n2"]).await?;
    world.gateway("eg1", &["10.6.1.60"]).await?;
    world.policy("shop", "eg1", json!({})).await?;
    let (address, node) = world.granted("shop").await?;
    // The kubelet is silent, so the node controller says Unknown.
    let unknown = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
    world.nodes().patch_status(&node, &PatchParams::default(), &Patch::Strategic(unknown)).await?;
    world.emptied(&node).await?;
    eventually("the policy follows", async || {
        let (same, now) = world.granted("shop").await?;
        Ok(same == address && now != node)
    })
    .await?;
    operator.stop().await
}

async fn all_gateways_off_then_on_keeps_placement(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    ready_nodes(&world, &["n1", "n2"]).await?;
    world.gateway("eg1", &["10.6.1.60-10.6.1.63"]).await?;
    many(&world, 4, &rr()).await?;
    let before = (all_granted(&world, 4).await?, world.claim_identities().await?);
    for node in ["n1", "n2"] {
        world.set_ready(node, false).await?;
    }
    world.refused("p0", "Programmed", "NoReadyNode").await?;
    eventually("no address lives anywhere", async || Ok(world.ledger().await?.values().all(String::is_empty))).await?;
    for node in ["n1", "n2"] {
        world.set_ready(node, true).await?;
    }
    let after = (all_granted(&world, 4).await?, world.claim_identities().await?);
    assert_eq!(after, before, "every policy has the address it had, and the address its claim and slot");
    for (policy, address) in &after.0 {
        assert_eq!(world.ledger().await?[address], world.granted(policy).await?.1, "it leaves where its address lives");
    }
    operator.stop().await
}

async fn failed_nodes_eips_spread_over_survivors(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    ready_nodes(&world, &["n1", "n2", "n3"]).await?;
    world.gateway("eg1", &["10.6.1.60-10.6.1.65"]).await?;
    many(&world, 6, &rr()).await?;
    all_granted(&world, 6).await?;
    world.set_ready("n2", false).await?;
    world.emptied("n2").await?;
    let after = world.ledger().await?;
    for node in ["n1", "n3"] {
        assert_eq!(after.values().filter(|holder| *holder == node).count(), 3, "{after:?}");
    }
    operator.stop().await
}

async fn dead_fields_work(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    let pods = json!({ "spec": { "podCIDRs": ["10.40.0.0/24"], "podCIDR": "10.40.0.0/24" } });
    ready_nodes(&world, &["n1", "n2", "n3"]).await?;
    world.nodes().patch("n1", &PatchParams::default(), &Patch::Merge(pods)).await?;
    let spec = json!({ "ippools": { "ipv4": ["10.6.1.60-10.6.1.69"] },
        "nodeSelector": { "selector": { "matchLabels": { "egress": "true" } }, "policy": "FewestNodes" } });
    world.gateway_like("eg1", spec).await?;
    // nodeSelector.policy: all on one node.
    many(&world, 3, &rr()).await?;
    all_granted(&world, 3).await?;
    assert_eq!(world.ledger().await?.values().collect::<BTreeSet<_>>().len(), 1);
    // podSubnet: pods by address.
    world.pod(&world.namespace, "inside", "x", "10.40.0.7").await?;
    world.pod(&world.namespace, "outside", "x", "10.41.0.7").await?;
    let by_address = json!({ "podSubnet": ["10.40.0.0/24"] });
    world.policy_like("by-address", json!({ "egressGatewayName": "eg1", "appliedTo": by_address })).await?;
    listed(&world, "by-address", &["inside"]).await?;
    // priority: the higher one wins, whatever the age.
    let more = json!({ "egressGatewayName": "eg1", "appliedTo": by_address, "priority": 9 });
    world.policy_like("important", more).await?;
    let said = world.refused("by-address", "Programmed", "Shadowed").await?;
    assert!(said.contains("important"), "{said}");
    world.granted("important").await?;
    // podCidrMode: k8s.
    let infos: Api<EgressClusterInfo> = Api::all(world.client.clone());
    let patch = Patch::Merge(json!({ "spec": { "autoDetect": { "podCidrMode": "k8s" } } }));
    infos.patch("default", &PatchParams::default(), &patch).await?;
    eventually("the pod range is found", async || {
        let status = infos.get("default").await?.status.unwrap_or_default();
        let ranges = status.pod_cidr.get("n1").map(|lists| lists.ipv4.clone()).unwrap_or_default();
        Ok(status.pod_cidr_mode.as_deref() == Some("k8s") && ranges == ["10.40.0.0/24"])
    })
    .await?;
    operator.stop().await
}

/// Waits until the slices of a policy list exactly these pods.
async fn listed(world: &World, policy: &str, pods: &[&str]) -> anyhow::Result<()> {
    let slices = world.namespaced::<EgressEndpointSlice>();
    eventually(&format!("the slices of {policy} list {pods:?}"), async || {
        let params = ListParams::default().labels(&format!("spidernet.io/policy-name={policy}"));
        let slices = slices.list(&params).await?;
        let mut seen: Vec<&str> =
            slices.iter().flat_map(|slice| &slice.endpoints).map(|end| end.pod.as_str()).collect();
        seen.sort_unstable();
        Ok(seen == pods)
    })
    .await
}

async fn eight_hundred_policies_at_once_keep_the_lease(backend: Backend) -> anyhow::Result<()> {
    const POLICIES: usize = 800;
    let world = World::new(backend).await?;
    let _agents = agents(&world)?;
    let proxy = FaultProxy::start(world.client.clone(), Faults::default()).await?;
    let election = lease::Options::of_operator(&world.namespace, "one");
    let operator = Operator::elected(&proxy, election.clone())?;
    ready_nodes(&world, &["n1", "n2"]).await?;
    world.gateway("eg1", &["10.6.1.0/28"]).await?;
    many(&world, POLICIES, &rr()).await?;
    all_granted(&world, POLICIES).await?;
    let leases: Api<Lease> = Api::namespaced(world.client.clone(), &world.namespace);
    let lease = leases.get(&election.name).await?.spec.unwrap_or_default();
    assert_eq!(lease.holder_identity.as_deref(), Some("one"));
    assert!(lease.lease_transitions.unwrap_or_default() <= 1, "the lease was lost meanwhile: {lease:?}");
    world
        .gateway_shows("eg1", "all of them", |status| {
            let usage = status.ip_usage.clone().unwrap_or_default();
            status.policy_count == Some(800) && (usage.ipv4_total, usage.ipv4_free) == (16, 0)
        })
        .await?;
    operator.stop().await
}

async fn usage_is_exact_after_churn(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    ready_nodes(&world, &["n1", "n2"]).await?;
    // Enough for all rounds: what is still being released must not make policies share.
    world.gateway("eg1", &["10.6.1.1-10.6.1.100"]).await?;
    for round in 0..3 {
        many(&world, 30, &rr()).await?;
        if round < 2 {
            // Some are deleted before they have anything.
            world.policies().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
        }
    }
    for number in 0..20 {
        world.policies().delete(&format!("p{number}"), &DeleteParams::default()).await?;
    }
    all_granted(&world, 10).await?;
    world
        .gateway_shows("eg1", "90 of 100 free", |status| {
            let usage = status.ip_usage.clone().unwrap_or_default();
            status.policy_count == Some(10) && (usage.ipv4_total, usage.ipv4_free) == (100, 90)
        })
        .await?;
    eventually("ten addresses are recorded", async || Ok(world.ledger().await?.len() == 10)).await?;
    operator.stop().await
}

async fn same_labels_in_two_namespaces_do_not_mix(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.node("n1").await?;
    world.gateway("eg1", &["10.6.1.60-10.6.1.61"]).await?;
    let (other, policies) = world.other_namespace().await?;
    world.pod(&world.namespace, "ours", "web", "10.40.0.1").await?;
    world.pod(&other, "theirs", "web", "10.40.0.2").await?;
    world.policy("web", "eg1", rr()).await?;
    let spec = json!({ "egressGatewayName": "eg1", "egressIP": rr(), "appliedTo": app("web") });
    let object = json!({ "metadata": { "name": "web" }, "spec": spec });
    policies.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    listed(&world, "web", &["ours"]).await?;
    let (address, _) = world.granted("web").await?;
    eventually("the other has an address of its own", async || {
        let theirs = policies.get("web").await?.status.and_then(|status| status.eip?.ipv4);
        Ok(theirs.is_some_and(|theirs| theirs != address))
    })
    .await?;
    operator.stop().await
}

async fn explicit_eip_is_honoured(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.node("n1").await?;
    world.gateway("eg1", &["10.6.1.60-10.6.1.69"]).await?;
    for (name, address) in [("x", "10.6.1.67"), ("y", "10.6.1.67"), ("z", "10.6.1.61")] {
        world.policy(name, "eg1", json!({ "ipv4": address })).await?;
        assert_eq!(world.granted(name).await?.0, address);
    }
    operator.stop().await
}

async fn several_policies_in_one_namespace(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.node("n1").await?;
    world.gateway("eg1", &["10.6.1.60-10.6.1.69"]).await?;
    many(&world, 5, &rr()).await?;
    let granted = all_granted(&world, 5).await?;
    assert_eq!(granted.values().collect::<BTreeSet<_>>().len(), 5, "{granted:?}");
    world.policies().delete("p2", &DeleteParams::default()).await?;
    eventually("one address less", async || Ok(world.ledger().await?.len() == 4)).await?;
    for (name, address) in granted.iter().filter(|(name, _)| *name != "p2") {
        assert_eq!(world.granted(name).await?.0, *address, "the others keep theirs");
    }
    operator.stop().await
}

async fn zero_cidr_destination(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.node("n1").await?;
    world.gateway("eg1", &["10.6.1.60"]).await?;
    for (name, subnets) in [("four", ["0.0.0.0/0"]), ("six", ["::/0"])] {
        let spec = json!({ "egressGatewayName": "eg1", "appliedTo": app(name), "destSubnet": subnets });
        world.policy_like(name, spec).await?;
        world.granted(name).await?;
    }
    operator.stop().await
}

async fn empty_ipv6_item_of_the_seed(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    world.node("n1").await?;
    let spec = json!({ "ippools": { "ipv4": ["10.6.1.60"], "ipv6": [""] }, "nodeSelector": selector() });
    world.gateway_like("eg1", spec).await?;
    world.policy("shop", "eg1", json!({})).await?;
    world.granted("shop").await?;
    assert_eq!(world.status("shop").await?.eip.and_then(|eip| eip.ipv6), None);
    operator.stop().await
}

async fn epis_is_read_eips_is_written(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let _agents = agents(&world)?;
    world.node("n1").await?;
    world.gateway("eg1", &["10.6.1.60-10.6.1.69"]).await?;
    world.policy("shop", "eg1", rr()).await?;
    let entry =
        json!({ "ipv4": "10.6.1.65", "ipv6": "", "policies": [{ "name": "shop", "namespace": world.namespace }] });
    let list = json!({ "status": { "nodeList": [{ "name": "n1", "status": "Ready", "epis": [entry] }] } });
    world.gateways().patch_status("eg1", &PatchParams::default(), &Patch::Merge(list)).await?;
    let proxy = FaultProxy::start(world.client.clone(), Faults::default()).await?;
    let operator = Operator::start(&proxy)?;
    assert_eq!(world.granted("shop").await?, ("10.6.1.65".into(), "n1".into()), "what the original granted stays");
    eventually("`eips` stands there alone", async || {
        let raw: EgressGateway = world.gateways().get("eg1").await?;
        let text = serde_json::to_value(raw.status)?;
        let node = &text["nodeList"][0];
        Ok(node["eips"][0]["ipv4"] == "10.6.1.65"
            && node.get("epis").is_none_or(|epis| epis.as_array().is_none_or(Vec::is_empty)))
    })
    .await?;
    operator.stop().await
}

async fn doing_means_average(backend: Backend) -> anyhow::Result<()> {
    let (world, _proxy, operator, _agents) = running(backend).await?;
    ready_nodes(&world, &["n1", "n2"]).await?;
    let nodes = json!({ "selector": { "matchLabels": { "egress": "true" } }, "policy": "doing" });
    world.gateway_like("eg1", json!({ "ippools": { "ipv4": ["10.6.1.60-10.6.1.63"] }, "nodeSelector": nodes })).await?;
    many(&world, 4, &rr()).await?;
    all_granted(&world, 4).await?;
    let ledger = world.ledger().await?;
    for node in ["n1", "n2"] {
        assert_eq!(ledger.values().filter(|holder| *holder == node).count(), 2, "{ledger:?}");
    }
    operator.stop().await
}
