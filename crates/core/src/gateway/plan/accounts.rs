//! Accounts: their keys, their namespaces, and how they go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::keys::KeySpace;
use super::super::problem::Problem;
use super::super::quarantine::Space;
use super::super::reserve::{Child, Holder, Reservations, reserve};
use super::super::types::{Account, PROVIDER_NAMESPACE, World};
use super::order::oldest_first;

pub(super) struct Accounts {
    pub(super) reservations: Reservations,
    pub(super) is_urgent: bool,
    pub(super) live: BTreeSet<u32>,
    /// Accounts without a usable key, and why.
    pub(super) problems: BTreeMap<Arc<str>, Problem>,
    /// Keys that are reserved, by account.
    pub(super) granted: BTreeMap<Arc<str>, u16>,
}

fn holder(name: &str, account: &Account) -> Holder {
    let object = format!("{PROVIDER_NAMESPACE}/{name}").into();
    Holder { uid: Arc::clone(&account.identity.uid), object, node: None }
}

pub(super) fn keys(world: &World) -> Accounts {
    let parent = world.egw.as_ref().map(|egw| egw.accounts.clone()).unwrap_or_default();
    let sorted = oldest_first(&world.accounts, |account| &account.identity);
    let waits = |account: &Account| account.problem.is_none() && !account.identity.is_terminating();
    let takes_part = |account: &Account| account.key.is_some() || waits(account);
    let children: Vec<Child> = sorted
        .iter()
        .filter(|(_, _, account)| takes_part(account))
        .map(|(_, name, account)| Child { holder: holder(name, account), number: account.key.map(u32::from) })
        .collect();
    let settings = &world.settings;
    let space = KeySpace::keys(u16::try_from(parent.counter).unwrap_or(u16::MAX));
    let space = world.quarantine.apply(&Space::Accounts, world.now, settings.key_quarantine, space);
    let reservations = reserve(&parent, &children, space);

    let (mut problems, mut granted) = (BTreeMap::new(), BTreeMap::new());
    for (_, name, account) in sorted {
        let holder = holder(name, account);
        if let Some(number) = reservations.granted.get(&holder) {
            granted.insert(Arc::clone(name), u16::try_from(*number).unwrap_or(u16::MAX));
        }
        if let Some(problem) = problem(world, account, &holder, &reservations) {
            problems.insert(Arc::clone(name), problem);
        }
    }
    let live = world.accounts.values().filter_map(|account| account.key).map(u32::from).collect();
    let is_urgent = reservations.is_urgent;
    Accounts { reservations, is_urgent, live, problems, granted }
}

fn problem(world: &World, account: &Account, holder: &Holder, reservations: &Reservations) -> Option<Problem> {
    if account.problem.is_some() {
        return account.problem.clone();
    }
    if let (Some(older), Some(number)) = (reservations.duplicates.get(holder), account.key) {
        return Some(Problem::DuplicateKey { number: number.into(), other: Arc::clone(&older.object) });
    }
    if reservations.exhausted.contains(holder) {
        return Some(exhausted(world, &Space::Accounts, "account keys", u16::MAX.into()));
    }
    account.key.is_none().then_some(Problem::Pending)
}

/// There is no number left.
pub(super) fn exhausted(world: &World, space: &Space, what: &'static str, capacity: u32) -> Problem {
    let free_at = world.quarantine.next_free(space, world.settings.key_quarantine);
    let next = free_at.and_then(|moment| moment.checked_sub(world.now)).map(|left| left.div_ceil(1000));
    Problem::KeysExhausted { what, capacity, next: next.filter(|seconds| *seconds > 0) }
}
