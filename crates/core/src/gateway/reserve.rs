//! Which number each child of a parent gets, in two writes that both are locked by a resource version.
//!
//! ```text
//! 1. the parent's status: its counter rises, and `pending` names the child and its number
//! 2. the child: it carries the number
//! 3. the entry in `pending` goes with the next write of the parent
//! ```
//!
//! After a crash between 1 and 2 the child is given the very number that `pending` names. Of two writers that reserve at
//! the same time, one is refused by the API server, and sees the other's reservation when it looks again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::keys::KeySpace;

/// Who a number is for. The uid comes first: an object that was deleted and made again is another one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder {
    /// Uid of the object.
    pub uid: Arc<str>,
    /// Its namespace and name.
    pub object: Arc<str>,
    /// The client's node, for the id of a tunnel.
    pub node: Option<IpAddr>,
}

/// A child of the parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// Who it is.
    pub holder: Holder,
    /// The number that it carries. None while it waits for one.
    pub number: Option<u32>,
}

/// A parent, as it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Parent {
    /// The highest number that was ever handed out, as its status says.
    pub counter: u32,
    /// Numbers that are reserved for children.
    pub pending: BTreeMap<Holder, u32>,
}

/// What is to be done about the children of a parent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reservations {
    /// The parent as it should be.
    pub parent: Parent,
    /// Children whose number is reserved in the parent that was read: they can be given it.
    pub granted: BTreeMap<Holder, u32>,
    /// Children that carry a number of an older one.
    pub duplicates: BTreeMap<Holder, Holder>,
    /// Children for which there is no number left.
    pub exhausted: BTreeSet<Holder>,
    /// Someone waits for the parent to be written. Otherwise a difference of the parent can wait.
    pub is_urgent: bool,
}

/// New reservations in one write of a parent.
const BATCH: usize = 64;
/// Reservations of a parent: as many as its schema allows.
const MOST_PENDING: usize = 256;

/// Decides for all children of a parent. Children come oldest first: if two carry the same number, the older keeps it.
/// `space` has the parent's counter, and the numbers that were released a short time ago.
pub fn reserve(parent: &Parent, children: &[Child], mut space: KeySpace) -> Reservations {
    let mut reservations = Reservations::default();
    // ascending numbers are few intervals; of children with equal numbers the oldest comes first
    let numbers = children.iter().enumerate().filter_map(|(at, child)| Some((child.number?, at)));
    let mut carried: Vec<(u32, usize)> = numbers.collect();
    carried.sort_unstable();
    let mut last: Option<(u32, usize)> = None;
    for (number, at) in carried {
        if let Some((_, older)) = last.filter(|(same, _)| *same == number) {
            reservations.duplicates.insert(children[at].holder.clone(), children[older].holder.clone());
        } else {
            last = Some((number, at));
            space.add_live(number);
        }
    }
    let waiting: BTreeSet<&Holder> =
        children.iter().filter(|child| child.number.is_none()).map(|child| &child.holder).collect();
    for (holder, number) in &parent.pending {
        // an entry of a child that is gone or served is dropped; so is one whose number was given away by hand
        if waiting.contains(holder) && space.reserve(*number) {
            reservations.granted.insert(holder.clone(), *number);
        }
    }
    let mut pending = reservations.granted.clone();
    let room = BATCH.min(MOST_PENDING.saturating_sub(pending.len()));
    let unserved = children.iter().map(|child| &child.holder);
    let unserved = unserved.filter(|holder| waiting.contains(holder) && !reservations.granted.contains_key(holder));
    let mut reserved = 0;
    for holder in unserved {
        if reserved == room {
            reservations.is_urgent = true;
            break;
        }
        match space.take() {
            None => drop(reservations.exhausted.insert(holder.clone())),
            Some(number) => {
                pending.insert(holder.clone(), number);
                reserved += 1;
            }
        }
    }
    reservations.is_urgent |= reserved > 0;
    reservations.parent = Parent { counter: space.mark().max(parent.counter), pending };
    reservations
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn holder(number: usize) -> Holder {
        Holder { uid: format!("{number:03}").into(), object: format!("egw-a/lb{number}").into(), node: None }
    }

    fn waits(number: usize) -> Child {
        Child { holder: holder(number), number: None }
    }

    fn carries(child: usize, number: u32) -> Child {
        Child { holder: holder(child), number: Some(number) }
    }

    fn decide(parent: &Parent, children: &[Child]) -> Reservations {
        reserve(parent, children, KeySpace::keys(u16::try_from(parent.counter).unwrap()))
    }

    #[test]
    fn a_number_is_reserved_first_and_granted_once_that_is_written() {
        let children = [waits(0), waits(1)];
        let first = decide(&Parent::default(), &children);
        assert!(first.granted.is_empty() && first.is_urgent);
        assert_eq!((first.parent.counter, first.parent.pending.len()), (2, 2));
        let second = decide(&first.parent, &children);
        assert_eq!(second.granted, BTreeMap::from([(holder(0), 1), (holder(1), 2)]));
        assert!(!second.is_urgent, "nobody waits for the parent");
        assert_eq!(second.parent, first.parent);
        let third = decide(&second.parent, &[carries(0, 1), waits(1)]);
        assert_eq!(third.parent.pending, BTreeMap::from([(holder(1), 2)]));
        assert!(!third.is_urgent, "an entry that is not needed any more can wait");
    }

    #[test]
    fn one_write_reserves_for_at_most_64_children_and_one_parent_for_256() {
        let children: Vec<Child> = (0..400).map(waits).collect();
        let mut parent = Parent::default();
        for reserved in [64, 128, 192, 256, 256] {
            let decided = decide(&parent, &children);
            assert!(decided.is_urgent);
            parent = decided.parent;
            assert_eq!(parent.pending.len(), reserved);
        }
    }

    #[test]
    fn the_older_of_two_keeps_its_number_and_the_other_is_not_given_a_new_one() {
        let decided = decide(&Parent::default(), &[carries(5, 7), carries(3, 7), waits(4)]);
        assert_eq!(decided.duplicates, BTreeMap::from([(holder(3), holder(5))]));
        assert_eq!(decided.parent.pending, BTreeMap::from([(holder(4), 8)]));
    }

    #[test]
    fn a_reservation_that_somebody_else_took_is_made_anew() {
        let parent = Parent { counter: 1, pending: BTreeMap::from([(holder(0), 1)]) };
        let decided = decide(&parent, &[carries(9, 1), waits(0)]);
        assert_eq!((decided.granted.len(), decided.parent.pending), (0, BTreeMap::from([(holder(0), 2)])));
    }

    #[test]
    fn without_a_number_left_a_child_stays_without() {
        let parent = Parent { counter: u16::MAX.into(), ..Parent::default() };
        let mut children: Vec<Child> =
            (1..=65535).map(|number| carries(number, u32::try_from(number).unwrap())).collect();
        children.push(waits(70_000));
        let decided = decide(&parent, &children);
        assert_eq!(decided.exhausted, BTreeSet::from([holder(70_000)]));
        assert!(!decided.is_urgent && decided.parent.pending.is_empty());
    }

    /// The API server, as far as resource versions go, and what it refuses.
    #[derive(Debug, Clone, Default)]
    struct Server {
        parent: (u32, Parent),
        children: BTreeMap<usize, (u32, Child)>,
        next: usize,
    }

    /// One of two operators that both believe to lead.
    #[derive(Debug, Clone, Default)]
    struct Operator {
        seen: Server,
    }

    #[derive(Debug, Clone)]
    enum Step {
        Create,
        Delete(usize),
        Restart(usize),
        Read(usize),
        WriteParent(usize),
        WriteChild(usize, usize),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            2 => Just(Step::Create),
            1 => (0usize..20).prop_map(Step::Delete),
            1 => (0usize..2).prop_map(Step::Restart),
            4 => (0usize..2).prop_map(Step::Read),
            4 => (0usize..2).prop_map(Step::WriteParent),
            4 => ((0usize..2), (0usize..20)).prop_map(|(operator, child)| Step::WriteChild(operator, child)),
        ];
        prop::collection::vec(step, 0..120)
    }

    impl Server {
        fn write_parent(&mut self, seen: &Self) {
            let children: Vec<Child> = seen.children.values().map(|(_, child)| child.clone()).collect();
            let decided = decide(&seen.parent.1, &children);
            if self.parent.0 == seen.parent.0 && decided.parent != seen.parent.1 {
                self.parent = (self.parent.0 + 1, decided.parent);
            }
        }

        fn write_child(&mut self, seen: &Self, which: usize) {
            let children: Vec<Child> = seen.children.values().map(|(_, child)| child.clone()).collect();
            let granted = decide(&seen.parent.1, &children).granted;
            let Some((version, child)) = seen.children.get(&which) else { return };
            let Some(number) = granted.get(&child.holder) else { return };
            if let Some((stored, child)) = self.children.get_mut(&which).filter(|(stored, _)| stored == version) {
                *stored += 1;
                child.number = Some(*number);
            }
        }

        fn numbers(&self) -> Vec<u32> {
            self.children.values().filter_map(|(_, child)| child.number).collect()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn two_operators_that_see_old_objects_never_give_a_number_twice(steps in steps()) {
            let mut server = Server::default();
            let mut operators = [Operator::default(), Operator::default()];
            for step in steps {
                match step {
                    Step::Create => {
                        server.children.insert(server.next, (0, waits(server.next)));
                        server.next += 1;
                    }
                    Step::Delete(which) => drop(server.children.remove(&which)),
                    Step::Restart(operator) => operators[operator] = Operator { seen: server.clone() },
                    // a watch may show the parent and its children of different moments
                    Step::Read(operator) => {
                        let Operator { seen } = &mut operators[operator];
                        if server.parent.0 > seen.parent.0 { seen.parent = server.parent.clone(); }
                        else { seen.children = server.children.clone(); seen.next = server.next; }
                    }
                    Step::WriteParent(operator) => server.write_parent(&operators[operator].seen),
                    Step::WriteChild(operator, which) => server.write_child(&operators[operator].seen, which),
                }
                let numbers = server.numbers();
                let distinct: BTreeSet<u32> = numbers.iter().copied().collect();
                prop_assert_eq!(distinct.len(), numbers.len(), "a number was given twice");
                prop_assert!(!distinct.contains(&0));
            }
            for _ in 0..3 {
                let seen = server.clone();
                server.write_parent(&seen);
                let seen = server.clone();
                seen.children.keys().for_each(|which| server.write_child(&seen, *which));
            }
            prop_assert_eq!(server.numbers().len(), server.children.len(), "everybody is served in the end");
            prop_assert!(server.parent.1.pending.is_empty(), "no reservation is left over");
        }
    }
}
