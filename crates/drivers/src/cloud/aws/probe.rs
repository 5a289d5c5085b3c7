//! What the credentials allow, found out without changing anything.
//!
//! Describes are tried by DryRun. The two writes know no DryRun: an address that the interface already has is assigned,
//! and one that it cannot have is unassigned. Whatever EC2 says to that, only a denial means that it is not allowed.

use std::net::Ipv4Addr;

use jiff::{SignedDuration, Timestamp};
use portolan_core::ipam::{CloudError, CloudInterface};

use super::client::{Action, Identity, Parameters, numbered};
use super::credentials::CredentialsSource;
use super::ec2::AwsCloud;
use super::error::{AwsError, Failure, Meaning};
use super::limiter::Priority;

/// Who we are to AWS, and what that allows.
#[derive(Debug, Clone, PartialEq)]
pub struct PermissionProbe {
    /// The region.
    pub region: String,
    /// Where the credentials come from.
    pub source: CredentialsSource,
    /// When they end.
    pub expires: Option<Timestamp>,
    /// By how much AWS's clock is ahead of ours, if a call was refused for it.
    pub clock_offset: SignedDuration,
    /// Describes that are made a second at most: fewer than the full rate after throttling.
    pub reads_per_second: f64,
    /// Changes that are made a second at most.
    pub writes_per_second: f64,
    /// Each action, and whether it is allowed.
    pub actions: Vec<ProbedAction>,
}

/// One action that was probed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbedAction {
    /// Its name in policies, such as `ec2:DescribeInstances`.
    pub action: String,
    /// Whether it is allowed.
    pub access: Access,
}

/// Whether an action is allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// It is.
    Allowed,
    /// It is not.
    Denied,
    /// That could not be found out.
    Unknown(CloudError),
}

impl AwsCloud {
    /// Probes each action; the writes on an interface of ours, if there is one.
    pub async fn probe(&self, interface: Option<&CloudInterface>) -> Result<PermissionProbe, AwsError> {
        let Identity { source, expires } = self.client.identity().await?;
        let dry = || vec![("DryRun".to_owned(), "true".to_owned())];
        let mut calls: Vec<(Action, Parameters)> = [
            Action::DescribeInstances,
            Action::DescribeInstanceTypes,
            Action::DescribeNetworkInterfaces,
            Action::DescribeSubnets,
        ]
        .map(|action| (action, dry()))
        .into();
        if let Some(interface) = interface {
            let on = |address: Ipv4Addr| {
                let mut parameters = vec![("NetworkInterfaceId".to_owned(), interface.id.to_string())];
                parameters.extend(numbered("PrivateIpAddress", [address]));
                parameters
            };
            let present = interface.secondary.first().copied().unwrap_or(interface.primary);
            calls.push((Action::AssignPrivateIpAddresses, on(present)));
            calls.push((Action::UnassignPrivateIpAddresses, on(ABSENT)));
        }
        let mut actions = Vec::new();
        for (action, parameters) in calls {
            let answer = self.client.call(action, &parameters, Priority::Verify).await;
            let name = format!("ec2:{}", action.name());
            actions.push(ProbedAction { action: name, access: access(action, answer) });
        }
        Ok(PermissionProbe {
            region: self.region().to_owned(),
            source,
            expires,
            clock_offset: self.client.clock_offset(),
            reads_per_second: self.client.reads.per_second(),
            writes_per_second: self.client.writes.per_second(),
            actions,
        })
    }
}

fn access(action: Action, answer: Result<String, Failure>) -> Access {
    let Err(failure) = answer else { return Access::Allowed };
    match failure.meaning() {
        Meaning::Denied | Meaning::Expired | Meaning::KeysRefused => Access::Denied,
        Meaning::Unclear if matches!(failure, Failure::Credentials(_)) => {
            Access::Unknown(failure.into_cloud(action.name()))
        }
        Meaning::DryRun | Meaning::LimitExceeded | Meaning::InUse | Meaning::SubnetFull | Meaning::Unclear => {
            Access::Allowed
        }
        Meaning::Throttled
        | Meaning::Transient
        | Meaning::NoSuchInterface
        | Meaning::NoSuchInstance
        | Meaning::NoSuchSubnet => Access::Unknown(failure.into_cloud(action.name())),
    }
}

/// For documentation (RFC 5737): in no subnet of a VPC.
const ABSENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
