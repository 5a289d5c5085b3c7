//! OVN-Kubernetes: one EgressIP per namespace; its addresses are ours, their nodes are OVN-Kubernetes's choice.

mod asked;
mod backend;
mod controller;
pub(super) mod harness;
mod serving;
