//! The kinds of egress, and what the operator does with each.

use kube::api::DynamicObject;
use portolan_api::egress::EgressClusterInfoSpec;
use portolan_api::well_known::ADDRESS_CLAIM_FINALIZER;
use portolan_api::well_known::egress::GATEWAY_FINALIZER;

use crate::runtime::capability::{Kind, Leftover};

const GROUP: &str = "egressgateway.spidernet.io";
const VERSION: &str = "v1beta1";

pub(super) const KINDS: &[Kind] = &[
    Kind::cluster(GROUP, VERSION, "EgressGateway", "egressgateways")
        .planned()
        .verbs(&["list", "watch", "update"])
        .status(&["patch"])
        .purpose("Gateways: sets the finalizer and the status")
        .leaves(Leftover::Finalizer(GATEWAY_FINALIZER, |_| true)),
    Kind::namespaced(GROUP, VERSION, "EgressPolicy", "egresspolicies")
        .planned()
        .status(&["patch"])
        .purpose("Policies: reports the granted address and node"),
    Kind::cluster(GROUP, VERSION, "EgressClusterPolicy", "egressclusterpolicies").planned().status(&["patch"]),
    Kind::cluster(GROUP, VERSION, "EgressTunnel", "egresstunnels")
        .planned()
        .verbs(&["list", "watch", "create", "update", "delete"])
        .status(&["update"])
        .purpose("Tunnels: one per node, with a number")
        .leaves(Leftover::Objects(|_| true)),
    Kind::cluster(GROUP, VERSION, "EgressClusterInfo", "egressclusterinfos")
        .planned()
        .verbs(&["list", "watch", "create"])
        .status(&["patch"])
        .purpose("Address ranges inside the cluster")
        .leaves(Leftover::Objects(is_as_made)),
    Kind::namespaced(GROUP, VERSION, "EgressEndpointSlice", "egressendpointslices")
        .verbs(&["list", "watch", "create", "patch", "delete"])
        .purpose("Endpoint slices: the pods of each policy, for node agents and other readers")
        .leaves(Leftover::Objects(|_| true)),
    Kind::cluster(GROUP, VERSION, "EgressClusterEndpointSlice", "egressclusterendpointslices")
        .verbs(&["list", "watch", "create", "patch", "delete"])
        .leaves(Leftover::Objects(|_| true)),
    Kind::cluster("portolan.dev", "v1alpha1", "AddressClaim", "addressclaims")
        .planned()
        .verbs(&["list", "watch", "create", "update", "delete"])
        .purpose("Address claims: the ledger of addresses in use")
        // they stay: a policy that stays must find its address again
        .leaves(Leftover::Finalizer(ADDRESS_CLAIM_FINALIZER, |claim| claim.data["spec"]["cloud"].is_null())),
    Kind::cluster("", "v1", "Node", "nodes").planned().purpose("What gateways and policies select"),
    Kind::cluster("", "v1", "Namespace", "namespaces").planned(),
    Kind::namespaced("", "v1", "Pod", "pods").planned(),
    Kind::cluster("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs")
        .purpose("Where the cluster's own address ranges are configured"),
    Kind::cluster("crd.projectcalico.org", "v1", "IPPool", "ippools"),
];

/// Nobody wrote anything into it.
fn is_as_made(info: &DynamicObject) -> bool {
    let spec = info.data.get("spec").cloned().unwrap_or_default();
    spec.is_null() || serde_json::from_value(spec).is_ok_and(|spec| EgressClusterInfoSpec::default() == spec)
}
