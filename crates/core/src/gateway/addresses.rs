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
mod tests;
