//! What the tests of every other crate stand on, and nothing a user ever runs.
//!
//! - [`ControlPlane`]: a real etcd, kube-apiserver and kube-controller-manager on loopback, one per test
//!   binary ([`ControlPlane::shared`]); each test takes a namespace of its own on it.
//! - [`FakeKubelet`]: nodes without machines for it, on which pods are bound, run and end.
//! - [`cluster`]: a whole cluster of real nodes, each in namespaces of its own, and [`image`]: images for it.
//! - [`NetworkNamespace`]: links, addresses and routes of its own; [`egress_lab`]: nodes, pods and an outside made of them.
//! - [`FaultProxy`]: the view one replica has of an API server, with faults: lost answers, conflicts, cut
//!   watches, a frozen view, a crash at the n-th write; and a trace of all that passed.
//! - [`Program`]: a program that dies with the test, however that dies, and takes signals.
//! - [`ReservedAddress`]: a loopback address that stays free until a server takes it.
//! - [`conformance`]: upstream's suites, for `cargo xtask conformance`.
//! - [`openshift`] and [`ovn`]: what the controllers of OpenShift and OVN-Kubernetes do with egress addresses.
//! - [`aws`]: EC2, STS and the metadata service on loopback, with AWS's rules.
//! - [`builders`]: short ways to write Nodes, Pods, Services, EndpointSlices and Namespaces.
//! - [`ticket`]: two small custom kinds to try a controller runtime on.
//! - [`envoy`]: where the Envoy of the tests is; [`python`]: Python's client of Kubernetes, and kopf.
//! - [`binaries`]: where the Kubernetes binaries come from (`cargo xtask setup`), and [`helm`] and [`old_kubectl`] likewise.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use portolan_testkit::{ControlPlane, FaultProxy, Faults, Interference, Phase, install, ticket::Ticket};
//!
//! let plane = ControlPlane::shared();
//! install::<Ticket>(plane.client()).await?;
//! let namespace = plane.namespace("tickets").await?;
//! let replica = FaultProxy::start(plane.client(), Faults { conflict: 0.1, seed: 7, ..Faults::default() }).await?;
//! let killed = replica.kill_at_write(3, Phase::AfterCommit);
//! // run a controller with `replica.client()` in `namespace`, then:
//! killed.await?;
//! # drop(namespace);
//! # Ok(())
//! # }
//! ```

pub mod aws;
pub mod binaries;
pub mod builders;
pub mod cluster;
pub mod conformance;
pub mod control_plane;
pub mod crd;
pub mod egress_lab;
pub mod envoy;
pub mod faults;
pub mod gke;
mod go_program;
pub mod helm;
pub mod image;
mod kubeconfig;
pub mod kubelet;
mod network_namespace;
pub mod old_kubectl;
pub mod openshift;
pub mod ovn;
pub mod program;
pub mod python;
mod reserved_address;
pub mod ticket;

pub use portolan_bench as bench;

pub use binaries::Binaries;
pub use cluster::Cluster;
pub use control_plane::ControlPlane;
pub use crd::{install, install_definition};
pub use faults::{Exchange, Fault, FaultProxy, Faults, Interference, Phase, TlsFront, WatchStep};
pub use kubelet::FakeKubelet;
pub use network_namespace::NetworkNamespace;
pub use program::{Program, Signal};
pub use reserved_address::ReservedAddress;
