//! The planner against the decision table, against itself, and against its own results.

mod cases;
mod laws;
mod table;
mod worlds;
