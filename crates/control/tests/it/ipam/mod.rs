//! Ipam: namespaces, nodes and OpenShift's objects on an API server, instances on a stand-in for EC2.

mod assign;
mod crashes;
mod doctor;
mod harness;
mod nodes;
mod query;
mod release;
mod trouble;
