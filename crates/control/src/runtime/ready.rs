//! Readiness as a set of named guards: the process is ready when nobody holds one.
//!
//! Each part that must be in place before traffic takes a guard while the process is put together and lets it go
//! when it is there, so that `/readyz` says who is still missing instead of just "no".

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// Who is still missing; clones share the set.
#[derive(Clone, Default)]
pub struct Readiness {
    /// How many guards each part holds; one that was ready and is held no more stays with none.
    held: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl Readiness {
    /// Nobody is missing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps the process unready until the guard is done or dropped; parts of the same name are counted.
    pub fn hold(&self, part: impl Into<String>) -> Guard {
        let part = part.into();
        *self.held.lock().entry(part.clone()).or_default() += 1;
        Guard { part, readiness: self.clone() }
    }

    /// True when no guard is held.
    pub fn is_ready(&self) -> bool {
        self.held.lock().values().all(|count| *count == 0)
    }

    /// The parts that are still held, sorted.
    pub fn waiting(&self) -> Vec<String> {
        self.parts().into_iter().filter(|(_, is_ready)| !is_ready).map(|(part, _)| part).collect()
    }

    /// Every part there ever was, sorted, and whether it is ready.
    pub fn parts(&self) -> Vec<(String, bool)> {
        self.held.lock().iter().map(|(part, count)| (part.clone(), *count == 0)).collect()
    }
}

/// One part that is not ready yet.
#[must_use = "dropping a guard says that its part is ready"]
pub struct Guard {
    part: String,
    readiness: Readiness,
}

impl Guard {
    /// Says that the part is ready.
    pub fn done(self) {
        tracing::debug!(part = self.part, "ready");
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut held = self.readiness.held.lock();
        let Some(count) = held.get_mut(&self.part) else { return };
        *count -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_is_ready_when_the_last_guard_is_gone() {
        let readiness = Readiness::new();
        let watch = readiness.hold("watch ConfigMap");
        let lease = readiness.hold("lease");
        let second_watch = readiness.clone().hold("watch ConfigMap");
        assert_eq!(readiness.waiting(), ["lease", "watch ConfigMap"]);

        watch.done();
        drop(lease);
        assert_eq!(readiness.waiting(), ["watch ConfigMap"], "the second holder of a name still counts");
        assert!(!readiness.is_ready());

        second_watch.done();
        assert!(readiness.is_ready());
        assert!(readiness.waiting().is_empty());
    }
}
