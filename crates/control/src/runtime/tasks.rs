//! The owner of every task: each has a name, one stop signal and someone who looks when it ends.
//!
//! A task of a control plane runs until it is told to stop. One that ends before, or panics, has left a hole
//! that nobody sees from outside (a watch without a reader, a lease that is no longer renewed), so it is logged
//! by name and [`Tasks::failed`] wakes the process, which exits and is started anew.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// A handle on a process's tasks; clones share them.
#[derive(Clone)]
pub struct Tasks {
    shared: Arc<Shared>,
}

struct Shared {
    stop: CancellationToken,
    tracker: TaskTracker,
    running: Mutex<BTreeMap<u64, (&'static str, AbortHandle)>>,
    next_id: AtomicU64,
    failed: watch::Sender<Option<&'static str>>,
}

impl Tasks {
    /// Owns nothing yet.
    pub fn new() -> Self {
        let shared = Shared {
            stop: CancellationToken::new(),
            tracker: TaskTracker::new(),
            running: Mutex::default(),
            next_id: AtomicU64::new(0),
            failed: watch::Sender::new(None),
        };
        Self { shared: Arc::new(shared) }
    }

    /// The signal that tells every task to end.
    pub fn stop(&self) -> CancellationToken {
        self.shared.stop.clone()
    }

    /// Starts a task that runs until [`stop`](Self::stop); ending earlier is a failure.
    pub fn spawn(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        self.start(name, Ending::OnStop, future);
    }

    /// Starts a task that may end when its work is done; only a panic is a failure.
    pub fn spawn_finite(&self, name: &'static str, future: impl Future<Output = ()> + Send + 'static) {
        self.start(name, Ending::WhenDone, future);
    }

    /// The names of the tasks that have not ended, sorted; a name stands once per task.
    pub fn running(&self) -> Vec<&'static str> {
        let mut names: Vec<_> = self.shared.running.lock().values().map(|(name, _)| *name).collect();
        names.sort_unstable();
        names
    }

    /// Waits until a task fails, and names the first that did.
    pub async fn failed(&self) -> &'static str {
        let mut failed = self.shared.failed.subscribe();
        loop {
            if let Some(name) = *failed.borrow_and_update() {
                return name;
            }
            // The sender lives as long as `self`, so this ends only with a change.
            if failed.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Stops all tasks, waits for them at most `deadline`, ends the rest by force and names those.
    pub async fn drain(self, deadline: Duration) -> Vec<&'static str> {
        self.shared.stop.cancel();
        self.shared.tracker.close();
        if tokio::time::timeout(deadline, self.shared.tracker.wait()).await.is_ok() {
            return Vec::new();
        }
        let late = self.running();
        for (_, task) in self.shared.running.lock().values() {
            task.abort();
        }
        late
    }

    fn start(&self, name: &'static str, ending: Ending, future: impl Future<Output = ()> + Send + 'static) {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let owned = Owned { shared: self.shared.clone(), id };
        // Held until the entry is in, so that a task which ends at once still finds it.
        let mut running = self.shared.running.lock();
        let task = self.shared.tracker.spawn(
            async move {
                let ended = AssertUnwindSafe(future).catch_unwind().await;
                owned.shared.judge(name, ending, ended);
                drop(owned);
            }
            .instrument(tracing::info_span!("task", name)),
        );
        running.insert(id, (name, task.abort_handle()));
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    OnStop,
    WhenDone,
}

impl Shared {
    fn judge(&self, name: &'static str, ending: Ending, ended: Result<(), Box<dyn Any + Send>>) {
        match ended {
            Ok(()) if ending == Ending::WhenDone || self.stop.is_cancelled() => return,
            Ok(()) => tracing::error!(task = name, "task ended although nobody stopped it"),
            Err(panic) => tracing::error!(task = name, message = panic_text(&*panic), "task panicked"),
        }
        self.failed.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert(name);
            is_first
        });
    }
}

/// Takes a task off the list however it ends, by force included.
struct Owned {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Owned {
    fn drop(&mut self) {
        self.shared.running.lock().remove(&self.id);
    }
}

/// What a panic said, where it said it in text.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no text)")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    #[tokio::test]
    async fn a_drain_stops_every_task_and_names_none() {
        let tasks = Tasks::new();
        for name in ["one", "two"] {
            let stop = tasks.stop();
            tasks.spawn(name, async move { stop.cancelled().await });
        }
        assert_eq!(tasks.running(), ["one", "two"]);
        assert!(tasks.drain(SOON).await.is_empty());
    }

    #[tokio::test]
    async fn a_task_that_ignores_the_stop_signal_is_ended_by_force_and_named() {
        let tasks = Tasks::new();
        let (alive, ended) = tokio::sync::oneshot::channel::<()>();
        tasks.spawn("deaf", async move {
            let _alive = alive;
            std::future::pending::<()>().await;
        });
        let stop = tasks.stop();
        tasks.spawn("polite", async move { stop.cancelled().await });
        let others = tasks.clone();
        assert_eq!(tasks.drain(Duration::from_millis(50)).await, ["deaf"]);
        ended.await.unwrap_err();
        assert!(others.running().is_empty());
    }

    #[tokio::test]
    async fn a_task_that_panics_or_ends_early_surfaces_by_name() {
        let tasks = Tasks::new();
        tasks.spawn_finite("short work", async {});
        tasks.spawn("panics", async { panic!("on purpose") });
        assert_eq!(tasks.failed().await, "panics");

        let tasks = Tasks::new();
        tasks.spawn("ends early", async {});
        assert_eq!(tasks.failed().await, "ends early");
        assert_eq!(tasks.failed().await, "ends early", "the failure stays known");
    }

    #[tokio::test]
    async fn ending_after_the_stop_signal_is_no_failure() {
        let tasks = Tasks::new();
        let stop = tasks.stop();
        tasks.spawn("worker", async move { stop.cancelled().await });
        let watcher = tasks.clone();
        assert!(tasks.drain(SOON).await.is_empty());
        assert_eq!(watcher.failed().now_or_never(), None);
    }
}
