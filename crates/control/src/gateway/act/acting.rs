//! What a write needs to know, and when it is made.

use std::time::Duration;

use portolan_core::gateway::{Plan, Problem, Verdicts};
use tokio::time::Instant;

use super::super::model::Model;
use super::super::observe::Cache;
use super::super::versions::Versions;
use crate::runtime::due::Prepared;
use crate::runtime::events::Recorder;
use crate::runtime::write::Writer;

/// What a write needs to know.
#[derive(Clone, Copy)]
pub(super) struct Acting<'a> {
    pub(super) writer: &'a Writer,
    pub(super) recorder: &'a Recorder,
    pub(super) cache: &'a Cache,
    pub(super) model: &'a Model,
    pub(super) versions: &'a Versions,
    pub(super) plan: &'a Plan,
}

/// A status that only says that something is under way waits this long, so that one write reports the result.
pub(super) const UNDER_WAY: Duration = Duration::from_millis(500);

/// Reservations that nobody needs any more go with the next write, or by themselves after this time.
pub(super) const QUIET: Duration = Duration::from_secs(30);

/// Puts a write off until it has waited for so long: what is written soon may be out of date soon.
pub(super) fn after(since: Instant, pause: Duration, write: Prepared<()>) -> Prepared<()> {
    let at = since + pause;
    if at > Instant::now() { Prepared::At(at) } else { write }
}

/// True if the next plan will probably say something else.
pub(super) fn is_under_way(verdicts: &Verdicts) -> bool {
    matches!(
        verdicts.first_problem(),
        Some(Problem::Pending | Problem::EnvoyStarting | Problem::EnvoyNotReady | Problem::AccountNotReady { .. })
    )
}
