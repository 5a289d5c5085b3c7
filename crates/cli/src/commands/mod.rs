//! The commands, one file each: arguments, help and wiring.

pub(crate) mod agent;
pub(crate) mod cleanup;
pub(crate) mod completions;
pub(crate) mod crds;
pub(crate) mod doctor;
pub(crate) mod manifests;
pub(crate) mod operator;
pub(crate) mod plan;
pub(crate) mod proxy;
pub(crate) mod reference;
pub(crate) mod send;
pub(crate) mod status;
pub(crate) mod up;
pub(crate) mod why;
