//! A ServicePrefix: the public addresses that load balancers get.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::net::{AddressSet, Family, IntervalSet, Range, RangeError, number};

/// What a ServicePrefix says, in text.
#[derive(Debug, Clone, Copy, Default)]
pub struct PrefixText<'a> {
    /// `spec.subnet`.
    pub subnet: &'a str,
    /// `spec.pool`.
    pub pool: &'a str,
    /// `spec.gateway`; empty if there is none.
    pub gateway: &'a str,
    /// `spec.extra-pools`.
    pub extra_pools: &'a [String],
    /// `spec.reserved`.
    pub reserved: &'a [String],
}

/// The addresses of a ServicePrefix, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prefix {
    family: Family,
    /// Every address of its pools, reserved ones too: what must not overlap with another prefix.
    pools: Vec<Range>,
    /// The addresses that can be given.
    given: IntervalSet,
}

/// Why a ServicePrefix cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PrefixError {
    /// The subnet is not a CIDR.
    #[error("spec.subnet: `{0}` is not a CIDR: write it like 192.0.2.0/24")]
    Subnet(String),
    /// A CIDR has bits set beyond its length.
    #[error("{field}: `{written}` has host bits: write {instead}")]
    HostBits {
        /// The field.
        field: &'static str,
        /// As written.
        written: String,
        /// Without host bits.
        instead: IpNet,
    },
    /// A pool is not a range.
    #[error("{field}: {cause}")]
    Range {
        /// The field.
        field: &'static str,
        /// Why not.
        cause: RangeError,
    },
    /// A pool is not inside the subnet.
    #[error("{field}: `{range}` is not inside the subnet {subnet}: change one of them")]
    Outside {
        /// The field.
        field: &'static str,
        /// As written.
        range: String,
        /// The subnet.
        subnet: IpNet,
    },
    /// The gateway is not an address.
    #[error("spec.gateway: `{0}` is not an address: write it like 192.0.2.1, without a mask")]
    Gateway(String),
}

impl Prefix {
    /// Checks what a ServicePrefix says.
    pub fn parse(text: PrefixText<'_>) -> Result<Self, PrefixError> {
        let PrefixText { subnet, pool, gateway, extra_pools, reserved } = text;
        let net: IpNet = subnet.parse().map_err(|_| PrefixError::Subnet(subnet.to_owned()))?;
        without_host_bits("spec.subnet", subnet, net)?;
        let mut pools = vec![inside("spec.pool", pool, net)?];
        for pool in extra_pools {
            pools.push(inside("spec.extra-pools", pool, net)?);
        }
        let mut given = IntervalSet::default();
        for pool in &pools {
            given.insert(pool.first(), pool.last());
        }
        for reserved in reserved {
            let reserved = range("spec.reserved", reserved)?;
            if reserved.family() == Family::of(net.addr()) {
                given.remove(reserved.first(), reserved.last());
            }
        }
        if !gateway.is_empty() {
            let address: IpAddr = gateway.parse().map_err(|_| PrefixError::Gateway(gateway.to_owned()))?;
            if !net.contains(&address) {
                let range = gateway.to_owned();
                return Err(PrefixError::Outside { field: "spec.gateway", range, subnet: net });
            }
            given.remove(number(address), number(address));
        }
        for address in never_given(net) {
            given.remove(number(address), number(address));
        }
        Ok(Self { family: Family::of(net.addr()), pools, given })
    }

    /// How many addresses can be given at most.
    pub fn capacity(&self) -> u128 {
        self.given.iter().fold(0, |all, (first, last)| all.saturating_add((last - first).saturating_add(1)))
    }

    /// True if the address can be given.
    pub fn contains(&self, address: IpAddr) -> bool {
        Family::of(address) == self.family && self.given.contains(number(address))
    }

    /// True if the address is one of its pools, even if it is never given.
    pub fn covers(&self, address: IpAddr) -> bool {
        self.pools.iter().any(|pool| pool.contains(address))
    }

    /// Its pools.
    pub fn pools(&self) -> &[Range] {
        &self.pools
    }

    /// The lowest address that can be given and is not in `taken`.
    pub fn lowest_free(&self, taken: &AddressSet) -> Option<IpAddr> {
        self.given.iter().find_map(|(first, last)| taken.first_gap(Range::between(self.family, first, last)))
    }
}

fn range(field: &'static str, text: &str) -> Result<Range, PrefixError> {
    if text.contains('/') {
        let net: IpNet = text
            .trim()
            .parse()
            .map_err(|_| PrefixError::Range { field, cause: RangeError::Malformed(text.to_owned()) })?;
        without_host_bits(field, text, net)?;
    }
    text.parse().map_err(|cause| PrefixError::Range { field, cause })
}

fn inside(field: &'static str, text: &str, subnet: IpNet) -> Result<Range, PrefixError> {
    let range = range(field, text)?;
    let whole = Range::from(subnet);
    if whole.contains(range.first_address()) && whole.contains(range.last_address()) {
        return Ok(range);
    }
    Err(PrefixError::Outside { field, range: text.to_owned(), subnet })
}

fn without_host_bits(field: &'static str, written: &str, net: IpNet) -> Result<(), PrefixError> {
    let instead = net.trunc();
    if instead == net { Ok(()) } else { Err(PrefixError::HostBits { field, written: written.to_owned(), instead }) }
}

/// Addresses that mean the subnet itself.
fn never_given(subnet: IpNet) -> Vec<IpAddr> {
    match subnet {
        IpNet::V4(net) if net.prefix_len() < 31 => vec![net.network().into(), net.broadcast().into()],
        // the anycast address of the subnet's routers
        IpNet::V6(net) if net.prefix_len() < 127 => vec![net.network().into()],
        IpNet::V4(_) | IpNet::V6(_) => Vec::new(),
    }
}

/// The prefixes that share an address with an older one, each with that older one. Prefixes come oldest first; one
/// that overlaps gives nothing, so it is in nobody's way.
pub fn overlaps<'a>(
    oldest_first: impl IntoIterator<Item = (&'a Arc<str>, &'a Prefix)>,
) -> BTreeMap<Arc<str>, Arc<str>> {
    let mut standing: Vec<(&Arc<str>, AddressSet)> = Vec::new();
    let mut overlaps = BTreeMap::new();
    for (name, prefix) in oldest_first {
        let shares = |(_, set): &&(&Arc<str>, AddressSet)| prefix.pools.iter().any(|pool| set.intersects(*pool));
        match standing.iter().find(shares) {
            Some((older, _)) => drop(overlaps.insert(Arc::clone(name), Arc::clone(older))),
            None => standing.push((name, prefix.pools.iter().copied().collect())),
        }
    }
    overlaps
}

/// Accounts that may use a prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fence(pub Option<BTreeSet<Arc<str>>>);

impl Fence {
    /// True if the account may use it; without a fence all may.
    pub fn admits(&self, account: &str) -> bool {
        self.0.as_ref().is_none_or(|accounts| accounts.contains(account))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefix(subnet: &str, pool: &str) -> Prefix {
        Prefix::parse(PrefixText { subnet, pool, ..PrefixText::default() }).unwrap()
    }

    fn error(text: PrefixText<'_>) -> String {
        Prefix::parse(text).unwrap_err().to_string()
    }

    fn at(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn network_broadcast_gateway_not_given() {
        let text =
            PrefixText { subnet: "192.0.2.0/29", pool: "192.0.2.0/29", gateway: "192.0.2.1", ..PrefixText::default() };
        let reserved = ["192.0.2.4".to_owned()];
        let prefix = Prefix::parse(PrefixText { reserved: &reserved, ..text }).unwrap();
        let given: Vec<u8> = (0..=7).filter(|n| prefix.contains(at(&format!("192.0.2.{n}")))).collect();
        assert_eq!(given, [2, 3, 5, 6]);
        assert_eq!(prefix.capacity(), 4);
        assert_eq!(prefix_capacity("192.0.2.0/31"), 2);
        assert_eq!(prefix_capacity("2001:db8::/126"), 3);
        assert_eq!(prefix_capacity("2001:db8::/127"), 2);
    }

    fn prefix_capacity(subnet: &str) -> u128 {
        prefix(subnet, subnet).capacity()
    }

    #[test]
    fn host_bits_and_reversed_range_refused() {
        let text = |subnet, pool| PrefixText { subnet, pool, ..PrefixText::default() };
        assert_eq!(
            error(text("192.0.2.1/24", "192.0.2.0/28")),
            "spec.subnet: `192.0.2.1/24` has host bits: write 192.0.2.0/24"
        );
        assert_eq!(
            error(text("192.0.2.0/24", "192.0.2.9/28")),
            "spec.pool: `192.0.2.9/28` has host bits: write 192.0.2.0/28"
        );
        assert!(error(text("192.0.2.0/24", "192.0.2.9 - 192.0.2.3")).contains("write 192.0.2.3-192.0.2.9"));
        assert!(error(text("192.0.2.0/24", "192.0.2.250-192.0.3.3")).contains("not inside the subnet 192.0.2.0/24"));
        assert!(error(text("192.0.2.0", "192.0.2.9")).contains("write it like 192.0.2.0/24"));
        let outside = PrefixText { gateway: "192.0.3.1", ..text("192.0.2.0/24", "192.0.2.9") };
        assert!(error(outside).starts_with("spec.gateway: `192.0.3.1` is not inside"));
    }

    #[test]
    fn slash64_is_instant() {
        let prefix = prefix("2001:db8::/64", "2001:db8::/64");
        assert_eq!(prefix.capacity(), (1 << 64) - 1);
        let mut taken = AddressSet::default();
        for expected in 1..=10_000u128 {
            let free = prefix.lowest_free(&taken).unwrap();
            assert_eq!(number(free) & 0xffff, expected);
            taken.insert(free.into());
        }
    }

    #[test]
    fn contained_pool_overlaps() {
        let prefixes: Vec<(Arc<str>, Prefix)> = [
            ("old", "10.0.0.0/16", "10.0.0.0/24"),
            ("inside", "10.0.0.0/16", "10.0.0.8-10.0.0.9"),
            ("apart", "10.0.0.0/16", "10.0.1.0/24"),
            ("around", "10.0.0.0/16", "10.0.0.0/16"),
            ("of-the-inner-one-only", "10.0.0.0/16", "10.0.2.0/24"),
        ]
        .map(|(name, subnet, pool)| (name.into(), prefix(subnet, pool)))
        .into();
        let overlaps = overlaps(prefixes.iter().map(|(name, prefix)| (name, prefix)));
        let found: Vec<(&str, &str)> = overlaps.iter().map(|(name, older)| (&**name, &**older)).collect();
        assert_eq!(found, [("around", "old"), ("inside", "old")]);
    }

    #[test]
    fn a_fence_admits_its_accounts_and_no_fence_admits_all() {
        assert!(Fence(None).admits("any"));
        let fence = Fence(Some(BTreeSet::from(["acme".into()])));
        assert!(fence.admits("acme") && !fence.admits("acm"));
        assert!(!Fence(Some(BTreeSet::new())).admits("acme"));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn addresses_are_given_as_from_a_plain_list(
            pool in (0u8..250, 0u8..20), extra in (0u8..250, 0u8..20), reserved in (0u8..250, 0u8..20),
            gateway in 0u8..=255, taken in prop::collection::btree_set(any::<u8>(), 0..80),
        ) {
            let range = |(first, length): (u8, u8)| format!("10.1.1.{first}-10.1.1.{}", first.saturating_add(length));
            let covers = |(first, length): (u8, u8), n: u8| (first..=first.saturating_add(length)).contains(&n);
            let (extra_text, reserved_text) = ([range(extra)], [range(reserved)]);
            let text = PrefixText {
                subnet: "10.1.1.0/24",
                pool: &range(pool),
                gateway: &format!("10.1.1.{gateway}"),
                extra_pools: &extra_text,
                reserved: &reserved_text,
            };
            let prefix = Prefix::parse(text).unwrap();
            let given = |n: &u8| (covers(pool, *n) || covers(extra, *n)) && !covers(reserved, *n)
                && *n != gateway && *n != 0 && *n != 255;
            let plain: Vec<u8> = (0..=255).filter(given).collect();
            prop_assert_eq!(prefix.capacity(), plain.len() as u128);
            let mut used: AddressSet = taken.iter().map(|n| Range::from(at(&format!("10.1.1.{n}")))).collect();
            for n in plain.iter().filter(|n| !taken.contains(n)) {
                let free = prefix.lowest_free(&used);
                prop_assert_eq!(free, Some(at(&format!("10.1.1.{n}"))));
                used.insert(at(&format!("10.1.1.{n}")).into());
            }
            prop_assert_eq!(prefix.lowest_free(&used), None);
        }
    }
}
