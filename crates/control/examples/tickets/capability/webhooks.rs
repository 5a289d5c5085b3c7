//! Admission: an invalid ticket is refused before it is stored. No side effects; the controller validates again.

use kube::core::admission::AdmissionRequest;
use portolan_control::runtime::capability::Admission;
use portolan_control::runtime::webhook::{Denied, Hook, Warnings, Webhooks};
use portolan_testkit::ticket::Ticket;

use super::{GROUP, validate};

/// What API servers ask.
pub(super) const ADMISSION: Admission =
    Admission { name: "portolan-tickets", validating: &[VALIDATE_TICKET], mutating: &[] };

const VALIDATE_TICKET: Hook = Hook {
    group: GROUP,
    version: "v1",
    path: "/validate-ticket",
    resource: "tickets",
    operations: &["CREATE", "UPDATE"],
    optional: false,
};

/// Adds the handlers of this capability.
pub(super) fn handlers(webhooks: Webhooks) -> Webhooks {
    webhooks.validate::<Ticket>(VALIDATE_TICKET.path, |request: &AdmissionRequest<Ticket>| {
        match request.object.as_ref().and_then(validate::problem) {
            Some((_, message)) => Err(Denied::invalid(message)),
            None => Ok(Warnings::new()),
        }
    })
}
