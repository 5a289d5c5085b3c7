//! Load balancers: their keys and their addresses.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::super::addresses::{Addresses, Decided, Pool, Request, assign};
use super::super::keys::{GueKey, KeySpace};
use super::super::problem::Problem;
use super::super::quarantine::Space;
use super::super::reserve::{Child, Holder, Reservations, reserve};
use super::super::types::{Account, LoadBalancer, ObjectName, World, account_of};
use super::accounts::{self, Accounts};
use super::deletion;
use super::order::oldest_first;

/// What is decided about load balancers.
pub(super) struct Services<'a> {
    /// Oldest first.
    pub(super) all: Vec<Service<'a>>,
    /// Positions in `all`, in the order of names.
    pub(super) by_name: Vec<(&'a ObjectName, usize)>,
    pub(super) by_account: BTreeMap<Arc<str>, AccountServices>,
    pub(super) addresses: Decided,
    pub(super) live: BTreeMap<Space, BTreeSet<u32>>,
}

/// The load balancers of one account.
#[derive(Default)]
pub(super) struct AccountServices {
    /// How many there are.
    pub(super) count: usize,
    /// None if the account hands out no keys.
    pub(super) reservations: Option<Reservations>,
}

/// One load balancer.
pub(super) struct Service<'a> {
    pub(super) name: &'a ObjectName,
    pub(super) object: &'a LoadBalancer,
    pub(super) account: Option<(&'a Arc<str>, &'a Account)>,
    pub(super) refused: Option<Problem>,
    pub(super) unresolved: Option<Problem>,
    pub(super) unallocated: Option<Problem>,
    /// The prefix that its group names, if that exists.
    pub(super) pool: Option<Arc<str>>,
    pub(super) image: Arc<str>,
    /// For whom its numbers are.
    pub(super) holder: Holder,
    /// The key that is reserved for it.
    pub(super) granted: Option<u16>,
    /// The address that it carries and has a claim for.
    pub(super) held: Option<IpAddr>,
    /// Its Envoy has let go of it, or it was never there.
    pub(super) is_released: bool,
}

impl Service<'_> {
    /// True if it is valid, has a key and is not being deleted.
    pub(super) fn is_served(&self) -> bool {
        self.refused.is_none() && self.object.key.is_some() && !self.object.identity.is_terminating()
    }
}

pub(super) fn services<'a>(world: &'a World, accounts: &Accounts, pools: BTreeMap<Arc<str>, Pool>) -> Services<'a> {
    let sorted = oldest_first(&world.load_balancers, |object| &object.identity);
    let mut by_name: Vec<_> = world.load_balancers.keys().map(|name| (name, 0)).collect();
    for (position, (place, ..)) in sorted.iter().enumerate() {
        by_name[*place].1 = position;
    }
    let mut all: Vec<Service<'a>> =
        sorted.into_iter().map(|(_, name, object)| judged(world, accounts, &pools, name, object)).collect();
    let mut by_account: BTreeMap<Arc<str>, AccountServices> = BTreeMap::new();
    let mut live = BTreeMap::new();
    let mut members: BTreeMap<&'a Arc<str>, Vec<usize>> = BTreeMap::new();
    for (position, service) in all.iter().enumerate() {
        if let Some((name, _)) = service.account {
            members.entry(name).or_default().push(position);
        }
    }
    for (name, account) in &world.accounts {
        let positions = members.remove(name).unwrap_or_default();
        let numbers = keys(world, accounts, (name, account), &mut all, &positions);
        live.insert(Space::Services(Arc::clone(&account.identity.uid)), numbers.1);
        by_account.insert(Arc::clone(name), AccountServices { count: positions.len(), reservations: numbers.0 });
    }
    let addresses = assign(&addresses(world, pools, &all));
    for service in &mut all {
        let held = addresses.held.get(&service.object.identity.uid).copied();
        service.held = held.filter(|held| service.object.address == Some(*held));
        if !addresses.unmet.is_empty() && service.refused.is_none() && service.unallocated.is_none() {
            let unmet = addresses.unmet.get(&service.object.identity.uid);
            service.unallocated = unmet.map(|unmet| Problem::Address(Box::new(unmet.clone())));
        }
    }
    Services { all, by_name, by_account, addresses, live }
}

fn judged<'a>(
    world: &'a World,
    accounts: &Accounts,
    pools: &BTreeMap<Arc<str>, Pool>,
    name: &'a ObjectName,
    object: &'a LoadBalancer,
) -> Service<'a> {
    let account = account_of(&name.namespace).and_then(|account| world.accounts.get_key_value(account));
    let group =
        world.groups.get(&ObjectName { namespace: Arc::clone(&name.namespace), name: Arc::clone(&object.group) });
    let pool = group.map(|group| Arc::clone(&group.prefix)).filter(|prefix| pools.contains_key(prefix));
    let unresolved = match group {
        None => Some(Problem::ServiceGroupNotFound { group: Arc::clone(&object.group) }),
        Some(group) if group.problem.is_some() => Some(Problem::GroupNotReady { group: Arc::clone(&object.group) }),
        Some(group) => match pools.get(&group.prefix) {
            None => Some(Problem::PrefixMissing { prefix: Arc::clone(&group.prefix) }),
            Some(pool) if pool.prefix.is_none() => Some(Problem::PrefixNotReady { prefix: Arc::clone(&group.prefix) }),
            Some(_) => None,
        },
    };
    Service {
        name,
        object,
        account,
        refused: refused(accounts, name, account, object),
        unresolved,
        unallocated: None,
        pool,
        image: group.map(|group| Arc::clone(&group.image)).unwrap_or_default(),
        holder: object.holder(name, None),
        granted: None,
        held: None,
        is_released: deletion::is_released(world, name, object),
    }
}

fn refused(
    accounts: &Accounts,
    name: &ObjectName,
    account: Option<(&Arc<str>, &Account)>,
    object: &LoadBalancer,
) -> Option<Problem> {
    let Some((account_name, account)) = account else {
        return Some(Problem::AccountNotFound { namespace: Arc::clone(&name.namespace) });
    };
    if object.problem.is_some() {
        return object.problem.clone();
    }
    let is_new = object.key.is_none();
    if is_new && account.identity.is_terminating() {
        return Some(Problem::AccountTerminating { account: Arc::clone(account_name) });
    }
    match (account.key, object.key.map(GueKey::split)) {
        (None, _) => Some(Problem::AccountNotReady { account: Arc::clone(account_name) }),
        _ if accounts.problems.contains_key(account_name) => {
            Some(Problem::AccountNotReady { account: Arc::clone(account_name) })
        }
        (Some(of_account), Some(key)) if key.account != of_account || key.service == 0 => {
            let text = format!(
                "spec.gue-key is {}, key {} of account key {}: leave it empty, or use one of account key {of_account}",
                key.pack(),
                key.service,
                key.account
            );
            Some(Problem::Invalid(text.into()))
        }
        (Some(_), _) => None,
    }
}

/// Keys for the load balancers of one account, and those in use.
fn keys(
    world: &World,
    accounts: &Accounts,
    (name, account): (&Arc<str>, &Account),
    all: &mut [Service<'_>],
    members: &[usize],
) -> (Option<Reservations>, BTreeSet<u32>) {
    let carried = |service: &Service<'_>| service.object.key.map(|key| u32::from(GueKey::split(key).service));
    let is_of_account =
        |service: &Service<'_>| service.object.key.is_some_and(|key| Some(GueKey::split(key).account) == account.key);
    let live: BTreeSet<u32> =
        members.iter().map(|at| &all[*at]).filter(|one| is_of_account(one)).filter_map(carried).collect();
    if account.key.is_none() || accounts.problems.contains_key(name) {
        return (None, live);
    }
    let limit = usize::try_from(account.limits.load_balancers).unwrap_or(usize::MAX);
    let mut room = limit.saturating_sub(live.len());
    let waits = |service: &Service<'_>| {
        let Service { object, refused, unresolved, .. } = service;
        object.key.is_none() && refused.is_none() && unresolved.is_none() && !object.identity.is_terminating()
    };
    // reservations that are written already come first: they were within the limit
    let waiting: Vec<usize> = members.iter().copied().filter(|at| waits(&all[*at])).collect();
    let (pending, others): (Vec<usize>, Vec<usize>) =
        waiting.into_iter().partition(|at| account.services.pending.contains_key(&all[*at].holder));
    let mut admitted = BTreeSet::new();
    for at in pending.into_iter().chain(others) {
        if room == 0 {
            let limit = account.limits.load_balancers;
            all[at].unallocated = Some(Problem::Quota { what: "LoadBalancers", limit });
        } else {
            room -= 1;
            admitted.insert(at);
        }
    }
    let takes_part = |at: &usize| is_of_account(&all[*at]) || admitted.contains(at);
    let child = |at: usize| Child { holder: all[at].holder.clone(), number: carried(&all[at]) };
    let children: Vec<Child> = members.iter().copied().filter(takes_part).map(child).collect();
    let space = Space::Services(Arc::clone(&account.identity.uid));
    let numbers = KeySpace::keys(u16::try_from(account.services.counter).unwrap_or(u16::MAX));
    let numbers = world.quarantine.apply(&space, world.now, world.settings.key_quarantine, numbers);
    let reservations = reserve(&account.services, &children, numbers);
    for at in members {
        let service = &mut all[*at];
        let holder = &service.holder;
        service.granted = reservations.granted.get(holder).and_then(|number| u16::try_from(*number).ok());
        if let (Some(older), Some(number)) = (reservations.duplicates.get(holder), service.object.key) {
            service.refused = Some(Problem::DuplicateKey { number, other: Arc::clone(&older.object) });
        } else if reservations.exhausted.contains(holder) {
            let exhausted = accounts::exhausted(world, &space, "keys of the account", u16::MAX.into());
            service.unallocated = Some(exhausted);
        } else if service.object.key.is_none() && service.granted.is_none() && service.unallocated.is_none() {
            service.unallocated = Some(Problem::Pending);
        }
    }
    (Some(reservations), live)
}

fn addresses<'a>(world: &'a World, pools: BTreeMap<Arc<str>, Pool>, all: &[Service<'_>]) -> Addresses<'a> {
    let is_going = |service: &Service<'_>| service.object.identity.is_terminating();
    // only those that are being deleted may hold an address which they do not carry
    let is_any_going = all.iter().any(is_going);
    let claims = world.claims.values().filter(|_| is_any_going);
    let holders: BTreeSet<&str> = claims.flat_map(|claim| claim.holders.keys()).map(|uid| &**uid).collect();
    let request = |service: &Service<'_>| {
        let Service { name, object, refused, unresolved, granted, is_released, .. } = service;
        let uid = &object.identity.uid;
        // only a claim proves that an address was given: a tenant can write anything into its own objects
        let claim = object.address.and_then(|own| world.claims.get(&own));
        let is_allocated = claim.is_some_and(|claim| claim.holders.contains_key(uid));
        let takes_part = if is_going(service) {
            !is_released && holders.contains(&**uid)
        } else {
            refused.is_none() && unresolved.is_none() && (object.key.is_some() || granted.is_some())
        };
        let account = || match service.account {
            Some((account, _)) => Arc::clone(account),
            None => account_of(&name.namespace).unwrap_or_default().into(),
        };
        (takes_part || (is_allocated && !is_released)).then(|| Request {
            uid: Arc::clone(uid),
            account: account(),
            name: Arc::clone(&name.name),
            pool: service.pool.clone(),
            address: object.address,
            is_allocated,
            sharing_key: object.sharing_key.clone(),
            ports: object.ports.iter().map(|port| port.number).collect(),
        })
    };
    Addresses {
        pools,
        requests: all.iter().filter_map(request).collect(),
        claims: Cow::Borrowed(&world.claims),
        other_use: Cow::Borrowed(&world.other_use),
        quota: world.accounts.iter().map(|(name, account)| (Arc::clone(name), account.limits.addresses)).collect(),
        now: world.now,
        quarantine: world.settings.address_quarantine,
    }
}
