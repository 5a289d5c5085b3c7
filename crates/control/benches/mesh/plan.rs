//! The resolver alone: 10,000 VirtualServices, 2,000 Targets, 100,000 pods, 1,000 of them proxies.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use portolan_core::mesh::control::types::{MeshKind, ObjectName};
use portolan_core::mesh::control::{
    Affected, Change, Container, ContainerPort, MeshObject, Pod, Resolver, Transport, World, plan,
};
use portolan_core::select::Labels;
use portolan_testkit::bench::{Bench, Goal, Side};
use serde_json::{Value, json};

use crate::operator::resident;

const VIRTUAL_SERVICES: usize = 10_000;
const TARGETS: usize = 2_000;
const PODS: usize = 100_000;
const PROXIES: usize = 1_000;
/// Proxies are in groups of ten; a VirtualService is on one group.
const GROUPS: usize = 100;
const SECOND: f64 = 1e9;
const MILLISECOND: f64 = 1e6;
const MIB: f64 = 1024.0 * 1024.0;

pub(crate) fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    let names = [
        "full plan of 10,000 VirtualServices, 2,000 Targets, 100,000 pods, 1,000 proxies",
        "memory of the world and all that follows from it",
        "one change of that world, with what ten proxies are told",
        "a pod of that world that comes and goes",
    ];
    let [full, memory, change, pod] = names;
    if names.iter().any(|name| bench.wants(name)) {
        let before = resident(std::process::id())?;
        let world = world(VIRTUAL_SERVICES, TARGETS, PODS, PROXIES);
        let mut resolver = Resolver::new(world.clone());
        let after = resident(std::process::id())?;
        bench.count(memory, "MiB", Goal::value(1536.0), (after - before) / MIB)?;
        bench.value(
            full,
            "plan",
            Goal::value(1.5 * SECOND),
            Side::new("portolan", || {
                std::hint::black_box(plan(&world));
                Ok(1)
            }),
        )?;
        drop(world);
        bench.value(
            change,
            "change",
            Goal::value(5.0 * MILLISECOND),
            Side::new("portolan", calls_on(&mut resolver, VIRTUAL_SERVICES)),
        )?;
        bench.value(pod, "change", Goal::value(5.0 * MILLISECOND), Side::new("portolan", pods_on(&mut resolver)))?;
    }
    let mut few = Resolver::new(world(100, 100, 1_000, 100));
    let mut many = Resolver::new(world(10_000, 2_000, 1_000, 100));
    bench.compare(
        "one change, resolved: among 10,000 VirtualServices, against 100",
        "change",
        Goal::ratio(1.5),
        Side::new("among 10,000", calls_on(&mut many, 10_000)),
        Side::new("among 100", calls_on(&mut few, 100)),
    )
}

/// Calls that come, change and go.
fn calls_on(resolver: &mut Resolver, among: usize) -> impl FnMut() -> anyhow::Result<u64> {
    let mut call = among;
    move || {
        let mut changes = 0;
        for _ in 0..100 {
            call += 1;
            let (target, service) = (name(&format!("call-{call}")), name(&format!("call-{call}")));
            let port = 60_000 + call % 5_000;
            for change in [
                Change::Object(MeshKind::Target, target.clone(), Some(object(call, target_of(call)))),
                Change::Object(
                    MeshKind::VirtualService,
                    service.clone(),
                    Some(object(call, service_of(call, "call", port, 1))),
                ),
                Change::Object(
                    MeshKind::VirtualService,
                    service.clone(),
                    Some(object(call, service_of(call, "call", port, 2))),
                ),
                Change::Object(MeshKind::VirtualService, service, None),
                Change::Object(MeshKind::Target, target, None),
            ] {
                follow(resolver, change);
                changes += 1;
            }
        }
        Ok(changes)
    }
}

/// Pods that come and go.
fn pods_on(resolver: &mut Resolver) -> impl FnMut() -> anyhow::Result<u64> {
    move || {
        for number in 0..50 {
            let name = name("guest");
            follow(resolver, Change::Pod(name.clone(), Some(worker(number % TARGETS, PODS + 1))));
            follow(resolver, Change::Pod(name, None));
        }
        Ok(100)
    }
}

/// What the operator does with a change, but for the calls.
fn follow(resolver: &mut Resolver, change: Change) {
    let Affected { pods, objects, .. } = resolver.change(change);
    for (pod, names) in &pods {
        std::hint::black_box(resolver.desired_of(pod, names));
    }
    for (kind, name) in &objects {
        std::hint::black_box(resolver.status(*kind, name));
    }
}

fn name(name: &str) -> ObjectName {
    ObjectName::new("default", name)
}

/// As the operator reads it, namespaces first.
fn world(services: usize, targets: usize, pods: usize, proxies: usize) -> World {
    let mut world = World::default();
    let mut take = |change: Change| _ = world.apply(world.with_shared_namespace(change));
    take(Change::Namespace(Arc::from("default"), Some(Labels::default())));
    for number in 0..targets {
        let target = object(number, target_of(number));
        take(Change::Object(MeshKind::Target, name(&format!("t-{number}")), Some(target)));
    }
    for number in 0..services {
        let service = object(number, service_of(number % targets, "t", 1_024 + number / GROUPS, 1));
        take(Change::Object(MeshKind::VirtualService, name(&format!("v-{number}")), Some(service)));
    }
    for number in 0..proxies {
        take(Change::Pod(name(&format!("proxy-{number}")), Some(proxy(number))));
    }
    for number in proxies..pods {
        take(Change::Pod(name(&format!("worker-{number}")), Some(worker(number % targets, number))));
    }
    world
}

fn object(number: usize, spec: Value) -> MeshObject {
    MeshObject {
        uid: Arc::from(format!("uid-{number}")),
        created: i64::try_from(number).unwrap_or(i64::MAX),
        spec: Arc::new(spec),
        ..MeshObject::default()
    }
}

fn target_of(number: usize) -> Value {
    json!({
        "selector": { "matchLabels": { "group": format!("g{}", number % GROUPS) } },
        "cluster": {
            "spec": { "protocol": "UDP", "port": 19_000 },
            "endpoints": [{ "selector": { "matchLabels": { "app": format!("a{number}") } } }],
            "loadbalancer": { "policy": "ConsistentHash", "key": "/labels/session_id" },
        },
    })
}

fn service_of(target: usize, prefix: &str, port: usize, session: usize) -> Value {
    json!({
        "selector": { "matchLabels": { "group": format!("g{}", target % GROUPS) } },
        "listener": { "protocol": "UDP", "port": port },
        "rules": [{ "action": {
            "rewrite": [{ "path": "/labels/session_id", "value": session }],
            "route": { "destination": format!("{prefix}-{target}"), "retry": { "retry_on": "always" } },
        } }],
    })
}

fn proxy(number: usize) -> Pod {
    let group = format!("g{}", number % GROUPS);
    let api = ContainerPort { name: Arc::from("l7mp-api"), transport: Transport::Tcp, port: 1234 };
    Pod {
        containers: vec![Container { name: Arc::from("l7mp"), ports: vec![api] }],
        ..pod([("group", group.as_str())].into_iter().collect(), number)
    }
}

fn worker(app: usize, number: usize) -> Pod {
    let app = format!("a{app}");
    pod([("app", app.as_str()), ("tier", "worker")].into_iter().collect(), number)
}

fn pod(labels: Labels, number: usize) -> Pod {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    Pod {
        labels,
        node: Arc::from(format!("node-{}", number % 500)),
        addresses: vec![IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number))],
        ready: true,
        ..Pod::default()
    }
}
