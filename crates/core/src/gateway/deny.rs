//! Where endpoints must not be: Envoy would connect tenants to what is not theirs.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use super::types::{NodeConfig, Settings, World};
use crate::net::AddressSet;

/// Why an address cannot be an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// It means this machine.
    Loopback,
    /// It is never routed; clouds serve credentials there.
    LinkLocal,
    /// It means many hosts, or none.
    NotUnicast,
    /// It is a public address of this gateway.
    PublicPool,
    /// It is a node of this gateway.
    GatewayNode,
    /// It is in a range that the operator's flags deny.
    Flag,
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loopback => "it is a loopback address",
            Self::LinkLocal => "it is a link-local address",
            Self::NotUnicast => "it is no address of a single host",
            Self::PublicPool => "it is in the pool of a ServicePrefix",
            Self::GatewayNode => "it is the address of a gateway node",
            Self::Flag => {
                "it is in a range of the provider; with endpoints in the same cluster, see --gateway-direct-allow"
            }
        })
    }
}

/// Why an address cannot be an endpoint in this world; none if it can.
pub fn denied(world: &World, address: IpAddr) -> Option<Denied> {
    DenyList::of(world).denies(address)
}

/// The addresses that are denied in a world.
pub(super) struct DenyList<'a> {
    settings: &'a Settings,
    pools: AddressSet,
    gateway: Option<IpAddr>,
}

impl<'a> DenyList<'a> {
    pub(super) fn of(world: &'a World) -> Self {
        let prefixes = world.prefixes.values().filter_map(|prefix| prefix.prefix.as_ref().ok());
        let pools = prefixes.flat_map(|prefix| prefix.pools().iter().copied()).collect();
        let endpoint = world.node_config.as_ref().and_then(|NodeConfig { endpoint, .. }| endpoint.as_ref());
        Self { settings: &world.settings, pools, gateway: endpoint.map(|endpoint| endpoint.address) }
    }

    /// Why the address is denied; none if it is not.
    pub(super) fn denies(&self, address: IpAddr) -> Option<Denied> {
        let address = unmapped(address);
        if self.pools.contains(address) {
            return Some(Denied::PublicPool);
        }
        if self.settings.allow.contains(address) {
            return None;
        }
        let by_kind = kind(address);
        if by_kind.is_some() {
            return by_kind;
        }
        if self.gateway.map(unmapped) == Some(address) {
            return Some(Denied::GatewayNode);
        }
        self.settings.deny.contains(address).then_some(Denied::Flag)
    }
}

fn kind(address: IpAddr) -> Option<Denied> {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let this_network =
        matches!(address, IpAddr::V4(v4) if v4.octets()[0] == 0 || v4 == Ipv4Addr::BROADCAST || v4.octets()[0] >= 240);
    if address.is_loopback() {
        Some(Denied::Loopback)
    } else if link_local {
        Some(Denied::LinkLocal)
    } else if address.is_multicast() || address.is_unspecified() || this_network {
        Some(Denied::NotUnicast)
    } else {
        None
    }
}

/// An IPv4 address that is written as an IPv6 one is judged as what it is.
fn unmapped(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else { return address };
    let segments = v6.segments();
    let low = Ipv4Addr::from((u32::from(segments[6]) << 16) | u32::from(segments[7]));
    match segments[..6] {
        // mapped and translated (RFC 4291, RFC 6052, RFC 8215)
        [0, 0, 0, 0, 0, 0xffff] | [0x64, 0xff9b, 0 | 1, 0, 0, 0] => low.into(),
        // compatible, but not `::` and `::1`
        [0, 0, 0, 0, 0, 0] if low.to_bits() > 1 => low.into(),
        _ => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Range;

    #[test]
    fn addresses_that_are_no_pods_of_a_tenant_are_denied_in_every_spelling() {
        let world = World::default();
        let list = DenyList::of(&world);
        for (address, why) in [
            ("127.0.0.1", Denied::Loopback),
            ("::1", Denied::Loopback),
            ("::ffff:127.0.0.1", Denied::Loopback),
            ("::7f00:1", Denied::Loopback),
            ("64:ff9b::127.0.0.1", Denied::Loopback),
            ("169.254.169.254", Denied::LinkLocal),
            ("::ffff:169.254.169.254", Denied::LinkLocal),
            ("64:ff9b::169.254.169.254", Denied::LinkLocal),
            ("fe80::1", Denied::LinkLocal),
            ("224.0.0.1", Denied::NotUnicast),
            ("ff02::1", Denied::NotUnicast),
            ("::ffff:224.0.0.1", Denied::NotUnicast),
            ("0.0.0.0", Denied::NotUnicast),
            ("0.1.2.3", Denied::NotUnicast),
            ("::", Denied::NotUnicast),
            ("255.255.255.255", Denied::NotUnicast),
        ] {
            assert_eq!(list.denies(address.parse().unwrap()), Some(why), "{address}");
        }
        for address in ["10.244.1.5", "fd00::5", "192.0.2.1", "::ffff:10.244.1.5"] {
            assert_eq!(list.denies(address.parse().unwrap()), None, "{address}");
        }
    }

    #[test]
    fn the_flags_deny_ranges_and_allow_parts_of_them() {
        let set = |range: &str| [range.parse::<Range>().unwrap()].into_iter().collect::<AddressSet>();
        let settings = Settings { deny: set("10.0.0.0/8"), allow: set("10.1.0.0/16"), ..Settings::default() };
        let world = World { settings, ..World::default() };
        let list = DenyList::of(&world);
        assert_eq!(list.denies("10.2.0.1".parse().unwrap()), Some(Denied::Flag));
        assert_eq!(list.denies("::ffff:10.2.0.1".parse().unwrap()), Some(Denied::Flag));
        assert_eq!(list.denies("10.1.0.1".parse().unwrap()), None);
    }
}
