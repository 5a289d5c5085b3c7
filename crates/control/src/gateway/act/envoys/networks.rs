//! Writes the networks of prefixes. One that somebody else made is left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use portolan_api::gateway::ServicePrefix;
use portolan_core::gateway::PROVIDER_NAMESPACE;

use super::super::super::envoys::networks::{Network, is_of, network};
use super::refusal;
use crate::runtime::due::{DueWrites, Pace, Prepared, WriteQueues};
use crate::runtime::store::{Key, Store};
use crate::runtime::watch::{Selection, Watches};
use crate::runtime::write::Writer;

/// Prefixes and their networks.
#[derive(Clone)]
pub(super) struct Networks {
    prefixes: Store<ServicePrefix>,
    networks: Store<Network>,
}

/// What is yet to be written in this term.
pub(super) struct Writes {
    due: DueWrites<String>,
    is_first: bool,
    /// Why networks could not be written.
    refused: BTreeMap<String, Arc<str>>,
}

impl Writes {
    pub(super) fn new(queues: &WriteQueues) -> Self {
        let due = queues.queue("gateway networks", Pace::URGENT);
        Self { due, is_first: true, refused: BTreeMap::new() }
    }

    /// Why the Envoys of a prefix cannot be attached.
    pub(super) fn refused(&self, prefix: &str) -> Option<Arc<str>> {
        self.refused.get(prefix).cloned()
    }

    pub(super) fn next_due(&self) -> Option<tokio::time::Instant> {
        self.due.next_due()
    }
}

impl Networks {
    pub(super) fn watched(watches: &mut Watches) -> Self {
        let namespace = || PROVIDER_NAMESPACE.to_owned();
        Self {
            prefixes: watches.add(Selection { namespace: namespace(), ..Selection::default() }),
            // not served until Multus is installed
            networks: watches.add(Selection { namespace: namespace(), optional: true, ..Selection::default() }),
        }
    }

    /// The prefix of that name.
    pub(super) fn prefix(&self, name: &str) -> Option<Arc<ServicePrefix>> {
        self.prefixes.get(&key(name))
    }

    /// Brings networks to what their prefixes say; true if a prefix has changed.
    pub(super) async fn keep(&self, writer: &Writer, writes: &mut Writes) -> bool {
        let changed: BTreeSet<String> = self.prefixes.take_changes().iter().map(|key| key.name.clone()).collect();
        let mut due: BTreeSet<String> = self.networks.take_changes().iter().map(|key| key.name.clone()).collect();
        due.extend(changed.iter().cloned());
        if std::mem::take(&mut writes.is_first) {
            self.prefixes.for_each(|key, _| due.extend([key.name.clone()]));
        }
        writes.due.extend(due);
        for (name, result) in writes.due.pass(|name, _| self.prepare(writer, name)).await {
            match result.as_ref().map_err(|error| if error.is_gone() { Some(not_served()) } else { refusal(error) }) {
                Err(Some(why)) => drop(writes.refused.insert(name, why)),
                Ok(()) | Err(None) => drop(writes.refused.remove(&name)),
            }
        }
        let foreign = |prefix: &ServicePrefix, network: &Network| !is_of(network, prefix);
        self.prefixes.for_each(|key, prefix| {
            if self.networks.get(key).is_some_and(|network| foreign(prefix, &network)) {
                let why = format!("NetworkAttachmentDefinition {key} was made by somebody else: delete or rename it");
                writes.refused.insert(key.name.clone(), why.into());
            }
        });
        writes.refused.retain(|name, _| self.prefix(name).is_some());
        !changed.is_empty()
    }

    fn prepare(&self, writer: &Writer, name: &str) -> Prepared<()> {
        let Some(prefix) = self.prefix(name).filter(|prefix| prefix.metadata.deletion_timestamp.is_none()) else {
            return Prepared::Nothing;
        };
        if self.networks.get(&key(name)).is_some_and(|network| !is_of(&network, &prefix)) {
            return Prepared::Nothing;
        }
        let (writer, networks, wanted) = (writer.clone(), self.networks.clone(), network(&prefix));
        Prepared::write(async move { writer.apply(&networks, &wanted).await.map(drop) })
    }
}

fn not_served() -> Arc<str> {
    "the cluster has no NetworkAttachmentDefinitions: install Multus, or leave out --gateway-multus".into()
}

fn key(name: &str) -> Key {
    Key { namespace: PROVIDER_NAMESPACE.to_owned(), name: name.to_owned() }
}
