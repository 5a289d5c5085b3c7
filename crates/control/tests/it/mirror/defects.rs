//! Every defect of the original, by the name that the specification gives its test.

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use portolan_testkit::Interference;
use serde_json::{Value, json};

use super::harness::{World, is_mirror, status, stays};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    network_unavailable_listed_before_ready_excludes,
    udp_and_sctp_keep_their_protocol,
    named_target_port_reported_once,
    zero_usable_nodes_empties_the_slice,
    node_list_failure_changes_nothing,
    steady_state_writes_nothing,
    thousand_nodes_are_not_truncated,
    dual_stack_gives_two_families,
    local_policy_lists_only_nodes_with_endpoints,
    missed_delete_after_watch_break,
    deleted_while_down_is_swept,
    changed_remote_is_swept_in_budget,
    partial_list_deletes_nothing,
    mutual_mirrors_die,
    two_remotes_do_not_fight,
    conflict_is_visible,
    recreated_service_survives_our_delete,
    hand_edit_is_repaired,
    unlabelled_service_is_released,
    freed_name_is_mirrored_at_once,
    resync_costs_no_call,
    port_order_is_no_change,
    type_alone_is_a_change,
    nodeport_collision_reported_once,
    terminating_namespace_waits,
    namespace_race_is_success,
}

fn merge(value: Value) -> (PatchParams, Patch<Value>) {
    (PatchParams::default(), Patch::Merge(value))
}

/// A world with one node, one source `web`, and a RemoteCluster `east` with these fields.
async fn one_source(backend: Backend, spec: Value) -> anyhow::Result<World> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    world.source("web", 30080).await?;
    world.east(spec).await?;
    Ok(world)
}

async fn network_unavailable_listed_before_ready_excludes(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend, json!({})).await?;
    let down = json!({
        "conditions": [{ "type": "NetworkUnavailable", "status": "True" }, { "type": "Ready", "status": "True" }],
        "addresses": [{ "type": "InternalIP", "address": "10.1.0.2" }],
    });
    world.node_with("n2", json!({}), down).await?;
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    operator.stop().await
}

async fn udp_and_sctp_keep_their_protocol(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    let ports = json!([
        { "name": "dns", "port": 53, "protocol": "UDP", "nodePort": 30053 },
        { "name": "sig", "port": 36412, "protocol": "SCTP", "nodePort": 30036 },
        { "name": "web", "port": 80, "appProtocol": "http", "nodePort": 30080 },
    ]);
    world.source_with("all", json!({ "type": "NodePort", "ports": ports })).await?;
    world.east(json!({})).await?;
    let operator = world.operator().await?;
    let mirror = world.mirror("all").await?;
    let ports = mirror.spec.and_then(|spec| spec.ports).unwrap_or_default();
    let protocols: Vec<_> = ports.iter().map(|port| port.protocol.as_deref().unwrap_or_default()).collect();
    assert_eq!(protocols, ["UDP", "SCTP", "TCP"]);
    world.endpoints_are("all", &["10.1.0.1:30036/SCTP", "10.1.0.1:30053/UDP", "10.1.0.1:30080/TCP"]).await?;
    let slices = world.slices("all").await?;
    let names: Vec<_> = slices[0].ports.iter().flatten().filter_map(|port| port.name.clone()).collect();
    assert_eq!(names, ["dns", "sig", "web"]);
    operator.stop().await
}

async fn named_target_port_reported_once(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend, json!({})).await?;
    let service = json!({
        "metadata": { "name": "hand", "labels": { "tfw.io/barrelman": "true" } },
        "spec": { "ports": [
            { "name": "web", "port": 80, "targetPort": "http" },
            { "name": "raw", "port": 81, "targetPort": 30081 },
        ] },
    });
    world.local_service(service).await?;
    let operator = world.operator().await?;
    world.endpoints_are("hand", &["10.1.0.1:30081/TCP"]).await?;
    let note = world.event("NamedTargetPort", "hand").await?;
    ensure!(note.contains("http"), "{note}");
    world.caught_up().await?;
    let writes = operator.writes_of("hand");
    stays("nothing more is written", async || Ok(operator.writes_of("hand") == writes)).await?;
    assert_eq!(world.events("NamedTargetPort", "hand").await?, 1);
    operator.stop().await
}

async fn zero_usable_nodes_empties_the_slice(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend, json!({})).await?;
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    world.node_with("n1", json!({}), status(false, &["10.1.0.1"])).await?;
    world.endpoints_are("web", &[]).await?;
    assert_eq!(world.slices("web").await?.len(), 1, "an empty slice says that there is nobody");
    world.event("NoUsableNode", "web").await?;
    operator.stop().await
}

async fn node_list_failure_changes_nothing(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend, json!({})).await?;
    let view = world.remote_view().await?;
    view.proxy.interfere(|exchange| (exchange.resource() == Some("nodes")).then_some(Interference::Status(403)));
    let operator = world.operator().await?;
    let message = world.condition("east", "Connected", "False", "RemoteForbidden").await?;
    ensure!(message.contains("nodes"), "{message}");
    assert_eq!(operator.writes(), 0);
    view.proxy.interfere(|_| None);
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    operator.stop().await
}

async fn steady_state_writes_nothing(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend, json!({})).await?;
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    world.ready("east").await?;
    operator.stop().await?;
    let operator = world.operator().await?;
    world.caught_up().await?;
    // A heartbeat of the node changes nothing that counts.
    let nodes = Api::<Node>::all(world.remote.clone());
    let (params, patch) = merge(json!({ "metadata": { "annotations": { "beat": "1" } } }));
    nodes.patch("n1", &params, &patch).await?;
    world.caught_up().await?;
    assert_eq!(operator.writes_of("web"), 0, "{:?}", operator.seen.writes_but_leases());
    operator.stop().await
}

async fn thousand_nodes_are_not_truncated(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    for number in 0..1005_u32 {
        let address = format!("10.2.{}.{}", number / 250, number % 250 + 1);
        world.node(&format!("n{number}"), &address).await?;
    }
    world.source("web", 30080).await?;
    world.east(json!({})).await?;
    let operator = world.operator().await?;
    eventually("all nodes are endpoints", async || Ok(world.endpoints("web").await?.len() == 1005)).await?;
    assert_eq!(world.slices("web").await?.len(), 11);
    // One node more is one slice written.
    world.ready("east").await?;
    let writes = operator.writes();
    world.node("late", "10.3.0.1").await?;
    eventually("it is an endpoint", async || Ok(world.endpoints("web").await?.len() == 1006)).await?;
    assert_eq!(operator.writes() - writes, 1);
    operator.stop().await
}

async fn dual_stack_gives_two_families(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node_with("n1", json!({}), status(true, &["10.1.0.1", "fd00:1::1"])).await?;
    // Whatever the API servers can do: a hand-labelled Service has the families of its own cluster.
    let service = json!({
        "metadata": { "name": "hand", "labels": { "tfw.io/barrelman": "true" } },
        "spec": { "ipFamilyPolicy": "PreferDualStack", "ports": [{ "port": 80, "targetPort": 30080 }] },
    });
    let families = world.local_service(service).await?.spec.and_then(|spec| spec.ip_families).unwrap_or_default();
    world.east(json!({})).await?;
    let operator = world.operator().await?;
    let mut want = vec!["10.1.0.1:30080/TCP"];
    if families.len() > 1 {
        want.push("fd00:1::1:30080/TCP");
    }
    world.endpoints_are("hand", &want).await?;
    assert_eq!(world.slices("hand").await?.len(), want.len(), "one slice per family");
    operator.stop().await
}

async fn local_policy_lists_only_nodes_with_endpoints(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    world.node("n2", "10.1.0.2").await?;
    let spec = json!({
        "type": "NodePort", "externalTrafficPolicy": "Local", "ports": [{ "port": 80, "nodePort": 30080 }],
    });
    world.source_with("web", spec).await?;
    let slice = json!({
        "metadata": { "name": "web-1", "labels": { "kubernetes.io/service-name": "web" } },
        "addressType": "IPv4",
        "ports": [{ "port": 8080 }],
        "endpoints": [
            { "addresses": ["10.9.0.1"], "nodeName": "n2" },
            { "addresses": ["10.9.0.2"], "nodeName": "n1", "conditions": { "ready": false } },
        ],
    });
    let slices =
        Api::<k8s_openapi::api::discovery::v1::EndpointSlice>::namespaced(world.remote.clone(), &world.namespace);
    slices.create(&PostParams::default(), &serde_json::from_value(slice)?).await?;
    world.east(json!({})).await?;
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.2:30080/TCP"]).await?;
    let (params, patch) = merge(json!({ "endpoints": [{ "addresses": ["10.9.0.2"], "nodeName": "n1" }] }));
    slices.patch("web-1", &params, &patch).await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    operator.stop().await
}

async fn missed_delete_after_watch_break(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend, json!({})).await?;
    let view = world.remote_view().await?;
    let operator = world.operator().await?;
    world.mirror("web").await?;
    // The watch is away while the source goes, and its history is gone when it comes back.
    view.proxy.interfere(|exchange| {
        (exchange.is_watch() && exchange.resource() == Some("services")).then_some(Interference::Status(410))
    });
    world.sources().delete("web", &DeleteParams::default()).await?;
    view.proxy.cut_watches();
    world.gone("web").await?;
    operator.stop().await
}

async fn deleted_while_down_is_swept(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend, json!({})).await?;
    let operator = world.operator().await?;
    world.mirror("web").await?;
    operator.stop().await?;
    world.sources().delete("web", &DeleteParams::default()).await?;
    let operator = world.operator().await?;
    world.gone("web").await?;
    world.event("Unmirrored", "web").await?;
    operator.stop().await
}

async fn changed_remote_is_swept_in_budget(backend: Backend) -> anyhow::Result<()> {
    let budget = json!({ "maxPercent": 0, "floor": 2 });
    let world = one_source(backend, json!({ "deletionBudget": budget })).await?;
    for number in 0..4_u16 {
        world.source(&format!("s{number}"), 30090 + number).await?;
    }
    let operator = world.operator().await?;
    for name in ["web", "s0", "s1", "s2", "s3"] {
        world.mirror(name).await?;
    }
    operator.stop().await?;
    for name in ["s0", "s1", "s2"] {
        world.sources().delete(name, &DeleteParams::default()).await?;
    }
    let operator = world.operator().await?;
    world.condition("east", "Programmed", "False", "DeletionBudgetExceeded").await?;
    let held = world.remote_status("east").await?.held_deletions.unwrap_or_default();
    assert_eq!(held.count, 3);
    for name in ["s0", "s1", "s2"] {
        ensure!(world.services().get_opt(name).await?.is_some(), "{name} was deleted beyond the budget");
    }
    // Others go on meanwhile.
    world.source("new", 30099).await?;
    world.mirror("new").await?;
    let approval = json!({ "metadata": { "annotations": { "mirror.portolan.dev/approve-deletions": held.hash } } });
    let (params, patch) = merge(approval);
    world.remotes().patch("east", &params, &patch).await?;
    for name in ["s0", "s1", "s2"] {
        world.gone(name).await?;
    }
    world.mirror("s3").await?;
    operator.stop().await
}

async fn partial_list_deletes_nothing(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend, json!({})).await?;
    let operator = world.operator().await?;
    world.mirror("web").await?;
    operator.stop().await?;
    // Nodes can be listed and Services cannot: nothing is known about sources.
    world.sources().delete("web", &DeleteParams::default()).await?;
    let view = world.remote_view().await?;
    view.proxy.interfere(|exchange| {
        (exchange.is_list() && exchange.resource() == Some("services")).then_some(Interference::Status(500))
    });
    let operator = world.operator().await?;
    world.condition("east", "Ready", "False", "Unreachable").await?;
    ensure!(world.services().get_opt("web").await?.is_some_and(|service| is_mirror(&service)));
    view.proxy.interfere(|_| None);
    world.gone("web").await?;
    operator.stop().await
}

async fn mutual_mirrors_die(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend, json!({})).await?;
    // What another mirror has made there is no source.
    for labels in [
        json!({ "tfw.io/barrelman": "managed-resource" }),
        json!({ "mirror.portolan.dev/remote": "west" }),
        json!({ "mirror.linkerd.io/mirrored-service": "true" }),
    ] {
        let source = json!({
            "metadata": { "generateName": "copy-", "labels": labels },
            "spec": { "type": "NodePort", "ports": [{ "port": 80 }] },
        });
        world.sources().create(&PostParams::default(), &serde_json::from_value(source)?).await?;
    }
    let operator = world.operator().await?;
    world.mirror("web").await?;
    world.caught_up().await?;
    let here = world.services().list(&ListParams::default()).await?;
    let names: Vec<String> = here.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["web"]);
    operator.stop().await
}

async fn two_remotes_do_not_fight(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend, json!({})).await?;
    let second = World::new(Backend::Embedded).await?;
    second.remote_namespace(&world.namespace).await?;
    let other = Api::<Service>::namespaced(second.remote.clone(), &world.namespace);
    let source = json!({
        "metadata": { "name": "web" }, "spec": { "type": "NodePort", "ports": [{ "port": 80, "nodePort": 30081 }] },
    });
    other.create(&PostParams::default(), &serde_json::from_value(source)?).await?;
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    let kubeconfig = std::fs::read_to_string(&second.remote_server.kubeconfig)?;
    world.secret("west", "kubeconfig", &kubeconfig).await?;
    world.remote_cluster("west", json!({})).await?;
    eventually("west says that the name is taken", async || {
        let unmet = world.remote_status("west").await?.unmet;
        Ok(unmet.iter().any(|one| one.name == "web" && one.reason == "OwnedByOtherRemote"))
    })
    .await?;
    let writes = operator.writes_of("web");
    world.caught_up().await?;
    assert_eq!(world.mirror("web").await?.labels()["mirror.portolan.dev/remote"], "east");
    assert_eq!(world.endpoints("web").await?, ["10.1.0.1:30080/TCP"]);
    assert_eq!(operator.writes_of("web"), writes);
    // When the first lets the name go, the other has it.
    world.sources().delete("web", &DeleteParams::default()).await?;
    eventually("west has the name", async || {
        let service = world.services().get_opt("web").await?;
        Ok(service
            .is_some_and(|service| service.labels().get("mirror.portolan.dev/remote").is_some_and(|it| it == "west")))
    })
    .await?;
    operator.stop().await
}

async fn conflict_is_visible(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend, json!({})).await?;
    let own =
        world.local_service(json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 99 }] } })).await?;
    let operator = world.operator().await?;
    let note = world.event("NameConflict", "web").await?;
    ensure!(note.contains("east"), "{note}");
    eventually("the remote says so", async || {
        let unmet = world.remote_status("east").await?.unmet;
        Ok(unmet.iter().any(|one| one.name == "web" && one.reason == "NameConflict"))
    })
    .await?;
    let now = world.services().get("web").await?;
    assert_eq!(now.resource_version(), own.resource_version(), "a user's Service is not touched");
    operator.stop().await
}

async fn recreated_service_survives_our_delete(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend, json!({})).await?;
    let operator = world.operator().await?;
    let mirror = world.mirror("web").await?;
    world.ready("east").await?;
    // Just before our delete arrives, a user replaces the mirror by a Service of his own.
    let (services, mine) =
        (world.services(), json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 1 }] } }));
    operator.seen.interfere(|exchange| {
        let is_delete = exchange.method == http::Method::DELETE && exchange.path.ends_with("/services/web");
        is_delete.then_some(Interference::Drop)
    });
    world.sources().delete("web", &DeleteParams::default()).await?;
    eventually("the delete was tried", async || {
        Ok(operator.seen.trace().iter().any(|one| one.method == http::Method::DELETE))
    })
    .await?;
    services.delete("web", &DeleteParams::default()).await?;
    let mine = services.create(&PostParams::default(), &serde_json::from_value(mine)?).await?;
    assert_ne!(mine.uid(), mirror.uid());
    operator.seen.interfere(|_| None);
    world.caught_up().await?;
    assert_eq!(services.get("web").await?.uid(), mine.uid());
    operator.stop().await
}

async fn hand_edit_is_repaired(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend, json!({})).await?;
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    let edit = json!({
        "metadata": { "labels": { "team": "blue" }, "annotations": { "mirror.portolan.dev/source-uid": "x" } },
        "spec": { "ports": [{ "port": 81, "targetPort": 1 }] },
    });
    let (params, patch) = merge(edit);
    world.services().patch("web", &params, &patch).await?;
    eventually("it is as it was", async || {
        let ports = world.services().get("web").await?.spec.and_then(|spec| spec.ports).unwrap_or_default();
        Ok(ports.len() == 1 && ports[0].port == 80)
    })
    .await?;
    assert_eq!(world.services().get("web").await?.labels()["team"], "blue", "what is not ours stays");
    let slices =
        Api::<k8s_openapi::api::discovery::v1::EndpointSlice>::namespaced(world.local.clone(), &world.namespace);
    let slice = world.slices("web").await?.remove(0).name_any();
    let (params, patch) = merge(json!({ "endpoints": [{ "addresses": ["10.66.0.6"] }] }));
    slices.patch(&slice, &params, &patch).await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    slices.delete(&slice, &DeleteParams::default()).await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    operator.stop().await
}

async fn unlabelled_service_is_released(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend, json!({})).await?;
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    let (params, patch) = merge(json!({ "metadata": { "labels": { "tfw.io/barrelman": null } } }));
    world.services().patch("web", &params, &patch).await?;
    eventually("our slices are gone", async || Ok(world.slices("web").await?.is_empty())).await?;
    world.event("NameConflict", "web").await?;
    world.sources().delete("web", &DeleteParams::default()).await?;
    world.caught_up().await?;
    ensure!(world.services().get_opt("web").await?.is_some(), "the Service is the user's now");
    operator.stop().await
}

async fn freed_name_is_mirrored_at_once(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend, json!({})).await?;
    world.local_service(json!({ "metadata": { "name": "web" }, "spec": { "ports": [{ "port": 99 }] } })).await?;
    let operator = world.operator().await?;
    world.event("NameConflict", "web").await?;
    world.services().delete("web", &DeleteParams::default()).await?;
    world.mirror("web").await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    operator.stop().await
}

async fn resync_costs_no_call(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend, json!({})).await?;
    // Its condition is looked at each time, too.
    let labels = json!({ "tfw.io/barrelman": "true" });
    let ports = json!([{ "port": 80, "targetPort": 30500 }]);
    world
        .local_service(json!({ "metadata": { "name": "hand", "labels": labels }, "spec": { "ports": ports } }))
        .await?;
    let options =
        portolan_control::mirror::Options { resync_period: std::time::Duration::from_millis(50), ..world.options() };
    let operator = world.operator_with(options).await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    eventually("the Service has its condition", async || {
        let conditions = world.services().get("hand").await?.status.and_then(|status| status.conditions);
        Ok(conditions.is_some_and(|conditions| conditions.iter().any(|one| one.status == "True")))
    })
    .await?;
    world.ready("east").await?;
    let label = portolan_control::runtime::metrics::CapabilityLabel { capability: "mirror" };
    let reconciles = || operator.process.ctx().metrics.reconciles.get_or_create(&label).get();
    let (before, requests) = (reconciles(), operator.writes());
    eventually("it was checked anew ten times", async || Ok(reconciles() >= before + 10)).await?;
    assert_eq!(operator.writes(), requests);
    operator.stop().await
}

async fn port_order_is_no_change(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    let (a, b) =
        (json!({ "name": "a", "port": 80, "nodePort": 30080 }), json!({ "name": "b", "port": 81, "nodePort": 30081 }));
    world.source_with("web", json!({ "type": "NodePort", "ports": [a, b] })).await?;
    world.east(json!({})).await?;
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP", "10.1.0.1:30081/TCP"]).await?;
    world.ready("east").await?;
    let version = world.mirror("web").await?.resource_version();
    let mut source = world.sources().get("web").await?;
    if let Some(ports) = source.spec.as_mut().and_then(|spec| spec.ports.as_mut()) {
        ports.reverse();
    }
    world.sources().replace("web", &PostParams::default(), &source).await?;
    world.caught_up().await?;
    assert_eq!(world.mirror("web").await?.resource_version(), version);
    operator.stop().await
}

async fn type_alone_is_a_change(backend: Backend) -> anyhow::Result<()> {
    let world = one_source(backend, json!({})).await?;
    let operator = world.operator().await?;
    world.mirror("web").await?;
    let (params, patch) = merge(json!({ "spec": { "mirrorType": "NodePort" } }));
    world.remotes().patch("east", &params, &patch).await?;
    eventually("the mirror has the nodePort of its source", async || {
        let spec = world.mirror("web").await?.spec.unwrap_or_default();
        let node_port = spec.ports.unwrap_or_default().first().and_then(|port| port.node_port);
        Ok(spec.type_.as_deref() == Some("NodePort") && node_port == Some(30080))
    })
    .await?;
    let (params, patch) = merge(json!({ "spec": { "mirrorType": "ClusterIP" } }));
    world.remotes().patch("east", &params, &patch).await?;
    eventually("the mirror is of type ClusterIP", async || {
        Ok(world.mirror("web").await?.spec.unwrap_or_default().type_.as_deref() == Some("ClusterIP"))
    })
    .await?;
    operator.stop().await
}

async fn nodeport_collision_reported_once(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    let spec = json!({ "type": "NodePort", "ports": [{ "port": 5, "nodePort": 30777 }] });
    world.local_service(json!({ "metadata": { "name": "mine" }, "spec": spec })).await?;
    world.source("web", 30777).await?;
    world.east(json!({ "mirrorType": "NodePort" })).await?;
    let operator = world.operator().await?;
    let mirror = world.mirror("web").await?;
    assert_eq!(mirror.spec.unwrap_or_default().type_.as_deref(), Some("ClusterIP"));
    let note = world.event("NodePortTaken", "web").await?;
    ensure!(note.contains("mine"), "{note}");
    world.ready("east").await?;
    let writes = operator.writes();
    stays("nothing is tried again", async || Ok(operator.writes() == writes)).await?;
    // When the port is free, the mirror gets it.
    world.services().delete("mine", &DeleteParams::default()).await?;
    eventually("the mirror has the port", async || {
        Ok(world.mirror("web").await?.spec.unwrap_or_default().type_.as_deref() == Some("NodePort"))
    })
    .await?;
    assert_eq!(world.events("NodePortTaken", "web").await?, 1);
    operator.stop().await
}

async fn terminating_namespace_waits(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    // A namespace that does not go, because of an object with a finalizer.
    let namespaces = Api::<Namespace>::all(world.local.clone());
    let keeper = json!({ "metadata": { "name": "keeper", "finalizers": ["test.portolan.dev/keep"] } });
    let maps = Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(world.local.clone(), &world.namespace);
    maps.create(&PostParams::default(), &serde_json::from_value(keeper)?).await?;
    namespaces.delete(&world.namespace, &DeleteParams::default()).await?;
    world.source("web", 30080).await?;
    world.east(json!({})).await?;
    let operator = world.operator().await?;
    eventually("the remote says why", async || {
        let unmet = world.remote_status("east").await?.unmet;
        Ok(unmet.iter().any(|one| one.reason == "NamespaceTerminating"))
    })
    .await?;
    assert_eq!(operator.writes(), 0, "nothing is tried");
    let (params, patch) = merge(json!({ "metadata": { "finalizers": null } }));
    maps.patch("keeper", &params, &patch).await?;
    world.mirror("web").await?;
    operator.stop().await
}

async fn namespace_race_is_success(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    let name = format!("{}-new", world.namespace);
    world.remote_namespace(&name).await?;
    let source = json!({ "metadata": { "name": "web" }, "spec": { "type": "NodePort", "ports": [{ "port": 80 }] } });
    let sources = Api::<Service>::namespaced(world.remote.clone(), &name);
    sources.create(&PostParams::default(), &serde_json::from_value(source)?).await?;
    world.east(json!({})).await?;
    // Somebody else makes the namespace just before us, and the operator has not seen it yet.
    let operator = {
        let seen =
            portolan_testkit::FaultProxy::start(world.local.clone(), portolan_testkit::Faults::default()).await?;
        seen.hold_watch_events(Some("namespaces"));
        let options = world.options();
        let process = portolan_control::runtime::app::Process::start(
            seen.client(),
            crate::egress::harness::options(),
            |ctx, registry| drop(portolan_control::mirror::start(ctx, registry, options)),
        )?;
        super::harness::Operator { process, seen, namespace: world.namespace.clone() }
    };
    super::harness::make_namespace(&world.local, &name).await?;
    let here = Api::<Service>::namespaced(world.local.clone(), &name);
    eventually("it is mirrored", async || Ok(here.get_opt("web").await?.is_some())).await?;
    operator.stop().await
}
