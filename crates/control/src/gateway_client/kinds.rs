//! The kinds of the gateway client, and what the operator does with each.

use portolan_api::well_known::gateway_client::FINALIZER;

use crate::runtime::capability::{Kind, Leftover};

pub(super) const KINDS: &[Kind] = &[
    Kind::namespaced("", "v1", "Service", "services")
        .verbs(&["list", "watch", "patch"])
        .status(&["patch"])
        .purpose("Services that a gateway serves: a finalizer, the public address and conditions")
        .leaves(Leftover::Finalizer(FINALIZER, |_| true)),
    Kind::namespaced("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices").purpose("Their endpoints"),
    Kind::cluster("", "v1", "Node", "nodes").purpose("Addresses of the nodes that these run on"),
    Kind::cluster("", "v1", "Namespace", "namespaces").named("kube-system").purpose("Its UID is that of the cluster"),
    Kind::namespaced("", "v1", "Secret", "secrets")
        .named_by("gateway-client-secret")
        .in_own_namespace()
        .purpose("The login at the gateway"),
];
