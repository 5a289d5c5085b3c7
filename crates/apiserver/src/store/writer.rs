//! Group commit: one thread takes all pending writes, commits them to disk in one transaction, then publishes and
//! acknowledges them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::RwLock;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::batch::{Batch, PendingWrite};
use super::disk::{Disk, Error};
use super::types::{Entry, Refused};
use super::view::View;

/// Writes that may wait before more callers do; also the largest batch.
const QUEUE: usize = 1024;

const CLOSED: &str = "the store is closed";

type Answer = Result<Arc<Entry>, Refused>;

#[derive(Debug)]
pub(super) struct Writer {
    /// Taken by `drop`: the thread ends when it is gone.
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

enum Job {
    Write { write: PendingWrite, answer: oneshot::Sender<Answer> },
    Close { closed: oneshot::Sender<()> },
}

impl Writer {
    pub(super) fn start(disk: Disk, view: Arc<RwLock<View>>) -> Result<Self, Error> {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || run(disk, &view, queue))
            .map_err(|cause| Error::Start { cause })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    pub(super) async fn commit(&self, write: PendingWrite) -> Answer {
        let (answer, answered) = oneshot::channel();
        let Some(jobs) = &self.jobs else { return Err(Refused::Storage(CLOSED.into())) };
        if jobs.send(Job::Write { write, answer }).await.is_err() {
            return Err(Refused::Storage(CLOSED.into()));
        }
        answered.await.unwrap_or_else(|_| Err(Refused::Storage("the write was dropped".into())))
    }

    /// Ends the thread after the writes that wait; the folder is unlocked when this returns. Later writes are refused.
    pub(super) async fn close(&self) {
        let (closed, is_closed) = oneshot::channel();
        if let Some(jobs) = &self.jobs
            && jobs.send(Job::Close { closed }).await.is_ok()
        {
            // An error means that the thread has ended already.
            drop(is_closed.await);
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.jobs = None;
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the store's writer panicked");
        }
    }
}

fn run(mut disk: Disk, view: &RwLock<View>, mut queue: mpsc::Receiver<Job>) {
    let mut failed: Option<Arc<str>> = None;
    let mut jobs = Vec::new();
    let mut closing = Vec::new();
    while closing.is_empty() && queue.blocking_recv_many(&mut jobs, QUEUE) > 0 {
        let (batch, answers) = stage(view, jobs.drain(..), &mut closing);
        if failed.is_none() {
            failed = disk.write(batch.events(), batch.revision()).err().map(|error| explain(&error));
        }
        // After a failed sync nobody knows what is on disk, so nothing more is written on top of it.
        let refused = failed.clone().map(Refused::Storage);
        if refused.is_none() {
            batch.publish(Instant::now());
        }
        for (caller, answer) in answers {
            // The caller may be gone.
            drop(caller.send(refused.clone().map_or(answer, Err)));
        }
    }
    // Drops later jobs, then unlocks the folder, then reports that.
    drop(queue);
    drop(disk);
    for closed in closing {
        closed.send(()).ok();
    }
}

fn stage<'a>(
    view: &'a RwLock<View>,
    jobs: impl Iterator<Item = Job>,
    closing: &mut Vec<oneshot::Sender<()>>,
) -> (Batch<'a>, Vec<(oneshot::Sender<Answer>, Answer)>) {
    let mut batch = Batch::after(view);
    let mut answers = Vec::new();
    for job in jobs {
        match job {
            Job::Close { closed } => closing.push(closed),
            // A change that panics fails for its caller only.
            Job::Write { write, answer: caller } => {
                if let Ok(answer) = catch_unwind(AssertUnwindSafe(|| batch.add(write))) {
                    answers.push((caller, answer));
                }
            }
        }
    }
    (batch, answers)
}

fn explain(error: &redb::Error) -> Arc<str> {
    tracing::error!(%error, "writing the store failed: it takes no more writes");
    format!("{error}; look after the disk, then restart").into()
}
