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

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use portolan_core::gateway::{ObjectName, Plan};
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

/// Numbers and addresses: a plan that waits for them is made again soon.
const ALLOCATION: Pace = Pace { budget: Duration::from_millis(200), ..Pace::URGENT };

impl Writes {
    pub(super) fn new(queues: &WriteQueues) -> Self {
        Self {
            namespaces: queues.queue("gateway namespaces", Pace::URGENT),
            egw: queues.queue("gateway egw", ALLOCATION),
            accounts: queues.queue("gateway accounts", ALLOCATION),
            account_status: queues.queue("gateway account status", ALLOCATION),
            claims: queues.queue("gateway claims", ALLOCATION),
            load_balancers: queues.queue("gateway loadbalancers", ALLOCATION),
            load_balancer_status: queues.queue("gateway loadbalancer status", Pace::STATUS),
            endpoints: queues.queue("gateway endpoints", Pace::STATUS),
            prefixes: queues.queue("gateway serviceprefixes", Pace::VIEW),
            groups: queues.queue("gateway servicegroups", Pace::VIEW),
            misplaced: queues.queue("gateway misplaced objects", Pace::STATUS),
        }
    }

    /// Adds whatever changed, in the cluster or in the plan.
    pub(super) fn plan(&mut self, changes: &Changes, last: &Plan, plan: &Plan) {
        let names =
            |keys: &std::collections::BTreeSet<Arc<Key>>| keys.iter().map(|key| name_of(key)).collect::<Vec<_>>();
        let bare = |keys: &std::collections::BTreeSet<Arc<Key>>| {
            keys.iter().map(|key| Arc::from(key.name.as_str())).collect::<Vec<Arc<str>>>()
        };
        self.namespaces.extend(bare(&changes.namespaces));
        self.namespaces.extend(differing(&last.namespaces, &plan.namespaces));
        if !changes.egws.is_empty() || !changes.namespaces.is_empty() || last.egw != plan.egw {
            self.egw.add(());
        }
        let accounts = bare(&changes.accounts).into_iter().chain(differing(&last.accounts, &plan.accounts));
        for account in accounts {
            self.accounts.add(Arc::clone(&account));
            self.account_status.add(account);
        }
        self.claims.extend(changes.claims.iter().filter_map(|key| parse_claim_name(&key.name)));
        self.claims.extend(differing(&last.claims, &plan.claims));
        let load_balancers = names(&changes.load_balancers);
        for name in load_balancers.into_iter().chain(differing(&last.load_balancers, &plan.load_balancers)) {
            self.load_balancers.add(name.clone());
            self.load_balancer_status.add(name);
        }
        self.endpoints.extend(names(&changes.endpoints));
        self.endpoints.extend(differing(&last.endpoints, &plan.endpoints));
        self.prefixes.extend(bare(&changes.prefixes));
        self.prefixes.extend(differing(&last.prefixes, &plan.prefixes));
        self.groups.extend(names(&changes.groups));
        self.groups.extend(differing(&last.groups, &plan.groups));
        for name in differing(&last.load_balancers, &plan.load_balancers) {
            let groups = plan.groups.range(ObjectName { namespace: Arc::clone(&name.namespace), name: "".into() }..);
            let groups = groups.take_while(|(group, _)| group.namespace == name.namespace);
            self.groups.extend(groups.map(|(group, _)| group.clone()));
        }
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
fn differing<K: Ord + Clone, V: PartialEq>(last: &BTreeMap<K, V>, now: &BTreeMap<K, V>) -> Vec<K> {
    let gone = last.keys().filter(|key| !now.contains_key(*key));
    let changed = now.iter().filter(|(key, value)| last.get(*key) != Some(*value)).map(|(key, _)| key);
    gone.chain(changed).cloned().collect()
}
