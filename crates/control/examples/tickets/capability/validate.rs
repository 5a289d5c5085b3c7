//! API objects -> checked types of the plan. An invalid object is set aside with its reason.

use std::collections::BTreeMap;

use portolan_testkit::ticket::Ticket;

use super::model::World;
use super::observe::Seen;

/// Reason and message.
pub(crate) type Problem = (&'static str, String);

/// The tickets that are not accepted, by name.
pub(crate) type Rejected = BTreeMap<String, Problem>;

pub(crate) fn all(seen: &Seen) -> (World, Rejected) {
    let mut rejected = Rejected::new();
    let mut world = World::default();
    for (key, ticket) in &seen.tickets {
        match problem(ticket) {
            Some(problem) => drop(rejected.insert(key.name.clone(), problem)),
            None => drop(world.tickets.insert(key.name.clone())),
        }
    }
    if let Some(office) = &seen.office {
        world.last = office.spec.last;
        world.taken = office.status.as_ref().map(|status| status.taken.clone()).unwrap_or_default();
    }
    (world, rejected)
}

/// What the user has to edit.
pub(crate) fn problem(ticket: &Ticket) -> Option<Problem> {
    let desk = ticket.spec.desk.as_deref().filter(|desk| desk.contains(' '))?;
    Some(("InvalidDesk", format!("desk `{desk}` contains a space: remove it")))
}
