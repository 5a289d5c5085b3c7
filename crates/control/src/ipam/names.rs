//! Words of the API that more than one file spells.

/// Annotation on a Namespace: it asks for addresses.
pub(super) const EGRESSIPAM: &str = "egressip-ipam-operator.redhat-cop.io/egressipam";
/// Annotation on a Namespace and a NetNamespace: the addresses.
pub(super) const EGRESSIPS: &str = "egressip-ipam-operator.redhat-cop.io/egressips";
/// Annotation on a Namespace: when we last wrote the addresses.
pub(super) const MODIFIED: &str = "egressip-ipam-operator.redhat-cop.io/modified";
/// With an address behind it: annotation on a HostSubnet, the namespace of the address.
pub(super) const ADDRESS_PREFIX: &str = "egressip-ipam-operator.redhat-cop.io/";
/// Annotation on a Namespace: why it is not served.
pub(super) const STATUS: &str = "portolan.dev/egressip-status";
/// Annotation on an AddressClaim: its first status, because an object is created without one.
pub(super) const FIRST_STATUS: &str = "portolan.dev/first-cloud-status";
/// Annotation on an AddressClaim: asks the operator to compare everything with the cloud, each time that it changes.
pub(super) const VERIFY: &str = "portolan.dev/verify";
/// Value of the label `portolan.dev/use`.
pub(super) const USE_CLOUD: &str = "cloud";
/// Kind of owners that the planner decides about.
pub(super) const NAMESPACE: &str = "Namespace";
/// Label on a Node: its zone; the second is older.
pub(super) const ZONES: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
