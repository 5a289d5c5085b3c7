//! Token buckets, one per action.

use std::collections::BTreeMap;
use std::time::Instant;

/// How many calls of an action an account may make.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Throttle {
    /// Calls at once.
    pub burst: f64,
    /// Calls a second.
    pub per_second: f64,
}

pub(super) struct Buckets {
    pub(super) reads: Throttle,
    pub(super) writes: Throttle,
    left: BTreeMap<String, (f64, Instant)>,
}

impl Default for Buckets {
    /// What AWS documents: 100 and 20 a second for Describes, 50 and 5 a second for the rest.
    fn default() -> Self {
        Self {
            reads: Throttle { burst: 100.0, per_second: 20.0 },
            writes: Throttle { burst: 50.0, per_second: 5.0 },
            left: BTreeMap::new(),
        }
    }
}

impl Buckets {
    pub(super) fn set(&mut self, reads: Throttle, writes: Throttle) {
        *self = Self { reads, writes, left: BTreeMap::new() };
    }

    /// False if the call is one too many.
    pub(super) fn take(&mut self, action: &str) -> bool {
        let rate = if action.starts_with("Describe") { self.reads } else { self.writes };
        let now = Instant::now();
        let (left, since) = self.left.get(action).copied().unwrap_or((rate.burst, now));
        let left = (left + now.duration_since(since).as_secs_f64() * rate.per_second).min(rate.burst);
        let is_granted = left >= 1.0;
        self.left.insert(action.to_owned(), (if is_granted { left - 1.0 } else { left }, now));
        is_granted
    }
}
