//! The node's kernel, as far as egress is concerned: a tunnel between nodes, a fixed ruleset with maps, routes, neighbours.
//!
//! [`KernelState`] is all of it as plain data; [`diff`] compares two states, and a [`Kernel`] dumps one and applies the
//! difference. [`NetlinkKernel`] speaks to the kernel of this network namespace, [`MemoryKernel`] keeps a state. Both pass
//! the same contract tests. Whoever converges writes nothing: [`diff`] is empty then.
//!
//! [`ruleset`] is the way of a packet. Its maps are [`Elements`].

#![expect(unsafe_code, reason = "some socket calls have no safe form; every block carries its argument")]

mod difference;
mod elements;
mod error;
mod mark;
mod memory;
mod netlink;
pub mod nft;
mod rule;
pub mod ruleset;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

pub use elements::{Elements, FieldType, Range, RawElement, SETS, SetSpec, SlotAddress};
pub use error::KernelError;
pub use mark::{MacAddress, Mark, NodeNumber, Role, SLOT, Slot, scope};
pub use memory::MemoryKernel;
pub use netlink::NetlinkKernel;
pub use state::{
    Delta, KernelState, Network, Route, RouteKey, RoutingRule, Ruleset, RulesetChange, Setting, Tunnel, TunnelChange,
    diff,
};

/// The kernel of one network namespace. Calls take microseconds and block.
pub trait Kernel: Send {
    /// Reads all that is ours.
    fn dump(&mut self) -> Result<KernelState, KernelError>;

    /// Makes a change. One that fails has left parts undone: dump again.
    fn apply(&mut self, delta: &Delta) -> Result<(), KernelError>;

    /// Tells the uplink's network that addresses are here: gratuitous ARP and unsolicited advertisements, once each.
    fn announce(&mut self, addresses: &BTreeSet<IpAddr>) -> Result<(), KernelError>;

    /// The links of the node, by name.
    fn links(&mut self) -> Result<BTreeMap<String, Link>, KernelError>;

    /// Waits until someone else changed something that is ours or a link; false if nobody did in that time.
    fn wait_for_change(&mut self, at_most: Duration) -> Result<bool, KernelError>;

    /// Ends flows: conntrack forgets those with this mark under the mask.
    fn forget_flows(&mut self, mark: Mark, mask: u32) -> Result<(), KernelError>;
}

/// A link of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub mac: Option<MacAddress>,
    pub mtu: u32,
    pub is_up: bool,
    pub addresses: BTreeSet<IpNet>,
}
