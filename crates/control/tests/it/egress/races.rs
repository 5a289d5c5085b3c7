//! Operators that all think they lead.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use portolan_testkit::{FaultProxy, Faults};
use serde_json::json;

use super::harness::{Operator, World, agents};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    eight_racing_operators_never_give_an_address_to_two_gateways,
}

const OPERATORS: usize = 8;
const CHURN: Duration = Duration::from_secs(4);

async fn eight_racing_operators_never_give_an_address_to_two_gateways(backend: Backend) -> anyhow::Result<()> {
    let seed = fastrand::u64(..);
    raced(backend, seed).await.map_err(|cause| cause.context(format!("seed {seed}")))
}

async fn raced(backend: Backend, seed: u64) -> anyhow::Result<()> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let world = World::new(backend).await?;
    let _agents = agents(&world)?;
    for node in ["n1", "n2"] {
        world.node(node).await?;
    }
    world.gateway("eg1", &["10.6.1.60-10.6.1.65"]).await?;
    world.gateway("eg2", &["10.6.1.62-10.6.1.67"]).await?;
    let proxy = FaultProxy::start(world.client.clone(), Faults::default()).await?;
    let operators = (0..OPERATORS).map(|_| Operator::start(&proxy)).collect::<anyhow::Result<Vec<_>>>()?;
    let (mut owners, mut alive, began) = (BTreeMap::new(), BTreeSet::new(), Instant::now());
    for number in 0.. {
        churn(&world, &mut rng, number, &mut alive).await?;
        one_gateway_each(&world, &mut owners).await?;
        if began.elapsed() > CHURN && number > 20 {
            break;
        }
    }
    for operator in operators {
        operator.stop().await?;
    }
    one_gateway_each(&world, &mut owners).await?;
    // One that is alone puts everything in order.
    world.change_gateway("eg2", json!({ "ippools": { "ipv4": ["10.6.1.70-10.6.1.75"] } })).await?;
    let operator = Operator::start(&proxy)?;
    eventually("everybody is served, and nothing leaks", async || in_order(&world, &alive).await).await?;
    operator.stop().await
}

async fn churn(
    world: &World,
    rng: &mut fastrand::Rng,
    number: u32,
    alive: &mut BTreeSet<String>,
) -> anyhow::Result<()> {
    match rng.u8(0..6) {
        0 => {
            if let Some(name) = rng.choice(alive.iter().cloned().collect::<Vec<_>>()) {
                world.policies().delete(&name, &DeleteParams::default()).await?;
                alive.remove(&name);
            }
        }
        1 => {
            // Which of the two owns the common addresses changes with the pools.
            let (gateway, pools) = rng
                .choice([
                    ("eg1", ["10.6.1.60-10.6.1.65", "10.6.1.60-10.6.1.61"]),
                    ("eg2", ["10.6.1.62-10.6.1.67", "10.6.1.66-10.6.1.67"]),
                ])
                .expect("there are two");
            world.change_gateway(gateway, json!({ "ippools": { "ipv4": [pools[rng.usize(0..2)]] } })).await?;
        }
        _ => {
            let (name, gateway) = (format!("p{number}"), if rng.bool() { "eg1" } else { "eg2" });
            let mode = if rng.bool() { "rr" } else { "Random" };
            world.policy(&name, gateway, json!({ "allocatorPolicy": mode })).await?;
            alive.insert(name);
        }
    }
    Ok(())
}

/// A claim never changes its gateway: another one can have the address only after the claim is gone.
async fn one_gateway_each(world: &World, owners: &mut BTreeMap<String, String>) -> anyhow::Result<()> {
    for claim in world.claims().list(&ListParams::default()).await? {
        let gateway = claim.spec.egress.as_ref().map(|record| record.gateway.clone()).unwrap_or_default();
        let owner = owners.entry(claim.uid().unwrap_or_default()).or_insert_with(|| gateway.clone());
        anyhow::ensure!(*owner == gateway, "{} went from {owner} to {gateway}", claim.name_any());
    }
    Ok(())
}

async fn in_order(world: &World, alive: &BTreeSet<String>) -> anyhow::Result<bool> {
    let mut recorded = BTreeMap::new();
    let mut slots = BTreeSet::new();
    for claim in world.claims().list(&ListParams::default()).await? {
        let record = claim.spec.egress.clone().unwrap_or_default();
        slots.insert(record.slot);
        recorded.insert(claim.name_any(), record.gateway);
    }
    let mut used = BTreeSet::new();
    for name in alive {
        let policy = world.policies().get(name).await?;
        let status = policy.status.unwrap_or_default();
        let Some(address) = status.eip.as_ref().and_then(|eip| eip.ipv4.clone()) else { return Ok(false) };
        if recorded.get(&address) != policy.spec.egress_gateway_name.as_ref() {
            return Ok(false);
        }
        used.insert(address);
    }
    Ok(slots.len() == recorded.len() && used == recorded.into_keys().collect())
}
