//! What the operator that l7mp shipped did wrong, and what proxies keep when objects go.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use portolan_api::mesh::{Rule, VirtualService};
use portolan_control::mesh;
use serde_json::{Value, json};

use super::away::echo;
use super::harness::{Caller, SIDECAR, World};
use super::traffic::{answers, programmed};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    options_reach_proxy,
    an_edit_keeps_the_sessions_of_a_real_proxy,
    restart_removes_leftovers,
    steady_state_zero_writes,
    media_plane_controller_call,
    c7_sessions_of_withdrawn_objects_go_on_unless_they_are_to_go,
);

fn none() -> Value {
    Value::Array(Vec::new())
}

async fn options_reach_proxy(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let at = world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    let operator = world.operator().await?;
    world.apply(&echo("v", "gateway", 7000)).await?;
    let options = json!({ "spec": { "options": { "track": 7 }, "limits": { "maxSessions": 9 } } });
    world.api::<VirtualService>().patch("v", &PatchParams::default(), &Patch::Merge(options)).await?;
    eventually("the options are on the proxy", async || {
        let listeners = world.held(at, "listeners").await?;
        let options = &listeners[0]["options"];
        Ok(options["track"] == 7 && options["max_sessions"] == 9)
    })
    .await?;
    operator.process.stop().await?;
    Ok(())
}

async fn an_edit_keeps_the_sessions_of_a_real_proxy(backend: Backend) -> anyhow::Result<()> {
    let (world, at, operator) = programmed(backend).await?;
    let caller = Caller::new(at, 9001)?;
    answers(&caller).await?;
    let session = world.held(at, "sessions").await?[0]["name"].clone();
    let generation = world.generation(at).await?;
    let rules = json!({ "spec": { "rules": [
        { "match": { "op": "test", "path": "/UDP/src_port", "value": 1 }, "action": { "route": { "destination": { "spec": { "protocol": "Discard" } } } } },
        { "action": { "rewrite": [{ "path": "/labels/edited", "value": true }], "route": { "destination": "worker-svc" } } },
    ], "options": { "track": 1 } } });
    world.api::<VirtualService>().patch("gateway-vsvc", &PatchParams::default(), &Patch::Merge(rules)).await?;
    eventually("the proxy has the edit", async || {
        Ok(world.held(at, "rules").await?.as_array().map(Vec::len) == Some(2))
    })
    .await?;
    assert_eq!(world.generation(at).await?, generation + 1, "an edit is one call");
    assert_eq!(caller.call("still here", Duration::from_secs(5))?.as_deref(), Some("still here"));
    let sessions = world.held(at, "sessions").await?;
    assert_eq!((sessions.as_array().map(Vec::len), &sessions[0]["name"]), (Some(1), &session));
    operator.process.stop().await?;
    Ok(())
}

/// C9: there are no finalizers, so an object may go while nobody looks.
async fn restart_removes_leftovers(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let at = world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    let operator = world.operator().await?;
    world.apply(&echo("stays", "gateway", 7001)).await?;
    world.apply(&echo("goes", "gateway", 7002)).await?;
    world.until("stays", "Programmed", "True", "Programmed").await?;
    world.until("goes", "Programmed", "True", "Programmed").await?;
    operator.process.stop().await?;

    let seen = world.api::<VirtualService>().get("goes").await?;
    assert_eq!(seen.metadata.finalizers, None);
    world.api::<VirtualService>().delete("goes", &DeleteParams::default()).await?;
    let before = world.generation(at).await?;
    let operator = world.operator().await?;
    eventually("what was left over is gone", async || {
        Ok(world.held(at, "listeners").await?.as_array().map(Vec::len) == Some(1))
    })
    .await?;
    for kind in ["clusters", "routes", "rules", "rulelists"] {
        let held = world.held(at, kind).await?;
        assert_eq!(held.as_array().map(Vec::len), Some(1), "{kind}: {held}");
    }
    assert_eq!(world.generation(at).await?, before + 1, "in one call");
    operator.process.stop().await?;
    Ok(())
}

async fn steady_state_zero_writes(backend: Backend) -> anyhow::Result<()> {
    let (world, at, operator) = programmed(backend).await?;
    for number in 0..20 {
        world.apply(&echo(&format!("v{number}"), "gateway", 7000 + number)).await?;
    }
    for number in 0..20 {
        world.until(&format!("v{number}"), "Programmed", "True", "Programmed").await?;
    }
    let rested = async || {
        let writes = operator.seen.writes_but_leases().len();
        tokio::time::sleep(Duration::from_secs(2)).await;
        writes == operator.seen.writes_but_leases().len()
    };
    eventually("everything is said", async || Ok(rested().await)).await?;
    let (writes, generation) = (operator.seen.writes_but_leases().len(), world.generation(at).await?);
    // every kind is listed anew, as after a cut that lasted too long
    for kind in ["virtualservices", "targets", "routes", "rules", "pods", "services", "endpointslices", "namespaces"] {
        operator.seen.script_watch(kind, vec![portolan_testkit::WatchStep::ExpireInStream]);
    }
    world.shows("gateway", at, 0).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(operator.seen.writes_but_leases().len(), writes, "nothing is written at rest");
    assert_eq!(world.generation(at).await?, generation, "no proxy is changed at rest");
    operator.process.stop().await?;
    Ok(())
}

async fn c7_sessions_of_withdrawn_objects_go_on_unless_they_are_to_go(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let at = world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    let operator = world.operator().await?;
    for (name, port, removes) in [("stays", 7001, false), ("goes", 7002, true)] {
        world.apply(&echo(name, "gateway", port)).await?;
        let options = json!({ "spec": { "options": { "removeOrphanSessions": removes } } });
        world.api::<VirtualService>().patch(name, &PatchParams::default(), &Patch::Merge(options)).await?;
    }
    let (stays, goes) = (Caller::new(at, 7001)?, Caller::new(at, 7002)?);
    answers(&stays).await?;
    answers(&goes).await?;
    eventually("the option is on the proxy", async || {
        let listeners = world.held(at, "listeners").await?;
        let listed = listeners.as_array().into_iter().flatten();
        Ok(listed.filter(|one| one["options"]["removeOrphanSessions"] == json!(true)).count() == 1)
    })
    .await?;
    for name in ["stays", "goes"] {
        world.api::<VirtualService>().delete(name, &DeleteParams::default()).await?;
    }
    eventually("both listeners are gone", async || Ok(world.held(at, "listeners").await? == none())).await?;
    assert_eq!(stays.call("on and on", Duration::from_secs(5))?.as_deref(), Some("on and on"));
    assert_eq!(goes.call("over", Duration::from_millis(500))?, None);
    assert_eq!(world.held(at, "sessions").await?.as_array().map(Vec::len), Some(1));
    operator.process.stop().await?;
    Ok(())
}

/// The operator sees every namespace of its cluster, and keeps them apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_namespaces() -> anyhow::Result<()> {
    let mut world = World::new(Backend::Embedded).await?;
    let here = world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    let operator = world.operator_with(mesh::Options::default()).await?;
    let metadata = ObjectMeta { name: Some("elsewhere".to_owned()), ..ObjectMeta::default() };
    let namespaces: Api<Namespace> = Api::all(world.client.clone());
    namespaces.create(&PostParams::default(), &Namespace { metadata, ..Namespace::default() }).await?;
    world.apply(&echo("v", "gateway", 7000)).await?;
    let first = std::mem::replace(&mut world.namespace, "elsewhere".to_owned());
    let there = world.pod("gateway-2", &[("app", "gateway")], SIDECAR).await?;
    world.apply(&echo("v", "gateway", 7000)).await?;
    for (namespace, at) in [(first, here), ("elsewhere".to_owned(), there)] {
        world.namespace.clone_from(&namespace);
        world.until("v", "Programmed", "True", "Programmed").await?;
        let listeners = world.held(at, "listeners").await?;
        assert_eq!(listeners.as_array().map(Vec::len), Some(1));
        assert_eq!(listeners[0]["name"], format!("v.{namespace}.virtualservice.cluster.local"));
    }
    operator.process.stop().await?;
    Ok(())
}

/// l7mp's media plane controller makes a call of four VirtualServices and four Rules in their rulelists, and asks for each
/// object until it has an annotation, for ever.
async fn media_plane_controller_call(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let at = world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    let operator = world.operator().await?;
    let (services, rules) = (world.api::<VirtualService>(), world.api::<Rule>());
    let streams = [("a-rtp", 7001), ("a-rtcp", 7002), ("b-rtp", 7003), ("b-rtcp", 7004)];
    for (name, port) in streams {
        let service = json!({ "metadata": { "name": name }, "spec": {
            "selector": { "matchLabels": { "app": "gateway" } },
            "listener": { "spec": { "UDP": { "port": port } } },
            "rules": [],
        } });
        services.create(&PostParams::default(), &serde_json::from_value(service)?).await?;
        let rule = json!({ "metadata": { "name": name }, "spec": {
            "selector": { "matchLabels": { "app": "gateway" } },
            "rulelist": format!("{name}.{}.virtualservice.cluster.local", world.namespace),
            "position": 0,
            "rule": { "action": { "route": { "destination": { "spec": { "Echo": {} } } } } },
        } });
        rules.create(&PostParams::default(), &serde_json::from_value(rule)?).await?;
    }
    for (name, _) in streams {
        eventually(&format!("the polling for {name} ends"), async || {
            let service = services.get(name).await?.metadata.annotations.unwrap_or_default();
            let rule = rules.get(name).await?.metadata.annotations.unwrap_or_default();
            Ok(!service.is_empty() && !rule.is_empty())
        })
        .await?;
    }
    for (_, port) in streams {
        answers(&Caller::new(at, port)?).await?;
    }
    for (name, _) in streams {
        rules.delete(name, &DeleteParams::default()).await?;
        services.delete(name, &DeleteParams::default()).await?;
    }
    eventually("the call left nothing", async || {
        for kind in ["listeners", "rulelists", "rules", "routes", "clusters"] {
            if world.held(at, kind).await? != none() {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await?;
    operator.process.stop().await?;
    Ok(())
}
