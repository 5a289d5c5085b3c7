//! What a check found, and how it is fixed, as data.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use portolan_core::ipam::{NamespaceName, NodeName};

use crate::runtime::doctor::Check;

/// A check, and how to fix what it found.
pub(super) struct Finding {
    pub(super) check: Check,
    pub(super) fix: Option<Fix>,
}

/// How something is fixed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fix {
    /// Writes the addresses of a namespace, and when that was, where its annotation still is the one that was seen.
    AnnotateNamespace { name: NamespaceName, list: BTreeSet<Ipv4Addr>, seen: Option<Arc<str>> },
    /// Writes the addresses of a NetNamespace and their annotation.
    SetNetNamespace { name: NamespaceName, list: BTreeSet<Ipv4Addr> },
    /// Writes the addresses of an EgressIP, and that it is for this namespace alone.
    SetEgressIp { name: Arc<str>, namespace: NamespaceName, list: BTreeSet<Ipv4Addr> },
    /// Puts an address on the HostSubnet of a node, and takes it off others.
    SetHost { address: Ipv4Addr, namespace: NamespaceName, node: NodeName, others: Vec<NodeName> },
    /// Removes finalizers that nobody else would remove.
    RemoveFinalizers(Leftover),
    /// Asks the operator to compare an address with the cloud.
    AskOperator { address: Ipv4Addr },
}

/// An object with finalizers of an operator that is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Leftover {
    pub(super) kind: Held,
    pub(super) name: String,
    pub(super) finalizers: Vec<String>,
}

/// Kinds that the Go operators put finalizers on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    Namespace,
    NetNamespace,
    HostSubnet,
}

impl Held {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Namespace => "Namespace",
            Self::NetNamespace => "NetNamespace",
            Self::HostSubnet => "HostSubnet",
        }
    }
}

impl Finding {
    pub(super) fn fixed_by(check: Check, fix: Fix) -> Self {
        Self { check, fix: Some(fix) }
    }
}

impl From<Check> for Finding {
    fn from(check: Check) -> Self {
        Self { check, fix: None }
    }
}

/// What was found, or that all is well.
pub(super) fn or_ok(name: &'static str, found: Vec<Finding>, seen: String) -> Vec<Finding> {
    if found.is_empty() { vec![Check::ok(name, seen).into()] } else { found }
}

/// Addresses in a sentence.
pub(super) fn listed<'a>(addresses: impl IntoIterator<Item = &'a Ipv4Addr>) -> String {
    addresses.into_iter().map(Ipv4Addr::to_string).collect::<Vec<_>>().join(", ")
}

/// What to do about something that a repair writes.
pub(super) const REPAIR: &str = "write it from the journal: portolan doctor ipam --repair";
/// What to do about something that the operator puts right.
pub(super) const OPERATOR: &str = "the operator puts it right: check that it runs, and ask it to look with --repair";
