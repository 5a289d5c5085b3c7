//! The planner's definition in plain nested loops: pools are lists, everything is counted anew whenever it is needed.

mod facts;
mod outcome;
mod records;
mod serve;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use portolan_core::egress::*;

#[derive(Clone, Debug)]
struct Allocation {
    gateway: GatewayName,
    eip: Eip,
    slot: u16,
    node: Option<NodeName>,
    epoch: u64,
    recorded: Vec<IpAddr>,
    users: BTreeSet<PolicyName>,
    /// Where it was and why it left; none if it has not moved.
    left: Option<(Option<NodeName>, MoveCause)>,
    fresh: bool,
}

#[derive(Clone, Debug)]
struct NodeAddressUser {
    gateway: GatewayName,
    name: PolicyName,
    node: Option<NodeName>,
    left: Option<(Option<NodeName>, MoveCause)>,
}

struct Model<'a> {
    world: &'a World,
    ledger: &'a Ledger,
    lists: BTreeMap<GatewayName, Vec<Eip>>,
    allocations: Vec<Allocation>,
    node_address_users: Vec<NodeAddressUser>,
    /// Records that belong to no allocation.
    orphans: BTreeMap<IpAddr, u16>,
    unmet: BTreeMap<PolicyName, Unmet>,
}

pub(crate) fn plan(world: &World, ledger: &Ledger) -> Plan {
    let mut model = Model {
        world,
        ledger,
        lists: BTreeMap::new(),
        allocations: Vec::new(),
        node_address_users: Vec::new(),
        orphans: BTreeMap::new(),
        unmet: BTreeMap::new(),
    };
    model.read_records();
    model.keep_bindings();
    model.settle();
    model.write()
}

fn single(address: IpAddr) -> Eip {
    match address {
        IpAddr::V4(v4) => Eip { v4: Some(v4), v6: None },
        IpAddr::V6(v6) => Eip { v4: None, v6: Some(v6) },
    }
}

fn both(a: IpAddr, b: IpAddr) -> Eip {
    Eip { v4: single(a).v4.or(single(b).v4), v6: single(a).v6.or(single(b).v6) }
}

pub(crate) fn fits(ask: AddressRequest, eip: Eip) -> bool {
    match ask {
        AddressRequest::NodeAddress => eip.is_none(),
        AddressRequest::Explicit(e) => {
            !eip.is_none() && (e.v4.is_none() || e.v4 == eip.v4) && (e.v6.is_none() || e.v6 == eip.v6)
        }
        AddressRequest::FromPool(_) => !eip.is_none(),
    }
}
