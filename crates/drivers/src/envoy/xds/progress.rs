//! What became of a unit, over all streams of its Envoys.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use portolan_core::gateway::ports::PortNumber;
use portolan_core::gateway::unit::Unit;

use super::machine::Machine;

/// What the streams of a unit have reported.
pub(in crate::envoy) struct Progress {
    inner: Mutex<Inner>,
    wake: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Inner {
    streams: BTreeMap<u64, StreamReport>,
    last_stream: u64,
    summary: Summary,
}

#[derive(Default, Clone, PartialEq, Eq)]
struct StreamReport {
    answered: Option<Arc<Unit>>,
    rejected: BTreeMap<PortNumber, Arc<str>>,
}

/// What became of a unit.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(in crate::envoy) struct Summary {
    /// At least one Envoy is connected.
    pub(in crate::envoy) is_connected: bool,
    /// The last unit that all of them have answered for.
    pub(in crate::envoy) answered: Option<Arc<Unit>>,
    /// What any of them does not accept.
    pub(in crate::envoy) rejected: BTreeMap<PortNumber, Arc<str>>,
    /// Another Envoy has connected.
    pub(in crate::envoy) mismatch: Option<Arc<str>>,
}

impl Progress {
    /// `wake` is called when the summary has changed.
    pub(in crate::envoy) fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self { inner: Mutex::default(), wake: Box::new(wake) }
    }

    pub(in crate::envoy) fn summary(&self) -> Summary {
        self.inner.lock().summary.clone()
    }

    pub(super) fn set_mismatch(&self, mismatch: Option<Arc<str>>) {
        self.update(|inner| inner.summary.mismatch = mismatch);
    }

    fn update(&self, change: impl FnOnce(&mut Inner)) {
        let mut inner = self.inner.lock();
        let before = inner.summary.clone();
        change(&mut inner);
        inner.summarise();
        let has_changed = inner.summary != before;
        drop(inner);
        if has_changed {
            (self.wake)();
        }
    }
}

impl Inner {
    fn summarise(&mut self) {
        let Self { streams, summary, .. } = self;
        summary.is_connected = !streams.is_empty();
        summary.rejected = streams.values().flat_map(|stream| stream.rejected.clone()).collect();
        let mut answered = streams.values().map(|stream| &stream.answered);
        match answered.next() {
            None => summary.answered = None,
            Some(first) if first.is_some() && answered.all(|other| other == first) => {
                summary.answered.clone_from(first);
            }
            Some(_) => {}
        }
    }
}

/// The place of one stream; it is given up when dropped.
pub(super) struct StreamGuard {
    progress: Arc<Progress>,
    stream: u64,
}

impl StreamGuard {
    pub(super) fn open(progress: Arc<Progress>) -> Self {
        let mut stream = 0;
        progress.update(|inner| {
            inner.last_stream += 1;
            stream = inner.last_stream;
            inner.streams.insert(stream, StreamReport::default());
        });
        Self { progress, stream }
    }

    /// Reports what the client of this stream has answered for.
    pub(super) fn report(&self, machine: &Machine) {
        self.progress.update(|inner| {
            let Some(report) = inner.streams.get_mut(&self.stream) else { return };
            report.rejected = machine.rejected();
            if machine.is_settled() {
                report.answered.clone_from(&machine.wanted().unit);
            }
        });
    }
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.progress.update(|inner| drop(inner.streams.remove(&self.stream)));
    }
}
