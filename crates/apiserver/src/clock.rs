//! What time it is for a server: that of the machine, or one that a test sets by hand.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

/// The source of every time that the server writes into objects. Clones show the same time.
///
/// How long something lasts (watches, bookmarks, the history window) is tokio's time, which tests pause there.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<Arc<Mutex<Timestamp>>>);

impl Clock {
    /// A clock that stands still until [`Clock::advance`].
    pub fn paused(at: Timestamp) -> Self {
        Self(Some(Arc::new(Mutex::new(at))))
    }

    /// Moves a paused clock on; the clock of the machine goes by itself.
    pub fn advance(&self, by: Duration) {
        if let Some(time) = &self.0 {
            let mut time = time.lock();
            *time += by;
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.0.as_ref().map_or_else(Timestamp::now, |time| *time.lock())
    }
}
