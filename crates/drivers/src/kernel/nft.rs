//! Tables, chains, rules and expressions of nftables as typed values: exactly those that the ruleset needs.

/// Which packets a table sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4 and IPv6.
    Inet,
    Ip,
    Ip6,
    /// Frames of one link.
    Netdev,
}

impl Family {
    pub const ALL: [Self; 4] = [Self::Inet, Self::Ip, Self::Ip6, Self::Netdev];

    /// The kernel's number.
    pub const fn number(self) -> u8 {
        match self {
            Self::Inet => 1,
            Self::Ip => 2,
            Self::Netdev => 5,
            Self::Ip6 => 10,
        }
    }
}

/// A chain and its rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    pub family: Family,
    pub name: &'static str,
    /// None for a chain that others jump to.
    pub hook: Option<Hook>,
    pub rules: Vec<Rule>,
}

impl Chain {
    /// Whether it sees frames of a link of this name.
    pub fn is_of_link(&self, name: &str) -> bool {
        self.hook.as_ref().and_then(|hook| hook.link.as_deref()) == Some(name)
    }
}

/// Where a chain sees packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    pub point: HookPoint,
    pub priority: i32,
    pub kind: ChainKind,
    /// The link, for netdev chains.
    pub link: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HookPoint {
    Prerouting,
    Input,
    Forward,
    Output,
    Postrouting,
    /// Frames that leave by a link.
    Egress,
}

impl HookPoint {
    /// The kernel's number.
    pub const fn number(self) -> u32 {
        match self {
            Self::Prerouting => 0,
            Self::Input | Self::Egress => 1,
            Self::Forward => 2,
            Self::Output => 3,
            Self::Postrouting => 4,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChainKind {
    Filter,
    Nat,
}

/// One rule: expressions that are run in turn until one does not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// What `nft list ruleset` shows as its comment.
    pub why: &'static str,
    pub expressions: Vec<Expression>,
}

/// One of the sixteen registers of 32 bits; longer data take those that follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register(pub u8);

/// What a rule does with a packet, one at a time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expression {
    /// Loads a property of the packet.
    Meta(MetaKey, Register),
    /// Sets one.
    SetMeta(MetaKey, Register),
    /// Loads a property of the flow; does not match where there is no conntrack.
    Ct(CtKey, Register),
    /// Sets the flow's mark.
    SetCtMark(Register),
    /// Loads bytes of the packet.
    Payload(Bytes, Register),
    /// Writes bytes of the packet; checksums stay.
    SetPayload(Bytes, Register),
    /// `to = (from & mask) ^ xor`.
    Bitwise {
        from: Register,
        to: Register,
        mask: u32,
        xor: u32,
    },
    /// Network order to host order or back, 4 bytes or 2.
    SwapBytes(Register, u32),
    /// Goes on if the register is, or is not, this.
    Compare {
        register: Register,
        is: bool,
        data: Vec<u8>,
    },
    /// Goes on if the key is in a set.
    Contains {
        set: &'static str,
        key: Register,
        is: bool,
    },
    /// Goes on if the key is in a map, with its value.
    Map {
        map: &'static str,
        key: Register,
        to: Register,
    },
    /// Loads a constant.
    Immediate(Register, Vec<u8>),
    /// Translates the source address.
    Snat {
        ip: IpVersion,
        address: Register,
    },
    /// Sends a copy to a next hop on a link.
    Dup {
        address: Register,
        link: Register,
    },
    /// Leaves the packet out of conntrack.
    Notrack,
    /// Counts packets and bytes.
    Counter,
    /// Loads the largest TCP segment that fits the route.
    RouteMss(Register),
    /// Lowers the MSS option of a TCP SYN.
    SetMss(Register),
    Verdict(Verdict),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Accept,
    Drop,
    Return,
    Jump(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetaKey {
    Protocol,
    Priority,
    Mark,
    InputName,
    OutputName,
    NfProto,
    L4Proto,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CtKey {
    State,
    Direction,
    Mark,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IpVersion {
    V4,
    V6,
}

/// Where bytes stand in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bytes {
    pub header: Header,
    pub offset: u32,
    pub length: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Header {
    Link,
    Network,
    Transport,
}
