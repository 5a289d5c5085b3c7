//! The planner against the conformance behaviours of the MCS API, against its own rules, and against itself.

mod conformance;
mod drawn;
mod imports;
mod lab;
mod laws;
mod merging;
mod remotes;
