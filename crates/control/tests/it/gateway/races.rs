//! Several operators at once, none of them elected, with conflicts and lost answers between them and the API server.

use std::collections::BTreeSet;

use anyhow::ensure;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use portolan_api::gateway::{Account, LoadBalancer};
use portolan_testkit::Faults;
use serde_json::json;

use super::harness::World;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(operators_that_all_think_they_lead_give_nothing_twice);

const OPERATORS: u64 = 4;
const ACCOUNTS: usize = 5;
const LOAD_BALANCERS: usize = 24;

async fn operators_that_all_think_they_lead_give_nothing_twice(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.pool("192.0.2.0/24").await?;
    let faults = |seed| Faults { seed, conflict: 0.1, drop_after: 0.05, server_error: 0.05, ..Faults::default() };
    let mut operators = Vec::new();
    for seed in 0..OPERATORS {
        operators.push(world.operator_with(faults(seed), |options| options).await?);
    }
    let accounts: Vec<String> = (0..ACCOUNTS).map(|number| World::name(&format!("t{number}"))).collect();
    for account in &accounts {
        world.account(account).await?;
    }
    for number in 0..LOAD_BALANCERS {
        for account in &accounts {
            world.load_balancer(account, &format!("lb{number}")).await?;
        }
        // one ends in the middle of its work, and another one takes its place
        if number % 8 == 3 {
            let seed = u64::try_from(number)? + OPERATORS;
            drop(operators.remove(0));
            operators.push(world.operator_with(faults(seed), |options| options).await?);
        }
    }
    let all: Api<LoadBalancer> = Api::all(world.client.clone());
    let expected = ACCOUNTS * LOAD_BALANCERS;
    eventually("all load balancers have a key and an address", async || {
        let list = all.list(&ListParams::default()).await?;
        let complete = |object: &&LoadBalancer| object.spec.gue_key != 0 && !object.spec.public_address.is_empty();
        Ok(list.items.iter().filter(complete).count() == expected)
    })
    .await?;
    let list = all.list(&ListParams::default()).await?.items;
    let keys: BTreeSet<u32> = list.iter().map(|object| object.spec.gue_key).collect();
    let addresses: BTreeSet<&str> = list.iter().map(|object| object.spec.public_address.as_str()).collect();
    ensure!(
        (keys.len(), addresses.len()) == (expected, expected),
        "{} keys, {} addresses",
        keys.len(),
        addresses.len()
    );
    let of_accounts: BTreeSet<u16> = world
        .of::<Account>("egw")
        .list(&ListParams::default())
        .await?
        .items
        .iter()
        .map(|one| one.spec.gue_key)
        .collect();
    ensure!(of_accounts.len() == ACCOUNTS && !of_accounts.contains(&0), "{of_accounts:?}");
    for object in &list {
        let (namespace, name) = (object.metadata.namespace.as_deref(), object.metadata.name.as_deref());
        let (namespace, name) = (namespace.unwrap_or_default(), name.unwrap_or_default());
        world.of::<LoadBalancer>(namespace).delete(name, &DeleteParams::default()).await?;
    }
    eventually("all are gone", async || Ok(all.list(&ListParams::default()).await?.items.is_empty())).await?;
    world.nothing_is_claimed().await?;
    // another one gets the first address again
    let probe = json!({ "metadata": { "name": "probe" },
        "spec": { "service-group": "sample", "public-ports": [{ "port": 80 }] } });
    let balancers = world.of::<LoadBalancer>(&format!("egw-{}", accounts[0]));
    balancers.create(&PostParams::default(), &serde_json::from_value(probe)?).await?;
    let probe = world.ready(&accounts[0], "probe").await?;
    ensure!(probe.spec.public_address == "192.0.2.1", "{probe:?}");
    for operator in operators {
        operator.process.stop().await?;
    }
    Ok(())
}
