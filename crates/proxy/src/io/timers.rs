//! When a worker has to look at a session, a pending connection or a port.

use super::slab::Key;
use super::wheel::Wheel;
use std::collections::BTreeSet;

/// What is due at a second.
#[derive(Clone, Copy)]
pub(crate) enum TimerEvent {
    Idle(Key),
    PendingConnection(Key),
    /// A port that paused accepting.
    Port(u32),
}

/// Timers of one worker: exact ones of sessions, and a wheel of seconds for those that are usually rescheduled.
pub(crate) struct Timers {
    exact: BTreeSet<(u64, Key)>,
    wheel: Wheel<TimerEvent>,
}

impl Timers {
    pub(crate) fn new(now_ms: u64) -> Self {
        Self { exact: BTreeSet::new(), wheel: Wheel::new(now_ms / 1000) }
    }

    /// Schedules an event at a second of the monotonic clock.
    pub(crate) fn add(&mut self, second: u64, event: TimerEvent) {
        self.wheel.add(second, event);
    }

    /// Moves the exact timer of a session from `before` to `due`, in milliseconds; 0 is none.
    pub(crate) fn rearm(&mut self, key: Key, before: u64, due: u64) {
        self.exact.remove(&(before, key));
        if due > 0 {
            self.exact.insert((due, key));
        }
    }

    /// The next session whose exact timer is due.
    pub(crate) fn pop_due(&mut self, now_ms: u64) -> Option<Key> {
        let (_, key) = self.exact.first().copied().filter(|(at, _)| *at <= now_ms)?;
        self.exact.pop_first();
        Some(key)
    }

    /// Events due up to this second.
    pub(crate) fn turn(&mut self, now_ms: u64) -> Vec<TimerEvent> {
        let mut due = Vec::new();
        self.wheel.turn(now_ms / 1000, &mut due);
        due
    }

    /// Milliseconds to the next exact timer, at most a second.
    pub(crate) fn next_exact(&self, now_ms: u64) -> Option<u64> {
        self.exact.first().map(|(at, _)| at.saturating_sub(now_ms).min(1000))
    }

    pub(crate) fn has_wheel_events(&self) -> bool {
        !self.wheel.is_empty()
    }
}
