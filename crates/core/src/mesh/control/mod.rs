//! The mesh's control plane: from VirtualServices, Routes and Targets to what every proxy must hold.
//!
//! ```text
//! VirtualService 1--* Rule *--1 Route 1--* hop *--1 Target *--* Pod     names by the four-step rule
//!       |                                             |
//!    listener, rulelist, rules, routes             cluster              on every proxy of the selector's pods
//! ```

pub mod normal;
mod reason;
mod selector;
mod show;
pub mod types;

pub use reason::{Class, Note, Reason};
pub use selector::{Field, FieldOperator, FieldTest, Selector};
