//! The egress planner against its laws and against a model in plain loops.
#![expect(clippy::unwrap_used, reason = "a test may fail")]
#![expect(clippy::cast_possible_wrap, clippy::cast_possible_truncation, reason = "worlds are small")]

mod laws;
mod model;
mod stories;
mod worlds;
