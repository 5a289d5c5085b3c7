//! Small worlds, drawn and built, and an API server that carries decisions out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;

use crate::mirror::*;
use crate::net::Family;

pub(super) fn name(namespace: &str, name: &str) -> ServiceName {
    ServiceName::new(namespace, name)
}

pub(super) fn port(number: u16, node_port: Option<u16>) -> ServicePort {
    ServicePort {
        port: number,
        name: format!("p{number}").into(),
        target: TargetPort::Number(8080),
        node_port,
        ..ServicePort::default()
    }
}

pub(super) fn source(node_port: u16) -> Source {
    Source {
        uid: format!("source-{node_port}").into(),
        spec: ServiceSpec {
            service_type: ServiceType::NodePort,
            families: vec![Family::V4],
            ports: vec![port(80, Some(node_port))],
            ..ServiceSpec::default()
        },
        ..Source::default()
    }
}

pub(super) fn node(address: &str) -> Node {
    let address = NodeAddress { kind: AddressKind::Internal, address: address.parse().unwrap() };
    Node { ready: true, addresses: vec![address], ..Node::default() }
}

/// A Service that a user made.
pub(super) fn service(role: Role) -> LocalService {
    LocalService {
        uid: "users".into(),
        role,
        spec: ServiceSpec {
            families: vec![Family::V4],
            ports: vec![ServicePort { target: TargetPort::Number(31000), ..port(80, None) }],
            ..ServiceSpec::default()
        },
        ..LocalService::default()
    }
}

/// A remote with one node, synced.
pub(super) fn remote(uid: &str) -> Remote {
    Remote {
        rules: Rules { cluster_id: uid.into(), ..Rules::default() },
        uid: uid.into(),
        sync: Sync::Complete,
        nodes: BTreeMap::from([("n1".into(), node("10.1.0.1"))]),
        ..Remote::default()
    }
}

pub(super) fn world(remotes: impl IntoIterator<Item = (&'static str, Remote)>) -> World {
    World {
        local: Local {
            namespaces: BTreeMap::from([("shop".into(), Namespace::default())]),
            protected: vec![NamespacePattern::new("kube-*")],
            slice_size: 3,
            ..Local::default()
        },
        remotes: remotes.into_iter().map(|(name, remote)| (name.into(), remote)).collect(),
    }
}

/// Carries out every decision until there is nothing left to do.
pub(super) fn settle(world: &World) -> World {
    let mut world = world.clone();
    for _ in 0..12 {
        let plan = plan(&world);
        if plan.values().all(Decision::is_settled) {
            return world;
        }
        for (name, decision) in plan {
            carry_out(&mut world, &name, decision);
        }
    }
    panic!("decisions never end: {:#?}", plan(&world));
}

fn carry_out(world: &mut World, name: &ServiceName, decision: Decision) {
    let local = &mut world.local;
    if let Action::Add(want) | Action::Update(want) = &decision.action
        && node_port_is_taken(local, name, &want.spec)
    {
        local.refused_node_ports.insert(name.clone());
        return;
    }
    match decision.action {
        Action::None => {}
        Action::Add(want) => {
            assert!(!local.services.contains_key(name), "{name} is there already");
            let made = || Namespace { terminating: false, created_for: Some(want.remote.clone()) };
            local.namespaces.entry(name.namespace.clone()).or_insert_with(made);
            local.services.insert(name.clone(), written(&want, format!("uid-of-{name}").into(), None));
        }
        Action::Update(want) => {
            let before = local.services.remove(name).expect("it is there");
            assert_eq!(before.role, Role::Mirror, "only mirrors are changed");
            local.services.insert(name.clone(), written(&want, before.uid.clone(), Some(&before)));
        }
        Action::Recreate | Action::Delete => {
            let before = local.services.remove(name).expect("it is there");
            assert_eq!(before.role, Role::Mirror, "only mirrors are deleted");
            local.slices.remove(name);
        }
    }
    let Some(service) = local.services.get(name) else { return };
    for (slice_name, action) in decision.slices {
        let slices = local.slices.entry(name.clone()).or_default();
        match action {
            SliceAction::Delete => drop(slices.remove(&slice_name)),
            SliceAction::Write(want) => {
                let DesiredSlice { remote, remote_uid, cluster_id, content } = *want;
                let service_uid = service.uid.clone();
                slices.insert(slice_name, RecordedSlice { remote, remote_uid, cluster_id, service_uid, content });
            }
        }
    }
    local.slices.retain(|_, slices| !slices.is_empty());
}

/// A nodePort belongs to one Service, whatever the protocol.
fn node_port_is_taken(local: &Local, name: &ServiceName, spec: &ServiceSpec) -> bool {
    let others = local.services.iter().filter(|(other, _)| *other != name);
    let taken: BTreeSet<u16> =
        others.flat_map(|(_, other)| other.spec.ports.iter().filter_map(|port| port.node_port)).collect();
    spec.ports.iter().filter_map(|port| port.node_port).any(|port| taken.contains(&port))
}

fn written(want: &DesiredMirror, uid: Arc<str>, before: Option<&LocalService>) -> LocalService {
    let mut spec = want.spec.clone();
    if spec.families.is_empty() {
        spec.families = before.map_or_else(|| vec![Family::V4], |before| before.spec.families.clone());
    }
    LocalService {
        uid,
        role: Role::Mirror,
        owner: Some(want.remote.clone()),
        remote_uid: Some(want.remote_uid.clone()),
        source_uid: Some(want.source_uid.clone()),
        owner_reference: want.owned.then(|| want.remote_uid.clone()),
        spec,
        copied: want.copied.clone(),
        ..LocalService::default()
    }
}

const NAMESPACES: [&str; 4] = ["shop", "kube-system", "new", "newer"];
const NAMES: [&str; 3] = ["web", "db", "web-east"];
const REMOTES: [&str; 2] = ["east", "west"];

fn names() -> impl Strategy<Value = ServiceName> {
    (prop::sample::select(&NAMESPACES[..]), prop::sample::select(&NAMES[..])).prop_map(|(space, one)| name(space, one))
}

fn families() -> impl Strategy<Value = Vec<Family>> {
    prop::sample::select(vec![
        vec![Family::V4],
        vec![Family::V6],
        vec![Family::V4, Family::V6],
        vec![Family::V6, Family::V4],
    ])
}

fn specs() -> impl Strategy<Value = ServiceSpec> {
    let types = prop::sample::select(vec![
        ServiceType::NodePort,
        ServiceType::NodePort,
        ServiceType::ClusterIp,
        ServiceType::LoadBalancer,
        ServiceType::ExternalName,
    ]);
    let ports = prop::collection::btree_map(80_u16..83, prop::option::weighted(0.9, 30000_u16..30003), 0..3);
    (types, families(), ports, any::<bool>()).prop_map(|(service_type, families, ports, headless)| ServiceSpec {
        service_type,
        headless: headless && service_type == ServiceType::ClusterIp,
        dual_stack: families.len() > 1,
        families,
        ports: ports.into_iter().map(|(number, node_port)| port(number, node_port)).collect(),
        session_affinity: None,
    })
}

fn sources() -> impl Strategy<Value = Source> {
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.1), prop::bool::weighted(0.1), any::<bool>());
    let ingress = prop::collection::vec(prop::sample::select(vec!["192.0.2.1", "fd00::9", "127.0.0.1"]), 0..3);
    (specs(), flags, 0_i64..4, ingress).prop_map(|(spec, flags, created, ingress)| Source {
        uid: format!("source-{created}").into(),
        created,
        spec,
        ignored: flags.0,
        is_mirror: flags.1,
        deleting: flags.2,
        local_traffic_only: flags.3,
        ingress: ingress.into_iter().map(|text| text.parse().unwrap()).collect(),
        ..Source::default()
    })
}

fn nodes() -> impl Strategy<Value = Node> {
    let addresses = prop::sample::subsequence(vec!["10.1.0.1", "10.1.0.2", "fd01::1", "127.0.0.1", "10.9.0.1"], 0..3);
    (addresses, prop::bool::weighted(0.8), prop::bool::weighted(0.2), 0_i64..3).prop_map(
        |(addresses, ready, leaving, created)| {
            let addresses = addresses
                .into_iter()
                .map(|text| NodeAddress { kind: AddressKind::Internal, address: text.parse().unwrap() });
            Node { created, ready, leaving, addresses: addresses.collect(), ..Node::default() }
        },
    )
}

fn source_slices() -> impl Strategy<Value = SourceSlice> {
    let endpoints = prop::collection::vec((1_u8..6, any::<bool>(), prop::option::of("n[0-3]")), 0..4);
    (any::<bool>(), 8080_u16..8082, endpoints).prop_map(|(is_v4, number, endpoints)| SourceSlice {
        family: if is_v4 { Family::V4 } else { Family::V6 },
        ports: vec![EndpointPort { name: "p80".into(), protocol: Protocol::Tcp, app_protocol: None, port: number }],
        endpoints: endpoints
            .into_iter()
            .map(|(last, ready, node)| SourceEndpoint {
                endpoint: Endpoint {
                    address: if is_v4 { format!("10.2.0.{last}") } else { format!("fd02::{last}") }.parse().unwrap(),
                    conditions: if ready { EndpointConditions::READY } else { EndpointConditions::NOT_READY },
                    zone: None,
                    hostname: None,
                },
                node: node.map(Into::into),
            })
            .collect(),
    })
}

fn rules(cluster_id: &'static str) -> impl Strategy<Value = Rules> {
    let modes = prop::sample::select(vec![TargetMode::NodePort, TargetMode::LoadBalancer, TargetMode::Pod]);
    let types = prop::sample::subsequence(
        vec![ServiceType::NodePort, ServiceType::ClusterIp, ServiceType::LoadBalancer],
        1..=3,
    );
    let naming = prop::sample::select(vec![Naming::Same, Naming::Same, Naming::Suffix]);
    let stale = prop::sample::select(vec![StalePolicy::Keep, StalePolicy::NotReady, StalePolicy::Remove]);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let limits = (1_usize..6, 0_usize..3, 1_usize..4);
    (modes, types, naming, stale, flags, limits, prop::option::weighted(0.2, 0_i64..2)).prop_map(
        move |(target, types, naming, stale, flags, (services, max_created, nodes), default_since)| Rules {
            cluster_id: cluster_id.into(),
            target,
            service_types: types.into_iter().collect::<BTreeSet<_>>(),
            naming,
            stale,
            mirror_type: if flags.0 { MirrorType::NodePort } else { MirrorType::ClusterIp },
            ports: (1, u16::MAX),
            namespaces: NamespaceRules {
                deny: if flags.1 { vec![NamespacePattern::new("new*")] } else { Vec::new() },
                denied_are_frozen: flags.2,
                create: flags.3,
                max_created,
                ..NamespaceRules::default()
            },
            nodes: NodeRules { keep_when_none: flags.5, ..NodeRules::default() },
            owned: flags.4,
            limits: Limits { services, nodes },
            adopts: flags.5,
            default_since,
            ..Rules::default()
        },
    )
}

pub(super) fn remotes(cluster_id: &'static str) -> impl Strategy<Value = Remote> {
    let sync = prop::sample::select(vec![Sync::Complete, Sync::Complete, Sync::Broken, Sync::Listing]);
    let services = prop::collection::btree_map(names(), sources(), 0..6);
    let of_nodes = prop::collection::btree_map("n[0-3]".prop_map(Arc::from), nodes(), 0..4);
    let of_slices = prop_oneof![
        1 => Just(SourceSlices::Unread),
        1 => Just(SourceSlices::Forbidden),
        4 => prop::collection::btree_map(
            names(),
            prop::collection::btree_map("s[0-1]".prop_map(Arc::from), source_slices(), 0..2),
            0..4,
        )
        .prop_map(SourceSlices::Read),
    ];
    let flags = (prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    (rules(cluster_id), sync, services, of_nodes, of_slices, flags).prop_map(
        move |(rules, sync, services, nodes, slices, (stale, paused))| Remote {
            rules,
            uid: format!("uid-{cluster_id}").into(),
            sync,
            stale,
            paused,
            services,
            nodes,
            slices,
        },
    )
}

pub(super) fn local_services() -> impl Strategy<Value = LocalService> {
    let roles = prop::sample::select(vec![Role::Foreign, Role::HandLabelled, Role::Mirror, Role::Mirror]);
    let owners = prop::option::weighted(0.8, prop::sample::select(vec!["east", "west", "gone"]));
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.1), prop::bool::weighted(0.1));
    (roles, owners, specs(), flags, prop::option::of(prop::sample::subsequence(REMOTES.to_vec(), 0..3))).prop_map(
        |(role, owner, spec, flags, remotes)| LocalService {
            uid: "uid-before".into(),
            role,
            ignored: flags.0,
            owner: owner.filter(|_| role == Role::Mirror).map(Into::into),
            remote_uid: owner.map(|owner| format!("uid-{owner}").into()),
            owner_reference: owner.map(|owner| format!("uid-{owner}").into()),
            remotes: remotes.map(|names| names.into_iter().map(Into::into).collect()),
            spec,
            has_selector: flags.1,
            deleting: flags.2,
            ..LocalService::default()
        },
    )
}

fn namespaces() -> impl Strategy<Value = Namespace> {
    (prop::bool::weighted(0.2), prop::option::of(prop::sample::select(&REMOTES[..])))
        .prop_map(|(terminating, remote)| Namespace { terminating, created_for: remote.map(Into::into) })
}

pub(super) fn worlds() -> impl Strategy<Value = World> {
    let of_services = prop::collection::btree_map(names(), local_services(), 0..5);
    let of_namespaces =
        prop::collection::btree_map(prop::sample::select(&NAMESPACES[..]).prop_map(Arc::from), namespaces(), 0..4);
    let local_families = prop::option::of(prop::sample::select(vec![
        BTreeSet::from([Family::V4]),
        BTreeSet::from([Family::V4, Family::V6]),
    ]));
    let remotes = (prop::option::weighted(0.9, remotes("east")), prop::option::weighted(0.7, remotes("west")));
    (of_services, of_namespaces, local_families, remotes).prop_map(|(services, mut namespaces, families, remotes)| {
        // A Service lives in a namespace.
        for service in services.keys() {
            namespaces.entry(service.namespace.clone()).or_default();
        }
        let remotes = REMOTES.iter().zip([remotes.0, remotes.1]);
        World {
            local: Local {
                services,
                namespaces,
                families,
                ranges: vec!["10.9.0.0/16".parse().unwrap()],
                protected: vec![NamespacePattern::new("kube-*")],
                gone_remotes: BTreeSet::from(["uid-gone".into()]),
                slice_size: 2,
                ..Local::default()
            },
            remotes: remotes.filter_map(|(name, remote)| Some(((*name).into(), remote?))).collect(),
        }
    })
}

/// One change to a world, of any kind.
pub(super) fn changes() -> impl Strategy<Value = Change> {
    let remote = || prop::sample::select(&REMOTES[..]).prop_map(RemoteName::from);
    prop_oneof![
        2 => (names(), prop::option::of(local_services())).prop_map(|(name, service)| Change::Service(name, service)),
        1 => (prop::sample::select(&NAMESPACES[..]), prop::option::of(namespaces()))
            .prop_map(|(name, namespace)| Change::Namespace(name.into(), namespace)),
        1 => (names(), any::<bool>()).prop_map(|(name, refused)| Change::RefusedNodePorts(name, refused)),
        3 => (remote(), names(), prop::option::of(sources()))
            .prop_map(|(remote, name, source)| Change::Source(remote, name, source)),
        1 => (remote(), prop::sample::select(vec![Sync::Listing, Sync::Broken, Sync::Complete]))
            .prop_map(|(remote, sync)| Change::Sync(remote, sync)),
        2 => (remote(), prop::collection::btree_map("n[0-3]".prop_map(Arc::from), prop::option::of(nodes()), 1..3))
            .prop_map(|(remote, nodes)| Change::Nodes(remote, nodes)),
        1 => (remote(), names(), "s[0-1]", prop::option::of(source_slices()))
            .prop_map(|(remote, service, name, slice)| Change::SourceSlice(remote, service, name.into(), slice)),
    ]
}
