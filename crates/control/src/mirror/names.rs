//! Labels of Kubernetes and of the Multi-Cluster Services API that the mirror writes.

/// The Service that an EndpointSlice belongs to.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Who keeps an EndpointSlice.
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// The cluster whose endpoints an EndpointSlice has.
pub(super) const SOURCE_CLUSTER: &str = "multicluster.kubernetes.io/source-cluster";
