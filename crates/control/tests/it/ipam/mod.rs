//! Ipam: namespaces, nodes and OpenShift's objects on an API server, instances on a stand-in for EC2.

mod assign;
mod controller;
mod crashes;
mod doctor;
mod harness;
mod nodes;
mod ovn;
mod query;
mod release;
mod trouble;
