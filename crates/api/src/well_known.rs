//! Words that more than one place must spell alike: labels, annotations, finalizers, conditions and their reasons.

/// Field manager prefix and label domain of ours.
pub const DOMAIN: &str = "portolan.dev";

/// On every AddressClaim: which use the address has (`gateway`, `egress`, `cloud`).
pub const USE: &str = "portolan.dev/use";
/// Holds an AddressClaim until its address was withdrawn everywhere.
pub const ADDRESS_CLAIM_FINALIZER: &str = "portolan.dev/address-claim";

/// Egress: words of the original and ours.
pub mod egress {
    /// Holds an EgressGateway while policies use it.
    pub const GATEWAY_FINALIZER: &str = "egressgateway.spidernet.io/egressgateway";
    /// Holds an EgressTunnel until its node's agent has cleaned up.
    pub const TUNNEL_FINALIZER: &str = "egressgateway.spidernet.io/egresstunnel";
    /// Label on a Namespace: the gateway of policies there that name none.
    pub const NAMESPACE_DEFAULT: &str = "spidernet.io/egressgateway-default";
    /// Label on endpoint slices: the policy they belong to.
    pub const POLICY_NAME: &str = "spidernet.io/policy-name";
    /// Annotation on an EgressGateway: a label selector for the namespaces whose policies may use it. Absent: all.
    pub const ALLOWED_NAMESPACES: &str = "portolan.dev/allowed-namespaces";
    /// Annotation on an EgressGateway: `true` lets an explicitly asked-for address serve one namespace only.
    pub const EXCLUSIVE_EIPS: &str = "portolan.dev/exclusive-eips";
    /// Annotation on a policy: `drop` (default) or `pass` what it selects while no gateway node is ready.
    pub const WHEN_UNAVAILABLE: &str = "portolan.dev/egress-when-unavailable";
    /// Label on a Node: `true` moves every egress address away from it.
    pub const DRAIN: &str = "portolan.dev/egress-drain";
}

/// Gateway: words of the original and ours.
pub mod gateway {
    /// Holds an Account until its namespace is gone.
    pub const ACCOUNT_FINALIZER: &str = "egw.acnodal.io/accountFinalizer";
    /// Holds a LoadBalancer until its Envoy has let go of it and its address is released.
    pub const LOAD_BALANCER_FINALIZER: &str = "egw.acnodal.io/loadBalancerFinalizer";
    /// The original put it on Endpoints; nothing needs it.
    pub const ENDPOINT_FINALIZER: &str = "egw.acnodal.io/endpointFinalizer";
    /// Label on Endpoints: the LoadBalancer.
    pub const OWNING_LB: &str = "owningLB";
    /// Annotation on an Account: `true` has it deleted with everything in it.
    pub const DELETE_WITH_CONTENTS: &str = "portolan.dev/delete-with-contents";
    /// Annotation on namespaces that were made for accounts.
    pub const CREATED_BY: &str = "portolan.dev/created-by";
    /// Annotation on a ServiceGroup: `true` lets REST clients ask for an address.
    pub const ALLOW_PINNED: &str = "portolan.dev/allow-pinned";
}

/// Gateway client: words of ours.
pub mod gateway_client {
    /// `spec.loadBalancerClass` of Services that a gateway is to serve.
    pub const CLASS: &str = "portolan.dev/gateway";
    /// Holds a Service until its load balancer at the gateway is gone.
    pub const FINALIZER: &str = "portolan.dev/gateway-client";
    /// Condition type on Services: the gateway has everything of it.
    pub const ANNOUNCED: &str = "portolan.dev/GatewayAnnounced";
    /// Condition type on Services: nothing that it asks for is left out. Absent while there never was such a thing.
    pub const HONOURED: &str = "portolan.dev/GatewayFieldsHonoured";
}

/// Mirror: words of the original and ours.
pub mod mirror {
    /// Label on a local Service: `"true"` asks for its endpoints to be kept, `managed-resource` is a mirror. Annotation
    /// on a Service of either side: `ignore`.
    pub const BARRELMAN: &str = "tfw.io/barrelman";
    /// Value of the label on Services that users made.
    pub const HAND_LABELLED: &str = "true";
    /// Value of the label on mirrors.
    pub const MANAGED: &str = "managed-resource";
    /// Value of the annotation: the Service is not mirrored, and its mirror is left as it is.
    pub const IGNORE: &str = "ignore";
    /// Label on mirrors, EndpointSlices and namespaces: the remote that they were made for.
    pub const REMOTE: &str = "mirror.portolan.dev/remote";
    /// Annotation on mirrors: UID of the source.
    pub const SOURCE_UID: &str = "mirror.portolan.dev/source-uid";
    /// Annotation on mirrors and EndpointSlices: UID of the RemoteCluster; empty for the remote of the flags.
    pub const REMOTE_UID: &str = "mirror.portolan.dev/remote-uid";
    /// Annotation on Services that users made: the remotes that serve them, separated by commas.
    pub const REMOTES: &str = "mirror.portolan.dev/remotes";
    /// Label on namespaces that were made for mirrors, on ServiceImports, and on the Services derived from these.
    pub const CREATED: &str = "mirror.portolan.dev/created";
    /// Annotation on a RemoteCluster: the hash of held deletions that may be made.
    pub const APPROVE_DELETIONS: &str = "mirror.portolan.dev/approve-deletions";
    /// Annotation on ServiceImports: keys of the labels and annotations that they have from exports.
    pub const EXPORTED_KEYS: &str = "mirror.portolan.dev/exported-keys";
    /// Condition type on Services.
    pub const PROGRAMMED: &str = "mirror.portolan.dev/Programmed";
    /// Value of the label `endpointslice.kubernetes.io/managed-by`.
    pub const MANAGED_BY: &str = "mirror.portolan.dev";
}

/// Condition types.
pub mod conditions {
    /// The object is valid and was accepted.
    pub const ACCEPTED: &str = "Accepted";
    /// All references are resolved.
    pub const RESOLVED_REFS: &str = "ResolvedRefs";
    /// Numbers and addresses are assigned.
    pub const ALLOCATED: &str = "Allocated";
    /// The configuration is in effect everywhere.
    pub const PROGRAMMED: &str = "Programmed";
    /// The summary: accepted and programmed.
    pub const READY: &str = "Ready";
    /// A remote cluster can be reached.
    pub const CONNECTED: &str = "Connected";
    /// All of a remote cluster is known.
    pub const SYNCED: &str = "Synced";
    /// An address is on the node that its claim names.
    pub const HELD: &str = "Held";
}

/// Reasons of conditions and events; metric labels use the same words.
pub mod reasons {
    /// No problem was found.
    pub const ACCEPTED: &str = "Accepted";
    /// A field must be edited.
    pub const INVALID: &str = "Invalid";
    /// The gateway that a policy names, or should default to, does not exist.
    pub const GATEWAY_NOT_FOUND: &str = "GatewayNotFound";
    /// No selected node is ready.
    pub const NO_READY_NODE: &str = "NoReadyNode";
    /// No address is free.
    pub const POOL_EMPTY: &str = "PoolEmpty";
    /// The address asked for is not in the pool.
    pub const OUTSIDE_POOL: &str = "OutsidePool";
    /// An address belongs to two owners.
    pub const POOL_OVERLAP: &str = "PoolOverlap";
    /// An address in use was taken out of the pool.
    pub const POOL_SHRUNK_IN_USE: &str = "PoolShrunkInUse";
    /// The IPv4 and the IPv6 address are not a pair.
    pub const PAIR_MISMATCH: &str = "PairMismatch";
    /// Another gateway is the default already.
    pub const DUPLICATE_DEFAULT: &str = "DuplicateDefault";
    /// A field that cannot change was changed.
    pub const IMMUTABLE_FIELD: &str = "ImmutableField";
    /// Every slot is taken.
    pub const SLOTS_EXHAUSTED: &str = "SlotsExhausted";
    /// Every node holds as many addresses as it can.
    pub const NO_CAPACITY: &str = "NoCapacity";
    /// The owner of the gateway does not allow it.
    pub const NOT_ALLOWED: &str = "NotAllowed";
    /// Other policies win everywhere.
    pub const SHADOWED: &str = "Shadowed";
    /// It is being deleted, and something holds it.
    pub const DELETING: &str = "Deleting";
    /// Not yet in effect everywhere.
    pub const NOT_PROGRAMMED: &str = "NotProgrammed";
    /// In effect.
    pub const PROGRAMMED: &str = "Programmed";
}
