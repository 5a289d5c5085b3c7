//! Labels and annotations of Kubernetes and of the Multi-Cluster Services API.

/// Label: the Service that an EndpointSlice belongs to.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Label: who keeps an EndpointSlice.
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
/// Label: the cluster whose endpoints an EndpointSlice has.
pub(super) const SOURCE_CLUSTER: &str = "multicluster.kubernetes.io/source-cluster";
/// Label: the ServiceImport that an EndpointSlice or a derived Service belongs to.
pub(super) const IMPORT_NAME: &str = "multicluster.kubernetes.io/service-name";
/// Annotation on a ServiceImport: the Service that gives it its addresses.
pub(super) const DERIVED_SERVICE: &str = "multicluster.kubernetes.io/derived-service";
/// Label on Services that Linkerd has made for those of other clusters.
pub(super) const LINKERD_MIRROR: &str = "mirror.linkerd.io/mirrored-service";
