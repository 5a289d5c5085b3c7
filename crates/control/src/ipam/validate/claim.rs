//! The cloud section of AddressClaims, both ways.

use std::net::Ipv4Addr;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use portolan_api::address_claim::AddressClaim;
use portolan_api::ipam::{CloudAttachment, CloudClaim, CloudFailure, CloudOwner, CloudState, CloudTarget};
use portolan_core::ipam::{
    Claim, ClaimSpec, ClaimStatus, CloudError, LastError, Moment, Owner, OwnerKind, State, Target,
};

use super::super::names::{FIRST_STATUS, NAMESPACE, PRIVATE_IP};
use super::moment;
use crate::runtime::conditions;

/// The address that a claim is named after, if it is an IPv4 one.
pub(in super::super) fn address_of(name: &str) -> Option<Ipv4Addr> {
    name.parse().ok()
}

/// The claim in an object; none if the object has no cloud section.
pub(in super::super) fn claim(object: &AddressClaim) -> Option<Claim> {
    let section = object.spec.cloud.as_ref()?;
    let created = object.creation_timestamp().map(|time| moment(&time)).unwrap_or_default();
    let status = match object.status.as_ref().and_then(|status| status.cloud.as_ref()) {
        Some(attachment) => read_status(attachment, created),
        None => first_status(object).map_or_else(|| ClaimStatus::reserved(created), |one| read_status(&one, created)),
    };
    let kind = match section.owner.kind.as_str() {
        NAMESPACE => OwnerKind::Namespace,
        PRIVATE_IP => OwnerKind::PrivateIp,
        _ => OwnerKind::Other,
    };
    let CloudOwner { name, uid, .. } = &section.owner;
    let spec = ClaimSpec {
        owner: Owner { kind, name: name.as_str().into(), uid: uid.as_str().into() },
        requested: section.requested,
        zone: section.zone.as_str().into(),
        subnet: section.subnet_id.as_str().into(),
        node: section.node.as_str().into(),
    };
    Some(Claim { spec, status, deleting: object.metadata.deletion_timestamp.is_some() })
}

/// True if the status of a claim is yet to be written.
pub(in super::super) fn has_no_status(object: &AddressClaim) -> bool {
    object.spec.cloud.is_some() && object.status.as_ref().is_none_or(|status| status.cloud.is_none())
}

/// The spec to write; `seen` is the one that is there.
pub(in super::super) fn spec(claim: &ClaimSpec, seen: Option<&CloudClaim>) -> CloudClaim {
    let kind = match claim.owner.kind {
        OwnerKind::Namespace => NAMESPACE.to_owned(),
        OwnerKind::PrivateIp => PRIVATE_IP.to_owned(),
        OwnerKind::Other => seen.map(|seen| seen.owner.kind.clone()).unwrap_or_default(),
    };
    CloudClaim {
        owner: CloudOwner { kind, name: claim.owner.name.to_string(), uid: claim.owner.uid.to_string() },
        requested: claim.requested,
        zone: claim.zone.to_string(),
        subnet_id: claim.subnet.to_string(),
        node: claim.node.to_string(),
    }
}

/// The status to write for an object of that generation; `seen` is the one that is there.
pub(in super::super) fn attachment(
    claim: &ClaimStatus,
    seen: Option<&CloudAttachment>,
    generation: i64,
) -> CloudAttachment {
    let state = claim.state;
    let message = claim.last_error.as_ref().map(|last| last.error.to_string()).unwrap_or_default();
    let is_attached = matches!(state, State::Attached | State::Published);
    let condition = |kind: &str, holds: bool| {
        let (reason, message) = if holds { (kind, String::new()) } else { (state.as_str(), message.clone()) };
        conditions::condition(kind, Some(holds), reason, message, generation)
    };
    let mut conditions = vec![condition("Attached", is_attached), condition("Published", state == State::Published)];
    let before = seen.map(|seen| &seen.conditions[..]).unwrap_or_default();
    conditions::stamp(before, &mut conditions, Timestamp::now());
    CloudAttachment {
        state: write_state(state),
        node: claim.node.as_deref().map(str::to_owned),
        target: claim.target.as_ref().map(write_target),
        earlier_targets: claim.earlier.iter().map(write_target).collect(),
        attempts: claim.attempts,
        last_error: claim.last_error.as_ref().map(|last| write_error(&last.error, Some(last.at))),
        rolled_back: claim.rolled_back.as_ref().map(|error| write_error(error, None)),
        since: Some(round_up(claim.since)),
        served: claim.served,
        gone: claim.gone,
        conditions,
    }
}

/// Times have full seconds on the wire. Rounded down, a look at the cloud could seem newer than what it must follow.
fn round_up(moment: Moment) -> Time {
    let seconds = i64::try_from(moment.div_ceil(1000)).unwrap_or(i64::MAX);
    Time(Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX))
}

fn first_status(object: &AddressClaim) -> Option<CloudAttachment> {
    serde_json::from_str(object.annotations().get(FIRST_STATUS)?).ok()
}

fn read_status(seen: &CloudAttachment, created: Moment) -> ClaimStatus {
    let last_error = seen.last_error.as_ref().map(|failure| LastError {
        error: read_error(failure),
        at: failure.at.as_ref().map(moment).unwrap_or_default(),
    });
    ClaimStatus {
        state: read_state(seen.state),
        node: seen.node.as_deref().map(Arc::from),
        target: seen.target.as_ref().map(read_target),
        earlier: seen.earlier_targets.iter().map(read_target).collect(),
        attempts: seen.attempts,
        last_error,
        rolled_back: seen.rolled_back.as_ref().map(read_error),
        since: seen.since.as_ref().map_or(created, moment),
        served: seen.served,
        gone: seen.gone,
    }
}

fn read_target(target: &CloudTarget) -> Target {
    Target {
        node: target.node.as_str().into(),
        instance: target.instance_id.as_str().into(),
        interface: target.interface_id.as_str().into(),
    }
}

fn write_target(target: &Target) -> CloudTarget {
    CloudTarget {
        node: target.node.to_string(),
        instance_id: target.instance.to_string(),
        interface_id: target.interface.to_string(),
    }
}

const fn read_state(state: CloudState) -> State {
    match state {
        CloudState::Reserved => State::Reserved,
        CloudState::Assigning => State::Assigning,
        CloudState::Attached => State::Attached,
        CloudState::Published => State::Published,
        CloudState::Moving => State::Moving,
        CloudState::Releasing => State::Releasing,
        CloudState::Blocked => State::Blocked,
    }
}

const fn write_state(state: State) -> CloudState {
    match state {
        State::Reserved => CloudState::Reserved,
        State::Assigning => CloudState::Assigning,
        State::Attached => CloudState::Attached,
        State::Published => CloudState::Published,
        State::Moving => CloudState::Moving,
        State::Releasing => CloudState::Releasing,
        State::Blocked => CloudState::Blocked,
    }
}

fn write_error(error: &CloudError, at: Option<Moment>) -> CloudFailure {
    let (code, message) = match error {
        CloudError::InUse { by } => (by.as_deref(), None),
        CloudError::Denied { action } => (Some(&**action), None),
        CloudError::Unknown { code, message } => (Some(&**code), Some(&**message)),
        CloudError::Throttled
        | CloudError::LimitExceeded
        | CloudError::OutsideSubnet
        | CloudError::SubnetFull
        | CloudError::NoSuchInterface
        | CloudError::NoSuchInstance
        | CloudError::Transient => (None, None),
    };
    CloudFailure {
        reason: error.reason().to_owned(),
        code: code.map(str::to_owned),
        message: message.map(str::to_owned),
        at: at.map(round_up),
    }
}

fn read_error(failure: &CloudFailure) -> CloudError {
    let code = || failure.code.as_deref().map(Arc::<str>::from);
    let plain = [
        CloudError::Throttled,
        CloudError::LimitExceeded,
        CloudError::OutsideSubnet,
        CloudError::SubnetFull,
        CloudError::NoSuchInterface,
        CloudError::NoSuchInstance,
        CloudError::Transient,
    ];
    if let Some(error) = plain.into_iter().find(|error| error.reason() == failure.reason) {
        return error;
    }
    let in_use = CloudError::InUse { by: code() };
    let denied = CloudError::Denied { action: code().unwrap_or_default() };
    match failure.reason.as_str() {
        reason if reason == in_use.reason() => in_use,
        reason if reason == denied.reason() => denied,
        reason => CloudError::Unknown {
            code: code().unwrap_or_else(|| reason.into()),
            message: failure.message.as_deref().unwrap_or_default().into(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan_api::address_claim::{AddressClaimSpec, AddressClaimStatus};

    fn errors() -> Vec<CloudError> {
        vec![
            CloudError::Throttled,
            CloudError::InUse { by: Some("eni-7".into()) },
            CloudError::InUse { by: None },
            CloudError::LimitExceeded,
            CloudError::OutsideSubnet,
            CloudError::SubnetFull,
            CloudError::NoSuchInterface,
            CloudError::NoSuchInstance,
            CloudError::Denied { action: "ec2:AssignPrivateIpAddresses".into() },
            CloudError::Transient,
            CloudError::Unknown { code: "Odd".into(), message: "text".into() },
        ]
    }

    fn target(number: u8) -> Target {
        Target {
            node: format!("n{number}").into(),
            instance: format!("i-{number}").into(),
            interface: format!("eni-{number}").into(),
        }
    }

    #[test]
    fn a_claim_is_read_as_it_was_written() {
        for (number, error) in errors().into_iter().enumerate() {
            let states = [State::Assigning, State::Published, State::Moving, State::Releasing, State::Blocked];
            let written = Claim {
                spec: ClaimSpec {
                    owner: Owner { kind: OwnerKind::Namespace, name: "shop".into(), uid: "u".into() },
                    requested: number % 2 == 0,
                    zone: "a".into(),
                    subnet: "subnet-a".into(),
                    node: "n1".into(),
                },
                status: ClaimStatus {
                    state: states[number % states.len()],
                    node: Some("n2".into()),
                    target: Some(target(1)),
                    earlier: vec![target(2), target(3)],
                    attempts: 4,
                    last_error: Some(LastError { error: error.clone(), at: 8_000 }),
                    rolled_back: Some(error),
                    since: 7_000,
                    served: number % 2 == 1,
                    gone: number % 2 == 0,
                },
                deleting: false,
            };
            let mut object = AddressClaim::new(
                "10.0.0.7",
                AddressClaimSpec { cloud: Some(spec(&written.spec, None)), ..AddressClaimSpec::default() },
            );
            let cloud = Some(attachment(&written.status, None, 1));
            object.status = Some(AddressClaimStatus { cloud, ..AddressClaimStatus::default() });
            let text = serde_json::to_string(&object).unwrap();
            assert_eq!(claim(&serde_json::from_str(&text).unwrap()), Some(written));
        }
    }

    #[test]
    fn moments_are_rounded_up_to_full_seconds() {
        for (exact, rounded) in [(7_000, 7_000), (7_001, 8_000), (7_999, 8_000)] {
            assert_eq!(moment(&round_up(exact)), rounded);
        }
    }

    #[test]
    fn the_first_status_counts_until_there_is_one() {
        let mut object = AddressClaim::new(
            "10.0.0.7",
            AddressClaimSpec { cloud: Some(CloudClaim::default()), ..AddressClaimSpec::default() },
        );
        assert_eq!(claim(&object).unwrap().status.state, State::Reserved);
        let first = ClaimStatus { state: State::Published, served: true, ..ClaimStatus::reserved(1_000) };
        let text = serde_json::to_string(&attachment(&first, None, 1)).unwrap();
        object.annotations_mut().insert(FIRST_STATUS.to_owned(), text);
        assert_eq!(claim(&object).unwrap().status, first);
        assert!(has_no_status(&object));
    }
}
