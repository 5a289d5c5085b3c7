//! Which public address each load balancer gets, from the pool of its group's prefix.
//!
//! An address is claimed before a load balancer carries it, so that a crash between the two leaks nothing: a claim whose
//! holder does not exist is released. Load balancers that carry an address already claim first.

use std::borrow::Cow;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::ports::{PortNumber, in_common};
use super::prefix::{Fence, Prefix};
use crate::net::AddressSet;

/// Milliseconds since the Unix epoch.
pub type Moment = u64;

/// A prefix, as load balancers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// Its addresses. None if it cannot be used: then it gives none, and who has one keeps it.
    pub prefix: Option<Prefix>,
    /// Accounts that may use it.
    pub fence: Fence,
}

/// A load balancer that has an address or needs one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Uid of the LoadBalancer.
    pub uid: Arc<str>,
    /// Its account.
    pub account: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// The prefix of its group. None if the group or the prefix does not exist.
    pub pool: Option<Arc<str>>,
    /// The address that it carries or asks for.
    pub address: Option<IpAddr>,
    /// It was given the address by us: it keeps it whatever becomes of the pool.
    pub is_allocated: bool,
    /// Load balancers of an account with the same key may share an address.
    pub sharing_key: Option<Arc<str>>,
    /// Its public ports.
    pub ports: BTreeSet<PortNumber>,
}

/// A claim, as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Claim {
    /// The prefix that the address is of.
    pub pool: Arc<str>,
    /// Who may join.
    pub sharing_key: Option<Arc<str>>,
    /// Who has it, by uid.
    pub holders: BTreeMap<Arc<str>, Holding>,
    /// When the last holder went.
    pub released_at: Option<Moment>,
}

/// What one load balancer has of an address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holding {
    /// Its account.
    pub account: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its ports.
    pub ports: BTreeSet<PortNumber>,
}

/// Everything that addresses are decided from.
#[derive(Debug, Clone, Default)]
pub struct Addresses<'a> {
    /// Prefixes by name.
    pub pools: BTreeMap<Arc<str>, Pool>,
    /// Load balancers that are not being deleted, oldest first.
    pub requests: Vec<Request>,
    /// Claims of this capability.
    pub claims: Cow<'a, BTreeMap<IpAddr, Claim>>,
    /// Addresses that have another use.
    pub other_use: Cow<'a, BTreeSet<IpAddr>>,
    /// Distinct addresses that each account may have.
    pub quota: BTreeMap<Arc<str>, u32>,
    /// When this was observed.
    pub now: Moment,
    /// A released address is given again after this many milliseconds.
    pub quarantine: u64,
}

/// What is decided about addresses.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Decided {
    /// The claims as they should be; those that are not here are deleted.
    pub claims: BTreeMap<IpAddr, Claim>,
    /// Load balancers whose claim stands, by uid: they can carry the address.
    pub held: BTreeMap<Arc<str>, IpAddr>,
    /// Load balancers that get none, by uid.
    pub unmet: BTreeMap<Arc<str>, Unmet>,
    /// Load balancers that keep an address which they would not be given any more, by uid.
    pub outside: BTreeMap<Arc<str>, Outside>,
    /// When a released address comes free.
    pub next: Option<Moment>,
}

/// Why a load balancer gets no address.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the messages say what each of them means")]
pub enum Unmet {
    PrefixMissing,
    PrefixNotAllowed {
        pool: Arc<str>,
    },
    AddressNotAllowed {
        address: IpAddr,
        pool: Arc<str>,
    },
    /// The holder is named to its own account only.
    AddressInUse {
        address: IpAddr,
        holder: Option<Arc<str>>,
    },
    PoolExhausted {
        pool: Arc<str>,
        capacity: u128,
        in_use: usize,
        quarantined: usize,
    },
    QuotaExceeded {
        limit: u32,
    },
}

impl Unmet {
    /// The bounded word for conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::PrefixMissing => "PrefixMissing",
            Self::PrefixNotAllowed { .. } => "PrefixNotAllowed",
            Self::AddressNotAllowed { .. } => "AddressNotAllowed",
            Self::AddressInUse { .. } => "AddressInUse",
            Self::PoolExhausted { .. } => "PoolExhausted",
            Self::QuotaExceeded { .. } => "QuotaExceeded",
        }
    }
}

impl std::fmt::Display for Unmet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::PrefixMissing => f.write_str(
                "the ServicePrefix of its group does not exist: create it, or name another one in the group",
            ),
            Self::PrefixNotAllowed { pool } => {
                write!(
                    f,
                    "the account may not use ServicePrefix `{pool}`: its owner must add the account to spec.accounts"
                )
            }
            Self::AddressNotAllowed { address, pool } => {
                write!(f, "{address} is not an address of pool `{pool}`: ask for another one, or leave it empty")
            }
            Self::AddressInUse { address, holder: Some(holder) } => write!(
                f,
                "{address} is held by load balancer `{holder}`: delete that one, or share it by an equal sharing-key and different ports"
            ),
            Self::AddressInUse { address, holder: None } => {
                write!(f, "{address} is in use: ask for another one, or leave it empty")
            }
            Self::PoolExhausted { pool, capacity, in_use, quarantined } => write!(
                f,
                "pool `{pool}` has no free address ({in_use} of {capacity} in use, {quarantined} in quarantine): add a range or delete a load balancer"
            ),
            Self::QuotaExceeded { limit } => write!(
                f,
                "the account has all {limit} addresses that it may have: delete a load balancer, or ask for a higher limit"
            ),
        }
    }
}

/// Why an address that is kept would not be given any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the variants say it")]
pub enum Outside {
    OutsidePool,
    PrefixMissing,
    PrefixNotAllowed,
}

/// Decides about all addresses.
pub fn assign(addresses: &Addresses<'_>) -> Decided {
    let (carried, asked): (Vec<_>, Vec<_>) = addresses.requests.iter().partition(|request| request.is_allocated);
    let mut round = Round::new(addresses, !asked.is_empty());
    for request in carried {
        round.keep(request);
    }
    for request in &asked {
        // whoever is in a claim already was decided about before a crash
        round.rejoin(request);
    }
    // whoever names an address comes first: it may have lost its claim, and must not find the address given away
    let (naming, others): (Vec<_>, Vec<_>) = asked.into_iter().partition(|request| request.address.is_some());
    for request in naming.into_iter().chain(others) {
        if let Err(unmet) = round.serve(request) {
            round.decided.unmet.insert(Arc::clone(&request.uid), unmet);
        }
    }
    round.release();
    round.decided
}

struct Round<'a> {
    addresses: &'a Addresses<'a>,
    decided: Decided,
    /// Every address that is not free.
    taken: AddressSet,
    by_account: BTreeMap<&'a str, BTreeSet<IpAddr>>,
    /// The first claim that names each holder.
    by_holder: BTreeMap<&'a str, IpAddr>,
    /// Addresses by account and sharing key.
    shared: BTreeMap<(&'a str, &'a str), BTreeSet<IpAddr>>,
    /// Pools without a free address.
    exhausted: BTreeMap<&'a str, Unmet>,
}

impl<'a> Round<'a> {
    fn new(addresses: &'a Addresses<'a>, is_asked: bool) -> Self {
        let used = addresses.claims.keys().chain(&*addresses.other_use);
        let taken = used.map(|address| (*address).into()).collect();
        let mut by_holder = BTreeMap::new();
        // whoever carries its address is found by that
        let claims = addresses.claims.iter().filter(|_| is_asked);
        for (address, claim) in claims {
            for uid in claim.holders.keys() {
                by_holder.entry(&**uid).or_insert(*address);
            }
        }
        Self {
            addresses,
            decided: Decided::default(),
            taken,
            by_account: BTreeMap::new(),
            by_holder,
            shared: BTreeMap::new(),
            exhausted: BTreeMap::new(),
        }
    }

    /// A load balancer that carries an address has it, unless an older one does.
    fn keep(&mut self, request: &'a Request) {
        let Some(address) = request.address else { return };
        if let Err(unmet) = self.join(request, address, Ask::Carried) {
            self.decided.unmet.insert(Arc::clone(&request.uid), unmet);
            return;
        }
        let pool = request.pool.as_ref().and_then(|name| self.addresses.pools.get(name));
        let outside = match pool {
            None => Some(Outside::PrefixMissing),
            Some(pool) if !pool.fence.admits(&request.account) => Some(Outside::PrefixNotAllowed),
            Some(Pool { prefix: Some(prefix), .. }) if prefix.contains(address) => None,
            Some(_) => Some(Outside::OutsidePool),
        };
        if let Some(outside) = outside {
            self.decided.outside.insert(Arc::clone(&request.uid), outside);
        }
    }

    /// A claim that names a load balancer which does not carry the address yet.
    fn rejoin(&mut self, request: &'a Request) {
        let wanted = |address: &IpAddr| request.address.is_none_or(|asked| asked == *address);
        if let Some(address) = self.by_holder.get(&*request.uid).copied().filter(wanted) {
            // if that is no longer possible, it is served as if it were new
            self.join(request, address, Ask::Carried).ok();
        }
    }

    fn serve(&mut self, request: &'a Request) -> Result<(), Unmet> {
        if self.decided.held.contains_key(&request.uid) {
            return Ok(());
        }
        let name = request.pool.as_ref().ok_or(Unmet::PrefixMissing)?;
        let pool = self.addresses.pools.get(name).ok_or(Unmet::PrefixMissing)?;
        if !pool.fence.admits(&request.account) {
            return Err(Unmet::PrefixNotAllowed { pool: Arc::clone(name) });
        }
        if let Some(address) = request.address {
            if !pool.prefix.as_ref().is_some_and(|prefix| prefix.contains(address)) {
                return Err(Unmet::AddressNotAllowed { address, pool: Arc::clone(name) });
            }
            return self.join(request, address, Ask::New);
        }
        if let Some(shared) = self.shareable(request, name) {
            return self.join(request, shared, Ask::New);
        }
        if let Some(exhausted) = self.exhausted.get(&**name) {
            return Err(exhausted.clone());
        }
        let free = pool.prefix.as_ref().and_then(|prefix| prefix.lowest_free(&self.taken));
        let Some(address) = free else {
            let exhausted = self.exhausted(name, pool);
            self.exhausted.insert(name, exhausted.clone());
            return Err(exhausted);
        };
        self.join(request, address, Ask::New)
    }

    /// An address with the same sharing key of the same account and prefix whose ports leave room.
    fn shareable(&self, request: &Request, pool: &Arc<str>) -> Option<IpAddr> {
        let addresses = self.shared.get(&(&*request.account, &**request.sharing_key.as_ref()?))?;
        let fits = |claim: &Claim| claim.pool == *pool && obstacle(claim, request).is_none();
        addresses.iter().find(|address| self.decided.claims.get(address).is_some_and(fits)).copied()
    }

    fn join(&mut self, request: &'a Request, address: IpAddr, ask: Ask) -> Result<(), Unmet> {
        let Request { uid, account, name, pool, sharing_key, ports, .. } = request;
        let in_use = |holder| Unmet::AddressInUse { address, holder };
        if self.addresses.other_use.contains(&address) {
            return Err(in_use(None));
        }
        let seen = self.addresses.claims.get(&address);
        let entry = self.decided.claims.entry(address);
        if let Entry::Occupied(claim) = &entry {
            if let Some(holder) = obstacle(claim.get(), request) {
                return Err(in_use((holder.account == *account).then(|| Arc::clone(&holder.name))));
            }
        } else if ask == Ask::New && seen.is_some_and(|claim| !claim.holders.contains_key(uid)) {
            // released a short time ago, or of a holder that is going
            return Err(in_use(None));
        }
        let of_account = self.by_account.entry(account).or_default();
        let limit = self.addresses.quota.get(account).copied().unwrap_or(u32::MAX);
        let has = u32::try_from(of_account.len()).unwrap_or(u32::MAX);
        if ask == Ask::New && has >= limit && !of_account.contains(&address) {
            return Err(Unmet::QuotaExceeded { limit });
        }
        of_account.insert(address);
        if seen.is_none() {
            self.taken.insert(address.into());
        }
        let claim = entry.or_insert_with(|| Claim {
            pool: seen.map(|claim| Arc::clone(&claim.pool)).or_else(|| pool.clone()).unwrap_or_default(),
            sharing_key: sharing_key.clone(),
            ..Claim::default()
        });
        let holding = Holding { account: Arc::clone(account), name: Arc::clone(name), ports: ports.clone() };
        claim.holders.insert(Arc::clone(uid), holding);
        if let Some(key) = sharing_key {
            self.shared.entry((account, key)).or_default().insert(address);
        }
        if seen.is_some_and(|claim| claim.holders.contains_key(uid)) {
            self.decided.held.insert(Arc::clone(uid), address);
        }
        Ok(())
    }

    fn exhausted(&self, name: &Arc<str>, pool: &Pool) -> Unmet {
        let capacity = pool.prefix.as_ref().map_or(0, Prefix::capacity);
        let of_pool = |address: &&IpAddr| pool.prefix.as_ref().is_some_and(|prefix| prefix.contains(**address));
        let in_use = self.decided.claims.keys().filter(of_pool).count();
        let claimed = self.addresses.claims.keys().filter(of_pool);
        let quarantined = claimed.filter(|address| !self.decided.claims.contains_key(address)).count();
        Unmet::PoolExhausted { pool: Arc::clone(name), capacity, in_use, quarantined }
    }

    /// Claims that nobody has any more stay until their quarantine is over.
    fn release(&mut self) {
        let Addresses { claims, now, quarantine, .. } = self.addresses;
        for (address, claim) in &**claims {
            let Entry::Vacant(vacant) = self.decided.claims.entry(*address) else { continue };
            let released = claim.released_at.unwrap_or(*now);
            let until = released.saturating_add(*quarantine);
            if claim.released_at.is_some() && until <= *now {
                continue;
            }
            let Claim { pool, sharing_key, .. } = claim;
            let left = Claim {
                pool: Arc::clone(pool),
                sharing_key: sharing_key.clone(),
                holders: BTreeMap::new(),
                released_at: Some(released),
            };
            vacant.insert(left);
            self.decided.next = Some(self.decided.next.map_or(until, |next| next.min(until)));
        }
    }
}

/// Whether a load balancer carries an address already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    Carried,
    New,
}

/// The holder that keeps a load balancer from joining a claim.
fn obstacle<'a>(claim: &'a Claim, request: &Request) -> Option<&'a Holding> {
    let Request { uid, account, sharing_key, ports, .. } = request;
    let shares = sharing_key.is_some() && claim.sharing_key == *sharing_key;
    let stands_in_the_way =
        |holder: &&Holding| !shares || holder.account != *account || in_common(&holder.ports, ports).is_some();
    claim.holders.iter().filter(|(holder, _)| *holder != uid).map(|(_, holding)| holding).find(stands_in_the_way)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::ports::Protocol;
    use super::super::prefix::PrefixText;
    use super::*;

    fn at(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn pool(range: &str) -> Pool {
        let text = PrefixText { subnet: "192.0.2.0/24", pool: range, ..PrefixText::default() };
        Pool { prefix: Some(Prefix::parse(text).unwrap()), fence: Fence(None) }
    }

    fn world(range: &str) -> Addresses<'static> {
        Addresses {
            pools: BTreeMap::from([("default".into(), pool(range))]),
            now: 1_000_000,
            quarantine: 60_000,
            ..Addresses::default()
        }
    }

    fn request(account: &str, name: &str) -> Request {
        Request {
            uid: format!("{account}/{name}").into(),
            account: account.into(),
            name: name.into(),
            pool: Some("default".into()),
            address: None,
            is_allocated: false,
            sharing_key: None,
            ports: ports(&[80]),
        }
    }

    fn ports(numbers: &[u16]) -> BTreeSet<PortNumber> {
        numbers.iter().map(|port| PortNumber { protocol: Protocol::Tcp, port: *port }).collect()
    }

    fn sharing(mut request: Request, numbers: &[u16]) -> Request {
        request.sharing_key = Some("one".into());
        request.ports = ports(numbers);
        request
    }

    /// Decides until nothing changes: claims are written, then load balancers carry their addresses.
    fn settle(world: &mut Addresses<'_>) -> Decided {
        for _ in 0..3 {
            let decided = assign(world);
            world.claims = Cow::Owned(decided.claims.clone());
            for request in &mut world.requests {
                if let Some(address) = decided.held.get(&request.uid) {
                    (request.address, request.is_allocated) = (Some(*address), true);
                }
            }
        }
        assign(world)
    }

    fn reason(decided: &Decided, uid: &str) -> &'static str {
        decided.unmet.get(uid).map_or("none", Unmet::reason)
    }

    #[test]
    fn an_address_is_claimed_first_and_carried_once_the_claim_is_written() {
        let mut world = world("192.0.2.10-192.0.2.12");
        world.requests = vec![request("a", "web")];
        let first = assign(&world);
        assert!(first.held.is_empty() && first.claims.contains_key(&at(10)));
        world.claims = Cow::Owned(first.claims.clone());
        let second = assign(&world);
        assert_eq!(second.held.get("a/web"), Some(&at(10)), "also if we crashed before it was carried");
        assert_eq!(second.claims, first.claims);
    }

    #[test]
    fn same_name_two_accounts_two_addresses() {
        let mut world = world("192.0.2.10-192.0.2.12");
        world.requests = vec![request("a", "web"), request("b", "web")];
        let decided = settle(&mut world);
        assert_eq!(decided.held, BTreeMap::from([("a/web".into(), at(10)), ("b/web".into(), at(11))]));
    }

    #[test]
    fn pool_is_the_groups() {
        let mut world = world("192.0.2.10-192.0.2.12");
        world.pools.insert("other".into(), pool("192.0.2.77"));
        world.requests = vec![Request { pool: Some("other".into()), ..request("a", "web") }];
        assert_eq!(settle(&mut world).held.get("a/web"), Some(&at(77)));
    }

    #[test]
    fn address_returns_on_delete() {
        let mut world = world("192.0.2.10");
        world.requests = vec![request("a", "web")];
        settle(&mut world);
        world.requests = vec![request("b", "next")];
        let decided = settle(&mut world);
        assert_eq!(decided.claims[&at(10)].released_at, Some(1_000_000));
        assert_eq!(decided.next, Some(1_060_000));
        let message = decided.unmet["b/next"].to_string();
        assert!(
            message.starts_with("pool `default` has no free address (0 of 1 in use, 1 in quarantine)"),
            "{message}"
        );
        world.now = 1_060_000;
        assert_eq!(settle(&mut world).held.get("b/next"), Some(&at(10)));
    }

    #[test]
    fn release_keeps_other_sharers() {
        let mut world = world("192.0.2.10-192.0.2.12");
        world.requests = vec![sharing(request("a", "web"), &[80]), sharing(request("a", "tls"), &[443])];
        assert_eq!(settle(&mut world).claims[&at(10)].holders.len(), 2);
        world.requests.remove(0);
        let decided = settle(&mut world);
        let left: Vec<&str> = decided.claims[&at(10)].holders.keys().map(|uid| &**uid).collect();
        assert_eq!(left, ["a/tls"]);
        assert_eq!(decided.claims[&at(10)].released_at, None);
    }

    #[test]
    fn an_address_is_shared_within_an_account_and_by_different_ports_only() {
        let mut world = world("192.0.2.10-192.0.2.20");
        world.requests = vec![
            sharing(request("a", "first"), &[80]),
            sharing(request("a", "same-port"), &[80, 81]),
            sharing(request("b", "other-account"), &[443]),
            request("a", "without-key"),
        ];
        let decided = settle(&mut world);
        let addresses: BTreeSet<&IpAddr> = decided.held.values().collect();
        assert_eq!(addresses.len(), 4, "{:?}", decided.held);
    }

    #[test]
    fn an_address_that_is_asked_for_must_be_of_the_pool_and_free() {
        let mut world = world("192.0.2.10-192.0.2.12");
        let asks = |account, name, last| Request { address: Some(at(last)), ..request(account, name) };
        world.other_use.to_mut().insert(at(12));
        world.requests = vec![
            asks("a", "fits", 11),
            asks("b", "foreign", 11),
            asks("a", "own", 11),
            asks("a", "outside", 99),
            asks("a", "egress", 12),
        ];
        let decided = settle(&mut world);
        assert_eq!(decided.held, BTreeMap::from([("a/fits".into(), at(11))]));
        assert!(!decided.unmet["b/foreign"].to_string().contains("fits"), "the holder is another tenant's");
        assert!(decided.unmet["a/own"].to_string().contains("`fits`"));
        assert_eq!(reason(&decided, "a/outside"), "AddressNotAllowed");
        assert_eq!(reason(&decided, "a/egress"), "AddressInUse");
    }

    #[test]
    fn who_has_an_address_keeps_it_when_its_pool_shrinks_is_fenced_or_goes() {
        let mut world = world("192.0.2.10-192.0.2.12");
        world.requests = vec![request("a", "web")];
        settle(&mut world);
        let changed: [(&str, Option<Pool>, Outside); 3] = [
            ("shrinks", Some(pool("192.0.2.12")), Outside::OutsidePool),
            (
                "is fenced",
                Some(Pool { fence: Fence(Some(BTreeSet::new())), ..pool("192.0.2.10") }),
                Outside::PrefixNotAllowed,
            ),
            ("goes", None, Outside::PrefixMissing),
        ];
        for (what, pool, outside) in changed {
            let mut world = world.clone();
            world.pools = pool.map(|pool| ("default".into(), pool)).into_iter().collect();
            let decided = settle(&mut world);
            assert_eq!(decided.held.get("a/web"), Some(&at(10)), "{what}");
            assert_eq!(decided.outside.get("a/web"), Some(&outside), "{what}");
            world.requests = vec![request("a", "next")];
            assert_ne!(settle(&mut world).held.get("a/next"), Some(&at(10)), "{what}");
        }
    }

    #[test]
    fn quota_checked_before_taking() {
        let mut world = world("192.0.2.10-192.0.2.20");
        world.quota.insert("a".into(), 1);
        world.requests =
            vec![sharing(request("a", "one"), &[80]), request("a", "two"), sharing(request("a", "three"), &[443])];
        let decided = settle(&mut world);
        assert_eq!(decided.claims.len(), 1, "nothing is claimed for it");
        assert_eq!(reason(&decided, "a/two"), "QuotaExceeded");
        assert_eq!(decided.held.get("a/three"), Some(&at(10)), "a shared address counts once");
    }

    #[test]
    fn a_claim_that_was_deleted_by_hand_is_claimed_again_by_its_holder_first() {
        let mut world = world("192.0.2.10-192.0.2.12");
        world.requests = vec![request("a", "web")];
        settle(&mut world);
        world.claims.to_mut().clear();
        world.requests.insert(0, request("b", "older"));
        let decided = settle(&mut world);
        assert_eq!(decided.held, BTreeMap::from([("a/web".into(), at(10)), ("b/older".into(), at(11))]));
    }

    fn worlds() -> impl Strategy<Value = Addresses<'static>> {
        let one = (
            0u8..3,
            0u8..6,
            prop::option::of(9u8..16),
            prop::option::of(0u8..2),
            prop::collection::btree_set(80u16..83, 1..3),
            0u8..4,
        );
        let rest = (prop::collection::btree_set(9u8..16, 0..3), 0u32..4, 0u64..100);
        (prop::collection::vec(one, 0..10), rest).prop_map(|(requests, (other_use, quota, age))| {
            let mut world = world("192.0.2.10-192.0.2.14");
            world.quota.insert("a0".into(), quota);
            world.other_use = Cow::Owned(other_use.into_iter().map(at).collect());
            for (number, (account, pool, address, key, ports, state)) in requests.into_iter().enumerate() {
                let mut request = request(&format!("a{account}"), &format!("lb{number}"));
                request.pool = (pool > 0).then(|| "default".into());
                request.address = address.map(at);
                request.sharing_key = key.map(|key| format!("key{key}").into());
                request.ports = ports.into_iter().map(|port| PortNumber { protocol: Protocol::Tcp, port }).collect();
                request.is_allocated = state == 0 && request.address.is_some();
                // some claims name load balancers that do not carry the address, or do not exist
                if let Some(address) = request.address.filter(|address| state < 3 && !world.other_use.contains(address))
                {
                    let holding = Holding {
                        account: Arc::clone(&request.account),
                        name: Arc::clone(&request.name),
                        ports: request.ports.clone(),
                    };
                    let claim = world.claims.to_mut().entry(address).or_insert_with(|| Claim {
                        pool: "default".into(),
                        sharing_key: request.sharing_key.clone(),
                        released_at: (state == 2).then_some(1_000_000 - age * 1_000),
                        ..Claim::default()
                    });
                    if claim.released_at.is_none() && obstacle(claim, &request).is_none() {
                        claim.holders.insert(Arc::clone(&request.uid), holding);
                    }
                    if state == 1 {
                        continue;
                    }
                }
                world.requests.push(request);
            }
            world
        })
    }

    fn holders_are_compatible(decided: &Decided) -> bool {
        decided.claims.values().all(|claim| {
            let holders: Vec<&Holding> = claim.holders.values().collect();
            holders.iter().enumerate().all(|(place, holder)| {
                holders[..place].iter().all(|other| {
                    claim.sharing_key.is_some()
                        && holder.account == other.account
                        && in_common(&holder.ports, &other.ports).is_none()
                })
            })
        })
    }

    fn everyone_is_answered(world: &Addresses<'_>, decided: &Decided) -> bool {
        let has = |uid: &Arc<str>| decided.claims.values().filter(|claim| claim.holders.contains_key(uid)).count();
        world.requests.iter().all(|request| has(&request.uid) == usize::from(!decided.unmet.contains_key(&request.uid)))
    }

    fn claims_have_an_end(world: &Addresses<'_>, decided: &Decided) -> bool {
        let lives = |uid: &Arc<str>| world.requests.iter().any(|request| request.uid == *uid);
        decided
            .claims
            .values()
            .all(|claim| claim.holders.keys().all(lives) && claim.holders.is_empty() == claim.released_at.is_some())
    }

    fn other_uses_are_left_alone(world: &Addresses<'_>, decided: &Decided) -> bool {
        decided.claims.keys().all(|address| !world.other_use.contains(address))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn every_decision_keeps_every_law(mut world in worlds()) {
            let decided = assign(&world);
            for (law, holds) in [
                ("holders of an address share it rightly", holders_are_compatible(&decided)),
                ("everyone has one address or a reason", everyone_is_answered(&world, &decided)),
                ("no claim outlives its holders but for its quarantine", claims_have_an_end(&world, &decided)),
                ("addresses with another use are left alone", other_uses_are_left_alone(&world, &decided)),
            ] {
                prop_assert!(holds, "broken: {law}\n{world:#?}\n{decided:#?}");
            }
            let settled = settle(&mut world);
            prop_assert_eq!(&settled.claims, &*world.claims, "what is settled stays");
            prop_assert_eq!(settled.held.len() + settled.unmet.len(), world.requests.len());
        }
    }
}
