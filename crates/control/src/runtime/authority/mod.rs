//! A certificate authority in a Secret: made when it is missing, and rotated without a moment in which what it signs
//! is not trusted.
//!
//! Two things use it: the webhook, whose API servers trust it, and gateway, whose Envoys do.

mod error;
mod rotation;
mod secret;

use jiff::Timestamp;

pub use error::Error;
pub use rotation::{Authority, Facts, Schedule, Stage};
pub use secret::{Found, Store, delete_authority};

/// What an authority is for.
#[derive(Debug, Clone, Copy)]
pub struct Purpose {
    /// What the name of every authority begins with.
    pub name: &'static str,
    /// The type of the Secret: says whose it is to whoever lists them.
    pub secret_type: &'static str,
    /// Who writes it.
    pub manager: &'static str,
}

/// The authority to go on with, and whether it differs from the stored one. `known` is the one of before, `works` tells
/// whether one is neither damaged nor expired, and `facts` is what its rotation needs to know.
pub fn decide(
    [stored, known]: [Option<&Authority>; 2],
    works: impl Fn(&Authority) -> bool,
    facts: impl Fn(&Authority) -> Facts,
    (purpose, schedule): (Purpose, &Schedule),
    now: Timestamp,
) -> Result<(Authority, bool), Error> {
    let step = |authority: &Authority, facts: Facts| {
        let next = authority.step(now, facts, purpose, schedule)?;
        let changed = next.is_some();
        Ok::<_, Error>((next.unwrap_or_else(|| authority.clone()), changed))
    };
    if let Some(stored) = stored.filter(|stored| works(stored)) {
        return step(stored, facts(stored));
    }
    // The Secret is gone or damaged, but what it held is still trusted. Deleting it is how users of other
    // programs ask for new certificates, so it starts an orderly rotation.
    if let Some(known) = known.filter(|known| works(known)) {
        let (authority, _) = step(known, Facts { rotate: true, ..facts(known) })?;
        return Ok((authority, true));
    }
    Ok((Authority::new(now, purpose, schedule)?, true))
}
