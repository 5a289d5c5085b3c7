//! Decisions -> the plan of each object, with its conditions.

mod accounts;
mod endpoints;
mod groups;
mod load_balancers;
mod prefixes;

pub(super) use accounts::accounts;
pub(super) use endpoints::endpoints;
pub(super) use groups::groups;
pub(super) use load_balancers::load_balancers;
pub(super) use prefixes::prefixes;
