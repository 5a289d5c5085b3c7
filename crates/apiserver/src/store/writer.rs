//! Group commit: one thread takes all writes that wait, puts them on disk in one transaction, then shows and answers
//! them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::RwLock;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::batch::{Batch, Write};
use super::disk::{Disk, Error};
use super::types::{Entry, Refused};
use super::view::View;

/// Writes that may wait before more callers do; also the largest batch.
const QUEUE: usize = 1024;

type Answer = Result<Arc<Entry>, Refused>;

#[derive(Debug)]
pub(super) struct Writer {
    /// Taken by `drop`: the thread ends when it is gone.
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

struct Job {
    write: Write,
    answer: oneshot::Sender<Answer>,
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

    pub(super) async fn commit(&self, write: Write) -> Answer {
        let (answer, answered) = oneshot::channel();
        if let Some(jobs) = &self.jobs
            && jobs.send(Job { write, answer }).await.is_ok()
            && let Ok(answer) = answered.await
        {
            return answer;
        }
        Err(Refused::Storage("the write was given up".into()))
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
    while queue.blocking_recv_many(&mut jobs, QUEUE) > 0 {
        let (batch, answers) = stage(view, jobs.drain(..));
        if failed.is_none() {
            failed = disk.write(batch.events(), batch.revision()).err().map(|error| explain(&error));
        }
        // After a failed sync nobody knows what is on disk, so nothing more is written on top of it.
        let refused = failed.clone().map(Refused::Storage);
        if refused.is_none() {
            batch.publish(Instant::now());
        }
        for (caller, answer) in answers {
            // A caller that is gone does not mind.
            drop(caller.send(refused.clone().map_or(answer, Err)));
        }
    }
}

fn stage(view: &RwLock<View>, jobs: impl Iterator<Item = Job>) -> (Batch<'_>, Vec<(oneshot::Sender<Answer>, Answer)>) {
    let mut batch = Batch::after(view);
    let mut answers = Vec::new();
    for Job { write, answer: caller } in jobs {
        // A value that panics costs its caller the answer, nobody else anything.
        if let Ok(answer) = catch_unwind(AssertUnwindSafe(|| batch.add(write))) {
            answers.push((caller, answer));
        }
    }
    (batch, answers)
}

fn explain(error: &redb::Error) -> Arc<str> {
    tracing::error!(%error, "writing the store failed: it takes no more writes");
    format!("{error}; look after the disk, then restart").into()
}
