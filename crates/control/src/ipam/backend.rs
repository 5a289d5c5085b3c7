//! Which network plugin gets the addresses.

use portolan_core::ipam::World;

use super::observe::Cache;

/// The network plugin that gets the addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Backend {
    /// The one that the cluster has
    #[default]
    Auto,
    /// OpenShift SDN: NetNamespaces and HostSubnets
    Sdn,
    /// OVN-Kubernetes: EgressIPs
    Ovn,
}

/// The network plugin of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    Sdn,
    Ovn,
    /// The kinds of neither are served.
    Absent,
    /// The kinds of both are served, and nothing says which one is in use.
    Ambiguous,
}

impl Network {
    /// False if nothing could use an address: there is no plugin, or OpenShift SDN is not in use.
    pub(super) fn is_served(self, world: &World) -> bool {
        match self {
            Self::Sdn => !world.net_namespaces.is_empty() || !world.host_subnets.is_empty(),
            Self::Ovn | Self::Ambiguous => true,
            Self::Absent => false,
        }
    }
}

/// The message for namespaces then.
pub(super) const AMBIGUOUS: &str =
    "the kinds of both OpenShift SDN and OVN-Kubernetes are served: set --ipam-backend to sdn or ovn";

/// The plugin to use.
pub(super) fn network(backend: Backend, cache: &Cache) -> Network {
    match backend {
        Backend::Sdn => Network::Sdn,
        Backend::Ovn => Network::Ovn,
        Backend::Auto => {
            let config = cache.network_config();
            let named = config.as_ref().and_then(|config| config.status.as_ref()).map(|status| &*status.network_type);
            // a store that has a revision was listed, so its kind is served
            let serves_sdn = cache.net_namespaces.position() > 0 && cache.host_subnets.position() > 0;
            detected(named, serves_sdn, cache.egress_ips.position() > 0)
        }
    }
}

/// The plugin by what the cluster says and serves.
pub(super) fn detected(named: Option<&str>, serves_sdn: bool, serves_ovn: bool) -> Network {
    let is_named = |name: &str| named.is_some_and(|named| named.eq_ignore_ascii_case(name));
    match (serves_sdn, serves_ovn) {
        _ if is_named("OVNKubernetes") => Network::Ovn,
        _ if is_named("OpenShiftSDN") => Network::Sdn,
        (true, true) => Network::Ambiguous,
        (true, false) => Network::Sdn,
        (false, true) => Network::Ovn,
        (false, false) => Network::Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_names_its_plugin_or_the_served_kinds_do() {
        for (named, serves_sdn, serves_ovn, wanted) in [
            (Some("OVNKubernetes"), true, true, Network::Ovn),
            (Some("OpenShiftSDN"), true, true, Network::Sdn),
            (Some("Calico"), false, false, Network::Absent),
            (None, true, false, Network::Sdn),
            (None, false, true, Network::Ovn),
            (None, true, true, Network::Ambiguous),
            (Some(""), true, true, Network::Ambiguous),
            (None, false, false, Network::Absent),
        ] {
            assert_eq!(detected(named, serves_sdn, serves_ovn), wanted, "{named:?} {serves_sdn} {serves_ovn}");
        }
    }
}
