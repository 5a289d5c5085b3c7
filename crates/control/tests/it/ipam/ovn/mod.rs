//! OVN-Kubernetes: one EgressIP per namespace; its addresses are ours, their nodes are OVN-Kubernetes's choice.

mod backend;
mod controller;
mod harness;
mod serving;
