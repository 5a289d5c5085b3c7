//! The kinds of ipam, and what the operator does with each.

use portolan_api::well_known::ADDRESS_CLAIM_FINALIZER;

use super::names::CONTROLLER_LOCK;
use crate::runtime::capability::{Kind, Leftover};

/// Every kind that ipam reads or writes.
pub(super) const KINDS: &[Kind] = &[
    Kind::cluster("", "v1", "Namespace", "namespaces")
        .planned()
        .verbs(&["list", "watch", "patch"])
        .purpose("Namespaces ask for addresses by annotation, and get them written there"),
    Kind::cluster("", "v1", "Node", "nodes")
        .verbs(&["list", "watch", "patch"])
        .purpose("Nodes that can host addresses: OVN-Kubernetes reads that in a label and an annotation"),
    Kind::cluster("network.openshift.io", "v1", "NetNamespace", "netnamespaces")
        .verbs(&["list", "watch", "patch"])
        .purpose("Addresses that pods of a namespace leave with"),
    Kind::cluster("network.openshift.io", "v1", "HostSubnet", "hostsubnets")
        .verbs(&["list", "watch", "patch"])
        .purpose("Addresses that a node hosts"),
    Kind::cluster("k8s.ovn.org", "v1", "EgressIP", "egressips")
        .verbs(&["list", "watch", "create", "patch", "delete"])
        .purpose("Addresses that pods of a namespace leave with, in OVN-Kubernetes"),
    Kind::cluster("config.openshift.io", "v1", "Network", "networks")
        .named("cluster")
        .purpose("Which network plugin the cluster has"),
    Kind::cluster("cloud.network.openshift.io", "v1", "CloudPrivateIPConfig", "cloudprivateipconfigs")
        .verbs(&["list", "watch", "patch"])
        .status(&["update"])
        .purpose("Addresses that cloud-network-config-controller attaches while it runs; served in its place when not"),
    Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases")
        .named(CONTROLLER_LOCK)
        .purpose("Whether cloud-network-config-controller runs"),
    Kind::cluster("portolan.dev", "v1alpha1", "AddressClaim", "addressclaims")
        .verbs(&["list", "watch", "create", "update", "delete"])
        .status(&["update"])
        .purpose("The journal of addresses on the cloud")
        // one that may be attached keeps its finalizer: it is the only record of the address
        .leaves(Leftover::Finalizer(ADDRESS_CLAIM_FINALIZER, |claim| claim.data["status"]["cloud"]["gone"] == true)),
];
