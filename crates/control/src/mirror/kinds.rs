//! The kinds of the mirror, and what the operator does with each.

use crate::runtime::capability::Kind;

pub(super) const KINDS: &[Kind] = &[
    Kind::cluster("portolan.dev", "v1alpha1", "RemoteCluster", "remoteclusters")
        .planned()
        .verbs(&["get", "list", "watch"])
        .status(&["patch"])
        .purpose("Remote clusters: what was seen of them"),
    Kind::namespaced("", "v1", "Service", "services")
        .planned()
        .verbs(&["list", "watch", "create", "patch", "delete"])
        .status(&["patch"])
        .purpose("Mirrors of the Services of remotes, and conditions on Services that ask for endpoints"),
    Kind::namespaced("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
        .verbs(&["list", "watch", "create", "update", "delete"])
        .purpose("Their endpoints"),
    Kind::namespaced("", "v1", "Endpoints", "endpoints")
        .verbs(&["list", "watch", "create", "update", "delete"])
        .purpose("Endpoints that Barrelman left are deleted once EndpointSlices are there; with writeEndpoints, ours"),
    Kind::cluster("", "v1", "Namespace", "namespaces")
        .verbs(&["list", "watch", "create"])
        .purpose("Namespaces of mirrors"),
    Kind::cluster("", "v1", "Node", "nodes").purpose("Addresses of this cluster: no remote may use them"),
    Kind::cluster("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs"),
    Kind::namespaced("multicluster.x-k8s.io", "v1beta1", "ServiceExport", "serviceexports")
        .verbs(&["list", "watch"])
        .status(&["patch"])
        .purpose("Services that this cluster shares: whether they can be imported elsewhere"),
    Kind::namespaced("multicluster.x-k8s.io", "v1beta1", "ServiceImport", "serviceimports")
        .verbs(&["list", "watch", "create", "patch", "delete"])
        .status(&["patch"])
        .purpose("Services that clusters share, made from their exports"),
    Kind::namespaced("", "v1", "Secret", "secrets")
        .in_own_namespace()
        .purpose("Credentials of remote clusters, in the operator's own namespace"),
];
