//! An operator that crashes at any of its writes to the API server is healed by the next one, whatever network plugin
//! there is.

use std::time::Duration;

use anyhow::ensure;
use portolan_control::ipam;
use portolan_testkit::openshift::CloudController;
use portolan_testkit::{Exchange, Phase};
use serde_json::{Value, json};

use super::harness::{Operator, PREFIX, World};
use super::ovn::harness::OvnWorld;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    a_crash_at_any_write_is_healed_with_openshift_sdn,
}

enum Cluster {
    Sdn(World),
    Ovn(OvnWorld),
}

impl Cluster {
    fn world(&self) -> &World {
        match self {
            Self::Sdn(world) => world,
            Self::Ovn(ovn) => &ovn.world,
        }
    }

    async fn operator(&self) -> anyhow::Result<Operator> {
        let options = match self {
            Self::Sdn(world) => world.options(),
            Self::Ovn(ovn) => ovn.options(),
        };
        let options = ipam::Options { cooling: Duration::from_millis(200), ..options };
        self.world().operator_with(options).await
    }

    async fn is_served(&self, namespace: &str) -> anyhow::Result<bool> {
        match self {
            Self::Sdn(world) => Ok(world.service(namespace).await?.is_some()),
            Self::Ovn(ovn) => Ok(ovn.service(namespace).await?.is_some()),
        }
    }

    /// Fails if anything of a namespace is left.
    async fn is_released(&self, namespace: &str) -> anyhow::Result<()> {
        match self {
            Self::Sdn(world) => ensure!(world.net_namespaces().get(namespace).await?.egress_ips.is_empty()),
            Self::Ovn(ovn) => ensure!(ovn.egress_ip(namespace).await?.is_none()),
        }
        let world = self.world();
        let left: Vec<_> = world.instances.keys().flat_map(|node| world.secondary(node)).collect();
        ensure!(left.is_empty() && world.ec2.violations().is_empty(), "{left:?} {:?}", world.ec2.violations());
        Ok(())
    }

    /// A namespace gets an address and gives it back, under an operator that dies once.
    async fn lives_through(&self, nth: u64, phase: Phase) -> anyhow::Result<bool> {
        let world = self.world();
        let mut operator = self.operator().await?;
        let counts = |one: &Exchange| one.is_write() && !one.path.contains("/events");
        let mut dead = Some(operator.seen.kill_at(nth, phase, counts));
        let name = world.asking(None).await?;
        let mut asks = true;
        eventually("it was served and everything is given back", async || {
            if dead.as_mut().is_some_and(|dead| dead.try_recv().is_ok()) {
                dead = None;
                let next = self.operator().await?;
                std::mem::replace(&mut operator, next).stop().await?;
            }
            if asks && self.is_served(&name).await? {
                asks = false;
                world.annotate(&name, json!({ format!("{PREFIX}egressipam"): Value::Null })).await?;
            }
            Ok(!asks && world.claims_of(&name).await?.is_empty())
        })
        .await?;
        self.is_released(&name).await?;
        operator.stop().await?;
        Ok(dead.is_none())
    }

    /// One life for every write of a life, with a crash there.
    async fn heals(&self, writes: u64) -> anyhow::Result<()> {
        let mut deaths = 0;
        for nth in 1.. {
            let phase = [Phase::BeforeSend, Phase::AfterCommit, Phase::AfterAnswer][usize::try_from(nth % 3)?];
            if !self.lives_through(nth, phase).await? {
                break;
            }
            deaths += 1;
        }
        ensure!(deaths >= writes, "a life has {deaths} writes");
        Ok(())
    }
}

async fn a_crash_at_any_write_is_healed_with_openshift_sdn(backend: Backend) -> anyhow::Result<()> {
    Cluster::Sdn(World::new(backend, &[1]).await?).heals(10).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_write_is_healed_with_ovn_kubernetes() -> anyhow::Result<()> {
    Cluster::Ovn(OvnWorld::new(Backend::Embedded, &[1]).await?).heals(12).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_write_is_healed_beside_the_other_controller() -> anyhow::Result<()> {
    let ovn = OvnWorld::new(Backend::Embedded, &[1]).await?;
    let _controller = CloudController::start(ovn.world.client.clone(), ovn.world.ec2.neighbour()).await?;
    Cluster::Ovn(ovn).heals(8).await
}
