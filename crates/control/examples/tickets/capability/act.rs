//! Plan -> due writes. The ledger comes first; a receipt only shows what it says, and so does a ticket's status.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use kube::api::ObjectMeta;
use portolan_control::runtime::due::{DueWrites, Pace, Prepared, WriteQueues};
use portolan_control::runtime::endpoint::Part;
use portolan_control::runtime::reconcile::Next;
use portolan_control::runtime::store::Key;
use portolan_control::runtime::write::Writer;
use portolan_testkit::ticket::{OfficeStatus, Ticket};

use super::model::Plan;
use super::observe::{Cache, RECEIPT, Seen, receipt_key};
use super::status;
use super::validate::Rejected;

/// What writes are prepared from, and sent with.
pub(crate) struct Acting<'a> {
    pub(crate) writer: &'a Writer,
    pub(crate) cache: &'a Cache,
    pub(crate) seen: &'a Seen,
    pub(crate) rejected: &'a Rejected,
    pub(crate) plan: &'a Plan,
}

/// Everything that is yet to be written in this term.
pub(crate) struct Writes {
    ledger: DueWrites<()>,
    receipts: DueWrites<Key>,
    statuses: DueWrites<Key>,
}

impl Writes {
    pub(crate) fn new(queues: &WriteQueues) -> Self {
        Self {
            ledger: queues.queue("tickets ledger", Pace::URGENT),
            receipts: queues.queue("tickets receipts", Pace::URGENT),
            statuses: queues.queue("tickets statuses", Pace::STATUS),
        }
    }

    /// Everything is looked at each time: there are few tickets. What differs is written.
    pub(crate) async fn run(&mut self, acting: &Acting<'_>) -> Next {
        let Self { ledger, receipts, statuses } = self;
        ledger.add(());
        ledger.pass(|(), _| record(acting)).await;
        receipts.extend(acting.seen.tickets.keys().cloned());
        receipts.pass(|key, _| hand_out(acting, key)).await;
        statuses.extend(acting.seen.tickets.keys().cloned());
        statuses.pass(|key, _| status::prepare(acting, key)).await;
        Next::at_earliest([ledger.next_due(), receipts.next_due(), statuses.next_due()])
    }
}

impl Acting<'_> {
    /// The number of a ticket, once the ledger says so.
    pub(crate) fn recorded(&self, ticket: &str) -> Option<u64> {
        let taken = &self.seen.office.as_ref()?.status.as_ref()?.taken;
        taken.get(ticket).copied().filter(|number| self.plan.taken.get(ticket) == Some(number))
    }
}

/// The resource version of the office as seen is the lock: whoever planned on an older one is refused.
fn record(acting: &Acting<'_>) -> Prepared<()> {
    let Acting { writer, cache, seen, plan, .. } = acting;
    let Some(office) = &seen.office else { return Prepared::Nothing };
    let before = office.status.clone().unwrap_or_default();
    if before.taken == plan.taken {
        return Prepared::Nothing;
    }
    let mut office = office.as_ref().clone();
    office.status = Some(OfficeStatus { taken: plan.taken.clone(), ..before });
    let (writer, offices) = ((*writer).clone(), cache.offices.clone());
    Prepared::write(async move { writer.replace(&offices, Part::Status, &office).await.map(drop) })
}

fn hand_out(acting: &Acting<'_>, key: &Key) -> Prepared<()> {
    let Acting { writer, cache, seen, .. } = acting;
    let (Some(ticket), Some(number)) = (seen.tickets.get(key), acting.recorded(&key.name)) else {
        return Prepared::Nothing;
    };
    let receipt = receipt(key, ticket, number);
    let (writer, receipts) = ((*writer).clone(), cache.receipts.clone());
    Prepared::write(async move { writer.apply(&receipts, &receipt).await.map(drop) })
}

fn receipt(key: &Key, ticket: &Ticket, number: u64) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(receipt_key(key).name),
            namespace: Some(key.namespace.clone()),
            labels: Some(BTreeMap::from([(RECEIPT.to_owned(), "true".to_owned())])),
            owner_references: ticket.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([
            ("number".to_owned(), number.to_string()),
            ("text".to_owned(), ticket.spec.text.clone()),
        ])),
        ..ConfigMap::default()
    }
}
