//! Many proxies, many objects.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::Api;
use kube::api::{ListParams, PostParams};
use portolan_api::mesh::VirtualService;
use serde_json::json;

use super::harness::{SIDECAR, World, has};
use crate::harness::{Backend, eventually};

const PROXIES: usize = 100;
/// Proxies are in groups of ten, each with a tenth of all VirtualServices.
const GROUPS: usize = 10;
const OBJECTS: usize = 1_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_proxies_and_a_thousand_virtual_services_converge_and_stay() -> anyhow::Result<()> {
    let mut world = World::new(Backend::Embedded).await?;
    let mut addresses = Vec::new();
    for number in 0..PROXIES {
        let group = format!("g{}", number % GROUPS);
        addresses.push(world.pod(&format!("gateway-{number}"), &[("group", &group)], SIDECAR).await?);
    }
    let operator = world.operator().await?;
    let api: Api<VirtualService> = world.api();
    let making = (0..OBJECTS).map(|number| {
        let api = api.clone();
        async move {
            let object = json!({ "metadata": { "name": format!("v{number}") }, "spec": {
                "selector": { "matchLabels": { "group": format!("g{}", number % GROUPS) } },
                "listener": { "protocol": "UDP", "port": 20_000 + number },
                "rules": [{ "action": { "route": { "destination": { "spec": { "protocol": "Echo" } } } } }],
            } });
            api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
            anyhow::Ok(())
        }
    });
    stream::iter(making).buffer_unordered(16).try_collect::<()>().await?;
    // However long it takes on a busy machine, it goes on.
    let mut done = 0;
    while done < OBJECTS {
        eventually("more VirtualServices are on their ten proxies", async || {
            let before = std::mem::replace(&mut done, programmed(&api).await?);
            Ok(done > before)
        })
        .await?;
    }
    for address in &addresses {
        let listeners = world.held(*address, "listeners").await?;
        assert_eq!(listeners.as_array().map(Vec::len), Some(OBJECTS / GROUPS));
    }
    operator.process.stop().await?;

    let mut before = Vec::new();
    for address in &addresses {
        before.push(world.generation(*address).await?);
    }
    let operator = world.operator().await?;
    eventually("it has looked at everything", async || Ok(operator.process.ctx().readiness.is_ready())).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let writes = operator.seen.writes();
    assert!(writes.is_empty(), "an operator that starts again writes nothing: {writes:?}");
    for (address, before) in addresses.iter().zip(before) {
        assert_eq!(world.generation(*address).await?, before, "an operator that starts again changes no proxy");
    }
    operator.process.stop().await?;
    Ok(())
}

/// How many VirtualServices are on all of their proxies.
async fn programmed(api: &Api<VirtualService>) -> anyhow::Result<usize> {
    let is_programmed = |one: &&VirtualService| {
        let status = one.status.as_ref();
        let held = status.and_then(|status| status.proxies.as_ref()).map(|proxies| proxies.programmed);
        has(status, "Programmed", "True", "Programmed") && held == Some(10)
    };
    Ok(api.list(&ListParams::default()).await?.items.iter().filter(is_programmed).count())
}
