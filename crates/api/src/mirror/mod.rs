//! Mirror: the Services of remote clusters, kept here.

mod remote_cluster;

pub use remote_cluster::*;
