//! Joins the runtime's parts into a process: admin server, election, loops, and an orderly end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{info, warn};

use super::admin::{self, Admin, State, StopSignals};
use super::due::WriteQueues;
use super::events::{self, EventQueue, Recorder};
use super::fence::fenced;
use super::lease::{self, Elector, Leadership};
use super::metrics::Metrics;
use super::ready::Readiness;
use super::reconcile::Loop;
use super::tasks::Tasks;
use super::watch::{WatchRegistry, Watches};
use super::write::Writer;

/// How the process runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// None: this process is alone and always leads.
    pub election: Option<lease::Options>,
    pub admin_listen: SocketAddr,
    /// How long loops may take to end what they are at.
    pub drain: Duration,
    /// Which replica this is, in events.
    pub instance: String,
}

/// What a capability is given.
#[derive(Clone)]
pub struct Ctx {
    /// Reads freely; writes only while this replica leads.
    pub client: Client,
    /// Writes always: for what every replica keeps, such as the certificates of its webhooks.
    pub unfenced: Client,
    pub leadership: Leadership,
    pub tasks: Tasks,
    pub readiness: Readiness,
    pub metrics: Metrics,
    pub state: State,
    watch_registry: WatchRegistry,
    events: EventQueue,
    instance: String,
}

impl Ctx {
    /// Subscriptions to the process's watches, for one loop.
    pub fn watches(&self) -> Watches {
        self.watch_registry.watches()
    }

    /// The same, for a loop that others wake as well.
    pub fn watches_that_wake(&self, changed: Arc<Notify>) -> Watches {
        self.watch_registry.watches_that_wake(changed)
    }

    /// A writer that owns the fields of `portolan-CAPABILITY`, and reports events in that name.
    pub fn writer(&self, capability: &str) -> Writer {
        let manager = format!("portolan-{capability}");
        Writer::new(self.client.clone(), &manager, self.recorder(capability), self.metrics.clone())
    }

    /// Reports events in the name of `portolan-CAPABILITY`.
    pub fn recorder(&self, capability: &str) -> Recorder {
        Recorder::new(self.events.clone(), &format!("portolan-{capability}"), &self.instance)
    }

    /// Queues of due writes for the loop that these watches wake.
    pub fn write_queues(&self, watches: &Watches) -> WriteQueues {
        WriteQueues::new(watches.waker(), self.metrics.clone())
    }

    /// The loop of a capability.
    pub fn reconciles(&self, capability: &'static str) -> Loop {
        Loop { capability, leadership: self.leadership.clone(), metrics: self.metrics.clone(), stop: self.tasks.stop() }
    }
}

/// Why the process could not go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The admin server did not start.
    #[error(transparent)]
    Admin(#[from] admin::Error),
    /// The election cannot run as configured, or the lease could not be given back.
    #[error(transparent)]
    Lease(#[from] super::error::Error),
    /// A part that should run for ever ended; see the log for why.
    #[error("task `{task}` ended unexpectedly: the log says why")]
    Broken { task: &'static str },
    /// A second signal came before everything had ended.
    #[error("a second signal ended the process before its writes were finished and its lease given back")]
    Interrupted,
}

/// A running process: admin server, election and what the caller started.
pub struct Process {
    ctx: Ctx,
    /// Sends the events of the others, and so ends after them.
    event_tasks: Tasks,
    election: Option<lease::Options>,
    drain: Duration,
    admin_at: SocketAddr,
}

impl Process {
    /// Starts the election, then what `start` starts, then the admin server, which serves the metrics of all.
    pub fn start(client: Client, options: Options, start: impl FnOnce(&Ctx, &mut Registry)) -> Result<Self, Error> {
        let Options { election, admin_listen, drain, instance } = options;
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let leadership = if election.is_some() { Leadership::none() } else { Leadership::always() };
        let fenced_client = fenced(client.clone(), leadership.clone(), metrics.clone());
        let (events, sender) = events::queue(fenced_client.clone(), metrics.clone());
        let event_tasks = Tasks::new();
        event_tasks.spawn("events", sender.run(event_tasks.stop()));
        let (tasks, readiness) = (Tasks::new(), Readiness::new());
        let ctx = Ctx {
            watch_registry: WatchRegistry::new(
                fenced_client.clone(),
                tasks.clone(),
                readiness.clone(),
                metrics.clone(),
            ),
            client: fenced_client,
            unfenced: client,
            leadership,
            tasks,
            readiness,
            metrics,
            state: State::default(),
            events,
            instance,
        };
        if let Some(election) = &election {
            let elector = Elector::new(&ctx.unfenced, election.clone(), ctx.leadership.clone(), ctx.metrics.clone())?;
            let elector = elector.holding(ctx.readiness.clone());
            ctx.tasks.spawn("lease", elector.run(ctx.tasks.stop()));
        }
        start(&ctx, &mut registry);
        // Only now, so that all capabilities share the first list of a kind.
        ctx.watch_registry.start();
        let (readiness, state) = (ctx.readiness.clone(), ctx.state.clone());
        let admin_at =
            admin::serve(admin_listen, Admin { registry: Arc::new(registry), readiness, state }, &ctx.tasks)?;
        info!(%admin_at, "running");
        Ok(Self { ctx, event_tasks, election, drain, admin_at })
    }

    /// What the capabilities were given.
    pub fn ctx(&self) -> &Ctx {
        &self.ctx
    }

    /// Where the admin server listens.
    pub fn admin_at(&self) -> SocketAddr {
        self.admin_at
    }

    /// Returns the name of the first task that broke.
    pub async fn broken(&self) -> &'static str {
        tokio::select! { task = self.ctx.tasks.failed() => task, task = self.event_tasks.failed() => task }
    }

    /// Runs until SIGTERM, SIGINT or a broken task, then stops in order, or at once when there is a second signal.
    pub async fn run(self) -> Result<(), Error> {
        let mut signals = StopSignals::handle();
        let broken = tokio::select! {
            () = signals.next() => None,
            task = self.broken() => Some(task),
        };
        let stopped = tokio::select! {
            stopped = self.stop() => stopped,
            () = signals.next() => return Err(Error::Interrupted),
        };
        if let Err(problem) = stopped {
            // As when the operator's roles are deleted together with it. Others take the lease when it runs out.
            warn!(%problem, "the lease was not given back");
        }
        broken.map_or(Ok(()), |task| Err(Error::Broken { task }))
    }

    /// Lets the loops finish what they are at, then gives the lease back.
    pub async fn stop(self) -> Result<(), Error> {
        let Self { ctx, event_tasks, election, drain, .. } = self;
        info!(?drain, "stopping");
        let deadline = Instant::now() + drain;
        for tasks in [ctx.tasks.clone(), event_tasks] {
            for task in tasks.drain(deadline.saturating_duration_since(Instant::now())).await {
                warn!(task, "did not end in time and was cut off");
            }
        }
        if let Some(election) = &election {
            lease::release(&ctx.unfenced, election, &ctx.leadership).await?;
        }
        Ok(())
    }
}

/// Runs a process until SIGTERM, SIGINT or a broken task, then stops it in order.
pub async fn run(client: Client, options: Options, start: impl FnOnce(&Ctx, &mut Registry)) -> Result<(), Error> {
    Process::start(client, options, start)?.run().await
}
