//! Whatever a crash left is found again, by names that follow from cluster and Service.

use anyhow::ensure;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use portolan_control::gateway_client::Options;
use portolan_core::gateway_client::{ClusterKey, ServiceName};
use serde_json::json;

use super::harness::{World, is_held};
use super::stand_in::Fault;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    a_finalizer_that_is_removed_by_force_leaves_nothing,
    a_restart_changes_nothing,
    two_clusters_with_equal_services_do_not_clash,
    what_changed_while_nobody_ran_is_put_right,
);

async fn a_restart_changes_nothing(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let operator = world.operator().await?;
    for name in ["a", "b", "c"] {
        world.service(name).await?;
        world.pods(name, &[("10.1.0.1", "n1"), ("10.1.0.2", "n2"), ("10.1.0.3", "n3")]).await?;
    }
    for name in ["a", "b", "c"] {
        world.announced(name).await?;
    }
    operator.process.stop().await?;
    let before = world.gateway.asked().len();
    let operator = world.operator().await?;
    eventually("all endpoints were read", async || {
        let asked = world.gateway.asked();
        Ok(asked[before..].iter().filter(|one| one.path.ends_with("/endpoints")).count() >= 6)
    })
    .await?;
    world.at_rest().await?;
    ensure!(world.gateway.changes_since(before).is_empty(), "{:?}", world.gateway.changes_since(before));
    ensure!(operator.writes().is_empty(), "{:#?}", operator.writes());
    operator.process.stop().await?;
    Ok(())
}

async fn what_changed_while_nobody_ran_is_put_right(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let operator = world.operator().await?;
    for name in ["kept", "gone", "deleted"] {
        world.service(name).await?;
        world.pods(name, &[("10.1.0.1", "n1"), ("10.1.0.2", "n2")]).await?;
        world.announced(name).await?;
    }
    operator.process.stop().await?;
    // A Service vanishes without its finalizer, one waits for us, a node's pods are gone, and others have their own.
    world.change("gone", &json!({ "metadata": { "finalizers": null } })).await?;
    world.delete("gone").await?;
    world.delete("deleted").await?;
    world.pods("kept", &[("10.1.0.1", "n1")]).await?;
    let foreign = ClusterKey::new("cluster-2").name(&ServiceName::new("shop", "web")).as_str().to_owned();
    let copy = world.gateway.service("kept");
    world.gateway.store(|store| {
        for name in [foreign.as_str(), "by-hand"] {
            store.services.extend(copy.clone().map(|stored| (name.to_owned(), stored)));
        }
    });
    let operator = world.operator().await?;
    world.gone("deleted").await?;
    world.endpoints_are("kept", &["10.1.0.1:8080/TCP@10.0.0.1"]).await?;
    eventually("only what belongs there is left", async || Ok(world.gateway.store(|store| store.services.len() == 3)))
        .await?;
    let left = world.gateway.store(|store| store.services.keys().cloned().collect::<Vec<_>>());
    ensure!(left.contains(&foreign) && left.contains(&"by-hand".to_owned()), "{left:?}");
    operator.process.stop().await?;
    Ok(())
}

async fn a_finalizer_that_is_removed_by_force_leaves_nothing(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let operator = world.operator().await?;
    world.service("web").await?;
    world.announced("web").await?;
    // The gateway is away, and somebody has no patience.
    world.gateway.fail(|asked| if asked.changes() { Fault::Refuse(503, None) } else { Fault::None });
    world.delete("web").await?;
    eventually("it was asked to delete", async || Ok(world.gateway.asked().iter().any(|one| one.method == "DELETE")))
        .await?;
    ensure!(is_held(&world.get("web").await?), "it is held until the gateway has let go");
    world.change("web", &json!({ "metadata": { "finalizers": null } })).await?;
    world.gone("web").await?;
    world.gateway.fail(|_| Fault::None);
    eventually("nothing is left", async || Ok(world.gateway.is_empty())).await?;
    operator.process.stop().await?;
    Ok(())
}

async fn two_clusters_with_equal_services_do_not_clash(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    // The other cluster is one of its own, with a Service of the same namespace and name, at the same gateway.
    let mut other = World::new(Backend::Embedded).await?;
    let namespaces: Api<Namespace> = Api::all(other.client.clone());
    let object = json!({ "metadata": { "name": world.namespace } });
    namespaces.create(&kube::api::PostParams::default(), &serde_json::from_value(object)?).await?;
    other.namespace.clone_from(&world.namespace);
    other.login(&json!({ "username": "tenant", "password": super::rules::PASSWORD })).await?;
    for cluster in [&world, &other] {
        cluster.service("web").await?;
        cluster.pods("web", &[("10.1.0.1", "n1")]).await?;
    }
    let options = |id: &str| anyhow::Ok(Options { cluster_id: Some(id.to_owned()), ..world.options()? });
    let (one, two) = (world.operator_with(options("one")?).await?, other.operator_with(options("two")?).await?);
    let (first, second) = (world.announced("web").await?, other.announced("web").await?);
    ensure!(first != second, "both have {first}");
    world.at_rest().await?;
    ensure!(world.gateway.store(|store| store.services.len()) == 2, "neither sweeps the other's");
    world.delete("web").await?;
    world.gone("web").await?;
    ensure!(world.gateway.store(|store| store.services.len()) == 1);
    ensure!(other.announced("web").await? == second);
    one.process.stop().await?;
    two.process.stop().await?;
    Ok(())
}
