//! Adds and removes addresses.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use portolan_core::ipam::{CloudError, InterfaceId};

use super::client::{Action, numbered};
use super::ec2::AwsCloud;
use super::error::{Failure, Meaning};
use super::instances::SeenInterface;
use super::limiter::Priority;
use super::xml;
use crate::cloud::{Outcomes, each, is_reserved};

/// What happens to addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Assign,
    Take,
    Release,
}

impl Change {
    const fn priority(self) -> Priority {
        match self {
            Self::Take => Priority::Move,
            Self::Assign => Priority::Assign,
            Self::Release => Priority::Release,
        }
    }

    const fn action(self) -> Action {
        match self {
            Self::Assign | Self::Take => Action::AssignPrivateIpAddresses,
            Self::Release => Action::UnassignPrivateIpAddresses,
        }
    }
}

impl AwsCloud {
    /// All addresses in one call; one by one if EC2 refuses that.
    pub(super) async fn change(&self, change: Change, interface: &InterfaceId, addresses: &[Ipv4Addr]) -> Outcomes {
        let addresses: BTreeSet<Ipv4Addr> = addresses.iter().copied().collect();
        let addresses: Vec<Ipv4Addr> = addresses.into_iter().collect();
        if addresses.is_empty() {
            return Outcomes::new();
        }
        let failure = match self.send(change, interface, &addresses).await {
            Ok(()) => return each(&addresses, &Ok(())),
            Err(failure) => failure,
        };
        if let [address] = addresses[..] {
            return each(&[address], &self.classify(change, interface, address, failure).await);
        }
        if !is_about_one(&failure) {
            return each(&addresses, &Err(failure.into_cloud(change.action().name())));
        }
        let mut outcomes = Outcomes::new();
        for address in addresses {
            let outcome = match self.send(change, interface, &[address]).await {
                Ok(()) => Ok(()),
                Err(failure) => self.classify(change, interface, address, failure).await,
            };
            outcomes.insert(address, outcome);
        }
        outcomes
    }

    async fn send(&self, change: Change, interface: &InterfaceId, addresses: &[Ipv4Addr]) -> Result<(), Failure> {
        let mut parameters = vec![("NetworkInterfaceId".to_owned(), interface.to_string())];
        parameters.extend(numbered("PrivateIpAddress", addresses));
        if change == Change::Take {
            parameters.push(("AllowReassignment".to_owned(), "true".to_owned()));
        }
        let body = self.client.call(change.action(), &parameters, change.priority()).await?;
        // Not every answer has this element; none says `false` after a success.
        let is_done = xml::read(&body, |root| xml::text(root, &["return"]).is_none_or(|done| done == "true"))?;
        if is_done { Ok(()) } else { Err(Failure::Lost("the answer does not say `true`".to_owned())) }
    }

    /// What a refusal means, by the state of the interface and of its subnet.
    async fn classify(
        &self,
        change: Change,
        interface: &InterfaceId,
        address: Ipv4Addr,
        failure: Failure,
    ) -> Result<(), CloudError> {
        let is_unclear = matches!(failure, Failure::Refused { .. })
            && matches!(failure.meaning(), Meaning::Unclear | Meaning::InUse);
        let refusal = failure.into_cloud(change.action().name());
        if !is_unclear {
            return Err(refusal);
        }
        let Some(seen) = self.read_one_interface(interface, change.priority()).await? else {
            return Err(CloudError::NoSuchInterface);
        };
        match change {
            Change::Release if seen.interface.primary == address => Err(refusal),
            // It is shown there and cannot be removed: the answer lags behind.
            Change::Release if seen.interface.secondary.contains(&address) => Err(CloudError::Transient),
            Change::Release => Ok(()),
            Change::Assign | Change::Take => self.why_not_added(&seen, address, change.priority(), refusal).await,
        }
    }

    async fn why_not_added(
        &self,
        seen: &SeenInterface,
        address: Ipv4Addr,
        priority: Priority,
        refusal: CloudError,
    ) -> Result<(), CloudError> {
        if seen.interface.secondary.contains(&address) {
            return Ok(());
        }
        let subnets = self.read_subnets(std::slice::from_ref(&seen.subnet), priority).await?;
        let Some(subnet) = subnets.first() else { return Err(refusal) };
        if !subnet.cidr.contains(&address) || is_reserved(subnet.cidr, address) {
            return Err(CloudError::OutsideSubnet);
        }
        if let Some(by) = self.find_holder(address, &seen.subnet, priority).await? {
            return Err(CloudError::InUse { by: Some(by) });
        }
        if subnet.available == Some(0) { Err(CloudError::SubnetFull) } else { Err(refusal) }
    }
}

/// True if the other addresses of the call may be all right.
fn is_about_one(failure: &Failure) -> bool {
    match failure.meaning() {
        Meaning::Unclear => matches!(failure, Failure::Refused { .. }),
        Meaning::LimitExceeded | Meaning::SubnetFull | Meaning::InUse => true,
        Meaning::Throttled
        | Meaning::Expired
        | Meaning::KeysRefused
        | Meaning::Denied
        | Meaning::Transient
        | Meaning::NoSuchInterface
        | Meaning::NoSuchInstance
        | Meaning::NoSuchSubnet
        | Meaning::DryRun => false,
    }
}
