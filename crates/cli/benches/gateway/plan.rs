//! The planner alone, in a world that is as it should be; and address pools without a cluster.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use portolan_core::gateway::addresses::{Addresses, Claim, Holding, Pool, Request, assign};
use portolan_core::gateway::keys::GueKey;
use portolan_core::gateway::ports::{EndpointPort, PortNumber, Protocol, PublicPort, TargetPort};
use portolan_core::gateway::prefix::{Fence, Prefix, PrefixText};
use portolan_core::gateway::reserve::Parent;
use portolan_core::gateway::unit::{Report, State};
use portolan_core::gateway::{
    Account, ConditionKind, Egw, Endpoint, EndpointPlans, EndpointSpec, Identity, Limits, LoadBalancer, Namespace,
    NodeConfig, ObjectName, Plan, ServiceGroup, ServicePrefix, Tunnel, TunnelEndpoint, World, plan,
};
use portolan_testkit::bench::{Bench, Goal, Side};

/// Load balancers with ten endpoints each, and what a whole plan of them may take in milliseconds of CPU time.
const PLANS: [(&str, usize, f64); 2] = [
    ("plan of 1,000 load balancers x 10 endpoints", 1_000, 10.0),
    ("plan of 10,000 load balancers x 10 endpoints", 10_000, 120.0),
];
const POOL: &str = "IPv6 /64 pool: parse, allocate 10,000, release";
const MILLISECOND: f64 = 1_000_000.0;

const ACCOUNTS: usize = 20;
const ENDPOINTS: usize = 10;
/// Client nodes that the endpoints of one load balancer are on: one tunnel for each.
const NODES: usize = 3;

pub(crate) fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    for (row, load_balancers, goal) in PLANS {
        if bench.wants(row) {
            let world = settled(load_balancers)?;
            let whole = Side::new("whole", || {
                let plan = std::hint::black_box(plan(&world));
                ensure!(plan.units.len() == load_balancers, "{} units", plan.units.len());
                Ok(1)
            });
            bench.value(row, "plan", Goal::value(goal * MILLISECOND), whole)?;
        }
    }
    let mut asking = Addresses { requests: (0..10_000).map(request).collect(), ..Addresses::default() };
    let side = Side::new("pool", || pool(&mut asking).map(|()| 1));
    bench.value(POOL, "10,000 addresses", Goal::value(20.0 * MILLISECOND), side)
}

/// Parses a pool, gives 10,000 load balancers an address each, and takes all back when they are gone.
fn pool(asking: &mut Addresses<'_>) -> anyhow::Result<()> {
    let text = PrefixText { subnet: "2001:db8::/64", pool: "2001:db8::/64", ..PrefixText::default() };
    let prefix = Prefix::parse(text)?;
    ensure!(prefix.capacity() == u128::from(u64::MAX), "{}", prefix.capacity());
    asking.pools.insert("default".into(), Pool { prefix: Some(prefix), fence: Fence(None) });
    let given = assign(asking).claims;
    ensure!(given.len() == asking.requests.len(), "{} addresses", given.len());
    let all_gone = Addresses { claims: Cow::Owned(given), now: 1_000_000, quarantine: 60_000, ..Addresses::default() };
    let released = assign(&all_gone).claims;
    ensure!(
        released.values().all(|claim| claim.holders.is_empty() && claim.released_at.is_some()),
        "one is still held"
    );
    Ok(())
}

fn request(number: usize) -> Request {
    Request {
        uid: format!("lb-{number:06}").into(),
        account: "a0".into(),
        name: format!("lb{number}").into(),
        pool: Some("default".into()),
        address: None,
        is_allocated: false,
        sharing_key: None,
        ports: [PortNumber { protocol: Protocol::Tcp, port: 80 }].into(),
    }
}

/// Everything has its numbers, its address, its tunnels and its Envoy.
fn settled(load_balancers: usize) -> anyhow::Result<World> {
    let mut world = provider()?;
    for number in 0..load_balancers {
        add_load_balancer(&mut world, number)?;
    }
    let ids = u32::try_from(load_balancers * NODES)?;
    world.egw = Some(Egw {
        accounts: Parent { counter: u32::try_from(ACCOUNTS)?, ..Parent::default() },
        tunnels: Parent { counter: ids, ..Parent::default() },
    });
    let running =
        |unit: &Arc<_>| Report { answered: Some(Arc::clone(unit)), rejected: BTreeMap::new(), state: State::Running };
    world.reports = Some(plan(&world).units.iter().map(|(id, unit)| (id.clone(), running(unit))).collect());
    at_rest(&world, &plan(&world))?;
    Ok(world)
}

/// Nothing is left to be written.
fn at_rest(world: &World, plan: &Plan) -> anyhow::Result<()> {
    ensure!(!plan.egw.is_urgent && plan.namespaces.is_empty() && plan.claims == world.claims, "something is due");
    for (name, planned) in &plan.load_balancers {
        let problem = planned.verdicts.problem(ConditionKind::Ready);
        ensure!(problem.is_none() && planned.completion.is_none(), "{name}: {problem:?}");
    }
    for (name, planned) in plan.endpoints.values().flat_map(EndpointPlans::iter) {
        let problem = planned.verdicts.first_problem();
        ensure!(problem.is_none() && planned.tunnel.is_some(), "{name}: {problem:?}");
    }
    Ok(())
}

fn provider() -> anyhow::Result<World> {
    let text = PrefixText { subnet: "172.16.0.0/12", pool: "172.16.0.0/12", ..PrefixText::default() };
    let prefix = ServicePrefix {
        identity: identity("prefix".to_owned()),
        prefix: Ok(Prefix::parse(text)?),
        fence: Fence(None),
        problem: None,
    };
    let endpoint = TunnelEndpoint {
        address: IpAddr::from([198, 51, 100, 1]),
        port: 6080,
        name: "".into(),
        protocol: "UDP".into(),
        app_protocol: "gue".into(),
    };
    let mut world = World {
        now: 1_000_000,
        namespaces: BTreeMap::from([("egw".into(), Namespace::default())]),
        prefixes: BTreeMap::from([("default".into(), prefix)]),
        node_config: Some(NodeConfig { endpoint: Some(Arc::new(endpoint)), problem: None }),
        ..World::default()
    };
    for number in 0..ACCOUNTS {
        let most = Limits { load_balancers: 65_535, addresses: 65_535, ..Limits::default() };
        let account = Account {
            identity: Identity { has_finalizer: true, ..identity(format!("account-{number}")) },
            key: Some(u16::try_from(number + 1)?),
            limits: most,
            ..Account::default()
        };
        world.accounts.insert(format!("a{number}").into(), account);
        let namespace = namespace(number);
        world.namespaces.insert(Arc::clone(&namespace), Namespace { is_ours: true, is_terminating: false });
        let group = ServiceGroup { prefix: "default".into(), ..ServiceGroup::default() };
        world.groups.insert(ObjectName { namespace, name: "sample".into() }, group);
    }
    Ok(world)
}

fn add_load_balancer(world: &mut World, number: usize) -> anyhow::Result<()> {
    let of = number % ACCOUNTS;
    let account: Arc<str> = format!("a{of}").into();
    let service = u16::try_from(number / ACCOUNTS + 1)?;
    let name = ObjectName { namespace: namespace(of), name: format!("lb{number}").into() };
    let address = IpAddr::V4(Ipv4Addr::from_bits(Ipv4Addr::new(172, 16, 0, 1).to_bits() + u32::try_from(number)?));
    let port = PortNumber { protocol: Protocol::Tcp, port: 80 };
    let config = world.node_config.as_ref().and_then(|config| config.endpoint.clone()).context("there is one")?;
    let tunnel = |node: usize| -> anyhow::Result<(IpAddr, Tunnel)> {
        let id = u32::try_from(number * NODES + node + 1)?;
        Ok((node_address(of, node), Tunnel { endpoint: Arc::clone(&config), id }))
    };
    let object = LoadBalancer {
        identity: Identity { has_finalizer: true, ..identity(format!("lb-{number:06}")) },
        group: "sample".into(),
        address: Some(address),
        ports: vec![PublicPort { number: port, name: "".into(), target: TargetPort::Number(8080) }],
        key: Some(GueKey { account: u16::try_from(of + 1)?, service }.pack()),
        tunnels: (0..NODES).map(tunnel).collect::<anyhow::Result<_>>()?,
        ..LoadBalancer::default()
    };
    let holding = Holding { account: Arc::clone(&account), name: Arc::clone(&name.name), ports: [port].into() };
    let holders = BTreeMap::from([(Arc::clone(&object.identity.uid), holding)]);
    world.claims.insert(address, Claim { pool: "default".into(), holders, ..Claim::default() });
    let endpoint = |index: usize| -> anyhow::Result<(Arc<str>, Endpoint)> {
        let pod =
            Ipv4Addr::from_bits(Ipv4Addr::new(10, 128, 0, 1).to_bits() + u32::try_from(number * ENDPOINTS + index)?);
        let number_of_port = PortNumber { protocol: Protocol::Tcp, port: 8080 };
        let spec = EndpointSpec {
            address: IpAddr::V4(pod),
            port: EndpointPort { number: number_of_port, name: "".into() },
            node: node_address(of, index % NODES),
        };
        let identity = identity(format!("ep-{number:06}-{index}"));
        Ok((format!("ep{number}-{index}").into(), Endpoint { identity, spec: Ok(spec) }))
    };
    let endpoints = (0..ENDPOINTS).map(endpoint).collect::<anyhow::Result<_>>()?;
    world.endpoints.insert(name.clone(), Arc::new(endpoints));
    world.load_balancers.insert(name, object);
    if let Some(account) = world.accounts.get_mut(&account) {
        account.services.counter = account.services.counter.max(service.into());
    }
    Ok(())
}

fn identity(uid: String) -> Identity {
    Identity { uid: uid.into(), created: 1, ..Identity::default() }
}

fn namespace(account: usize) -> Arc<str> {
    format!("egw-a{account}").into()
}

fn node_address(account: usize, node: usize) -> IpAddr {
    IpAddr::from([10, 0, u8::try_from(account).unwrap_or_default(), u8::try_from(node + 1).unwrap_or_default()])
}
