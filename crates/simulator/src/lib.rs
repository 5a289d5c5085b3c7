//! What a machine without a Kubernetes cluster simulates of one, for `portolan up` and the tests.
//!
//! | part | what it stands for |
//! |---|---|
//! | [`cluster`] | an API server with Ready nodes |
//! | [`kubelets`] | the kubelets of those nodes: pods are Running without running anything |
//! | [`scheduler`] | the scheduler: pods get a node, or a condition that says why not |
//! | [`agents`] | the egress agents of nodes: their part of the status, without a data path |
//! | [`openshift`] | OpenShift SDN and a cloud in memory, for ipam: no data path |
//! | [`remotes`] | further clusters, for the mirror to read |
//! | [`pods`] | a kubelet for pods of our own image, which run as processes of this machine |
//!
//! [`seeds`] is whether the objects that a cluster starts with were applied.

pub mod agents;
pub mod cluster;
pub mod kubelets;
pub mod openshift;
pub mod pods;
pub mod remotes;
pub mod scheduler;
pub mod seeds;

pub use cluster::Cluster;
