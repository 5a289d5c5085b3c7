//! Cycles of VirtualServices that call each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::mesh::control::types::ObjectName;

/// The call graph of VirtualServices, and its cycles.
#[derive(Debug, Clone, Default)]
pub(super) struct CallCycles {
    edges: BTreeMap<ObjectName, BTreeSet<ObjectName>>,
    /// The members of the cycles of each VirtualService.
    cycles: BTreeMap<ObjectName, BTreeSet<ObjectName>>,
}

impl CallCycles {
    /// All VirtualServices on cycles through one of them.
    pub(super) fn cycle(&self, of: &ObjectName) -> Option<&BTreeSet<ObjectName>> {
        self.cycles.get(of)
    }

    /// Replaces the callees of a VirtualService, and returns those whose cycles changed.
    pub(super) fn set(&mut self, from: &ObjectName, to: BTreeSet<ObjectName>) -> Vec<ObjectName> {
        if self.edges.get(from).unwrap_or(&BTreeSet::new()) == &to {
            return Vec::new();
        }
        // a cycle through `from` only has members that are reachable from it
        let mut candidates = self.reachable(from);
        if to.is_empty() {
            self.edges.remove(from);
        } else {
            self.edges.insert(from.clone(), to);
        }
        candidates.extend(self.reachable(from));
        candidates.insert(from.clone());
        let differs = |one: &ObjectName| {
            let reachable = self.reachable(one);
            let cycle: BTreeSet<ObjectName> =
                reachable.iter().filter(|other| self.reachable(other).contains(one)).cloned().collect();
            (self.cycles.get(one).unwrap_or(&BTreeSet::new()) != &cycle).then_some((one.clone(), cycle))
        };
        let changed: Vec<_> = candidates.iter().filter_map(differs).collect();
        let mut names = Vec::new();
        for (name, cycle) in changed {
            names.push(name.clone());
            if cycle.is_empty() {
                self.cycles.remove(&name);
            } else {
                self.cycles.insert(name, cycle);
            }
        }
        names
    }

    /// All VirtualServices that are reachable from one.
    fn reachable(&self, from: &ObjectName) -> BTreeSet<ObjectName> {
        let mut seen = BTreeSet::new();
        let mut left: Vec<&ObjectName> = self.edges.get(from).into_iter().flatten().collect();
        while let Some(next) = left.pop() {
            if seen.insert(next.clone()) {
                left.extend(self.edges.get(next).into_iter().flatten());
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> ObjectName {
        ObjectName::new("n", name)
    }

    fn to(names: &[&str]) -> BTreeSet<ObjectName> {
        names.iter().map(|one| name(one)).collect()
    }

    #[test]
    fn a_cycle_changes_exactly_its_members() {
        let mut loops = CallCycles::default();
        assert!(loops.set(&name("a"), to(&["b"])).is_empty());
        assert!(loops.set(&name("b"), to(&["c", "x"])).is_empty());
        assert_eq!(loops.set(&name("c"), to(&["a"])), [name("a"), name("b"), name("c")]);
        assert_eq!(loops.cycle(&name("a")), Some(&to(&["a", "b", "c"])));
        assert_eq!(loops.cycle(&name("x")), None);
        assert_eq!(loops.set(&name("b"), to(&["x"])).len(), 3);
        assert_eq!(loops.cycle(&name("c")), None);
        assert_eq!(loops.set(&name("x"), to(&["x"])), [name("x")]);
    }
}
