//! Strings that very many objects repeat, such as label keys and names of nodes, kept once.

use std::collections::BTreeSet;
use std::sync::Arc;

/// Hands out one shared copy of equal strings; those that nobody uses any more are dropped from time to time.
#[derive(Debug, Default)]
pub(super) struct Interner {
    known: BTreeSet<Arc<str>>,
    /// How many strings there may be before unused ones are looked for.
    sweep_at: usize,
}

/// The least number of strings that is worth a sweep.
const SWEEP: usize = 1024;

impl Interner {
    /// The shared copy of a string.
    pub(super) fn get(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.known.get(text) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|one| Arc::strong_count(one) > 1);
            self.sweep_at = (2 * self.known.len()).max(SWEEP);
        }
        let shared = Arc::from(text);
        self.known.insert(Arc::clone(&shared));
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_are_one_and_unused_ones_are_dropped() {
        let mut strings = Interner::default();
        let kept = strings.get("kept");
        assert!(Arc::ptr_eq(&kept, &strings.get("kept")));
        for number in 0..10 * SWEEP {
            drop(strings.get(&number.to_string()));
        }
        assert!(strings.known.len() <= SWEEP, "{}", strings.known.len());
        assert!(Arc::ptr_eq(&kept, &strings.get("kept")));
    }
}
