//! The kinds of gateway, and what the operator does with each.

use kube::ResourceExt as _;
use kube::api::DynamicObject;
use portolan_api::well_known::gateway::{ACCOUNT_FINALIZER, LOAD_BALANCER_FINALIZER};

use super::act::envoys::PURPOSE as AUTHORITY;
use super::envoys::manifest::UNIT_LABEL;
use crate::runtime::capability::{Kind, Leftover};

const GROUP: &str = "egw.acnodal.io";
const VERSION: &str = "v1";
/// The flag that has Envoys run as Deployments.
const IMAGE: &str = "gateway-envoy-image";

pub(super) const KINDS: &[Kind] = &[
    Kind::namespaced(GROUP, VERSION, "EGW", "egws")
        .verbs(&["list", "watch", "create"])
        .status(&["update"])
        .purpose("The gateway's counters: account keys and tunnel ids")
        .leaves(Leftover::Objects(|_| true)),
    Kind::namespaced(GROUP, VERSION, "Account", "accounts")
        .planned()
        .verbs(&["list", "watch", "update"])
        .status(&["update"])
        .purpose("Tenants: sets the key and the finalizer, and reserves keys of load balancers")
        .leaves(Leftover::Finalizer(ACCOUNT_FINALIZER, |_| true)),
    Kind::namespaced(GROUP, VERSION, "NodeConfig", "nodeconfigs").planned().status(&["update"]),
    Kind::namespaced(GROUP, VERSION, "ServicePrefix", "serviceprefixes").planned().status(&["update"]),
    Kind::namespaced(GROUP, VERSION, "ServiceGroup", "servicegroups")
        .planned()
        .verbs(&["list", "watch", "delete"])
        .status(&["update"])
        .purpose("Groups of load balancers: deleted with their account"),
    Kind::namespaced(GROUP, VERSION, "LoadBalancer", "loadbalancers")
        .planned()
        .verbs(&["get", "list", "watch", "create", "update", "delete"])
        .status(&["update"])
        .purpose(
            "Load balancers: sets address, key and finalizer; deletes them with their account; REST clients write them",
        )
        .leaves(Leftover::Finalizer(LOAD_BALANCER_FINALIZER, |_| true)),
    Kind::namespaced(GROUP, VERSION, "Endpoint", "endpoints")
        .planned()
        .verbs(&["get", "list", "watch", "create", "update", "delete"])
        .status(&["update"])
        .purpose(
            "Endpoints: deleted with their load balancer; loses a finalizer of the original; REST clients write them",
        ),
    Kind::cluster("portolan.dev", "v1alpha1", "AddressClaim", "addressclaims")
        .verbs(&["list", "watch", "create", "update", "delete"])
        .purpose("Address claims: the ledger of addresses in use")
        // those of load balancers stay: a load balancer that stays must find its address again
        .leaves(Leftover::Objects(is_released)),
    Kind::cluster("", "v1", "Namespace", "namespaces")
        .verbs(&["list", "watch", "create", "delete"])
        .purpose("Namespaces of accounts: created, and deleted if they were created by us"),
    Kind::namespaced("", "v1", "Secret", "secrets")
        .named("api-users")
        .verbs(&["get"])
        .purpose("Passwords of REST clients, in the namespaces of accounts"),
    Kind::cluster("authentication.k8s.io", "v1", "TokenReview", "tokenreviews")
        .verbs(&["create"])
        .purpose("Tokens of REST clients"),
    Kind::namespaced("", "v1", "Secret", "secrets")
        .in_own_namespace()
        .with_flag(IMAGE)
        .verbs(&["get", "list", "watch", "create", "update", "patch", "delete"])
        .purpose("Envoys as Deployments: the files of each, with its key; and the authority of their certificates")
        .leaves(Leftover::Objects(|object| is_of_envoy(object) || is_authority(object))),
    Kind::namespaced("apps", "v1", "Deployment", "deployments")
        .in_own_namespace()
        .with_flag(IMAGE)
        .verbs(&["list", "watch", "create", "patch", "delete"])
        .purpose("Envoys as Deployments")
        .leaves(Leftover::Objects(is_of_envoy)),
    Kind::namespaced("", "v1", "Service", "services")
        .in_own_namespace()
        .with_flag(IMAGE)
        .verbs(&["list", "watch", "create", "patch", "delete"])
        .status(&["patch"])
        .purpose("Public addresses of Envoys as Deployments")
        .leaves(Leftover::Objects(is_of_envoy)),
    Kind::namespaced("", "v1", "Pod", "pods")
        .in_own_namespace()
        .with_flag(IMAGE)
        .purpose("Envoys as Deployments: why one does not run"),
    Kind::namespaced("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices")
        .in_own_namespace()
        .with_flag(IMAGE)
        .purpose("Envoys as Deployments: whether nodes send packets to one"),
    Kind::namespaced("k8s.cni.cncf.io", "v1", "NetworkAttachmentDefinition", "network-attachment-definitions")
        .with_flag("gateway-multus")
        .verbs(&["list", "watch", "create", "patch"])
        .purpose("Networks of prefixes, for Multus"),
];

fn is_of_envoy(object: &DynamicObject) -> bool {
    object.labels().contains_key(UNIT_LABEL)
}

/// A claim that only keeps its address from being given again too soon.
fn is_released(claim: &DynamicObject) -> bool {
    let section = |name: &str| &claim.data["spec"][name];
    section("gateway")["releasedAt"].is_string() && section("egress").is_null() && section("cloud").is_null()
}

fn is_authority(secret: &DynamicObject) -> bool {
    secret.data["type"] == AUTHORITY.secret_type
}
