//! The planner alone, in a world that is as it should be.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use portolan_core::mirror::{
    Action, AddressKind, Decision, DesiredSlice, Limits, Local, LocalService, Node, NodeAddress, Planner,
    RecordedSlice, Remote, Role, Rules, ServiceName, ServicePort, ServiceSpec, ServiceType, SliceAction, Source, Sync,
    World,
};
use portolan_core::net::Family;
use portolan_testkit::bench::{Bench, Goal, Side};

const SOURCES: usize = 10_000;
const NODES: u32 = 1_000;
const WHOLE: &str = "plan of 10,000 sources on 1,000 nodes, whole";
const ONE: &str = "plan of 10,000 sources on 1,000 nodes, one name";
const MILLISECOND: f64 = 1_000_000.0;

pub(crate) fn measure(bench: &mut Bench) -> anyhow::Result<()> {
    if !bench.wants(WHOLE) && !bench.wants(ONE) {
        return Ok(());
    }
    let world = settled();
    let given = RefCell::new(None);
    let whole = Side::new("whole", || {
        let planner = Planner::new(given.take().unwrap_or_default());
        for name in planner.names() {
            let decision = std::hint::black_box(planner.decide(&name));
            anyhow::ensure!(decision.is_settled(), "{name} is not as it should be");
        }
        // dropping it is no part of a plan
        given.replace(Some(planner.world().clone()));
        Ok(1)
    });
    let whole = whole.prepared(|| {
        given.replace(Some(world.clone()));
        Ok(())
    });
    bench.value(WHOLE, "plan", Goal::value(400.0 * MILLISECOND), whole)?;
    let planner = Planner::new(world.clone());
    let names: Vec<ServiceName> = planner.names().into_iter().collect();
    let mut at = 0;
    let one = Side::new("one name", || {
        for _ in 0..1_000 {
            at = (at + 7) % names.len();
            std::hint::black_box(planner.decide(&names[at]));
        }
        Ok(1_000)
    });
    bench.value(ONE, "decision", Goal::value(2.0 * MILLISECOND), one)
}

/// A world in which there is nothing left to write.
fn settled() -> World {
    let mut world = World { local: Local { slice_size: 100, ..Local::default() }, remotes: [remote()].into() };
    // Services first, then their EndpointSlices.
    for _ in 0..2 {
        let planner = Planner::new(world);
        let decisions: Vec<(ServiceName, Decision)> =
            planner.names().into_iter().map(|name| (name.clone(), planner.decide(&name))).collect();
        world = planner.world().clone();
        for (name, decision) in decisions {
            carry_out(&mut world.local, name, decision);
        }
    }
    world
}

fn carry_out(local: &mut Local, name: ServiceName, decision: Decision) {
    if let Action::Add(want) = decision.action {
        let service = LocalService {
            uid: name.name.clone(),
            role: Role::Mirror,
            owner: Some(want.remote.clone()),
            remote_uid: Some(want.remote_uid.clone()),
            source_uid: Some(want.source_uid.clone()),
            owner_reference: want.owned.then(|| want.remote_uid.clone()),
            spec: want.spec,
            ..LocalService::default()
        };
        local.services.insert(name, service);
        return;
    }
    for (slice_name, action) in decision.slices {
        let SliceAction::Write(want) = action else { continue };
        let DesiredSlice { remote, remote_uid, cluster_id, content } = *want;
        let service_uid = name.name.clone();
        let slice = RecordedSlice { remote, remote_uid, cluster_id, service_uid, content };
        local.slices.entry(name.clone()).or_default().insert(slice_name, slice);
    }
}

fn remote() -> (Arc<str>, Remote) {
    let rules = Rules {
        cluster_id: "east".into(),
        limits: Limits { services: SOURCES, nodes: NODES as usize },
        ..Rules::default()
    };
    let sources = (0..SOURCES).map(|number| (ServiceName::new("shop", format!("s{number}")), source(number)));
    let nodes = (0..NODES).map(|number| {
        let address = IpAddr::V4(Ipv4Addr::from_bits(Ipv4Addr::new(10, 1, 0, 1).to_bits() + number));
        let addresses = vec![NodeAddress { kind: AddressKind::Internal, address }];
        let zone = Some(format!("zone-{}", number % 3).into());
        (format!("n{number}").into(), Node { ready: true, addresses, zone, ..Node::default() })
    });
    let remote = Remote {
        rules,
        sync: Sync::Complete,
        services: sources.collect(),
        nodes: nodes.collect(),
        ..Remote::default()
    };
    ("east".into(), remote)
}

fn source(number: usize) -> Source {
    let node_port = 30_000 + u16::try_from(number % 2_768).unwrap_or_default();
    let port = ServicePort { port: 80, name: "http".into(), node_port: Some(node_port), ..ServicePort::default() };
    Source {
        uid: format!("uid-{number}").into(),
        spec: ServiceSpec {
            service_type: ServiceType::NodePort,
            families: vec![Family::V4],
            ports: vec![port],
            ..ServiceSpec::default()
        },
        ..Source::default()
    }
}
