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
/// Kind of owners that ask for addresses.
pub(super) const NAMESPACE: &str = "Namespace";
/// Lease that cloud-network-config-controller holds while it attaches addresses itself.
pub(super) const CONTROLLER_LOCK: &str = "cloud-network-config-controller-lock";
/// Namespace of that Lease.
pub(super) const CONTROLLER_NAMESPACE: &str = "openshift-cloud-network-config-controller";
/// Kind of owners whose addresses are attached in the place of that controller.
pub(super) const PRIVATE_IP: &str = "CloudPrivateIPConfig";
/// Finalizer on a CloudPrivateIPConfig: its address may be attached.
pub(super) const PRIVATE_IP_FINALIZER: &str = "cloudprivateipconfig.cloud.network.openshift.io/finalizer";
/// Annotation on a Node: its interface, as OVN-Kubernetes reads it.
pub(super) const EGRESS_IP_CONFIG: &str = "cloud.network.openshift.io/egress-ipconfig";
/// The one condition of a CloudPrivateIPConfig.
pub(super) const ASSIGNED: &str = "Assigned";
/// Label on a Node: OVN-Kubernetes may assign addresses to it.
pub(super) const EGRESS_ASSIGNABLE: &str = "k8s.ovn.org/egress-assignable";
/// Label on a Namespace: its name.
pub(super) const METADATA_NAME: &str = "kubernetes.io/metadata.name";
/// Annotation on an EgressIP of ours: the namespace that it is for.
pub(super) const NAMESPACE_ANNOTATION: &str = "portolan.dev/namespace";
/// Label on a Node: its zone; the second is older.
pub(super) const ZONES: [&str; 2] = ["topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"];
