//! The words in which the ruleset is written: each adds the expressions of one match or one statement to a rule.
//!
//! Addresses are loaded into [`KEY`], results of maps into [`VALUE`]; words that need room of their own take [`SCRATCH`].
//! `nft list ruleset` of 1.0.6 aborts on a map's result that is the key of another lookup, so such a result goes through
//! the packet's priority, which is 0 again when the packet leaves the chain.

use super::mark::Mark;
use super::nft::{Bytes, CtKey, Expression as E, Header, IpVersion, MetaKey, Register, Rule, Verdict};

const KEY: Register = Register(0);
const VALUE: Register = Register(4);
const SCRATCH: Register = Register(8);
/// Behind `SCRATCH`: a key of a mark and an address.
const BEHIND_SCRATCH: Register = Register(9);

/// States of a flow, as conntrack numbers them.
#[derive(Clone, Copy)]
pub(super) struct FlowState(u32);

impl FlowState {
    pub(super) const INVALID: Self = Self(1);
    pub(super) const NEW: Self = Self(8);
    pub(super) const INVALID_OR_UNTRACKED: Self = Self(1 | 64);
}

/// Begins a rule.
pub(super) fn rule(why: &'static str) -> Rule {
    Rule { why, expressions: Vec::new() }
}

/// Matches on the packet.
impl Rule {
    pub(super) fn version(self, ip: IpVersion) -> Self {
        let number = match ip {
            IpVersion::V4 => 2,
            IpVersion::V6 => 10,
        };
        self.with([E::Meta(MetaKey::NfProto, SCRATCH), is(SCRATCH, [number])])
    }

    pub(super) fn in_by(self, link: &str) -> Self {
        self.with([E::Meta(MetaKey::InputName, SCRATCH), is(SCRATCH, link_name(link))])
    }

    pub(super) fn not_in_by(self, link: &str) -> Self {
        self.with([E::Meta(MetaKey::InputName, SCRATCH), is_not(SCRATCH, link_name(link))])
    }

    pub(super) fn out_by(self, link: &str) -> Self {
        self.with([E::Meta(MetaKey::OutputName, SCRATCH), is(SCRATCH, link_name(link))])
    }

    pub(super) fn not_out_by(self, link: &str) -> Self {
        self.with([E::Meta(MetaKey::OutputName, SCRATCH), is_not(SCRATCH, link_name(link))])
    }

    /// Matches a protocol above IP, such as 17 for UDP.
    pub(super) fn transport(self, protocol: u8) -> Self {
        self.with([E::Meta(MetaKey::L4Proto, SCRATCH), is(SCRATCH, [protocol])])
    }

    pub(super) fn udp_to(self, port: u16) -> Self {
        self.transport(17).bytes(Header::Transport, 2, &port.to_be_bytes())
    }

    /// Matches TCP packets that begin a flow, in either direction.
    pub(super) fn syn(self) -> Self {
        const SYN_AND_RST: [u8; 4] = [0x06, 0, 0, 0];
        let flags = Bytes { header: Header::Transport, offset: 13, length: 1 };
        let masked = E::Bitwise { from: SCRATCH, to: SCRATCH, mask: u32::from_ne_bytes(SYN_AND_RST), xor: 0 };
        self.transport(6).with([E::Payload(flags, SCRATCH), masked, is(SCRATCH, [2])])
    }

    /// Matches what the frame carries, such as 0x0806 for ARP.
    pub(super) fn ethertype(self, number: u16) -> Self {
        self.with([E::Meta(MetaKey::Protocol, SCRATCH), is(SCRATCH, number.to_be_bytes())])
    }

    /// Matches bytes of the packet.
    pub(super) fn bytes(self, header: Header, offset: u32, data: &[u8]) -> Self {
        let length = u32::try_from(data.len()).expect("a match is a few bytes");
        self.with([E::Payload(Bytes { header, offset, length }, SCRATCH), is(SCRATCH, data)])
    }

    pub(super) fn mark_is(self, mask: u32, mark: u32) -> Self {
        self.with([E::Meta(MetaKey::Mark, SCRATCH)]).masked(mask, mark)
    }

    fn masked(self, mask: u32, value: u32) -> Self {
        self.with([E::Bitwise { from: SCRATCH, to: SCRATCH, mask, xor: 0 }, is(SCRATCH, value.to_ne_bytes())])
    }
}

/// Matches on the flow. None of them matches a packet without conntrack.
impl Rule {
    pub(super) fn original(self) -> Self {
        self.with([E::Ct(CtKey::Direction, SCRATCH), is(SCRATCH, [0])])
    }

    pub(super) fn reply(self) -> Self {
        self.with([E::Ct(CtKey::Direction, SCRATCH), is(SCRATCH, [1])])
    }

    pub(super) fn state(self, state: FlowState) -> Self {
        self.with([
            E::Ct(CtKey::State, SCRATCH),
            E::Bitwise { from: SCRATCH, to: SCRATCH, mask: state.0, xor: 0 },
            is_not(SCRATCH, 0_u32.to_ne_bytes()),
        ])
    }

    pub(super) fn flow_mark_is(self, mask: u32, mark: u32) -> Self {
        self.with([E::Ct(CtKey::Mark, SCRATCH)]).masked(mask, mark)
    }

    pub(super) fn flow_mark_is_none_of(self, mask: u32, marks: &[u32]) -> Self {
        let rule = self.with([E::Ct(CtKey::Mark, SCRATCH), E::Bitwise { from: SCRATCH, to: SCRATCH, mask, xor: 0 }]);
        rule.with(marks.iter().map(|mark| is_not(SCRATCH, mark.to_ne_bytes())))
    }
}

/// Lookups.
impl Rule {
    /// Looks up an address of the packet; goes on if it is known.
    pub(super) fn source_in(self, ip: IpVersion, map: &'static str) -> Self {
        self.with([E::Payload(source(ip), KEY), E::Map { map, key: KEY, to: VALUE }])
    }

    pub(super) fn destination_in(self, ip: IpVersion, map: &'static str) -> Self {
        self.with([E::Payload(destination(ip), KEY), E::Map { map, key: KEY, to: VALUE }])
    }

    /// Looks up bytes of the packet in a set.
    pub(super) fn bytes_in(self, bytes: Bytes, set: &'static str) -> Self {
        self.with([E::Payload(bytes, KEY), E::Contains { set, key: KEY, is: true }])
    }

    /// Compares what was looked up.
    pub(super) fn value_is(self, mask: u32, value: u32) -> Self {
        self.with([E::Bitwise { from: VALUE, to: SCRATCH, mask, xor: 0 }, is(SCRATCH, value.to_ne_bytes())])
    }

    pub(super) fn value_is_not(self, mask: u32, value: u32) -> Self {
        self.with([E::Bitwise { from: VALUE, to: SCRATCH, mask, xor: 0 }, is_not(SCRATCH, value.to_ne_bytes())])
    }

    /// Looks up the slot of the flow's mark; goes on if it is, or is not, known.
    pub(super) fn flow_slot_in(self, map: &'static str) -> Self {
        self.flow_slot().with([E::Map { map, key: SCRATCH, to: KEY }])
    }

    pub(super) fn flow_slot_not_in(self, set: &'static str) -> Self {
        self.flow_slot().with([E::Contains { set, key: SCRATCH, is: false }])
    }

    /// Goes on if the flow's slot together with the packet's source is not in a set.
    pub(super) fn flow_slot_and_source_not_in(self, ip: IpVersion, set: &'static str) -> Self {
        self.flow_slot().with([E::Payload(source(ip), BEHIND_SCRATCH), E::Contains { set, key: SCRATCH, is: false }])
    }

    /// Goes on if the flow has a slot that is no node's own address.
    pub(super) fn flow_slot_is_egress_address(self) -> Self {
        let node_address = super::mark::Slot::NODE_ADDRESS.mark();
        self.flow_slot().with([is_not(SCRATCH, node_address.0.to_ne_bytes()), is_not(SCRATCH, 0_u32.to_ne_bytes())])
    }

    fn flow_slot(self) -> Self {
        self.with([
            E::Ct(CtKey::Mark, SCRATCH),
            E::Bitwise { from: SCRATCH, to: SCRATCH, mask: super::mark::SLOT, xor: 0 },
        ])
    }

    /// Goes on if a set has a constant.
    pub(super) fn contains(self, set: &'static str, mark: Mark) -> Self {
        self.with([E::Immediate(KEY, mark.0.to_ne_bytes().into()), E::Contains { set, key: KEY, is: true }])
    }
}

/// The note: what was found for the source, kept in the packet's priority from rule to rule.
impl Rule {
    pub(super) fn clear_note(self) -> Self {
        self.with([E::Immediate(SCRATCH, vec![0; 4]), E::SetMeta(MetaKey::Priority, SCRATCH)])
    }

    pub(super) fn note_value(self) -> Self {
        self.with([E::SetMeta(MetaKey::Priority, VALUE)])
    }

    pub(super) fn note_is(self, mask: u32, note: u32) -> Self {
        self.with([E::Meta(MetaKey::Priority, SCRATCH)]).masked(mask, note)
    }

    pub(super) fn note_is_not_empty(self) -> Self {
        self.with([E::Meta(MetaKey::Priority, SCRATCH), is_not(SCRATCH, 0_u32.to_ne_bytes())])
    }

    pub(super) fn note_in(self, map: &'static str) -> Self {
        self.with([E::Meta(MetaKey::Priority, SCRATCH), E::Map { map, key: SCRATCH, to: VALUE }])
    }

    pub(super) fn note_and_destination_in(self, ip: IpVersion, map: &'static str) -> Self {
        self.with([
            E::Meta(MetaKey::Priority, SCRATCH),
            E::Payload(destination(ip), BEHIND_SCRATCH),
            E::Map { map, key: SCRATCH, to: VALUE },
        ])
    }
}

/// Statements.
impl Rule {
    /// Marks the packet with what was looked up.
    pub(super) fn mark_with_value(self) -> Self {
        self.with([E::SetMeta(MetaKey::Mark, VALUE)])
    }

    /// Marks packet and flow with what was looked up.
    pub(super) fn mark_flow_with_value(self) -> Self {
        // Twice through the packet: with the same register in both, `nft` would read one map statement of two.
        self.mark_with_value().with([E::Meta(MetaKey::Mark, KEY), E::SetCtMark(KEY)])
    }

    /// Marks the packet as its flow is marked, with another role.
    pub(super) fn mark_as_flow(self, role: u32) -> Self {
        self.with([
            E::Ct(CtKey::Mark, KEY),
            E::Bitwise { from: KEY, to: KEY, mask: !super::mark::ROLE, xor: role },
            E::SetMeta(MetaKey::Mark, KEY),
        ])
    }

    /// Marks the flow with what stands in the last four bytes of the sender's MAC address, with another role.
    pub(super) fn mark_flow_from_sender(self, role: u32) -> Self {
        let sender = Bytes { header: Header::Link, offset: 8, length: 4 };
        self.with([
            E::Payload(sender, KEY),
            E::SwapBytes(KEY, 4),
            E::Bitwise { from: KEY, to: KEY, mask: !super::mark::ROLE, xor: role },
            E::SetCtMark(KEY),
        ])
    }

    /// Writes bits of the mark into the last four bytes of a MAC address that stands at the offset.
    pub(super) fn write_mac(self, offset: u32, mask: u32, or: u32) -> Self {
        self.with([
            E::Meta(MetaKey::Mark, KEY),
            E::Bitwise { from: KEY, to: KEY, mask, xor: or },
            E::SwapBytes(KEY, 4),
            E::SetPayload(Bytes { header: Header::Link, offset: offset + 2, length: 4 }, KEY),
        ])
    }

    pub(super) fn clear_mark(self) -> Self {
        self.with([E::Immediate(KEY, vec![0; 4]), E::SetMeta(MetaKey::Mark, KEY)])
    }

    /// Keeps the source address, whatever later chains want.
    pub(super) fn snat_to_itself(self, ip: IpVersion) -> Self {
        self.with([E::Payload(source(ip), KEY), E::Snat { ip, address: KEY }])
    }

    /// Translates the source to the address of the flow's slot.
    pub(super) fn snat_to_slot(self, ip: IpVersion, map: &'static str) -> Self {
        self.flow_slot_in(map).with([E::Counter, E::Snat { ip, address: KEY }])
    }

    pub(super) fn clamp_mss(self) -> Self {
        self.with([E::RouteMss(KEY), E::SwapBytes(KEY, 2), E::SetMss(KEY)])
    }

    pub(super) fn copy_to(self, next_hop: &[u8], link_index: u32) -> Self {
        self.with([
            E::Immediate(KEY, next_hop.into()),
            E::Immediate(SCRATCH, link_index.to_ne_bytes().into()),
            E::Dup { address: KEY, link: SCRATCH },
        ])
    }

    pub(super) fn notrack(self) -> Self {
        self.with([E::Notrack])
    }

    pub(super) fn count(self) -> Self {
        self.with([E::Counter])
    }

    pub(super) fn accept(self) -> Self {
        self.verdict(Verdict::Accept)
    }

    pub(super) fn drop(self) -> Self {
        self.verdict(Verdict::Drop)
    }

    pub(super) fn end_chain(self) -> Self {
        self.verdict(Verdict::Return)
    }

    pub(super) fn jump(self, chain: &'static str) -> Self {
        self.verdict(Verdict::Jump(chain))
    }

    fn verdict(self, verdict: Verdict) -> Self {
        self.with([E::Counter, E::Verdict(verdict)])
    }

    fn with(mut self, expressions: impl IntoIterator<Item = E>) -> Self {
        self.expressions.extend(expressions);
        self
    }
}

fn is(register: Register, data: impl AsRef<[u8]>) -> E {
    E::Compare { register, is: true, data: data.as_ref().into() }
}

fn is_not(register: Register, data: impl AsRef<[u8]>) -> E {
    E::Compare { register, is: false, data: data.as_ref().into() }
}

/// A link's name as the kernel compares it.
fn link_name(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize(16, 0);
    bytes
}

fn source(ip: IpVersion) -> Bytes {
    match ip {
        IpVersion::V4 => Bytes { header: Header::Network, offset: 12, length: 4 },
        IpVersion::V6 => Bytes { header: Header::Network, offset: 8, length: 16 },
    }
}

fn destination(ip: IpVersion) -> Bytes {
    match ip {
        IpVersion::V4 => Bytes { header: Header::Network, offset: 16, length: 4 },
        IpVersion::V6 => Bytes { header: Header::Network, offset: 24, length: 16 },
    }
}
