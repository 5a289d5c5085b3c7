//! What we have in the kernel, as plain data, and how one state becomes another.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;

use super::difference::{gone, without};
use super::elements::Elements;
use super::mark::MacAddress;
use super::ruleset::Parameters;

/// All that is ours in the kernel; what others made is in none of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelState {
    /// The link to the other nodes.
    pub tunnel: Option<Tunnel>,
    /// Values under /proc/sys. Only those that are wanted count; none is ever taken back.
    pub settings: BTreeMap<Setting, u32>,
    pub ruleset: Ruleset,
    /// What the ruleset's maps hold.
    pub elements: Elements,
    pub network: Network,
}

/// What routes packets and finds neighbours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// Addresses of the tunnel.
    pub addresses: BTreeSet<IpNet>,
    /// Rules that send marked packets to a table.
    pub rules: BTreeSet<RoutingRule>,
    pub routes: BTreeMap<RouteKey, Route>,
    /// Neighbours on the tunnel.
    pub neighbours: BTreeMap<IpAddr, MacAddress>,
    /// Where the tunnel sends frames for a MAC address.
    pub peers: BTreeMap<MacAddress, IpAddr>,
    /// Addresses that the kernel answers for on the uplink.
    pub proxies: BTreeSet<IpAddr>,
}

/// The VXLAN link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tunnel {
    pub mac: MacAddress,
    /// The link that carries it.
    pub parent: String,
    /// The sender of its outer packets.
    pub local: IpAddr,
    pub mtu: u32,
    pub is_up: bool,
}

/// A value under /proc/sys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Setting {
    /// Reverse path filter of the tunnel: 2 lets packets of pods in whose routes lead elsewhere.
    TunnelReversePathFilter,
    /// Without it on all links, unicast neighbour solicitations for proxied addresses are not answered.
    ProxyNdp,
    /// How long answers for proxied addresses are put off, in hundredths of a second.
    ProxyDelay4,
    ProxyDelay6,
}

impl Setting {
    pub const ALL: [Self; 4] = [Self::TunnelReversePathFilter, Self::ProxyNdp, Self::ProxyDelay4, Self::ProxyDelay6];
}

/// The state of the fixed ruleset.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Ruleset {
    /// None of our tables is there.
    #[default]
    Absent,
    /// It is not as we loaded it; what is missing or too much, line by line.
    Damaged(BTreeSet<String>),
    /// It is whole.
    Loaded(Parameters),
}

/// A rule of policy routing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RoutingRule {
    pub is_ipv6: bool,
    pub priority: u32,
    pub mark: u32,
    pub mask: u32,
    pub table: u32,
}

/// What tells a route from others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteKey {
    pub table: u32,
    pub destination: IpNet,
    pub metric: u32,
}

/// Where a route leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// To the tunnel, as if the destination were on it.
    Tunnel,
    /// To a next hop on the tunnel.
    Via(IpAddr),
    /// Nowhere.
    Blackhole,
}

/// What to do so that one state becomes another. All of it is applied in the order of the fields, and removals before
/// additions; what concerns nftables is one transaction. The kernel stops to answer for addresses before anything else. A
/// tunnel or a setting that fails does not keep the ruleset from being loaded, as far as it needs no tunnel; all that
/// follows waits for the next try.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delta {
    pub tunnel: Option<TunnelChange>,
    pub settings: BTreeMap<Setting, u32>,
    pub ruleset: Option<RulesetChange>,
    pub remove_elements: Elements,
    pub add_elements: Elements,
    pub remove: Network,
    pub add: Network,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TunnelChange {
    Create(Tunnel),
    /// Deletes the old one: whatever was on it is gone too.
    Recreate(Tunnel),
    /// Sets MTU and whether it is up.
    Update(Tunnel),
    Delete,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RulesetChange {
    /// Replaces all our tables by fresh ones, with the elements that are added.
    Load(Parameters),
    Delete,
}

impl Delta {
    /// True if nothing is to be done.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Compares what is with what should be.
pub fn diff(actual: &KernelState, desired: &KernelState) -> Delta {
    let tunnel = tunnel_change(actual.tunnel.as_ref(), desired.tunnel.as_ref());
    let is_gone = matches!(tunnel, Some(TunnelChange::Recreate(_) | TunnelChange::Delete));
    let network = if is_gone { actual.network.without_tunnel() } else { actual.network.clone() };
    // Chains of a link end with it.
    let is_whole = actual.ruleset == desired.ruleset && (!is_gone || actual.ruleset == Ruleset::Absent);
    let ruleset = (!is_whole).then(|| match &desired.ruleset {
        Ruleset::Loaded(parameters) => RulesetChange::Load(parameters.clone()),
        Ruleset::Absent | Ruleset::Damaged(_) => RulesetChange::Delete,
    });
    let (remove_elements, add_elements) = match ruleset {
        Some(RulesetChange::Load(_)) => (Elements::default(), desired.elements.clone()),
        Some(RulesetChange::Delete) => (Elements::default(), Elements::default()),
        None => (actual.elements.without(&desired.elements), desired.elements.without(&actual.elements)),
    };
    let is_wanted = |(setting, value): &(&Setting, &u32)| actual.settings.get(setting) != Some(value);
    Delta {
        tunnel,
        settings: desired.settings.iter().filter(is_wanted).map(|(setting, value)| (*setting, *value)).collect(),
        ruleset,
        remove_elements,
        add_elements,
        remove: network.gone_from(&desired.network),
        add: desired.network.without(&network),
    }
}

fn tunnel_change(actual: Option<&Tunnel>, desired: Option<&Tunnel>) -> Option<TunnelChange> {
    match (actual, desired) {
        (None, None) => None,
        (None, Some(desired)) => Some(TunnelChange::Create(desired.clone())),
        (Some(_), None) => Some(TunnelChange::Delete),
        (Some(actual), Some(desired)) if actual == desired => None,
        (Some(actual), Some(desired))
            if (&actual.parent, actual.local, actual.mac) == (&desired.parent, desired.local, desired.mac) =>
        {
            Some(TunnelChange::Update(desired.clone()))
        }
        (Some(_), Some(desired)) => Some(TunnelChange::Recreate(desired.clone())),
    }
}

impl Network {
    /// What is not there at all: what changes is replaced in place.
    fn gone_from(&self, other: &Self) -> Self {
        Self {
            addresses: &self.addresses - &other.addresses,
            rules: &self.rules - &other.rules,
            routes: gone(&self.routes, &other.routes),
            neighbours: gone(&self.neighbours, &other.neighbours),
            peers: gone(&self.peers, &other.peers),
            proxies: &self.proxies - &other.proxies,
        }
    }

    /// What is not, or otherwise, there.
    fn without(&self, other: &Self) -> Self {
        Self {
            addresses: &self.addresses - &other.addresses,
            rules: &self.rules - &other.rules,
            routes: without(&self.routes, &other.routes),
            neighbours: without(&self.neighbours, &other.neighbours),
            peers: without(&self.peers, &other.peers),
            proxies: &self.proxies - &other.proxies,
        }
    }

    /// What is left when the tunnel is gone.
    #[must_use]
    pub fn without_tunnel(&self) -> Self {
        let stays = |route: &Route| matches!(route, Route::Blackhole);
        Self {
            rules: self.rules.clone(),
            routes: self.routes.iter().filter(|(_, route)| stays(route)).map(|(key, to)| (key.clone(), *to)).collect(),
            proxies: self.proxies.clone(),
            ..Self::default()
        }
    }

    /// True if there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}
