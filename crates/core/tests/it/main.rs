//! The planners against their laws, models and tables, one folder per capability.
#![expect(clippy::unwrap_used, reason = "a test may fail")]
#![expect(clippy::cast_possible_wrap, clippy::cast_possible_truncation, reason = "worlds are small")]

mod egress;
mod mesh;
mod mesh_control;
