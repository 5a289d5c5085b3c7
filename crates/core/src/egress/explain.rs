//! Explains why a policy or an address is where it is, step by step, from the planner's state.

use std::fmt::{self, Write};
use std::net::IpAddr;

use super::planner::Planner;
use super::{AddressRequest, Eip, NodeMode, PolicyName, Unmet};

/// One step of an explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainStep {
    /// What the step is about.
    pub topic: ExplainTopic,
    /// A sentence for the user.
    pub text: String,
}

/// What a step is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExplainTopic {
    /// What the policy requests.
    Request,
    /// The gateway.
    Gateway,
    /// The address and its position in the pool.
    Address,
    /// The node.
    Node,
    /// The nodes that take over.
    Standby,
    /// The policies that use it.
    Users,
    /// Why the request is not met.
    Unmet,
}

/// Explains what a policy was granted.
pub fn explain(planner: &Planner, name: &PolicyName) -> Vec<ExplainStep> {
    let Some(entry) = planner.policies.find(name).map(|id| &planner.policies[id]) else { return Vec::new() };
    let policy = &entry.spec;
    let mut steps = vec![step(ExplainTopic::Request, requested(policy.request))];
    let Some(state) = planner.gateways.get(&policy.gateway) else {
        steps.push(step(
            ExplainTopic::Gateway,
            format!("gateway {} does not exist: create it or name another one", policy.gateway),
        ));
        return steps;
    };
    let ready = state.candidates.iter().filter(|candidate| candidate.ready).count();
    let candidates = state.candidates.len();
    steps.push(step(
        ExplainTopic::Gateway,
        format!(
            "gateway {} serves {}; its selector matches {}, {ready} of them ready; it {}",
            policy.gateway,
            counted(state.policies, "policy", "policies"),
            counted(candidates, "node", "nodes"),
            mode(state.spec.mode)
        ),
    ));
    match &entry.grant {
        Some(grant) if grant.eip.is_none() => {
            let node = planner.node_name(grant.node).unwrap_or_else(|| "no node".into());
            steps.push(step(
                ExplainTopic::Node,
                format!("it uses the address of node {node} itself, and stays on it while the node is ready"),
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

/// Explains where an address is; empty if it is neither recorded nor in a pool.
pub fn explain_address(planner: &Planner, address: IpAddr) -> Vec<ExplainStep> {
    let Some(gateway) = planner.owners.get(&address) else { return explain_free(planner, address) };
    let Some(state) = planner.gateways.get(gateway) else {
        return vec![step(
            ExplainTopic::Gateway,
            format!("gateway {gateway} is deleted: the address is being released"),
        )];
    };
    let Some((eip, allocation)) = state.pairs.eip(address).and_then(|eip| Some((eip, state.allocations.get(&eip)?)))
    else {
        return explain_free(planner, address);
    };
    let mut steps =
        vec![step(ExplainTopic::Address, position(eip, gateway, state.spec.pool.rank(address), allocation.slot))];
    let users = allocation.users.len();
    if users == 0 {
        steps.push(step(ExplainTopic::Users, "no policy uses it: it is released unless a policy gets it first".into()));
        return steps;
    }
    match planner.node_name(allocation.node) {
        None => {
            steps
                .push(step(ExplainTopic::Node, "no node can hold it; its policies keep it and wait for a node".into()));
        }
        Some(node) => {
            let candidate =
                allocation.node.and_then(|id| state.candidates.iter().find(|candidate| candidate.node == id));
            let (load, eips) = candidate.map_or((0, 0), |candidate| (candidate.load, candidate.eips));
            let text = format!(
                "it is on node {node}, which serves {} on {} of this gateway (epoch {}); \
                 it stays there while the node is ready, selected and not excluded",
                counted(load, "policy", "policies"),
                counted(eips, "address", "addresses"),
                allocation.epoch
            );
            steps.push(step(ExplainTopic::Node, text));
            let standby = planner.standby(gateway, &node).remove(&address).unwrap_or_default();
            let text = if standby.is_empty() {
                format!("no node can take over if {node} is lost")
            } else {
                format!("if {node} is lost: {}", standby.join(", then "))
            };
            steps.push(step(ExplainTopic::Standby, text));
        }
    }
    let mut text = format!("it serves {}: ", counted(users, "policy", "policies"));
    for (index, user) in planner.policies.names(allocation.users.iter().copied(), 5).into_iter().enumerate() {
        write!(text, "{}{user}", if index == 0 { "" } else { ", " }).expect("a string takes any text");
    }
    if users > 5 {
        text.push_str(", ...");
    }
    steps.push(step(ExplainTopic::Users, text));
    steps
}

/// An address of a pool that no policy has.
fn explain_free(planner: &Planner, address: IpAddr) -> Vec<ExplainStep> {
    let pools = planner.gateways.iter();
    let mut ranks = pools.filter_map(|(gateway, state)| Some((gateway, state.spec.pool.rank(address)?)));
    let Some((gateway, rank)) = ranks.next() else { return Vec::new() };
    let text = format!("{address} is number {} in the pool of gateway {gateway}", rank + 1);
    let state = if planner.world.taken.contains(&address) {
        "it is held elsewhere or still being released: no policy can have it yet"
    } else {
        "it is free: a policy gets it if spec.egressIP names it, or when its turn comes"
    };
    vec![step(ExplainTopic::Address, text), step(ExplainTopic::Users, state.into())]
}

fn counted(count: impl fmt::Display + PartialEq + From<u8> + Copy, one: &str, many: &str) -> String {
    let noun = if count == 1.into() { one } else { many };
    format!("{count} {noun}")
}

fn step(topic: ExplainTopic, text: String) -> ExplainStep {
    ExplainStep { topic, text }
}

fn position(eip: Eip, gateway: &str, position: Option<u128>, slot: u16) -> String {
    match position {
        Some(position) => format!("{eip} is number {} in the pool of gateway {gateway}, slot {slot}", position + 1),
        None => format!("{eip} is no longer in the pool of gateway {gateway} but still in use, slot {slot}"),
    }
}

fn requested(ask: AddressRequest) -> String {
    match ask {
        AddressRequest::NodeAddress => "it requests the address of the gateway node itself".into(),
        AddressRequest::Explicit(eip) => format!("it requests {eip}"),
        AddressRequest::FromPool(mode) => format!("it requests {mode}"),
    }
}

fn mode(mode: NodeMode) -> String {
    match mode {
        NodeMode::Average => "chooses the node with the fewest policies".into(),
        NodeMode::FewestNodes => "chooses the node with the most policies".into(),
        NodeMode::Limit(limit) => format!("fills a node up to {limit} policies before using the next one"),
    }
}

/// The problem, and what to do about it.
impl fmt::Display for Unmet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GatewayNotFound => f.write_str("the gateway does not exist: create it, or name another one"),
            Self::NoReadyNode => f.write_str(
                "no gateway node is ready: see `kubectl get egt`, or let spec.nodeSelector of the gateway match more nodes",
            ),
            Self::NoCapacity => f.write_str("all gateway nodes have reached their address capacity: add a node"),
            Self::PoolEmpty => {
                f.write_str("the pool of the gateway has no free address: add a range, or delete a policy")
            }
            Self::OutsidePool(address) => {
                write!(f, "address {address} is not in the pool of the gateway: add it to the pool, or request another one")
            }
            Self::PairMismatch(address, Some(pair)) => {
                write!(f, "address {address} is paired with {pair}: request that pair, or leave the other address out")
            }
            Self::PairMismatch(address, None) => {
                write!(f, "address {address} has no pair: leave the other address out")
            }
            Self::Taken(address) => write!(
                f,
                "address {address} is held elsewhere or still being released: it is allocated as soon as it is free"
            ),
            Self::NotAllowed(address) => {
                write!(f, "address {address} is reserved for another namespace: request another one")
            }
            Self::ImmutableField => f.write_str(
                "it requests another gateway or address than it was granted, and keeps what it has: delete and recreate it",
            ),
            Self::SlotsExhausted => {
                f.write_str("all 16,382 egress addresses of the cluster are in use: delete policies, or share addresses")
            }
            Self::Refused => f.write_str("it was rejected before planning: see its Accepted condition"),
        }
    }
}
