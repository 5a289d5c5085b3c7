//! The outside world behind small traits: clouds, the kernel, proxies, Envoy.
//!
//! Each driver has a real version and one in memory, and both pass the same contract tests. A driver is
//! added with the capability that needs it.

pub mod cloud;
pub mod envoy;
pub mod gateway;
pub mod gke;
pub mod kernel;
pub mod kubeconfig;
pub mod l7mp;
