//! The planner alone, in a world that is as it should be.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use portolan_core::ipam::{
    Action, AddressList, Calls, ClaimStatus, ClaimWrite, Cloud, CloudInterface, CloudNode, CloudSubnet, HostSubnet,
    InstanceState, Journal, Namespace, NetNamespace, Node, Seen, State, Target, World, plan,
};
use portolan_testkit::bench::{Bench, Goal, Side};

use crate::{INSTANCE_TYPE, NAMESPACES, NODES, ZONES, subnet, zone};

const WHOLE: &str = "plan of 5,000 namespaces in 3 zones on 1,000 nodes, all served";
const FIRST: &str = "plan that chooses all 15,000 addresses";
const GROWTH: &str = "growth of the plan with namespaces and nodes";
const MILLISECOND: f64 = 1_000_000.0;

pub(crate) fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    if ![WHOLE, FIRST, GROWTH].iter().any(|row| bench.wants(row)) {
        return Ok(());
    }
    let (world, journal) = settled(NAMESPACES, NODES)?;
    let whole = Side::new("whole", || {
        let plan = std::hint::black_box(plan(&world, &journal, &Calls::default()));
        anyhow::ensure!(plan.actions.is_empty() && plan.unmet.is_empty(), "something is due");
        Ok(1)
    });
    bench.value(WHOLE, "plan", Goal::value(200.0 * MILLISECOND), whole)?;
    let empty = asking(NAMESPACES, NODES);
    let first = Side::new("first", || {
        let plan = std::hint::black_box(plan(&empty, &Journal::default(), &Calls::default()));
        anyhow::ensure!(plan.actions.len() == 3 * NAMESPACES, "{} actions", plan.actions.len());
        Ok(1)
    });
    bench.value(FIRST, "plan", Goal::value(200.0 * MILLISECOND), first)?;
    let mut worlds = BTreeMap::new();
    for size in SIZES {
        let namespaces = usize::try_from(size)?;
        worlds.insert(size, settled(namespaces, namespaces * NODES / NAMESPACES)?);
    }
    bench.growth(GROWTH, &SIZES, Goal::exponent(1.2), |size| {
        let (world, journal) = &worlds[&size];
        std::hint::black_box(plan(world, journal, &Calls::default()));
        Ok(())
    })
}

const SIZES: [u64; 4] = [625, 1_250, 2_500, 5_000];

/// A cluster in which every namespace asks for addresses, and none has any.
fn asking(namespaces: usize, nodes: usize) -> World {
    let mut world = World { now: 1_000_000, seed: 7, ..World::default() };
    let mut cloud = Cloud::default();
    for (number, zone) in ZONES.into_iter().enumerate() {
        let (id, cidr) = subnet(number);
        let what = CloudSubnet { id: id.as_str().into(), zone: zone.into(), cidr, used: <_>::default() };
        cloud.subnets.insert(id.into(), Seen { what, began: world.now });
    }
    for number in 0..nodes {
        let (name, instance): (Arc<str>, Arc<str>) = (format!("n{number}").into(), format!("i-{number}").into());
        let node = Node {
            compute: true,
            zone: Some(zone(number).into()),
            instance: Some(instance.clone()),
            ..Node::default()
        };
        world.nodes.insert(name.clone(), node);
        world.host_subnets.insert(name, HostSubnet::default());
        let (subnet, cidr) = subnet(number % ZONES.len());
        // the first four of a subnet are the cloud's
        let offset = u32::try_from(4 + number / ZONES.len()).unwrap_or(u32::MAX);
        let interface = CloudInterface {
            id: format!("eni-{number}").into(),
            primary: Ipv4Addr::from_bits(cidr.network().to_bits() + offset),
            secondary: <_>::default(),
            prefixes: 0,
        };
        let what = CloudNode {
            instance: instance.clone(),
            state: InstanceState::Running,
            instance_type: INSTANCE_TYPE.into(),
            zone: zone(number).into(),
            subnet: subnet.into(),
            interface: Some(interface),
            address_limit: 30,
        };
        cloud.nodes.insert(instance, Seen { what, began: world.now });
    }
    for number in 0..namespaces {
        let name: Arc<str> = format!("ns{number}").into();
        let netid = u32::try_from(number).unwrap_or(u32::MAX);
        world.namespaces.insert(
            name.clone(),
            Namespace { uid: format!("uid-{number}").into(), opted_in: true, ..Namespace::default() },
        );
        world.net_namespaces.insert(name, NetNamespace { netid, ..NetNamespace::default() });
    }
    world.cloud = Some(cloud);
    world
}

/// A cluster in which every namespace has its addresses.
fn settled(namespaces: usize, nodes: usize) -> anyhow::Result<(World, Journal)> {
    let mut world = asking(namespaces, nodes);
    let mut journal = Journal::default();
    for action in plan(&world, &journal, &Calls::default()).actions {
        let Action::CreateClaim(write) = action else { anyhow::bail!("{action:?}") };
        serve(&mut world, &mut journal, write);
    }
    Ok((world, journal))
}

/// Puts everything where a finished assignment leaves it.
fn serve(world: &mut World, journal: &mut Journal, write: ClaimWrite) {
    let ClaimWrite { address, mut claim, .. } = write;
    let (node, name) = (claim.spec.node.clone(), claim.spec.owner.name.clone());
    let seen = world.nodes[&node].instance.as_ref().and_then(|id| world.cloud.as_mut()?.nodes.get_mut(id));
    let Some((instance, interface)) = seen.and_then(|seen| {
        let interface = seen.what.interface.as_mut()?;
        interface.secondary.insert(address);
        Some((seen.what.instance.clone(), interface.id.clone()))
    }) else {
        return;
    };
    claim.status = ClaimStatus {
        state: State::Published,
        node: Some(node.clone()),
        target: Some(Target { node: node.clone(), instance, interface }),
        served: true,
        ..claim.status
    };
    let host = world.host_subnets.entry(node).or_default();
    host.egress_ips.insert(address);
    host.annotations.insert(address, name.clone());
    let net_namespace = world.net_namespaces.entry(name.clone()).or_default();
    net_namespace.egress_ips.insert(address);
    let list = AddressList::format(&net_namespace.egress_ips);
    net_namespace.annotation = Some(list.clone());
    let namespace = world.namespaces.entry(name).or_default();
    (namespace.egressips, namespace.modified) = (Some(list), true);
    journal.claims.insert(address, claim);
}
