//! The operator and the node agent: capability folders on one runtime.
//!
//! A capability is a folder with the same files as its siblings (`observe`, `validate`, `act`, `status`) around
//! a pure plan in `portolan_core`. Folders never import one another; what two need lives in [`runtime`].
//! `examples/tickets` is the smallest complete loop on this runtime: read it first.

pub mod answers;
pub mod egress;
pub mod install;
pub mod mesh;
mod overlay;
pub mod runtime;
