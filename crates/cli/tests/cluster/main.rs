//! Portolan on a real cluster, installed as a user would: image, chart, and pods on nodes with kubelet and kube-proxy.
//!
//! Needs root. All tests share one cluster, each in a namespace of its own. Those of mirror have a second one beside it.

mod audit;
mod gateway;
mod installation;
mod mesh;
mod mirror;
mod node;
mod operator;
mod remote;
mod traffic;
mod uninstall;
