//! The numbers that the data path puts into packet marks, conntrack marks and MAC addresses.
//!
//! ```text
//! 31  28 27          14  13  12          0
//! | role |     slot    | tunnel | node    |     roles 0, 1, 2 and 6
//! | role |            class               |     role 3
//! ```

use std::fmt;

/// The part of a mark that says what kind of mark it is.
pub(super) const ROLE: u32 = 0xf000_0000;
/// The part of a mark that says which egress address is meant.
pub const SLOT: u32 = 0x0fff_c000;
/// Set when the packet goes through the tunnel.
pub(super) const TUNNEL: u32 = 0x0000_2000;
/// The part of a mark that says which node.
pub(super) const NODE: u32 = 0x0000_1fff;

/// The first two bytes of every MAC address in the tunnel.
pub(super) const MAC_PREFIX: [u8; 2] = [0x66, 0x26];

/// What a mark means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A pod that no policy selects.
    Unselected = 1,
    /// A packet at its source node: slot, and the node that owns it.
    Source = 2,
    /// A set of policies that some pods share; the destination decides among them.
    Class = 3,
    /// A flow that arrived at a gateway through the tunnel; in conntrack marks only.
    Gateway = 6,
}

impl Role {
    /// The role where it stands in a mark.
    pub const fn bits(self) -> u32 {
        (self as u32) << 28
    }
}

/// A number for an egress address, 1 to 16383; 1 is the owner node's own address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot(u16);

impl Slot {
    /// The slot of a node's own address.
    pub const NODE_ADDRESS: Self = Self(1);

    /// None if there is no such slot.
    pub fn new(number: u16) -> Option<Self> {
        (1..=0x3fff).contains(&number).then_some(Self(number))
    }

    /// The slot alone, where it stands in a mark.
    pub const fn mark(self) -> Mark {
        Mark((self.0 as u32) << 14)
    }
}

/// A number for a node, 1 to 8191.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeNumber(u16);

impl NodeNumber {
    /// None if there is no such number.
    pub fn new(number: u16) -> Option<Self> {
        (1..=0x1fff).contains(&number).then_some(Self(number))
    }

    /// The number itself.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// The MAC address of the node's end of the tunnel.
    pub fn mac(self) -> MacAddress {
        let [a, b, c, d] = (Role::Source.bits() | TUNNEL | u32::from(self.0)).to_be_bytes();
        MacAddress([MAC_PREFIX[0], MAC_PREFIX[1], a, b, c, d])
    }
}

/// A mark, or bits of one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Mark(pub u32);

impl Mark {
    /// Of a pod that no policy selects.
    pub const UNSELECTED: Self = Self(Role::Unselected.bits());

    /// Of a pod whose packets leave with this slot's address.
    pub const fn slot(slot: Slot) -> Self {
        Self(Role::Source.bits() | slot.mark().0)
    }

    /// Of a pod whose packets leave as their destination says.
    pub const fn class(number: u32) -> Self {
        Self(Role::Class.bits() | (number & !ROLE))
    }

    /// Of a packet that leaves from this node with the slot's address.
    pub const fn owned_here(slot: Slot) -> Self {
        Self::slot(slot)
    }

    /// Of a packet that goes through the tunnel to the node that owns the slot.
    pub const fn owned_by(slot: Slot, node: NodeNumber) -> Self {
        Self(Self::slot(slot).0 | TUNNEL | node.get() as u32)
    }

    /// Of an address that this node took over and whose running flows the previous owner still has.
    pub const fn relay_to(node: NodeNumber) -> Self {
        Self(Role::Source.bits() | TUNNEL | node.get() as u32)
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Mark({:#010x})", self.0)
    }
}

/// What is known of an address or a range, as bits of the value of `addr` and `net`.
pub mod scope {
    use super::Mark;

    /// Inside the cluster: never translated unless a policy names it.
    pub const INSIDE: Mark = Mark(1);
    /// A pod of this node.
    pub const LOCAL_POD: Mark = Mark(2);
    /// A node's address: the outer source of its tunnel frames.
    pub const NODE: Mark = Mark(4);

    /// Several of them.
    pub const fn all(marks: &[Mark]) -> Mark {
        let (mut bits, mut at) = (0, 0);
        while at < marks.len() {
            bits |= marks[at].0;
            at += 1;
        }
        Mark(bits)
    }
}

/// The hardware address of a link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MacAddress(pub [u8; 6]);

impl fmt::Display for MacAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0.map(|byte| format!("{byte:02x}"));
        formatter.write_str(&bytes.join(":"))
    }
}

impl fmt::Debug for MacAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}
