//! Nodes that come and go too often: their return waits, their loss never does.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::types::NodeName;

/// How often nodes of one remote came and went lately. Times are durations since any fixed point.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FlapDamping {
    nodes: BTreeMap<NodeName, Flips>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Flips {
    ready: bool,
    /// When it changed lately.
    changes: VecDeque<Duration>,
    /// It counts as not ready until then.
    until: Option<Duration>,
}

impl FlapDamping {
    /// Follows whether a node is ready; gives until when it is damped, if it is.
    pub fn follow(&mut self, node: &NodeName, ready: bool, now: Duration) -> Option<Duration> {
        let Some(flips) = self.nodes.get_mut(node) else {
            self.nodes.insert(node.clone(), Flips { ready, ..Flips::default() });
            return None;
        };
        while flips.changes.front().is_some_and(|at| *at + WINDOW <= now) {
            flips.changes.pop_front();
        }
        if flips.ready != ready {
            flips.ready = ready;
            flips.changes.push_back(now);
            let returns_too_often = ready && flips.changes.len() > MOST_CHANGES;
            flips.until = returns_too_often.then_some(now + WAIT);
        }
        flips.until = flips.until.filter(|until| *until > now);
        flips.until
    }

    /// Forgets a node that no longer exists.
    pub fn forget(&mut self, node: &NodeName) {
        self.nodes.remove(node);
    }
}

/// Changes that count.
const WINDOW: Duration = Duration::from_mins(5);
/// More changes than this within the window make a return wait.
const MOST_CHANGES: usize = 3;
/// How long a return waits.
const WAIT: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_flaps_returns_late_and_leaves_at_once() {
        let mut damping = FlapDamping::default();
        let node: NodeName = "n1".into();
        let second = Duration::from_secs;
        let mut follow = |ready, at| damping.follow(&node, ready, second(at));
        assert_eq!(follow(true, 0), None);
        assert_eq!((follow(false, 1), follow(true, 2), follow(false, 3)), (None, None, None));
        assert_eq!(follow(true, 4), Some(second(34)), "the fourth change within five minutes");
        assert_eq!(follow(true, 33), Some(second(34)));
        assert_eq!(follow(true, 34), None);
        assert_eq!(follow(false, 35), None, "a loss never waits");
        assert_eq!(follow(true, 36), Some(second(66)));
        assert_eq!(follow(false, 400), None);
        assert_eq!(follow(true, 401), None, "those changes are long ago");
    }
}
