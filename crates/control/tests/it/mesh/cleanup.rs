//! Generated objects that an operator has left, and `portolan cleanup` removes.

use kube::api::{ListParams, Patch, PatchParams};
use portolan_api::mesh::{Route, Target, VirtualService};
use portolan_control::cleanup::{self, Found, Options};
use portolan_control::mesh::CAPABILITY;
use serde_json::json;

use super::harness::{ECHO, SIDECAR, World};
use crate::harness::{Backend, eventually};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generated_objects_go_unless_a_user_has_changed_them() -> anyhow::Result<()> {
    let mut world = World::new(Backend::Embedded).await?;
    world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    world.pod("worker-1", &[("app", "worker")], ECHO).await?;
    world.pod("other-1", &[("app", "other")], ECHO).await?;
    let operator = world.operator().await?;
    world
        .apply(
            "
{apiVersion: v1, kind: Service, metadata: {name: worker}, spec: {selector: {app: worker}, ports: [{protocol: UDP, port: 9999}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: other}, spec: {selector: {app: other}, ports: [{protocol: UDP, port: 9999}]}}
---
{apiVersion: l7mp.io/v1, kind: Route, metadata: {name: way}, spec: {destination: worker}}
---
{apiVersion: l7mp.io/v1, kind: Route, metadata: {name: detour}, spec: {destination: other}}
---
{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {name: gateway-vsvc}, spec: {selector: {matchLabels: {app: gateway}},
  listener: {spec: {UDP: {port: 9001}}}, rules: [{match: {op: test, path: /a, value: b}, action: {route: way}}, {action: {route: detour}}]}}
",
        )
        .await?;
    let targets = world.api::<Target>();
    eventually("both targets are generated", async || Ok(names(&targets).await? == ["other", "worker"])).await?;
    operator.process.stop().await?;
    let edited = json!({ "spec": { "cluster": { "loadbalancer": { "policy": "ConsistentHash" } } } });
    targets.patch("other", &PatchParams::default(), &Patch::Merge(edited)).await?;

    let found = cleanup::find(&[&CAPABILITY], &world.client, "default").await?;
    let generated = names(&world.api::<VirtualService>()).await?.len() - 1;
    let expected = [("VirtualService", generated), ("Target", 1)];
    let shown = |Found { kind, objects, .. }: &Found| (*kind, *objects);
    assert_eq!(found.iter().map(shown).collect::<Vec<_>>(), expected);
    let mut removed = Vec::new();
    let options = Options::of_operator(&world.namespace, "cleanup");
    cleanup::run(&[&CAPABILITY], &world.client, &options, |found| removed.push(shown(&found))).await?;
    assert_eq!(removed, expected);
    assert_eq!(names(&targets).await?, ["other"]);
    assert_eq!(names(&world.api::<VirtualService>()).await?, ["gateway-vsvc"]);
    assert_eq!(names(&world.api::<Route>()).await?, ["detour", "way"]);
    Ok(())
}

async fn names<K>(api: &kube::Api<K>) -> anyhow::Result<Vec<String>>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    Ok(api.list(&ListParams::default()).await?.iter().map(kube::ResourceExt::name_any).collect())
}
