//! Why a policy or an address is where it is: the decision step by step, read from the planner's state.

use std::fmt::{self, Write};
use std::net::IpAddr;

use super::planner::Planner;
use super::{AddressRequest, Eip, NodeMode, PolicyName, Unmet};

/// One step of an explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainStep {
    /// What the step is about: a bounded word.
    pub topic: ExplainTopic,
    /// A sentence for a network engineer.
    pub text: String,
}

/// What a step is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExplainTopic {
    /// What was asked for.
    Request,
    /// The gateway.
    Gateway,
    /// The address and its place in the pool.
    Address,
    /// The node.
    Node,
    /// Who takes over.
    Standby,
    /// Who uses it.
    Users,
    /// What cannot be met.
    Unmet,
}

/// Why a policy has what it has.
pub fn explain(planner: &Planner, name: &PolicyName) -> Vec<ExplainStep> {
    let Some(row) = planner.policies.find(name).map(|id| &planner.policies[id]) else { return Vec::new() };
    let policy = &row.spec;
    let mut steps = vec![step(ExplainTopic::Request, asked(policy.request))];
    let Some(gate) = planner.gates.get(&policy.gateway) else {
        steps.push(step(
            ExplainTopic::Gateway,
            format!("gateway {} does not exist: create it or name another", policy.gateway),
        ));
        return steps;
    };
    let ready = gate.sites.iter().filter(|site| site.ready).count();
    let sites = gate.sites.len();
    steps.push(step(
        ExplainTopic::Gateway,
        format!(
            "gateway {} serves {} policies; its selector matches {sites} nodes, {ready} of them ready; it {}",
            policy.gateway,
            gate.policies,
            mode(gate.spec.mode)
        ),
    ));
    match &row.grant {
        Some(grant) if grant.eip.is_none() => {
            let node = planner.node_name(grant.node).unwrap_or_else(|| "no node".into());
            steps.push(step(
                ExplainTopic::Node,
                format!("it leaves with the own address of {node}, and stays there while it is ready"),
            ));
        }
        Some(grant) => {
            if let Some(first) = grant.eip.addresses().next() {
                steps.extend(explain_address(planner, first));
            }
        }
        None => {}
    }
    if let Some(unmet) = planner.unmet(name) {
        steps.push(step(ExplainTopic::Unmet, unmet.to_string()));
    }
    steps
}

/// Why an address is where it is; empty if it is not recorded.
pub fn explain_address(planner: &Planner, address: IpAddr) -> Vec<ExplainStep> {
    let Some(gateway) = planner.owners.get(&address) else { return Vec::new() };
    let Some(gate) = planner.gates.get(gateway) else {
        return vec![step(
            ExplainTopic::Gateway,
            format!("gateway {gateway} is gone: the address is being given back"),
        )];
    };
    let Some((eip, seat)) = gate.pairs.eip(address).and_then(|eip| Some((eip, gate.seats.get(&eip)?))) else {
        return Vec::new();
    };
    let mut steps = vec![step(ExplainTopic::Address, placed(eip, gateway, gate.spec.pool.rank(address), seat.slot))];
    let users = seat.users.len();
    if users == 0 {
        steps.push(step(ExplainTopic::Users, "nobody uses it: it is given back, unless a policy gets it first".into()));
        return steps;
    }
    match planner.node_name(seat.node) {
        None => {
            steps.push(step(ExplainTopic::Node, "no node can have it; it keeps its policies and waits for one".into()))
        }
        Some(node) => {
            let site = seat.node.and_then(|id| gate.sites.iter().find(|site| site.node == id));
            let (load, eips) = site.map_or((0, 0), |site| (site.load, site.eips));
            let text = format!(
                "it lives on {node}, which serves {load} policies on {eips} addresses of this gateway (epoch {}); \
                 it stays there while the node is ready, selected and not barred",
                seat.epoch
            );
            steps.push(step(ExplainTopic::Node, text));
            let standby = planner.standby(gateway, &node).remove(&address).unwrap_or_default();
            let text = if standby.is_empty() {
                format!("nobody can take over if {node} is lost")
            } else {
                format!("if {node} is lost: {}", standby.join(", then "))
            };
            steps.push(step(ExplainTopic::Standby, text));
        }
    }
    let mut text = format!("it serves {users} policies: ");
    for (place, user) in planner.policies.names(seat.users.iter().copied(), 5).into_iter().enumerate() {
        write!(text, "{}{user}", if place == 0 { "" } else { ", " }).expect("a string takes any text");
    }
    if users > 5 {
        text.push_str(", ...");
    }
    steps.push(step(ExplainTopic::Users, text));
    steps
}

fn step(topic: ExplainTopic, text: String) -> ExplainStep {
    ExplainStep { topic, text }
}

fn placed(eip: Eip, gateway: &str, position: Option<u128>, slot: u16) -> String {
    match position {
        Some(position) => format!("{eip} is number {} in the pool of gateway {gateway}, slot {slot}", position + 1),
        None => format!("{eip} is no longer in the pool of gateway {gateway} but still in use, slot {slot}"),
    }
}

fn asked(ask: AddressRequest) -> String {
    match ask {
        AddressRequest::NodeAddress => "it asks for the gateway node's own address".into(),
        AddressRequest::Explicit(eip) => format!("it asks for {eip}"),
        AddressRequest::Default => "it asks for the gateway's default address".into(),
        AddressRequest::Random => "it asks for any address of the pool".into(),
        AddressRequest::PreferUnallocated => "it asks for the lowest unused address, or any when all are used".into(),
        AddressRequest::Limit(limit) => {
            format!("it asks for the busiest address that serves fewer than {limit} policies")
        }
    }
}

fn mode(mode: NodeMode) -> String {
    match mode {
        NodeMode::Average => "chooses the node that serves fewest policies".into(),
        NodeMode::FewestNodes => "chooses the node that serves most policies".into(),
        NodeMode::Limit(limit) => format!("fills a node up to {limit} policies before the next"),
    }
}

/// What stands in the way, and what to do about it.
impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GatewayNotFound => f.write_str("the gateway does not exist: create it, or name another"),
            Self::NoReadyNode => f.write_str(
                "no gateway node is ready: see `kubectl get egt`, or let spec.nodeSelector of the gateway match more nodes",
            ),
            Self::NoCapacity => f.write_str("every gateway node holds as many addresses as it can: add a node"),
            Self::PoolEmpty => {
                f.write_str("the gateway's pool has no address to give: add a range, or delete a policy")
            }
            Self::OutsidePool(address) => {
                write!(f, "address {address} is not in the gateway's pool: add it there, or ask for one that is")
            }
            Self::PairMismatch(address, Some(pair)) => {
                write!(f, "address {address} goes with {pair}: ask for that one, or leave the other half out")
            }
            Self::PairMismatch(address, None) => {
                write!(f, "address {address} has no pair: leave the other half out")
            }
            Self::Taken(address) => write!(
                f,
                "address {address} is held elsewhere or still being released: it is given as soon as it is free"
            ),
            Self::NotAllowed(address) => {
                write!(f, "address {address} serves another namespace alone: ask for another one")
            }
            Self::ImmutableField => f.write_str(
                "it asks for another gateway or address than it was granted, and keeps what it has: delete it and create it anew",
            ),
            Self::SlotsExhausted => {
                f.write_str("all 16,382 egress addresses of the cluster are in use: delete policies, or share addresses")
            }
            Self::Refused => f.write_str("it was refused before planning: see its Accepted condition"),
        }
    }
}
