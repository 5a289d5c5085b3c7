//! Words of this folder.

/// Name of the EGW.
pub(super) const EGW: &str = "egw";
/// Name of the NodeConfig.
pub(super) const NODE_CONFIG: &str = "default";
/// Value of the label `portolan.dev/use` on claims, and of the annotation on namespaces.
pub(super) const GATEWAY: &str = "gateway";
/// Kind of the holders of claims.
pub(super) const LOAD_BALANCER: &str = "LoadBalancer";
