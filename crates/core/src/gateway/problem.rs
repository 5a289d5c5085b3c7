//! Why something is not as the user wants it: one bounded vocabulary for conditions, events and metrics.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::addresses::{Outside, Unmet};
use super::deny::Denied;

/// A problem of one object. The text says what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the messages say what each of them means")]
pub enum Problem {
    Invalid(Arc<str>),
    NotSingleton { expected: &'static str },
    AccountNotFound { namespace: Arc<str> },
    AccountNotReady { account: Arc<str> },
    AccountTerminating { account: Arc<str> },
    UnsupportedProtocol(Arc<str>),
    NoMatchingPort,
    AmbiguousEndpoint { other: Arc<str> },
    DuplicateEndpoint { other: Arc<str> },
    DuplicateKey { number: u32, other: Arc<str> },
    PoolOverlap { other: Arc<str> },
    CredsLength { bytes: usize },
    ImageNotAllowed { image: Arc<str> },
    AddressDenied { address: IpAddr, why: Denied },
    EndpointInUse { address: IpAddr },
    ServiceGroupNotFound { group: Arc<str> },
    GroupNotReady { group: Arc<str> },
    PrefixMissing { prefix: Arc<str> },
    PrefixNotReady { prefix: Arc<str> },
    LoadBalancerNotFound { name: Arc<str> },
    LoadBalancerNotReady { name: Arc<str> },
    KeysExhausted { what: &'static str, capacity: u32, next: Option<u64> },
    Quota { what: &'static str, limit: u32 },
    Address(Box<Unmet>),
    Outside { address: IpAddr, why: Outside },
    Pending,
    NamespaceTerminating { namespace: Arc<str> },
    HasLoadBalancers { account: Arc<str>, count: usize },
    EnvoyStarting,
    EnvoyNotReady,
    EnvoyCrashed(Arc<str>),
    EnvoyRejected(Arc<str>),
    EnvoyMissing(Arc<str>),
    EnvoyTooOld(Arc<str>),
    NodeMismatch(Arc<str>),
    NotAllocated,
    DriverDirect,
    NoTunnelAddress,
}

impl Problem {
    /// It goes away by itself when what is under way is done.
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Pending
                | Self::NotAllocated
                | Self::EnvoyStarting
                | Self::EnvoyNotReady
                | Self::DriverDirect
                | Self::AccountNotReady { .. }
                | Self::LoadBalancerNotReady { .. }
        )
    }

    /// The word for conditions, events and metrics.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "Invalid",
            Self::NotSingleton { .. } => "NotSingleton",
            Self::AccountNotFound { .. } => "AccountNotFound",
            Self::AccountNotReady { .. } => "AccountNotReady",
            Self::AccountTerminating { .. } => "AccountTerminating",
            Self::UnsupportedProtocol(_) => "UnsupportedProtocol",
            Self::NoMatchingPort => "NoMatchingPort",
            Self::AmbiguousEndpoint { .. } => "AmbiguousEndpoint",
            Self::DuplicateEndpoint { .. } => "DuplicateEndpoint",
            Self::DuplicateKey { .. } => "DuplicateKey",
            Self::PoolOverlap { .. } => "PoolOverlap",
            Self::CredsLength { .. } => "CredsLength",
            Self::ImageNotAllowed { .. } => "ImageNotAllowed",
            Self::AddressDenied { .. } => "AddressDenied",
            Self::EndpointInUse { .. } => "AddressInUse",
            Self::ServiceGroupNotFound { .. } => "ServiceGroupNotFound",
            Self::GroupNotReady { .. } => "ServiceGroupNotReady",
            Self::PrefixMissing { .. } => "PrefixMissing",
            Self::PrefixNotReady { .. } => "PrefixNotReady",
            Self::LoadBalancerNotFound { .. } => "LoadBalancerNotFound",
            Self::LoadBalancerNotReady { .. } => "LoadBalancerNotReady",
            Self::KeysExhausted { .. } => "KeysExhausted",
            Self::Quota { .. } => "QuotaExceeded",
            Self::Address(unmet) => unmet.reason(),
            Self::Outside { why, .. } => match why {
                Outside::OutsidePool => "OutsidePool",
                Outside::PrefixMissing => "PrefixMissing",
                Outside::PrefixNotAllowed => "PrefixNotAllowed",
            },
            Self::Pending => "Pending",
            Self::NamespaceTerminating { .. } => "NamespaceTerminating",
            Self::HasLoadBalancers { .. } => "HasLoadBalancers",
            Self::EnvoyStarting => "EnvoyStarting",
            Self::EnvoyNotReady => "EnvoyNotReady",
            Self::EnvoyCrashed(_) => "EnvoyCrashed",
            Self::EnvoyRejected(_) => "EnvoyRejected",
            Self::EnvoyMissing(_) => "EnvoyMissing",
            Self::EnvoyTooOld(_) => "EnvoyTooOld",
            Self::NodeMismatch(_) => "NodeMismatch",
            Self::NotAllocated => "NotAllocated",
            Self::DriverDirect => "DriverDirect",
            Self::NoTunnelAddress => "NoTunnelAddress",
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(text) => f.write_str(text),
            Self::NotSingleton { expected } => {
                write!(f, "only {expected} is used: delete this object, and edit that one")
            }
            Self::AccountNotFound { namespace } => write!(
                f,
                "namespace `{namespace}` belongs to no Account: use namespace egw-NAME, where NAME is an Account in namespace egw"
            ),
            Self::AccountNotReady { account } => write!(f, "Account `{account}` has no key: see its conditions"),
            Self::AccountTerminating { account } => {
                write!(f, "Account `{account}` is being deleted: nothing is added to it")
            }
            Self::UnsupportedProtocol(protocol) => write!(f, "protocol `{protocol}` is not served: use TCP or UDP"),
            Self::NoMatchingPort => f.write_str(
                "no single public port of its LoadBalancer matches: give both the same port name, or make targetPort the endpoint's port",
            ),
            Self::AmbiguousEndpoint { other } => write!(
                f,
                "endpoint `{other}` has the same address and port on another node: delete the one that is wrong"
            ),
            Self::DuplicateEndpoint { other } => write!(f, "duplicate endpoint: {other}: delete one of the two"),
            Self::DuplicateKey { number, other } => {
                write!(f, "`{other}` is older and has {number} too: delete and recreate this object to get a new number")
            }
            Self::PoolOverlap { other } => write!(
                f,
                "its pools share addresses with the older ServicePrefix `{other}`: change one of them; until then no address is given from this one"
            ),
            Self::CredsLength { bytes } => {
                write!(f, "spec.auth-creds has {bytes} bytes: use 1 to 16")
            }
            Self::ImageNotAllowed { image } => {
                write!(f, "image `{image}` is not allowed here: leave spec.envoy-image empty, or ask the provider to allow it")
            }
            Self::AddressDenied { address, why } => write!(f, "{address} cannot be an endpoint: {why}"),
            Self::EndpointInUse { address } => write!(
                f,
                "{address} with this port is an endpoint of another account, and without tunnels their packets would mix: use another address or port"
            ),
            Self::ServiceGroupNotFound { group } => {
                write!(f, "ServiceGroup `{group}` does not exist in this namespace: create it")
            }
            Self::GroupNotReady { group } => write!(f, "ServiceGroup `{group}` has errors: see its conditions"),
            Self::PrefixMissing { prefix } => {
                write!(f, "ServicePrefix `egw/{prefix}` does not exist: create it, or name another one in the group")
            }
            Self::PrefixNotReady { prefix } => {
                write!(f, "ServicePrefix `egw/{prefix}` has errors: see its conditions")
            }
            Self::LoadBalancerNotFound { name } => {
                write!(f, "LoadBalancer `{name}` does not exist in this namespace: create it, or delete this endpoint")
            }
            Self::LoadBalancerNotReady { name } => write!(f, "LoadBalancer `{name}` is not programmed: see its conditions"),
            Self::KeysExhausted { what, capacity, next } => {
                write!(f, "all {capacity} {what} are in use or were released a short time ago: delete what is not needed")?;
                match next {
                    Some(seconds) => write!(f, "; the next one comes free in {seconds} s"),
                    None => Ok(()),
                }
            }
            Self::Quota { what, limit } => {
                write!(f, "the account has all {limit} {what} that it may have: delete one, or ask for a higher limit")
            }
            Self::Address(unmet) => unmet.fmt(f),
            Self::Outside { address, why } => outside(f, *address, *why),
            Self::Pending => f.write_str("waiting for the API server"),
            Self::NamespaceTerminating { namespace } => {
                write!(f, "namespace `{namespace}` is being deleted; it is created again when it is gone")
            }
            Self::HasLoadBalancers { account, count } => write!(
                f,
                "{count} LoadBalancers are left: delete them, or delete all with: kubectl annotate -n egw accounts.egw.acnodal.io {account} portolan.dev/delete-with-contents=true"
            ),
            Self::EnvoyStarting => f.write_str("Envoy is starting"),
            Self::EnvoyNotReady => {
                f.write_str("Envoy has its configuration, but its pod is not ready: nodes send no packets to it yet")
            }
            Self::EnvoyCrashed(why) => write!(f, "Envoy ended and is started again: {why}"),
            Self::EnvoyRejected(why) => write!(f, "Envoy keeps the last good configuration: {why}"),
            Self::EnvoyMissing(why) | Self::EnvoyTooOld(why) => f.write_str(why),
            Self::NodeMismatch(why) => write!(f, "an Envoy with another identity connected: {why}"),
            Self::NotAllocated => f.write_str("not programmed until it has a key and an address"),
            Self::DriverDirect => f.write_str("Envoy connects to endpoints directly, without tunnels"),
            Self::NoTunnelAddress => {
                f.write_str("no tunnel can be offered: set spec.base.gue-endpoint.egw-address in NodeConfig egw/default")
            }
        }
    }
}

fn outside(f: &mut fmt::Formatter<'_>, address: IpAddr, why: Outside) -> fmt::Result {
    let cause = match why {
        Outside::OutsidePool => "no longer in the pool of its ServicePrefix",
        Outside::PrefixMissing => "of a ServicePrefix or ServiceGroup that does not exist any more",
        Outside::PrefixNotAllowed => "of a ServicePrefix that the account may not use any more",
    };
    write!(f, "{address} is {cause}: it is kept; delete and recreate the LoadBalancer to get another address")
}
