//! API objects -> checked types of the plan. A bad object steps aside with its reason.

use std::collections::BTreeMap;

use super::observe::Seen;
use super::plan::World;

/// Why a ticket is not accepted: reason and message.
pub(crate) type Rejected = BTreeMap<String, (&'static str, String)>;

pub(crate) fn all(seen: &Seen) -> (World, Rejected) {
    let mut rejected = Rejected::new();
    let mut world = World::default();
    for (key, ticket) in &seen.tickets {
        match ticket.spec.desk.as_deref() {
            Some(desk) if desk.contains(' ') => {
                let message = format!("desk `{desk}` has a space in it: write it without");
                rejected.insert(key.name.clone(), ("InvalidDesk", message));
            }
            _ => {
                world.tickets.insert(key.name.clone());
            }
        }
    }
    if let Some(office) = &seen.office {
        world.last = office.spec.last;
        world.taken = office.status.as_ref().map(|status| status.taken.clone()).unwrap_or_default();
    }
    (world, rejected)
}
