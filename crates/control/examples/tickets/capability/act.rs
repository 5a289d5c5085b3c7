//! Plan -> writes: the only file of the loop with a client. The ledger comes first; a receipt only shows what it says.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Resource;
use kube::api::ObjectMeta;
use portolan_control::runtime::Error;
use portolan_control::runtime::endpoint::Part;
use portolan_control::runtime::store::Key;
use portolan_control::runtime::write::Writer;
use portolan_testkit::ticket::{OfficeStatus, Ticket};

use super::model::Plan;
use super::observe::{Cache, RECEIPT, Seen};

pub(crate) struct Act {
    pub(crate) writer: Writer,
}

/// Tickets whose number is recorded and whose receipt exists. Only this file can make one.
pub(crate) struct Done(BTreeSet<String>);

impl Done {
    pub(crate) fn contains(&self, ticket: &str) -> bool {
        self.0.contains(ticket)
    }
}

impl Act {
    pub(crate) fn new(writer: Writer) -> Self {
        Self { writer }
    }

    pub(crate) async fn apply(&self, cache: &Cache, seen: &Seen, plan: &Plan) -> Result<Done, Error> {
        self.record(cache, seen, plan).await?;
        let mut done = BTreeSet::new();
        for (key, ticket) in &seen.tickets {
            if let Some(number) = plan.taken.get(&key.name) {
                self.writer.apply(&cache.receipts, &receipt(key, ticket, *number)).await?;
                done.insert(key.name.clone());
            }
        }
        Ok(Done(done))
    }

    /// The resource version of the office as seen is the lock: whoever planned on an older one is refused.
    async fn record(&self, cache: &Cache, seen: &Seen, plan: &Plan) -> Result<(), Error> {
        let Some(office) = &seen.office else { return Ok(()) };
        let before = office.status.clone().unwrap_or_default();
        if before.taken == plan.taken {
            return Ok(());
        }
        let mut office = office.as_ref().clone();
        office.status = Some(OfficeStatus { taken: plan.taken.clone(), ..before });
        self.writer.replace(&cache.offices, Part::Status, &office).await?;
        Ok(())
    }
}

fn receipt(key: &Key, ticket: &Ticket, number: u64) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(format!("receipt-{}", key.name)),
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
