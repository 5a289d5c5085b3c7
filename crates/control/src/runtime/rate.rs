//! A bound on how many requests leave in a second, over all queues of a capability.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// So many a second, and twice as many at once. Clones share the bound.
#[derive(Clone)]
pub struct Rate {
    interval: Duration,
    burst: Duration,
    /// When the bucket is full again, if nothing more is taken.
    full_at: Arc<Mutex<Instant>>,
}

impl Rate {
    /// At least one a second.
    pub fn per_second(count: u32) -> Self {
        let count = count.max(1);
        let interval = Duration::from_secs(1) / count;
        Self { interval, burst: interval * 2 * count, full_at: Arc::new(Mutex::new(Instant::now())) }
    }

    /// Returns when the next request may leave. First come, first served.
    pub async fn take(&self) {
        let now = Instant::now();
        let full_at = {
            let mut full_at = self.full_at.lock();
            *full_at = (*full_at).max(now) + self.interval;
            *full_at
        };
        if let Some(wait) = full_at.saturating_duration_since(now).checked_sub(self.burst) {
            tokio::time::sleep(wait).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn twice_as_many_leave_at_once_and_then_so_many_a_second() {
        let rate = Rate::per_second(100);
        let began = Instant::now();
        for _ in 0..200 {
            rate.take().await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in 0..100 {
            rate.take().await;
        }
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(990) && took <= Duration::from_millis(1110), "{took:?}");
    }
}
