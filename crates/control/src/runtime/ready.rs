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
    /// A part that is held no more stays, without guards.
    held: Arc<Mutex<BTreeMap<String, Part>>>,
}

#[derive(Debug, Clone, Default)]
struct Part {
    guards: usize,
    /// Why it is not ready, if that is known.
    problem: Option<String>,
}

impl Readiness {
    /// Nobody is missing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps the process unready until the guard is done or dropped; parts of the same name are counted.
    pub fn hold(&self, part: impl Into<String>) -> Guard {
        let part = part.into();
        self.held.lock().entry(part.clone()).or_default().guards += 1;
        Guard { part, readiness: self.clone() }
    }

    /// True when no guard is held.
    pub fn is_ready(&self) -> bool {
        self.held.lock().values().all(|part| part.guards == 0)
    }

    /// The parts that are still held, sorted.
    pub fn waiting(&self) -> Vec<String> {
        self.parts().into_iter().filter(|(_, is_ready)| !is_ready).map(|(part, _)| part).collect()
    }

    /// Every part there ever was, sorted, and whether it is ready.
    pub fn parts(&self) -> Vec<(String, bool)> {
        self.held.lock().iter().map(|(name, part)| (name.clone(), part.guards == 0)).collect()
    }

    /// Why a part is not ready, if that is known.
    pub fn problem(&self, part: &str) -> Option<String> {
        self.held.lock().get(part)?.problem.clone()
    }
}

/// One part that is not ready yet.
#[must_use = "dropping a guard says that its part is ready"]
pub struct Guard {
    part: String,
    readiness: Readiness,
}

impl Guard {
    /// Says why the part is not ready yet.
    pub fn because(&self, problem: impl Into<String>) {
        if let Some(part) = self.readiness.held.lock().get_mut(&self.part) {
            part.problem = Some(problem.into());
        }
    }

    /// Says that the part is ready.
    pub fn done(self) {
        tracing::debug!(part = self.part, "ready");
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut held = self.readiness.held.lock();
        let Some(part) = held.get_mut(&self.part) else { return };
        part.guards -= 1;
        if part.guards == 0 {
            part.problem = None;
        }
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
