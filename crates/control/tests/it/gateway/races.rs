//! Several operators at once, none of them elected, with conflicts and lost answers between them and the API server.
//!
//! `PORTOLAN_RACE=N` has eight operators and so many load balancers. With processes and `kill -9` it is a part of
//! `cargo xtask bench gateway --only kill`.

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use portolan_api::gateway::{Account, LoadBalancer, ServicePrefix};
use portolan_testkit::Faults;
use serde_json::json;

use super::harness::World;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(operators_that_all_think_they_lead_give_nothing_twice);

/// Load balancers of one account, at most.
const OF_ACCOUNT: usize = 250;

/// How many there are of everything.
struct Size {
    operators: u64,
    accounts: usize,
    of_account: usize,
}

impl Size {
    fn chosen() -> anyhow::Result<Self> {
        let Some(asked) = std::env::var_os("PORTOLAN_RACE") else {
            return Ok(Self { operators: 4, accounts: 5, of_account: 24 });
        };
        let asked: usize = asked.to_str().context("PORTOLAN_RACE is not a number")?.parse()?;
        let accounts = asked.div_ceil(OF_ACCOUNT).max(20);
        Ok(Self { operators: 8, accounts, of_account: asked.div_ceil(accounts) })
    }
}

#[expect(clippy::print_stderr, reason = "a run that was made larger says how large it was")]
async fn operators_that_all_think_they_lead_give_nothing_twice(backend: Backend) -> anyhow::Result<()> {
    let Size { operators: at_once, accounts: of_accounts, of_account } = Size::chosen()?;
    let expected = of_accounts * of_account;
    eprintln!("{at_once} operators, {of_accounts} accounts, {expected} load balancers");
    let world = World::new(backend).await?;
    world.provider().await?;
    let addresses = json!({ "subnet": "172.16.0.0/16", "pool": "172.16.0.0/16" });
    world.create::<ServicePrefix>("egw", "default", addresses).await?;
    let faults = |seed| Faults { seed, conflict: 0.1, drop_after: 0.05, server_error: 0.05, ..Faults::default() };
    let mut operators = Vec::new();
    for seed in 0..at_once {
        operators.push(world.operator_with(faults(seed), |options| options).await?);
    }
    let accounts: Vec<String> = (0..of_accounts).map(|number| World::name(&format!("t{number}"))).collect();
    for account in &accounts {
        world.account(account).await?;
    }
    for number in 0..of_account {
        for account in &accounts {
            world.load_balancer(account, &format!("lb{number}")).await?;
        }
        // one ends in the middle of its work, and another one takes its place
        if number % 8 == 3 {
            let seed = u64::try_from(number)? + at_once;
            drop(operators.remove(0));
            operators.push(world.operator_with(faults(seed), |options| options).await?);
        }
    }
    let all: Api<LoadBalancer> = Api::all(world.client.clone());
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
    let account_keys: BTreeSet<u16> = world
        .of::<Account>("egw")
        .list(&ListParams::default())
        .await?
        .items
        .iter()
        .map(|one| one.spec.gue_key)
        .collect();
    ensure!(account_keys.len() == of_accounts && !account_keys.contains(&0), "{account_keys:?}");
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
    ensure!(probe.spec.public_address == "172.16.0.1", "{probe:?}");
    for operator in operators {
        operator.process.stop().await?;
    }
    Ok(())
}
