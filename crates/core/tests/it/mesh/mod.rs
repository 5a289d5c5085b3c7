//! The tables of the rules' semantics: what stands in `cases/` is the documentation, this only runs it.
//!
//! Each table has at least as many cases as l7mp's own suite for the same thing; where ours differs on purpose
//! the case has a `differs` with the reason.

mod balancers;
mod laws;
mod paths;
mod rulelists;
mod rules;
pub(crate) mod table;
