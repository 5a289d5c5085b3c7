//! A hashed wheel of one-second ticks for timers that are usually rescheduled, such as idle timeouts.

/// Slots of the wheel; a longer time goes round more than once.
const SLOTS: usize = 512;

/// Keys by the second at which they are due.
pub struct Wheel<K> {
    slots: Vec<Vec<(u64, K)>>,
    /// The second up to which everything has been handed out.
    done: u64,
    len: usize,
}

impl<K: Copy> Wheel<K> {
    pub fn new(now: u64) -> Self {
        Self { slots: (0..SLOTS).map(|_| Vec::new()).collect(), done: now, len: 0 }
    }

    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Hands `key` out at second `due`, or at the next turn if that is past.
    pub fn add(&mut self, due: u64, key: K) {
        let due = due.max(self.done + 1);
        self.slots[due as usize % SLOTS].push((due, key));
        self.len += 1;
    }

    /// Moves to second `now` and puts what is due into `out`.
    pub fn turn(&mut self, now: u64, out: &mut Vec<K>) {
        if now <= self.done {
            return;
        }
        let steps = (now - self.done).min(SLOTS as u64);
        for second in now - steps + 1..=now {
            let slot = &mut self.slots[second as usize % SLOTS];
            let before = slot.len();
            slot.retain(|(due, key)| {
                if *due <= now {
                    out.push(*key);
                }
                *due > now
            });
            self.len -= before - slot.len();
        }
        self.done = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_comes_out_once_at_its_second_however_far() {
        let mut wheel = Wheel::new(100);
        for due in [90, 101, 105, 105, 700, 2000] {
            wheel.add(due, due);
        }
        let mut seen = Vec::new();
        for now in 100..2100 {
            let mut out = Vec::new();
            wheel.turn(now, &mut out);
            seen.extend(out.into_iter().map(|key| (now, key)));
        }
        assert_eq!(seen, [(101, 90), (101, 101), (105, 105), (105, 105), (700, 700), (2000, 2000)]);
        assert!(wheel.is_empty());
    }

    #[test]
    fn a_long_pause_loses_no_timer() {
        let mut wheel = Wheel::new(0);
        (1..2000).for_each(|due| wheel.add(due, due));
        let mut out = Vec::new();
        wheel.turn(5000, &mut out);
        assert_eq!(out.len(), 1999);
    }
}
