//! Every [`Ticket`](portolan_testkit::ticket::Ticket) of a namespace gets a number from the `office` of that
//! namespace and a receipt (a `ConfigMap`):
//!
//! ```text
//!   Office.spec.last ----.
//!   Ticket.spec.text ----+--> plan --> Office.status.taken --> ConfigMap receipt-NAME --> Ticket.status.number
//!   Office.status.taken -'    (pure)   (the ledger)             (owned by the ticket)     (what users see)
//! ```
//!
//! The number is recorded in the ledger before anyone sees it, so a crash between two writes neither loses a number nor
//! assigns it twice.

mod act;
mod model;
mod observe;
mod options;
mod query;
mod status;
mod validate;
mod webhooks;

use portolan_control::runtime::app::Ctx;
use portolan_control::runtime::capability::{Capability, Kind};
use portolan_control::runtime::lease::Term;
use portolan_control::runtime::reconcile::{Next, Reconciler};

use portolan_control::runtime::due::WriteQueues;
use portolan_control::runtime::write::Writer;

use act::{Acting, Writes};
use observe::Cache;

/// Tickets as a value: one line in a table of capabilities makes them part of `portolan`.
pub(crate) const CAPABILITY: Capability = Capability {
    name: "tickets",
    description: "Tickets: a number and a receipt for each",
    by_default: true,
    kinds: &[
        Kind::namespaced(GROUP, "v1", "Ticket", "tickets").planned().status(&["patch"]).purpose("Reports the number"),
        Kind::namespaced(GROUP, "v1", "Office", "offices").planned().status(&["update"]).purpose("Records the numbers"),
        Kind::namespaced("", "v1", "ConfigMap", "configmaps")
            .verbs(&["list", "watch", "patch"])
            .purpose("Receipts, owned by their tickets"),
    ],
    options: <options::TicketsArgs as clap::Args>::augment_args,
    configure: options::configure,
    admission: Some(webhooks::ADMISSION),
    queries: query::QUERIES,
};

/// The API group of tickets and offices.
const GROUP: &str = "testkit.portolan.dev";

/// Starts the loop on the process's tasks.
pub(crate) fn start(ctx: &Ctx, namespace: String) {
    let mut watches = ctx.watches();
    let queues = ctx.write_queues(&watches);
    let cache = Cache::new(&mut watches, namespace);
    let tickets = Tickets { cache, writer: ctx.writer("tickets"), writes: Writes::new(&queues), queues };
    ctx.tasks.spawn("tickets", ctx.reconciles("tickets").run(watches, tickets));
}

struct Tickets {
    cache: Cache,
    writer: Writer,
    queues: WriteQueues,
    /// What is yet to be written in this term.
    writes: Writes,
}

impl Reconciler for Tickets {
    fn begin(&mut self, _term: &Term) {
        self.writes = Writes::new(&self.queues);
    }

    fn end(&mut self) {
        self.writes = Writes::new(&self.queues);
    }

    async fn reconcile(&mut self) -> Next {
        let Self { cache, writer, writes, queues: _ } = self;
        // observe (no client): every watch has synced and shows our own last writes
        let seen = cache.seen();
        // validate (no client): an invalid object is set aside with its reason, the others go on
        let (world, rejected) = validate::all(&seen);
        // plan (no client; cannot fail): what cannot be met is in the plan
        let plan = model::plan(&world);
        // act, status (client): the ledger first, then receipts, then what tickets say of both
        writes.run(&Acting { writer, cache, seen: &seen, rejected: &rejected, plan: &plan }).await
    }
}
