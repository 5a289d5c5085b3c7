//! Plan -> due writes. Each object goes its own way: a failure of one delays no other.

mod accounts;
mod acting;
mod claims;
mod egw;
mod endpoints;
pub(super) mod envoys;
mod load_balancers;
mod misplaced;
mod namespaces;
mod views;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use portolan_core::gateway::{EndpointPlans, ObjectName, Plan};
use portolan_core::net::parse_claim_name;
use tokio::time::Instant;

use self::acting::Acting;
use self::misplaced::Misplaced;
use super::model::Model;
use super::observe::{Cache, Changes};
use super::validate::name_of;
use super::versions::Versions;
use crate::runtime::due::{DueWrites, Pace, WriteQueues};
use crate::runtime::events::Recorder;
use crate::runtime::schedule::Order;
use crate::runtime::store::Key;
use crate::runtime::write::Writer;

/// Everything that is yet to be written in this term.
pub(super) struct Writes {
    namespaces: DueWrites<Arc<str>>,
    egw: DueWrites<()>,
    accounts: DueWrites<Arc<str>>,
    account_status: DueWrites<Arc<str>>,
    claims: DueWrites<IpAddr>,
    load_balancers: DueWrites<ObjectName>,
    load_balancer_status: DueWrites<ObjectName>,
    endpoints: DueWrites<ObjectName>,
    prefixes: DueWrites<Arc<str>>,
    groups: DueWrites<ObjectName>,
    misplaced: DueWrites<Misplaced>,
}

/// Numbers and addresses: a plan that waits for them is made again soon. Two operators that both act, as in the moment in
/// which one takes over, come to the same plan: in the order of names, each write of one would be in the way of the other.
const ALLOCATION: Pace = Pace { budget: Duration::from_millis(200), order: Order::Random, ..Pace::URGENT };
const STATUS: Pace = Pace { order: Order::Random, ..Pace::STATUS };

impl Writes {
    pub(super) fn new(queues: &WriteQueues) -> Self {
        Self {
            namespaces: queues.queue("gateway namespaces", Pace::URGENT),
            egw: queues.queue("gateway egw", ALLOCATION),
            accounts: queues.queue("gateway accounts", ALLOCATION),
            account_status: queues.queue("gateway account status", ALLOCATION),
            claims: queues.queue("gateway claims", ALLOCATION),
            load_balancers: queues.queue("gateway loadbalancers", ALLOCATION),
            load_balancer_status: queues.queue("gateway loadbalancer status", STATUS),
            endpoints: queues.queue("gateway endpoints", STATUS),
            prefixes: queues.queue("gateway serviceprefixes", Pace::VIEW),
            groups: queues.queue("gateway servicegroups", Pace::VIEW),
            misplaced: queues.queue("gateway misplaced objects", Pace::STATUS),
        }
    }

    /// Adds whatever changed, in the cluster or in the plan.
    pub(super) fn plan(&mut self, changes: &Changes, last: &Plan, plan: &Plan) {
        self.touched(changes);
        self.namespaces.extend(differing(&last.namespaces, &plan.namespaces).cloned());
        if last.egw != plan.egw {
            self.egw.add(());
        }
        for account in differing(&last.accounts, &plan.accounts) {
            self.accounts.add(Arc::clone(account));
            self.account_status.add(Arc::clone(account));
        }
        self.claims.extend(differing(&last.claims, &plan.claims).copied());
        self.endpoints.extend(differing_endpoints(last, plan));
        self.prefixes.extend(differing(&last.prefixes, &plan.prefixes).cloned());
        self.groups.extend(differing(&last.groups, &plan.groups).cloned());
        for name in differing(&last.load_balancers, &plan.load_balancers) {
            self.load_balancers.add(name.clone());
            self.load_balancer_status.add(name.clone());
            let groups = plan.groups.range(ObjectName { namespace: Arc::clone(&name.namespace), name: "".into() }..);
            let groups = groups.take_while(|(group, _)| group.namespace == name.namespace);
            self.groups.extend(groups.map(|(group, _)| group.clone()));
        }
    }

    /// Adds whatever changed in the cluster.
    pub(super) fn touched(&mut self, changes: &Changes) {
        let names = |keys: &BTreeSet<Arc<Key>>| keys.iter().map(|key| name_of(key)).collect::<Vec<_>>();
        let bare =
            |keys: &BTreeSet<Arc<Key>>| keys.iter().map(|key| Arc::from(key.name.as_str())).collect::<Vec<Arc<str>>>();
        self.namespaces.extend(bare(&changes.namespaces));
        if !changes.egws.is_empty() || !changes.namespaces.is_empty() {
            self.egw.add(());
        }
        for account in bare(&changes.accounts) {
            self.accounts.add(Arc::clone(&account));
            self.account_status.add(account);
        }
        self.claims.extend(changes.claims.iter().filter_map(|key| parse_claim_name(&key.name)));
        for name in names(&changes.load_balancers) {
            self.load_balancers.add(name.clone());
            self.load_balancer_status.add(name);
        }
        self.endpoints.extend(names(&changes.endpoints));
        self.prefixes.extend(bare(&changes.prefixes));
        self.groups.extend(names(&changes.groups));
        self.misplaced.extend(misplaced::of(changes));
    }

    /// Writes what is due.
    pub(super) async fn act(
        &mut self,
        (writer, recorder): (&Writer, &Recorder),
        cache: &Cache,
        model: &Model,
        versions: &Versions,
        plan: &Plan,
    ) {
        let acting = Acting { writer, recorder, cache, model, versions, plan };
        let Self {
            namespaces,
            egw,
            accounts,
            account_status,
            claims,
            load_balancers,
            load_balancer_status,
            endpoints,
            prefixes,
            groups,
            misplaced,
        } = self;
        tokio::join!(
            namespaces.pass(|name, _| namespaces::prepare(acting, name)),
            egw.pass(|(), since| egw::prepare(acting, since)),
            accounts.pass(|name, _| accounts::object(acting, name)),
            account_status.pass(|name, since| accounts::status(acting, name, since)),
            claims.pass(|address, _| claims::prepare(acting, *address)),
            load_balancers.pass(|name, _| load_balancers::object(acting, name)),
            load_balancer_status.pass(|name, since| load_balancers::status(acting, name, since)),
            endpoints.pass(|name, since| endpoints::prepare(acting, name, since)),
            prefixes.pass(|name, _| views::prefix(acting, name)),
            groups.pass(|name, _| views::group(acting, name)),
            misplaced.pass(|object, _| misplaced::prepare(acting, object)),
        );
    }

    /// When something is due next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let Self {
            namespaces,
            egw,
            accounts,
            account_status,
            claims,
            load_balancers,
            load_balancer_status,
            endpoints,
            prefixes,
            groups,
            misplaced,
        } = self;
        let provider = [namespaces.next_due(), egw.next_due(), accounts.next_due(), account_status.next_due()];
        let tenants = [claims.next_due(), load_balancers.next_due(), load_balancer_status.next_due()];
        let views = [endpoints.next_due(), prefixes.next_due(), groups.next_due(), misplaced.next_due()];
        provider.into_iter().chain(tenants).chain(views).flatten().min()
    }
}

/// Keys whose values differ.
fn differing<'a, K: Ord, V: PartialEq>(
    last: &'a BTreeMap<K, V>,
    now: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = &'a K> {
    differing_of(last.iter(), now.iter())
}

/// Endpoints whose plans differ.
fn differing_endpoints<'a>(last: &'a Plan, now: &'a Plan) -> impl Iterator<Item = ObjectName> {
    differing(&last.endpoints, &now.endpoints).flat_map(move |load_balancer| {
        let of = |plan: &'a Plan| plan.endpoints.get(load_balancer).into_iter().flat_map(EndpointPlans::iter);
        let name = move |name: &Arc<str>| ObjectName {
            namespace: Arc::clone(&load_balancer.namespace),
            name: Arc::clone(name),
        };
        differing_of(of(last), of(now)).map(name)
    })
}

/// Keys whose values differ, of two lists in the order of keys.
fn differing_of<'a, K: Ord + 'a, V: PartialEq + 'a>(
    last: impl Iterator<Item = (&'a K, &'a V)>,
    now: impl Iterator<Item = (&'a K, &'a V)>,
) -> impl Iterator<Item = &'a K> {
    let (mut last, mut now) = (last.peekable(), now.peekable());
    std::iter::from_fn(move || {
        loop {
            let order = match (last.peek(), now.peek()) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((was, _)), Some((is, _))) => was.cmp(is),
            };
            let (was, is) = (last.next_if(|_| order.is_le()), now.next_if(|_| order.is_ge()));
            if was.map(|(_, value)| value) != is.map(|(_, value)| value) {
                return was.or(is).map(|(key, _)| key);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_came_went_or_changed_differ() {
        let map = |text: &str| text.chars().zip(1..).filter(|(key, _)| *key != '.').collect::<BTreeMap<char, u8>>();
        for (last, now, expected) in [
            ("", "", ""),
            ("abc", "abc", ""),
            ("", "ab", "ab"),
            ("ab", "", "ab"),
            ("abc", "a.c", "b"),
            (".bc", "abcd", "ad"),
            ("abcd", "ab.cd", "cd"),
            ("ace", "..bd", "abcde"),
        ] {
            let found: String = differing(&map(last), &map(now)).collect();
            assert_eq!(found, expected, "{last} and {now}");
        }
    }
}
