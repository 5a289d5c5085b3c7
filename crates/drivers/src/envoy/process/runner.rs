//! One unit: its socket, and its process, which is started again when it ends and ends when it is not wanted.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use portolan_core::gateway::unit::UnitId;
use rustix::process::{Pid, Signal, kill_process};
use tokio::net::UnixListener;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::binary::{Finder, Programs};
use super::folder::UnitFolder;
use super::options::ProcessOptions;
use super::spawn::{Program, Spawner};
use super::status::{ProcessState, Status};
use crate::envoy::xds::{Feed, Order, serve};
use crate::envoy::{State, bootstrap};

/// The first pause before an Envoy is started again, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));
/// An Envoy that has run for this long is well: the next pause is the first one again.
const STEADY: Duration = Duration::from_secs(30);
/// How long an Envoy may take to end when it is asked to.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// What is shown of the log of an Envoy that has ended, in bytes.
const LOG_TAIL: u64 = 512;

/// What all units use.
pub(super) struct Tools {
    pub(super) spawner: Spawner,
    pub(super) finder: Finder,
}

/// One unit.
pub(super) struct Runner {
    pub(super) unit: UnitId,
    pub(super) options: Arc<ProcessOptions>,
    pub(super) tools: Arc<Tools>,
    pub(super) orders: watch::Receiver<Order>,
    pub(super) status: Arc<Status>,
}

/// How an Envoy came to its end.
enum End {
    /// By itself.
    Exited(ExitStatus),
    /// It was not wanted.
    Stopped,
}

impl Runner {
    /// Runs until the unit is not wanted.
    pub(super) async fn run(mut self) {
        let mut pause = BACKOFF.0;
        while !self.is_unwanted() {
            let begun = Instant::now();
            let Err(failure) = self.serve_once().await else { continue };
            self.status.set(ProcessState::Down(failure));
            pause = if begun.elapsed() >= STEADY { BACKOFF.0 } else { pause };
            tokio::select! {
                () = sleep(pause) => {}
                () = self.unwanted() => {}
            }
            pause = (pause * 2).min(BACKOFF.1);
        }
    }

    /// Makes the folder, serves xDS and runs one Envoy, until that is not wanted. Else, why it does not run.
    async fn serve_once(&mut self) -> Result<(), State> {
        let programs = self.tools.finder.find(&self.options, &self.tools.spawner).await?;
        let failed = |cause: io::Error| State::Crashed(format!("its folder cannot be used: {cause}").into());
        let folder = UnitFolder::make(&self.options.folder, &self.unit).map_err(failed)?;
        let listener = UnixListener::bind(folder.xds_socket()).map_err(failed)?;
        let (unit, orders) = (self.unit.clone(), self.orders.clone());
        let feed = Feed { unit, orders, progress: Arc::clone(&self.status.progress) };
        tokio::select! {
            never = serve(listener, feed) => match never {},
            ended = self.run_envoy(&programs, &folder) => ended,
        }
    }

    async fn run_envoy(&mut self, programs: &Programs, folder: &UnitFolder) -> Result<(), State> {
        let mut envoy = self.start(programs, folder).await.map_err(|cause| {
            State::Crashed(format!("starting `{}` failed: {cause}", programs.envoy.display()).into())
        })?;
        let end = self.watch(&mut envoy).await.map_err(|cause| State::Crashed(cause.to_string().into()))?;
        match end {
            End::Exited(status) => Err(State::Crashed(describe(status, &folder.log()).into())),
            End::Stopped => Ok(()),
        }
    }

    async fn start(&self, programs: &Programs, folder: &UnitFolder) -> io::Result<Child> {
        let bootstrap = bootstrap::of_process(&self.unit, &folder.xds_socket(), &folder.admin_socket());
        std::fs::write(folder.bootstrap(), bootstrap.to_string())?;
        let drain = self.options.drain.as_secs().to_string();
        let flags = ["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning", "--drain-time-s", &drain];
        let mut arguments = vec!["-c".into(), folder.bootstrap().into()];
        arguments.extend(flags.map(Into::into));
        let program = Program {
            setpriv: &programs.setpriv,
            path: &programs.envoy,
            arguments,
            folder: folder.path(),
            log: Some(folder.log()),
        };
        let envoy = self.tools.spawner.spawn(program).await?;
        self.status.set(ProcessState::Up);
        Ok(envoy)
    }

    /// Waits for the end of an Envoy, and ends it if it is not wanted.
    async fn watch(&mut self, envoy: &mut Child) -> io::Result<End> {
        let mut deadline = None;
        loop {
            let order = self.orders.borrow_and_update().clone();
            match order {
                Order::Stop => return stop(envoy).await,
                Order::Drain(_) => {
                    self.status.set(ProcessState::Draining);
                    deadline = deadline.or(Some(Instant::now() + self.options.drain));
                }
                Order::Serve(_) | Order::StandBy => {
                    self.status.set(ProcessState::Up);
                    deadline = None;
                }
            }
            tokio::select! {
                status = envoy.wait() => return Ok(End::Exited(status?)),
                () = passed(deadline) => return stop(envoy).await,
                // an error means that nobody gives orders any more
                changed = self.orders.changed() => if changed.is_err() { return stop(envoy).await },
            }
        }
    }

    fn is_unwanted(&self) -> bool {
        let is_orphaned = self.orders.has_changed().is_err();
        is_orphaned || matches!(&*self.orders.borrow(), Order::Drain(_) | Order::Stop)
    }

    async fn unwanted(&mut self) {
        // an error means that nobody gives orders any more
        self.orders.wait_for(|order| matches!(order, Order::Drain(_) | Order::Stop)).await.ok();
    }
}

async fn passed(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Asks an Envoy to end, then ends it.
async fn stop(envoy: &mut Child) -> io::Result<End> {
    let id = envoy.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
    if let Some(id) = id {
        kill_process(id, Signal::TERM)?;
        if timeout(STOP_TIMEOUT, envoy.wait()).await.is_err() {
            envoy.kill().await?;
        }
    }
    Ok(End::Stopped)
}

/// How an Envoy ended, and its last words.
fn describe(status: ExitStatus, log: &Path) -> String {
    let words = tail(log).unwrap_or_default();
    let words = words.trim();
    if words.is_empty() { format!("Envoy ended: {status}") } else { format!("Envoy ended: {status}: {words}") }
}

fn tail(log: &Path) -> io::Result<String> {
    let mut file = std::fs::File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
