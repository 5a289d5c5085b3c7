//! Upstream's conformance suites: [`mcs`] for the operator, [`kubernetes`] for the embedded API server.
//!
//! Each is a Go module in the folder `conformance` of this crate, built once, and a page with the verdict on every spec.

mod ginkgo;
mod go;
mod kubernetes;
mod mcs;
mod progress;
mod run;

pub use self::{kubernetes::run as kubernetes, mcs::run as mcs};
