//! Time as planners have it.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

/// Milliseconds since the Unix epoch.
pub type Moment = u64;

/// Milliseconds since the epoch, of a clock that never goes back. Copies show the same time.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    began: Instant,
    began_at: Moment,
}

impl Clock {
    /// Reads the time of day once.
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { began: Instant::now(), began_at: millis(since_epoch) }
    }

    /// Now.
    pub fn now(&self) -> Moment {
        self.began_at + millis(self.began.elapsed())
    }

    /// When a moment comes; now if it is over.
    pub fn instant(&self, moment: Moment) -> Instant {
        Instant::now() + Duration::from_millis(moment.saturating_sub(self.now()))
    }
}

/// A time span as planners have it.
pub fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
