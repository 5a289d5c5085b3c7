//! Says on each ticket what was done, and why not.

use kube::Resource;
use portolan_control::runtime::Error;
use portolan_control::runtime::conditions::condition;
use portolan_testkit::ticket::TicketStatus;

use super::act::{Act, Done};
use super::model::Plan;
use super::observe::{Cache, Seen};
use super::validate::Rejected;

pub(crate) async fn write(
    act: &Act,
    cache: &Cache,
    seen: &Seen,
    rejected: &Rejected,
    plan: &Plan,
    done: &Done,
) -> Result<(), Error> {
    for (key, ticket) in seen.tickets.iter().filter(|(_, ticket)| ticket.meta().deletion_timestamp.is_none()) {
        let number = plan.taken.get(&key.name).copied().filter(|_| done.contains(&key.name));
        let (state, reason, message) = match (rejected.get(&key.name), number) {
            (Some((reason, message)), _) => (false, *reason, message.clone()),
            (None, Some(number)) => (true, "Numbered", format!("holds number {number}")),
            (None, None) => (false, "NoNumberFree", "every number is taken: raise spec.last of Office `office`".into()),
        };
        let generation = ticket.metadata.generation.unwrap_or_default();
        let want =
            TicketStatus { number, conditions: vec![condition("Ready", Some(state), reason, message, generation)] };
        act.writer.status(&cache.tickets, ticket, &want).await?;
    }
    Ok(())
}
