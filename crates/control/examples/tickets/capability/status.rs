//! Says on each ticket what was done, and why not.

use kube::Resource;
use portolan_control::runtime::conditions::condition;
use portolan_control::runtime::due::Prepared;
use portolan_control::runtime::store::Key;
use portolan_testkit::ticket::TicketStatus;

use super::act::Acting;
use super::observe::receipt_key;

/// What the status of a ticket needs. Its number is shown once its receipt is there.
pub(crate) fn prepare(acting: &Acting<'_>, key: &Key) -> Prepared<()> {
    let Acting { writer, cache, seen, rejected, plan } = acting;
    let ticket = seen.tickets.get(key).filter(|ticket| ticket.meta().deletion_timestamp.is_none());
    let Some(ticket) = ticket.cloned() else { return Prepared::Nothing };
    let number = acting.recorded(&key.name).filter(|_| cache.receipts.get(&receipt_key(key)).is_some());
    let (state, reason, message) = match (rejected.get(&key.name), number) {
        (Some((reason, message)), _) => (false, *reason, message.clone()),
        (None, Some(number)) => (true, "Numbered", format!("holds number {number}")),
        // it gets one, and is looked at again when that is recorded
        (None, None) if plan.taken.contains_key(&key.name) => return Prepared::Nothing,
        (None, None) => (false, "NoNumberFree", "every number is taken: raise spec.last of Office `office`".into()),
    };
    let generation = ticket.metadata.generation.unwrap_or_default();
    let want = TicketStatus { number, conditions: vec![condition("Ready", Some(state), reason, message, generation)] };
    let (writer, tickets) = ((*writer).clone(), cache.tickets.clone());
    Prepared::write(async move { writer.status(&tickets, ticket.as_ref(), &want).await.map(drop) })
}
