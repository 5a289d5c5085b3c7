//! Time as the planner has it.

use std::time::{Duration, SystemTime};

use portolan_core::ipam::Moment;
use tokio::time::Instant;

/// Milliseconds since the epoch, of a clock that never goes back. Copies show the same time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    began: Instant,
    began_at: Moment,
}

impl Clock {
    pub(super) fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { began: Instant::now(), began_at: millis(since_epoch) }
    }

    pub(super) fn now(&self) -> Moment {
        self.began_at + millis(self.began.elapsed())
    }

    /// When a moment comes; now if it is over.
    pub(super) fn instant(&self, moment: Moment) -> Instant {
        Instant::now() + Duration::from_millis(moment.saturating_sub(self.now()))
    }
}

/// A time span as the planner has it.
pub(super) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
