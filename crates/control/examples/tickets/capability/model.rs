//! Which ticket gets which number: pure and total; the lowest free number first, and assigned numbers stay.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct World {
    pub(crate) tickets: BTreeSet<String>,
    /// Numbers go from 1 to this one.
    pub(crate) last: u64,
    /// What is recorded claims first.
    pub(crate) taken: BTreeMap<String, u64>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The ledger as it should be.
    pub(crate) taken: BTreeMap<String, u64>,
    /// Tickets for which no number is left.
    pub(crate) unmet: BTreeSet<String>,
}

pub(crate) fn plan(world: &World) -> Plan {
    let keep = |(ticket, number): (&String, &u64)| world.tickets.contains(ticket).then(|| (ticket.clone(), *number));
    let mut taken: BTreeMap<String, u64> = world.taken.iter().filter_map(keep).collect();
    let used: BTreeSet<u64> = taken.values().copied().collect();
    let mut free = (1..=world.last).filter(|number| !used.contains(number));
    let mut unmet = BTreeSet::new();
    for ticket in &world.tickets {
        if taken.contains_key(ticket) {
            continue;
        }
        match free.next() {
            Some(number) => {
                taken.insert(ticket.clone(), number);
            }
            None => {
                unmet.insert(ticket.clone());
            }
        }
    }
    Plan { taken, unmet }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_numbers_stay_and_new_tickets_get_the_lowest_free_one() {
        let world = World {
            tickets: ["a", "b", "c", "d"].map(String::from).into(),
            last: 3,
            taken: [("c".to_owned(), 1), ("gone".to_owned(), 2)].into(),
        };
        let planned = plan(&world);
        assert_eq!(
            planned.taken,
            [("a", 2), ("b", 3), ("c", 1)].map(|(name, number)| (name.to_owned(), number)).into()
        );
        assert_eq!(planned.unmet, ["d".to_owned()].into());
    }
}
