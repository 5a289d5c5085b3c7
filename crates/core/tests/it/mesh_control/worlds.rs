//! Random small worlds and changes, from a tape of bytes: few names, so that things meet.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use portolan_core::mesh::control::types::{MeshKind, ObjectName};
use portolan_core::mesh::control::*;
use portolan_core::select::Labels;
use serde_json::{Value, json};

use super::build::slices;

/// Bytes that are choices; when it is at its end, every choice is the first.
pub(super) struct Tape<'a>(&'a [u8], usize);

impl<'a> Tape<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes, 0)
    }

    pub(super) fn is_done(&self) -> bool {
        self.1 >= self.0.len()
    }

    fn below(&mut self, count: usize) -> usize {
        let byte = self.0.get(self.1).copied().unwrap_or(0);
        self.1 += 1;
        usize::from(byte) % count
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        let place = self.below(of.len());
        of[place].clone()
    }

    fn often(&mut self) -> bool {
        self.below(4) > 0
    }

    fn seldom(&mut self) -> bool {
        self.below(4) == 3
    }
}

const NAMESPACES: [&str; 2] = ["a", "b"];
const NAMES: [&str; 4] = ["w", "x", "y", "z"];
const APPS: [&str; 3] = ["g", "w", "x"];

pub(super) fn world(tape: &mut Tape<'_>) -> World {
    let mut world = World::default();
    for _ in 0..tape.below(4) + 2 {
        world.apply(pod(tape));
    }
    for _ in 0..=tape.below(3) {
        world.apply(service(tape));
    }
    for _ in 0..=tape.below(7) {
        world.apply(object(tape));
    }
    if tape.seldom() {
        world.apply(namespace(tape));
    }
    world.slices = slices(&world);
    world
}

/// Anything that may happen.
pub(super) fn change(tape: &mut Tape<'_>, world: &World) -> Change {
    match tape.below(14) {
        0..5 => object(tape),
        5 => removal(tape, world),
        6 | 7 => pod(tape),
        8 => service(tape),
        9 => {
            let all = slices(world);
            let names: Vec<_> = all.keys().chain(world.slices.keys()).cloned().collect();
            if names.is_empty() {
                return pod(tape);
            }
            let name = tape.one(&names);
            Change::Slice(name.clone(), all.get(&name).cloned())
        }
        10 => namespace(tape),
        12 => Change::WritesGenerated(tape.often()),
        11 => Change::ClusterAddresses { api_servers: machinery(tape), nodes: machinery(tape) },
        _ => {
            let flavour = tape.one(&[ProxyImplementation::L7mp, ProxyImplementation::Portolan]);
            let foreign_ports = if tape.seldom() {
                vec![ListenerPort { transport: Transport::Udp, address: None, port: 1 }]
            } else {
                Vec::new()
            };
            let facts = tape.often().then_some(ProxyInfo { implementation: flavour, foreign_ports });
            Change::Proxy(pod_name(tape), facts)
        }
    }
}

fn machinery(tape: &mut Tape<'_>) -> BTreeSet<IpAddr> {
    let some = (0..3).filter(|_| tape.seldom());
    some.map(|number| IpAddr::from([10, 0, 0, b'0' + number])).collect()
}

fn removal(tape: &mut Tape<'_>, world: &World) -> Change {
    let objects: Vec<_> = world.objects.keys().cloned().collect();
    let pods: Vec<_> = world.pods.keys().cloned().collect();
    match tape.below(3) {
        0 if !pods.is_empty() => Change::Pod(tape.one(&pods), None),
        1 if !world.services.is_empty() => {
            Change::Service(tape.one(&world.services.keys().cloned().collect::<Vec<_>>()), None)
        }
        _ if !objects.is_empty() => {
            let (kind, name) = tape.one(&objects);
            Change::Object(kind, name, None)
        }
        _ => pod(tape),
    }
}

fn name(tape: &mut Tape<'_>) -> ObjectName {
    let namespace = if tape.seldom() { "b" } else { "a" };
    ObjectName::new(namespace, tape.one(&NAMES))
}

fn pod_name(tape: &mut Tape<'_>) -> ObjectName {
    let namespace = if tape.seldom() { "b" } else { "a" };
    ObjectName::new(namespace, tape.one(&["p0", "p1", "p2", "p3", "p4"]))
}

fn pod(tape: &mut Tape<'_>) -> Change {
    let name = pod_name(tape);
    let mut labels = vec![("app", tape.one(&APPS))];
    if tape.often() {
        labels.push(("l7mp.io/proxy", "true"));
    }
    let number = name.name.bytes().last().unwrap_or(0);
    let mut addresses = vec![std::net::IpAddr::from([10, 0, u8::from(&*name.namespace == "b"), number])];
    if tape.seldom() {
        addresses.insert(tape.below(2), format!("fd00::{number}").parse().unwrap());
    }
    let pod = Pod {
        labels: labels.into_iter().collect(),
        annotations: if tape.seldom() { [("l7mp.io/api-port", "1")].into_iter().collect() } else { Labels::default() },
        node: Arc::from(tape.one(&["n1", "n2"])),
        addresses,
        host_network: tape.seldom(),
        ready: tape.often(),
        terminating: tape.seldom(),
        ended: tape.below(8) == 7,
        ..Pod::default()
    };
    Change::Pod(name, Some(pod))
}

fn service(tape: &mut Tape<'_>) -> Change {
    let name = name(tape);
    let ports = if tape.seldom() { 2 } else { 1 };
    let port = |tape: &mut Tape<'_>| ServicePort {
        protocol: Arc::from(tape.one(&["UDP", "TCP", "SCTP"])),
        port: tape.one(&[1, 2, 3]),
        ..ServicePort::default()
    };
    let service = Service {
        uid: Arc::from(format!("s-{name}")),
        annotations: if tape.seldom() { export() } else { Labels::default() },
        selector: if tape.often() { [("app", tape.one(&APPS))].into_iter().collect() } else { Labels::default() },
        ports: (0..ports).map(|_| port(tape)).collect(),
        external_name: (tape.below(8) == 7).then(|| Arc::from("example.com")),
        publish_not_ready: tape.seldom(),
    };
    Change::Service(name, Some(service))
}

fn namespace(tape: &mut Tape<'_>) -> Change {
    let key = tape.one(&["l7mp.io/export-to", "l7mp.io/allow-config-from"]);
    let value = tape.one(&["*", "a", "b,a", ""]);
    let annotations = tape.often().then(|| [(key, value)].into_iter().collect());
    Change::Namespace(Arc::from(tape.one(&NAMESPACES)), annotations)
}

fn export() -> Labels {
    [("l7mp.io/export-to", "*")].into_iter().collect()
}

fn object(tape: &mut Tape<'_>) -> Change {
    let kind = tape.one(&[
        MeshKind::VirtualService,
        MeshKind::VirtualService,
        MeshKind::Target,
        MeshKind::Route,
        MeshKind::Rule,
    ]);
    let spec = match kind {
        MeshKind::VirtualService => virtual_service(tape),
        MeshKind::Route => route(tape),
        MeshKind::Target => target(tape),
        MeshKind::Rule | MeshKind::Service => {
            json!({"selector": selector(tape), "rulelist": "static", "position": tape.below(3), "rule": rule(tape)})
        }
    };
    let name = name(tape);
    let object = MeshObject {
        uid: Arc::from(format!("o-{name}-{}", tape.below(2))),
        created: i64::try_from(tape.below(3)).unwrap_or(0),
        labels: if tape.below(10) == 9 {
            [("l7mp.io/generated", "true")].into_iter().collect()
        } else {
            Labels::default()
        },
        annotations: match tape.below(6) {
            4 => export(),
            5 => [("l7mp.io/generated-hash", spec_hash(&spec))].into_iter().collect(),
            _ => Labels::default(),
        },
        spec: Arc::new(spec),
    };
    Change::Object(kind, name, Some(object))
}

fn selector(tape: &mut Tape<'_>) -> Value {
    match tape.below(9) {
        0..3 => json!({"matchService": tape.one(&NAMES)}),
        3 | 4 => json!({"matchLabels": {"app": tape.one(&APPS)}}),
        5 => json!({}),
        6 => json!({"matchNamespace": "b", "matchLabels": {"app": tape.one(&APPS)}}),
        7 => json!({"anyOf": [{"matchLabels": {"app": tape.one(&APPS)}}, {"matchService": tape.one(&NAMES)}]}),
        _ => json!({"matchFields": [{"key": "metadata.namespace", "operator": "Exists"}]}),
    }
}

fn virtual_service(tape: &mut Tape<'_>) -> Value {
    let listener = match tape.below(6) {
        0 | 1 => json!({"protocol": "UDP", "port": tape.one(&[1, 2, 3])}),
        2 => json!({"protocol": "TCP", "port": tape.one(&[1, 2])}),
        3 => {
            json!({"protocol": "WebSocket", "port": tape.one(&[1, 2]), "address": tape.one(&["10.0.0.1", "10.0.0.2"])})
        }
        4 => json!({"protocol": "JSONSocket", "transport": {"protocol": "UDP", "port": tape.one(&[1, 2])}}),
        _ => json!({"protocol": "UnixDomainSocket", "filename": "/run/x"}),
    };
    let mut spec = json!({"selector": selector(tape), "listener": listener});
    match tape.below(5) {
        0 => {}
        1 => spec["rules"] = json!([]),
        2 => spec["rulesRef"] = json!("static"),
        count => spec["rules"] = (2..count).map(|_| rule(tape)).collect(),
    }
    if tape.seldom() {
        spec["options"] = json!({"track": tape.below(2), "removeOrphanSessions": tape.below(2) == 1});
    }
    spec
}

fn rule(tape: &mut Tape<'_>) -> Value {
    let way = match tape.below(4) {
        0 => json!({"route": tape.one(&NAMES)}),
        1 => json!({"apply": "static"}),
        _ => json!({"route": route(tape)}),
    };
    if tape.seldom() {
        json!({"match": {"op": "test", "path": "/labels/a", "value": tape.below(2)}, "action": way})
    } else {
        json!({"action": way})
    }
}

fn route(tape: &mut Tape<'_>) -> Value {
    let mut route = json!({"destination": hop(tape)});
    if tape.seldom() {
        route["ingress"] = json!([hop(tape)]);
    }
    if tape.seldom() {
        route["retry"] = json!({"retry_on": tape.one(&["always", "never"])});
    }
    route
}

fn hop(tape: &mut Tape<'_>) -> Value {
    match tape.below(8) {
        0..4 => json!(tape.one(&NAMES)),
        4 => json!(format!("{}.b.{}.cluster.local", tape.one(&NAMES), tape.one(&["svc", "virtualservice", "target"]))),
        5 => json!({"spec": {"protocol": tape.one(&["Echo", "Stdio"])}}),
        _ => cluster(tape),
    }
}

fn cluster(tape: &mut Tape<'_>) -> Value {
    match tape.below(6) {
        0 => json!({"linkedVirtualService": tape.one(&NAMES)}),
        1 => json!({"spec": {"protocol": "Sync", "query": "/labels/a"}}),
        2 => {
            json!({"spec": {"protocol": "UDP", "port": 5}, "endpoints": [{"spec": {"address": tape.one(&["127.0.0.1", "10.9.9.9", "169.254.169.254"])}}]})
        }
        3 => json!({"spec": {"protocol": "WebSocket", "port": 5}, "endpoints": [{"selector": selector(tape)}],
            "loadbalancer": {"policy": tape.one(&["RoundRobin", "ConsistentHash"]), "key": "/labels/a"}}),
        _ => {
            json!({"spec": {"protocol": "UDP", "port": tape.one(&[1, 2])}, "endpoints": [{"selector": selector(tape)}]})
        }
    }
}

fn target(tape: &mut Tape<'_>) -> Value {
    json!({"selector": selector(tape), "cluster": cluster(tape)})
}
