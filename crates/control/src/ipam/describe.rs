//! Reads the cloud in the background, and wakes the loop with what was read.
//!
//! Everything is read when a term begins, every verify interval and after changes of nodes. Instances whose next state
//! the plan waits for are read alone and sooner: at once, then after 0.5, 1, 2, 4 seconds and so on.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use portolan_core::ipam::{CloudError, CloudSubnet, InstanceId, Moment, SubnetId};
use portolan_drivers::cloud::{Cloud, NodeReport};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{debug, warn};

use super::metrics::Metrics;
use crate::runtime::backoff::{Backoff, Delays};
use crate::runtime::clock::Clock;
use crate::runtime::tasks::Tasks;

/// What the cloud answered.
pub(super) struct Description {
    /// When the first request left.
    pub(super) began: Moment,
    /// Instances that were asked for.
    pub(super) asked: BTreeSet<InstanceId>,
    pub(super) report: NodeReport,
    /// With a description of everything: the subnets.
    pub(super) subnets: Option<Vec<CloudSubnet>>,
}

/// What is to be read.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// All instances.
    pub(super) instances: BTreeSet<InstanceId>,
    /// Those whose next state is waited for.
    pub(super) awaiting: BTreeSet<InstanceId>,
}

/// The reader of one term; it ends when dropped.
pub(super) struct Describer {
    shared: Arc<Shared>,
    _end: DropGuard,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Wakes the reader.
    changed: Notify,
}

#[derive(Default)]
struct State {
    wanted: Wanted,
    /// Everything is to be read now.
    all: bool,
    /// Something happened to awaited instances: their next state may show at once.
    fresh: bool,
    read: Vec<Description>,
    /// Why everything could not be read, the last time.
    problem: Option<CloudError>,
}

/// Where the reader gets what it needs.
pub(super) struct Source {
    pub(super) cloud: Arc<dyn Cloud>,
    pub(super) clock: Clock,
    pub(super) verify_interval: Duration,
    pub(super) metrics: Metrics,
    /// Wakes the loop.
    pub(super) wake: Arc<Notify>,
}

impl Describer {
    /// Starts to read as soon as something is wanted.
    pub(super) fn start(tasks: &Tasks, source: Source) -> Self {
        let stop: CancellationToken = tasks.stop().child_token();
        let shared = Arc::new(Shared::default());
        let reader = Reader {
            source,
            shared: shared.clone(),
            next_all: None,
            next_awaited: None,
            step: Duration::ZERO,
            delays: FAILURES.delays(),
        };
        let stopped = stop.clone();
        tasks.spawn_finite("ipam describe", async move {
            tokio::select! { () = stopped.cancelled() => {}, () = reader.run() => {} }
        });
        Self { shared, _end: stop.drop_guard() }
    }

    /// Sets what is wanted. `all`: everything anew. `fresh`: awaited instances may show their next state at once.
    pub(super) fn want(&self, wanted: Wanted, all: bool, fresh: bool) {
        let mut state = self.shared.state.lock();
        let is_new = wanted.awaiting.difference(&state.wanted.awaiting).next().is_some();
        let differs = state.wanted != wanted;
        state.all |= all || wanted.instances != state.wanted.instances;
        state.fresh |= !wanted.awaiting.is_empty() && (fresh || is_new);
        state.wanted = wanted;
        if differs || all || fresh {
            self.shared.changed.notify_one();
        }
    }

    /// Why everything could not be read since the last call.
    pub(super) fn take_problem(&self) -> Option<CloudError> {
        self.shared.state.lock().problem.take()
    }

    /// What was read since the last call.
    pub(super) fn take(&self) -> Vec<Description> {
        std::mem::take(&mut self.shared.state.lock().read)
    }
}

struct Reader {
    source: Source,
    shared: Arc<Shared>,
    /// When everything is read next; none until something is wanted.
    next_all: Option<Instant>,
    next_awaited: Option<Instant>,
    /// The last pause between looks at awaited instances.
    step: Duration,
    delays: Delays,
}

impl Reader {
    async fn run(mut self) {
        loop {
            let wanted = self.look();
            let now = Instant::now();
            if self.next_all.is_some_and(|at| at <= now) {
                self.read_all(wanted.instances).await;
            } else if self.next_awaited.is_some_and(|at| at <= now) {
                self.read_awaited(wanted.awaiting).await;
            } else {
                let next = [self.next_all, self.next_awaited].into_iter().flatten().min();
                let sleep = async {
                    match next {
                        Some(at) => tokio::time::sleep_until(at).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! { () = sleep => {}, () = self.shared.changed.notified() => {} }
            }
        }
    }

    /// Takes up what is wanted.
    fn look(&mut self) -> Wanted {
        let now = Instant::now();
        let mut state = self.shared.state.lock();
        if std::mem::take(&mut state.all) {
            self.next_all = Some(now);
        }
        if state.wanted.awaiting.is_empty() {
            self.next_awaited = None;
        } else if std::mem::take(&mut state.fresh) || self.next_awaited.is_none() {
            (self.next_awaited, self.step) = (Some(now), Duration::ZERO);
        }
        state.wanted.clone()
    }

    async fn read_all(&mut self, instances: BTreeSet<InstanceId>) {
        let began = self.source.clock.now();
        let started = Instant::now();
        match described(&*self.source.cloud, &instances).await {
            Ok((report, subnets)) => {
                self.source.metrics.described(started.elapsed(), "Ok");
                self.delays.reset();
                self.next_all = Some(Instant::now() + self.source.verify_interval);
                self.give(Description { began, asked: instances, report, subnets: Some(subnets) });
            }
            Err(problem) => {
                self.source.metrics.described(started.elapsed(), problem.reason());
                let pause = self.delays.pause();
                warn!(%problem, ?pause, "the cloud was not described; it is tried again");
                self.next_all = Some(Instant::now() + pause);
                self.shared.state.lock().problem = Some(problem);
                self.source.wake.notify_one();
            }
        }
    }

    async fn read_awaited(&mut self, awaiting: BTreeSet<InstanceId>) {
        let began = self.source.clock.now();
        let started = Instant::now();
        let ids: Vec<InstanceId> = awaiting.iter().cloned().collect();
        let answer = self.source.cloud.nodes(&ids).await;
        let result = answer.as_ref().err().map_or("Ok", CloudError::reason);
        self.source.metrics.described(started.elapsed(), result);
        self.step = (self.step * 2).clamp(FIRST_STEP, LAST_STEP);
        self.next_awaited = Some(Instant::now() + self.step);
        match answer {
            Ok(report) => self.give(Description { began, asked: awaiting, report, subnets: None }),
            Err(problem) => debug!(%problem, "awaited instances were not described"),
        }
    }

    fn give(&self, description: Description) {
        self.shared.state.lock().read.push(description);
        self.source.wake.notify_one();
    }
}

/// Instances, and the subnets that they are in.
pub(super) async fn described(
    cloud: &dyn Cloud,
    instances: &BTreeSet<InstanceId>,
) -> Result<(NodeReport, Vec<CloudSubnet>), CloudError> {
    if instances.is_empty() {
        return Ok((NodeReport::default(), Vec::new()));
    }
    let ids: Vec<InstanceId> = instances.iter().cloned().collect();
    let report = cloud.nodes(&ids).await?;
    let subnets: BTreeSet<SubnetId> = report.nodes.iter().map(|node| node.subnet.clone()).collect();
    let subnets: Vec<SubnetId> = subnets.into_iter().filter(|subnet| !subnet.is_empty()).collect();
    let subnets = if subnets.is_empty() { Vec::new() } else { cloud.subnets(&subnets).await? };
    Ok((report, subnets))
}

const FIRST_STEP: Duration = Duration::from_millis(500);
const LAST_STEP: Duration = Duration::from_mins(1);
/// After a description of everything failed.
const FAILURES: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(30) };
