//! Chains of VirtualServices that lead back to where they began.

use std::collections::{BTreeMap, BTreeSet};

use crate::mesh::control::types::ObjectName;

/// Which VirtualService leads to which, and who is on a way back to itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Loops {
    edges: BTreeMap<ObjectName, BTreeSet<ObjectName>>,
    /// Everybody on a chain that leads back, with all others on it.
    cycles: BTreeMap<ObjectName, BTreeSet<ObjectName>>,
}

impl Loops {
    /// All VirtualServices on chains that lead from one back to it.
    pub(super) fn cycle(&self, of: &ObjectName) -> Option<&BTreeSet<ObjectName>> {
        self.cycles.get(of)
    }

    /// Notes where one leads, and gives back those for whom it makes a difference.
    pub(super) fn set(&mut self, from: &ObjectName, to: BTreeSet<ObjectName>) -> Vec<ObjectName> {
        if self.edges.get(from).unwrap_or(&BTreeSet::new()) == &to {
            return Vec::new();
        }
        // a chain back through `from` has only members that `from` leads to
        let mut concerned = self.ahead(from);
        if to.is_empty() {
            self.edges.remove(from);
        } else {
            self.edges.insert(from.clone(), to);
        }
        concerned.extend(self.ahead(from));
        concerned.insert(from.clone());
        let differs = |one: &ObjectName| {
            let ahead = self.ahead(one);
            let cycle: BTreeSet<ObjectName> =
                ahead.iter().filter(|other| self.ahead(other).contains(one)).cloned().collect();
            (self.cycles.get(one).unwrap_or(&BTreeSet::new()) != &cycle).then_some((one.clone(), cycle))
        };
        let changed: Vec<_> = concerned.iter().filter_map(differs).collect();
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

    /// Everybody that one leads to, over any number of others.
    fn ahead(&self, from: &ObjectName) -> BTreeSet<ObjectName> {
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
    fn a_chain_back_concerns_exactly_its_members() {
        let mut loops = Loops::default();
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
