//! Passive health of endpoints, from the outcome of their sessions.

use crate::config::types::Outlier;

/// Longest ejection.
const LONGEST_MS: u64 = 300_000;
/// How long other sessions wait for the outcome of a probe.
const PROBE_MS: u64 = 1000;

/// An endpoint's health; times are of the monotonic clock, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Fine {
        failures: u32,
    },
    /// Ejected for the `times`th time in a row.
    Ejected {
        until: u64,
        times: u32,
    },
    /// Half open: one session probes it.
    Probed {
        until: u64,
        times: u32,
    },
}

impl Default for Health {
    fn default() -> Self {
        Self::Fine { failures: 0 }
    }
}

impl Health {
    pub(crate) const fn is_fine(&self) -> bool {
        matches!(self, Self::Fine { .. })
    }

    /// Whether a session may use it. After the ejection time, the first caller is the probe.
    pub(crate) const fn takes(&mut self, now: u64) -> bool {
        match *self {
            Self::Fine { .. } => true,
            Self::Ejected { until, .. } | Self::Probed { until, .. } if now < until => false,
            Self::Ejected { times, .. } | Self::Probed { times, .. } => {
                *self = Self::Probed { until: now + PROBE_MS, times };
                true
            }
        }
    }

    /// Whether one more failure is enough.
    pub(crate) const fn is_last_failure(&self, outlier: &Outlier) -> bool {
        let needed = outlier.consecutive_failures;
        matches!(*self, Self::Fine { failures } if needed > 0 && failures.saturating_add(1) >= needed)
    }

    /// A connection was made: enough for a probe, but it does not reset the failure count.
    pub(crate) const fn connected(&mut self) {
        if let Self::Probed { .. } = self {
            self.succeeded();
        }
    }

    pub(crate) const fn succeeded(&mut self) {
        *self = Self::Fine { failures: 0 };
    }

    /// Counts a failure; after enough of them the endpoint is ejected, each time for twice as long.
    pub(crate) fn failed(&mut self, outlier: &Outlier, may_eject: bool, now: u64) {
        match *self {
            Self::Fine { failures } => {
                let ejected = self.is_last_failure(outlier) && may_eject;
                *self =
                    if ejected { eject(outlier, 0, now) } else { Self::Fine { failures: failures.saturating_add(1) } };
            }
            // a session from before the ejection: already counted
            Self::Ejected { .. } => {}
            Self::Probed { times, .. } => *self = eject(outlier, times.saturating_add(1), now),
        }
    }
}

fn eject(outlier: &Outlier, times: u32, now: u64) -> Health {
    let first = (outlier.eject_for * 1000.0) as u64;
    Health::Ejected { until: now + (first << times.min(16)).min(LONGEST_MS), times }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_failures_eject_for_ten_seconds_and_failed_probes_double_that_to_five_minutes() {
        let outlier = Outlier::default();
        let mut health = Health::default();
        health.failed(&outlier, true, 0);
        health.succeeded();
        for _ in 0..2 {
            health.failed(&outlier, true, 0);
            assert!(health.takes(0));
        }
        health.failed(&outlier, true, 0);
        let mut now = 0;
        for pause in [10_000, 20_000, 40_000, 80_000, 160_000, 300_000, 300_000] {
            health.failed(&outlier, true, now);
            assert!(!health.takes(now + pause - 1), "after {pause}");
            now += pause;
            assert!(health.takes(now), "a probe after {pause}");
            assert!(!health.takes(now), "one probe at a time");
            health.failed(&outlier, true, now);
        }
        health.takes(now + 300_000);
        health.succeeded();
        assert_eq!(health, Health::default());
    }

    #[test]
    fn a_probe_without_an_outcome_makes_room_for_the_next() {
        let mut health = Health::Ejected { until: 100, times: 0 };
        assert_eq!([99, 100, 500, 1100].map(|now| health.takes(now)), [false, true, false, true]);
    }

    #[test]
    fn an_endpoint_stays_where_too_many_are_left_alone_or_none_ever_is() {
        let mut health = Health::default();
        (0..9).for_each(|_| health.failed(&Outlier::default(), false, 0));
        let never = Outlier { consecutive_failures: 0, ..Outlier::default() };
        (0..9).for_each(|_| health.failed(&never, true, 0));
        assert!(health.takes(0));
    }
}
