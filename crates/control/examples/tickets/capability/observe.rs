//! Watches -> what is seen. Synchronous, no client.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use portolan_control::runtime::store::{Key, Store};
use portolan_control::runtime::watch::{Selection, Watches};
use portolan_testkit::ticket::{Office, Ticket};

/// Label on every receipt, so that only ours are watched.
pub(crate) const RECEIPT: &str = "testkit.portolan.dev/receipt";

pub(crate) struct Cache {
    pub(crate) namespace: String,
    pub(crate) tickets: Store<Ticket>,
    pub(crate) offices: Store<Office>,
    pub(crate) receipts: Store<ConfigMap>,
}

pub(crate) struct Seen {
    pub(crate) office: Option<Arc<Office>>,
    pub(crate) tickets: BTreeMap<Key, Arc<Ticket>>,
}

impl Cache {
    pub(crate) fn new(watches: &mut Watches, namespace: String) -> Self {
        let receipts = Selection { namespace: namespace.clone(), labels: Some(RECEIPT.into()), ..Selection::default() };
        Self {
            tickets: watches.add(Selection { namespace: namespace.clone(), ..Selection::default() }),
            offices: watches.add(Selection { namespace: namespace.clone(), ..Selection::default() }),
            receipts: watches.add(receipts),
            namespace,
        }
    }

    pub(crate) fn seen(&self) -> Seen {
        let office = Key { namespace: self.namespace.clone(), name: "office".into() };
        Seen { office: self.offices.get(&office), tickets: self.tickets.all() }
    }
}

/// The receipt of a ticket.
pub(crate) fn receipt_key(ticket: &Key) -> Key {
    Key { name: format!("receipt-{}", ticket.name), ..ticket.clone() }
}
