//! The kinds of ipam, and what the operator does with each.

use portolan_api::well_known::ADDRESS_CLAIM_FINALIZER;

use crate::runtime::capability::{Kind, Leftover};

/// Every kind that ipam reads or writes.
pub(super) const KINDS: &[Kind] = &[
    Kind::cluster("", "v1", "Namespace", "namespaces")
        .planned()
        .verbs(&["list", "watch", "patch"])
        .purpose("Namespaces ask for addresses by annotation, and get them written there"),
    Kind::cluster("", "v1", "Node", "nodes").purpose("Nodes that can host addresses"),
    Kind::cluster("network.openshift.io", "v1", "NetNamespace", "netnamespaces")
        .verbs(&["list", "watch", "patch"])
        .purpose("Addresses that pods of a namespace leave with"),
    Kind::cluster("network.openshift.io", "v1", "HostSubnet", "hostsubnets")
        .verbs(&["list", "watch", "patch"])
        .purpose("Addresses that a node hosts"),
    Kind::cluster("portolan.dev", "v1alpha1", "AddressClaim", "addressclaims")
        .verbs(&["list", "watch", "create", "update", "delete"])
        .status(&["update"])
        .purpose("The journal of addresses on the cloud")
        // one that may be attached keeps its finalizer: it is the only record of the address
        .leaves(Leftover::Finalizer(ADDRESS_CLAIM_FINALIZER, |claim| claim.data["status"]["cloud"]["gone"] == true)),
];
