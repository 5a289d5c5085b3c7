//! The egress planner against its laws and against a model in plain loops.

mod laws;
mod model;
mod stories;
mod worlds;
