//! The journal: one claim per address, the only proof that an address is ours.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use super::cloud::{InstanceId, InterfaceId, SubnetId, Zone};
use super::error::CloudError;
use super::types::{Moment, NodeName};

/// Every recorded address. What is not in it is never unassigned, moved or published.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Journal {
    /// Claims with a cloud section.
    pub claims: BTreeMap<Ipv4Addr, Claim>,
    /// Addresses whose claim is another capability's: never drawn, never touched.
    pub other_use: BTreeSet<Ipv4Addr>,
}

/// The cloud section of an AddressClaim.
#[derive(Debug, Clone, PartialEq)]
pub struct Claim {
    /// What is wanted.
    pub spec: ClaimSpec,
    /// What happened so far.
    pub status: ClaimStatus,
    /// Somebody deletes the object: the address is released, and the object goes.
    pub deleting: bool,
}

/// What is wanted of an address.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimSpec {
    /// Whom it serves.
    pub owner: Owner,
    /// The user named it, so it is never replaced by another one.
    pub requested: bool,
    /// The zone it belongs to.
    pub zone: Zone,
    /// The subnet it belongs to.
    pub subnet: SubnetId,
    /// The node that should host it.
    pub node: NodeName,
}

/// Whom an address serves.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// Its kind.
    pub kind: OwnerKind,
    /// Its name.
    pub name: Arc<str>,
    /// Its uid: an object made again under the same name is another owner.
    pub uid: Arc<str>,
}

/// Kind of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum OwnerKind {
    /// A namespace.
    Namespace,
    /// A CloudPrivateIPConfig that we serve in the place of its controller.
    PrivateIp,
    /// Any other kind: its addresses count as load and are left alone.
    Other,
}

/// What happened to an address so far.
#[derive(Debug, Clone, PartialEq)]
pub struct ClaimStatus {
    /// How far it is.
    pub state: State,
    /// Where the cloud last showed it. None if it is nowhere.
    pub node: Option<NodeName>,
    /// Where the last call puts it or takes it off, written before the call. None if there was no call.
    pub target: Option<Target>,
    /// Where calls before the last one may have put it, until it is in service or deleted.
    pub earlier: Vec<Target>,
    /// Failed attempts since the state changed.
    pub attempts: u32,
    /// Why the last attempt failed.
    pub last_error: Option<LastError>,
    /// While it is released: why its assignment was given up. It is not tried again before it has cooled down.
    pub rolled_back: Option<CloudError>,
    /// When the state changed. A writer that keeps full seconds only rounds up.
    pub since: Moment,
    /// It was in service (condition `Published`): it stays the owner's whatever happens to the node.
    pub served: bool,
    /// While it is released: a describe no longer showed it, and it cools down.
    pub gone: bool,
}

/// How far an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Chosen; no call was made.
    Reserved,
    /// A call to put it on an interface is under way.
    Assigning,
    /// The cloud shows it where it should be.
    Attached,
    /// HostSubnet, NetNamespace and Namespace have it.
    Published,
    /// On the way to another interface.
    Moving,
    /// On the way out; once it is gone it cools down.
    Releasing,
    /// Somebody else has it.
    Blocked,
}

/// An interface that a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The node.
    pub node: NodeName,
    /// Its instance.
    pub instance: InstanceId,
    /// The instance's primary interface.
    pub interface: InterfaceId,
}

/// Why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastError {
    /// Its class.
    pub error: CloudError,
    /// When.
    pub at: Moment,
}

impl Claim {
    /// The claim after a failed call: to be recorded, so that the next plan takes it into account.
    #[must_use]
    pub fn failed(&self, error: CloudError, at: Moment) -> Self {
        let mut claim = self.clone();
        if error != CloudError::Throttled {
            claim.status.attempts = claim.status.attempts.saturating_add(1);
        }
        claim.status.last_error = Some(LastError { error, at });
        claim
    }

    /// True while the released address only waits to be drawn again.
    pub fn is_cooling(&self) -> bool {
        self.status.state == State::Releasing && self.status.gone
    }

    /// Nodes that host it for its owner, or will.
    pub fn hosts(&self) -> impl Iterator<Item = &NodeName> {
        let status = &self.status;
        let (wanted, shown) = match status.state {
            State::Reserved | State::Assigning | State::Attached | State::Published | State::Moving => (true, true),
            State::Releasing => (false, !status.gone),
            State::Blocked => (false, false),
        };
        wanted.then_some(&self.spec.node).into_iter().chain(status.node.as_ref().filter(|_| shown))
    }

    /// Nodes that have it, get it, or may have it by a call whose outcome is not known.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        let called = match self.status.state {
            State::Assigning | State::Attached | State::Published | State::Moving => true,
            State::Releasing => !self.status.gone,
            State::Reserved | State::Blocked => false,
        };
        self.hosts().chain(self.status.calls().map(|target| &target.node).filter(move |_| called))
    }
}

impl ClaimStatus {
    /// The status of an address that was just chosen.
    pub fn reserved(now: Moment) -> Self {
        Self {
            state: State::Reserved,
            node: None,
            target: None,
            earlier: Vec::new(),
            attempts: 0,
            last_error: None,
            rolled_back: None,
            since: now,
            served: false,
            gone: false,
        }
    }

    /// Interfaces that calls named.
    pub fn calls(&self) -> impl Iterator<Item = &Target> {
        self.target.iter().chain(&self.earlier)
    }

    /// Records the interface of the next call.
    pub(super) fn aim(&mut self, target: Target) {
        if let Some(before) = self.target.replace(target) {
            self.earlier.push(before);
        }
        let last = self.target.clone();
        self.earlier.retain(|earlier| Some(earlier) != last.as_ref());
        self.earlier.dedup();
    }
}

impl State {
    /// As status and metrics spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "Reserved",
            Self::Assigning => "Assigning",
            Self::Attached => "Attached",
            Self::Published => "Published",
            Self::Moving => "Moving",
            Self::Releasing => "Releasing",
            Self::Blocked => "Blocked",
        }
    }
}
