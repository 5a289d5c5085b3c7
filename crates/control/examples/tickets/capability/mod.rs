//! Every [`Ticket`](portolan_testkit::ticket::Ticket) of a namespace gets a number from the `office` of that
//! namespace and a receipt (a `ConfigMap`):
//!
//! ```text
//!   Office.spec.last ----.
//!   Ticket.spec.text ----+--> plan --> Office.status.taken --> ConfigMap receipt-NAME --> Ticket.status.number
//!   Office.status.taken -'    (pure)   (the ledger)             (owned by the ticket)     (what users see)
//! ```
//!
//! The number is recorded in the ledger before anyone sees it, so a crash between two writes loses and doubles
//! nothing.

mod act;
mod observe;
mod plan;
mod status;
mod validate;

use portolan_control::runtime::Error;
use portolan_control::runtime::app::Ctx;
use portolan_control::runtime::turn::{Next, Turn};

use act::Act;
use observe::Cache;

/// Starts the loop on the process's tasks.
pub(crate) fn start(ctx: &Ctx, namespace: String) {
    let mut watches = ctx.watches();
    let tickets = Tickets { cache: Cache::new(&mut watches, namespace), act: Act::new(ctx.writer("tickets")) };
    ctx.tasks.spawn("tickets", ctx.turns("tickets").run(watches, tickets));
}

struct Tickets {
    cache: Cache,
    act: Act,
}

impl Turn for Tickets {
    async fn turn(&mut self) -> Result<Next, Error> {
        let Self { cache, act } = self;
        // observe (no client): every watch has synced and shows our own last writes
        let seen = cache.seen();
        // validate (no client): a bad object steps aside with its reason, the others go on
        let (world, rejected) = validate::all(&seen);
        // plan (no client; cannot fail): what cannot be met is in the plan
        let plan = plan::plan(&world);
        // act (client): the ledger first, then what follows from it
        let done = act.apply(cache, &seen, &plan).await?;
        // status (client): says what was done, not what was hoped
        status::write(act, cache, &seen, &rejected, &plan, &done).await?;
        Ok(Next::OnChange)
    }
}
