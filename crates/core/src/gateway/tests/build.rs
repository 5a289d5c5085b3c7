//! Worlds in few words.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::super::ports::{EndpointPort, PortNumber, Protocol, PublicPort, TargetPort};
use super::super::prefix::{Fence, Prefix, PrefixText};
use super::super::{
    Account, Egw, Endpoint, EndpointSpec, Identity, LoadBalancer, Namespace, NodeConfig, ObjectName, ServiceGroup,
    ServicePrefix, TunnelEndpoint, World,
};

pub(super) fn identity(uid: &str, created: i64) -> Identity {
    Identity { uid: uid.into(), created, ..Identity::default() }
}

/// A provider with a pool, and accounts with a key, a namespace and a group.
pub(super) fn world(pool: &str, accounts: &[&str]) -> World {
    let text = PrefixText { subnet: "192.0.2.0/24", pool, ..PrefixText::default() };
    let prefix = ServicePrefix {
        identity: identity("prefix", 0),
        prefix: Ok(Prefix::parse(text).unwrap()),
        fence: Fence(None),
        problem: None,
    };
    let mut world = World {
        now: 1_000_000,
        egw: Some(Egw::default()),
        namespaces: BTreeMap::from([("egw".into(), Namespace::default())]),
        prefixes: BTreeMap::from([("default".into(), prefix)]),
        node_config: Some(NodeConfig { endpoint: Some(Arc::new(tunnel_endpoint())), problem: None }),
        reports: Some(BTreeMap::new()),
        ..World::default()
    };
    for (number, name) in (1..).zip(accounts) {
        let account = Account { identity: identity(name, number), ..Account::default() };
        world.accounts.insert((*name).into(), account);
        let namespace: Arc<str> = format!("egw-{name}").into();
        world.namespaces.insert(Arc::clone(&namespace), Namespace { is_ours: true, is_terminating: false });
        let group = ServiceGroup { prefix: "default".into(), ..ServiceGroup::default() };
        world.groups.insert(ObjectName { namespace, name: "sample".into() }, group);
    }
    world
}

fn tunnel_endpoint() -> TunnelEndpoint {
    TunnelEndpoint {
        address: IpAddr::from([198, 51, 100, 1]),
        port: 6080,
        name: "".into(),
        protocol: "UDP".into(),
        app_protocol: "gue".into(),
    }
}

pub(super) fn port(number: u16) -> PublicPort {
    let number_and_protocol = PortNumber { protocol: Protocol::Tcp, port: number };
    PublicPort { number: number_and_protocol, name: "".into(), target: TargetPort::Number(8080) }
}

pub(super) fn load_balancer(uid: &str, created: i64) -> LoadBalancer {
    LoadBalancer {
        identity: identity(uid, created),
        group: "sample".into(),
        ports: vec![port(80)],
        ..LoadBalancer::default()
    }
}

pub(super) fn endpoint(uid: &str, last: u8, node: u8) -> Endpoint {
    let number = PortNumber { protocol: Protocol::Tcp, port: 8080 };
    let spec = EndpointSpec {
        address: IpAddr::from([10, 244, 0, last]),
        port: EndpointPort { number, name: "".into() },
        node: IpAddr::from([10, 0, 0, node]),
    };
    Endpoint { identity: identity(uid, 0), spec: Ok(spec) }
}

pub(super) fn name(account: &str, name: &str) -> ObjectName {
    ObjectName::new(&format!("egw-{account}"), name)
}
