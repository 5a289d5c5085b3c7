//! Envoys that somebody else starts and ends. They connect over TCP, and their certificates prove which unit they are.
//!
//! ```text
//! Fleet   what units are to have, and what became of them
//! Server  accepts connections, asks for a certificate, and joins each to its unit  -->  xds
//! ```
//!
//! Only the replica that leads serves: on the others every connection is closed at once, so that an Envoy tries again
//! until it meets the leader. What it is given is the same bytes, whoever leads.

mod server;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, btree_map};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use portolan_core::gateway::ports::PortNumber;
use portolan_core::gateway::unit::{Unit, UnitId};
use rustls::ServerConfig;
use tokio::sync::{Semaphore, watch};

use super::Units;
use super::resources::Snapshot;
use super::xds::{Feed, Order, Progress};
pub use server::{Identify, Server};

/// Connections of one unit at a time: two of its Envoys while one replaces the other, and one more of each.
const MAX_CONNECTIONS: usize = 4;

/// The units whose Envoys may connect. Clones share them.
#[derive(Clone)]
pub struct Fleet {
    shared: Arc<Shared>,
}

struct Shared {
    units: Mutex<BTreeMap<UnitId, Entry>>,
    tls: RwLock<Option<Arc<ServerConfig>>>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

struct Entry {
    /// What it was last asked to serve; none if it ends.
    wanted: Option<Arc<Unit>>,
    orders: watch::Sender<Order>,
    progress: Arc<Progress>,
    connections: Arc<Semaphore>,
}

/// What the Envoys of a unit have reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitReport {
    /// It is to serve; else it has no listeners, and ends.
    pub is_wanted: bool,
    /// At least one Envoy is connected.
    pub is_connected: bool,
    /// The last unit that all of them have answered for.
    pub answered: Option<Arc<Unit>>,
    /// Listeners that any of them does not accept.
    pub rejected: BTreeMap<PortNumber, Arc<str>>,
    /// An Envoy with the certificate of this unit that says to be another one.
    pub mismatch: Option<Arc<str>>,
}

impl Fleet {
    /// No units, and nobody can connect. `wake` is called when a report changes.
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        let shared = Shared { units: Mutex::default(), tls: RwLock::default(), wake: Arc::new(wake) };
        Self { shared: Arc::new(shared) }
    }

    /// These units serve. The listeners of all others are removed, and their connections go on.
    pub fn want(&self, wanted: &Units) {
        let mut units = self.shared.units.lock();
        for (id, unit) in wanted {
            let serve = || Order::Serve(Arc::new(Snapshot::in_container(id, unit)));
            match units.get_mut(id) {
                Some(entry) if entry.wanted.as_ref() == Some(unit) => {}
                Some(entry) => {
                    entry.wanted = Some(Arc::clone(unit));
                    entry.orders.send_replace(serve());
                }
                None => drop(units.insert(id.clone(), self.entry(Some(Arc::clone(unit)), serve()))),
            }
        }
        for (_, entry) in units.iter_mut().filter(|(id, _)| !wanted.contains_key(*id)) {
            entry.drain();
        }
    }

    /// A unit that nobody wants, and of which it is not known what its Envoys have: they lose it.
    pub fn end(&self, id: &UnitId) {
        let mut units = self.shared.units.lock();
        let btree_map::Entry::Vacant(free) = units.entry(id.clone()) else { return };
        free.insert(self.entry(None, Order::Drain(Arc::new(Snapshot::empty()))));
        drop(units);
        (self.shared.wake)();
    }

    /// Closes the connections of a unit that is not wanted, and accepts no others.
    pub fn forget(&self, id: &UnitId) {
        let mut units = self.shared.units.lock();
        if units.get(id).is_some_and(|entry| entry.wanted.is_none()) {
            let entry = units.remove(id);
            drop(units);
            drop(entry);
            (self.shared.wake)();
        }
    }

    /// Another replica leads: closes all connections, and accepts no others.
    pub fn stand_by(&self) {
        *self.shared.tls.write() = None;
        self.shared.units.lock().clear();
    }

    /// Accepts connections with these certificates from now on; those that are open go on.
    pub fn serve_with(&self, tls: Arc<ServerConfig>) {
        *self.shared.tls.write() = Some(tls);
    }

    /// What became of each unit.
    pub fn reports(&self) -> BTreeMap<UnitId, UnitReport> {
        let units = self.shared.units.lock();
        units.iter().map(|(id, entry)| (id.clone(), entry.report())).collect()
    }

    fn entry(&self, wanted: Option<Arc<Unit>>, order: Order) -> Entry {
        let wake = Arc::clone(&self.shared.wake);
        Entry {
            wanted,
            orders: watch::Sender::new(order),
            progress: Arc::new(Progress::new(move || wake())),
            connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
        }
    }
}

impl Entry {
    fn drain(&mut self) {
        if self.wanted.take().is_some() {
            self.orders.send_modify(|order| {
                if let Order::Serve(snapshot) = order {
                    *order = Order::Drain(Arc::new(snapshot.without_listeners()));
                }
            });
        }
    }

    fn report(&self) -> UnitReport {
        let summary = self.progress.summary();
        UnitReport {
            is_wanted: self.wanted.is_some(),
            is_connected: summary.is_connected,
            answered: summary.answered,
            rejected: summary.rejected,
            mismatch: summary.mismatch,
        }
    }
}

impl Shared {
    /// What a connection of this unit needs; none if nobody knows the unit, or it has enough.
    fn feed(&self, id: &UnitId) -> Option<(Feed, tokio::sync::OwnedSemaphorePermit)> {
        let units = self.units.lock();
        let entry = units.get(id)?;
        let permit = Arc::clone(&entry.connections).try_acquire_owned().ok()?;
        let (orders, progress) = (entry.orders.subscribe(), Arc::clone(&entry.progress));
        Some((Feed { unit: id.clone(), orders, progress }, permit))
    }
}
