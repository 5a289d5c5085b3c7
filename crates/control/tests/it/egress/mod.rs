//! Egress on both API servers: the document's events, the rules, faults, races, and the original's defects by name.

mod cleanup;
mod defects;
mod events;
mod faults;
pub(crate) mod harness;
mod isolation;
mod races;
mod rules;
mod schedules;
mod security;
mod start;
