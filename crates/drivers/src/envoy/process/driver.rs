//! Starts a task for each unit that is wanted, and passes on what its unit is to have.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use portolan_core::gateway::unit::{Unit, UnitId};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::binary::Finder;
use super::options::ProcessOptions;
use super::runner::{Runner, Tools};
use super::spawn::Spawner;
use super::status::Shared;
use crate::envoy::Units;
use crate::envoy::resources::Snapshot;
use crate::envoy::xds::Order;

/// Runs the Envoys of this machine.
pub struct Driver {
    options: Arc<ProcessOptions>,
    tools: Arc<Tools>,
    shared: Arc<Shared>,
    units: BTreeMap<UnitId, RunningUnit>,
    tasks: JoinSet<()>,
}

struct RunningUnit {
    /// What it was last asked to serve.
    unit: Arc<Unit>,
    orders: watch::Sender<Order>,
    task: AbortHandle,
}

impl Driver {
    pub(super) fn new(options: ProcessOptions, spawner: Spawner, shared: Arc<Shared>) -> Self {
        let tools = Arc::new(Tools { spawner, finder: Finder::default() });
        Self { options: Arc::new(options), tools, shared, units: BTreeMap::new(), tasks: JoinSet::new() }
    }

    /// Runs until `stop`, then ends all Envoys, without draining them.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        loop {
            match self.shared.wanted() {
                Some(wanted) => self.apply(&wanted),
                None => self.order_all(&Order::StandBy),
            }
            tokio::select! {
                () = &mut stop => break,
                () = self.shared.changed() => {}
                Some(_) = self.tasks.join_next() => self.remove_ended(),
            }
        }
        self.order_all(&Order::Stop);
        while self.tasks.join_next().await.is_some() {}
        self.remove_ended();
    }

    fn apply(&mut self, wanted: &Units) {
        for (id, unit) in wanted {
            match self.units.get_mut(id) {
                Some(running) => running.serve(id, unit),
                None => self.start(id, unit),
            }
        }
        for (_, running) in self.units.iter().filter(|(id, _)| !wanted.contains_key(*id)) {
            running.drain();
        }
    }

    fn start(&mut self, id: &UnitId, unit: &Arc<Unit>) {
        let (orders, received) = watch::channel(Order::Serve(Arc::new(Snapshot::of(id, unit))));
        let runner = Runner {
            unit: id.clone(),
            options: Arc::clone(&self.options),
            tools: Arc::clone(&self.tools),
            orders: received,
            status: self.shared.insert(id),
        };
        let task = self.tasks.spawn(runner.run());
        self.units.insert(id.clone(), RunningUnit { unit: Arc::clone(unit), orders, task });
    }

    fn order_all(&self, order: &Order) {
        for running in self.units.values() {
            running.orders.send_replace(order.clone());
        }
    }

    fn remove_ended(&mut self) {
        let shared = Arc::clone(&self.shared);
        self.units.retain(|id, running| {
            let is_ended = running.task.is_finished();
            if is_ended {
                shared.remove(id);
            }
            !is_ended
        });
    }
}

impl RunningUnit {
    fn serve(&mut self, id: &UnitId, unit: &Arc<Unit>) {
        let is_served = matches!(&*self.orders.borrow(), Order::Serve(_)) && self.unit == *unit;
        if !is_served {
            self.unit = Arc::clone(unit);
            self.orders.send_replace(Order::Serve(Arc::new(Snapshot::of(id, unit))));
        }
    }

    fn drain(&self) {
        self.orders.send_if_modified(|order| match order {
            Order::Serve(snapshot) => {
                *order = Order::Drain(Arc::new(snapshot.without_listeners()));
                true
            }
            // what it has is not known: it ends with all its connections
            Order::StandBy => {
                *order = Order::Drain(Arc::new(Snapshot::empty()));
                true
            }
            Order::Drain(_) | Order::Stop => false,
        });
    }
}
