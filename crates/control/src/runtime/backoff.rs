//! Delays between retries: exponential, jittered, without end.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// How fast retries slow down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub first: Duration,
    pub most: Duration,
}

impl Backoff {
    /// For requests to the API server: quick at first, at most half a minute.
    pub const REQUESTS: Self = Self { first: Duration::from_millis(50), most: Duration::from_secs(30) };
    /// For lost races on one object, which are over in the time of one request.
    pub const CONFLICTS: Self = Self { first: Duration::from_millis(10), most: Duration::from_millis(320) };

    /// For a proxy that is away: one that is started again is found within a second.
    pub const PROXIES: Self = Self { first: Duration::from_millis(100), most: Duration::from_secs(15) };

    /// An endless sequence of delays; each lies between its step and twice its step.
    pub fn delays(self) -> Delays {
        Delays { shape: self, steps: self.steps() }
    }

    fn steps(self) -> ExponentialBackoff {
        ExponentialBuilder::default()
            .with_min_delay(self.first)
            .with_max_delay(self.most)
            .with_jitter()
            .without_max_times()
            .build()
    }
}

/// Where a retrying piece of work stands; success resets it.
#[derive(Debug)]
pub struct Delays {
    shape: Backoff,
    steps: ExponentialBackoff,
}

impl Delays {
    /// The delay before the next try.
    pub fn pause(&mut self) -> Duration {
        self.steps.next().unwrap_or(self.shape.most)
    }

    /// Starts over after a success.
    pub fn reset(&mut self) {
        self.steps = self.shape.steps();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_their_bound_and_start_over_after_a_reset() {
        let shape = Backoff { first: Duration::from_millis(10), most: Duration::from_secs(1) };
        let mut delays = shape.delays();
        let first = delays.pause();
        assert!(first >= shape.first && first <= 2 * shape.first, "{first:?}");
        let late = (0..40).map(|_| delays.pause()).last().unwrap();
        assert!(late >= shape.most && late <= 2 * shape.most, "{late:?}");
        delays.reset();
        assert!(delays.pause() <= 2 * shape.first);
    }
}
