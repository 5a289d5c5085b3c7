//! The machine against a client that behaves as Envoy does, and calls over HTTP/2.

mod call;
mod client;
mod property;
mod rules;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use portolan_core::gateway::ports::{PortNumber, Protocol};
use portolan_core::gateway::unit::{Listener, Unit, UnitId};

use crate::envoy::resources::Snapshot;

fn id() -> UnitId {
    UnitId { namespace: "egw-acme".into(), name: "web".into() }
}

const fn tcp(port: u16) -> PortNumber {
    PortNumber { protocol: Protocol::Tcp, port }
}

/// A unit with these TCP ports, each of this load balancer with so many endpoints.
fn unit(listeners: &[(u16, &str, u16)]) -> Arc<Unit> {
    let listener = |(port, load_balancer, endpoints): &(u16, &str, u16)| {
        let endpoints = (1..=*endpoints).map(|number| SocketAddr::from(([10, 0, 0, 1], number))).collect();
        (tcp(*port), Listener { load_balancer: (*load_balancer).into(), endpoints })
    };
    Arc::new(Unit {
        address: IpAddr::V4(Ipv4Addr::new(127, 77, 0, 2)),
        image: "".into(),
        prefix: "default".into(),
        listeners: listeners.iter().map(listener).collect(),
    })
}

fn snapshot(listeners: &[(u16, &str, u16)]) -> Arc<Snapshot> {
    Arc::new(Snapshot::of(&id(), &unit(listeners)))
}
