//! What cloud-network-config-controller says: whether it runs, and which addresses it attached.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt as _;
use portolan_api::ipam::{CloudPrivateIpConfig, CloudPrivateIpConfigStatus};
use portolan_core::ipam::{Assigned, Moment, PrivateIp, PrivateIpStatus};

use super::super::names::{ASSIGNED, PRIVATE_IP_FINALIZER};
use crate::runtime::conditions;

/// Until when the holder of a Lease counts as running, unless it renews it; none if nobody holds it.
pub(in super::super) fn held_until(lease: &Lease) -> Option<Moment> {
    let spec = lease.spec.as_ref()?;
    spec.holder_identity.as_ref().filter(|holder| !holder.is_empty())?;
    let renewed = Moment::try_from(spec.renew_time.as_ref()?.0.as_millisecond()).ok()?;
    let seconds = Moment::try_from(spec.lease_duration_seconds?).ok()?;
    Some(renewed.saturating_add(seconds * 1_000))
}

/// What an object asks for, and what became of it.
pub(in super::super) fn private_ip(object: &CloudPrivateIpConfig) -> PrivateIp {
    PrivateIp {
        uid: object.uid().unwrap_or_default().into(),
        wanted: object.spec.node.as_str().into(),
        deleting: object.metadata.deletion_timestamp.is_some(),
        has_finalizer: object.finalizers().iter().any(|finalizer| finalizer == PRIVATE_IP_FINALIZER),
        status: object.status.as_ref().map(read_status).unwrap_or_default(),
    }
}

fn read_status(status: &CloudPrivateIpConfigStatus) -> PrivateIpStatus {
    let condition = status.conditions.iter().find(|one| one.type_ == ASSIGNED);
    let assigned = match condition.map(|one| (one.status.as_str(), one.message.as_str())) {
        Some(("True", _)) => Assigned::Yes,
        Some(("False", message)) => Assigned::Failed(message.into()),
        Some(_) | None => Assigned::Pending,
    };
    let node = Some(status.node.as_str()).filter(|node| !node.is_empty());
    PrivateIpStatus { node: node.map(Arc::from), assigned }
}

/// The status to write in an object; it always has exactly one condition.
pub(in super::super) fn private_ip_status(
    seen: &CloudPrivateIpConfig,
    status: &PrivateIpStatus,
) -> CloudPrivateIpConfigStatus {
    let (holds, reason, message) = match &status.assigned {
        Assigned::Yes => (Some(true), "CloudResponseSuccess", "IP address successfully added".to_owned()),
        Assigned::Failed(message) => (Some(false), "CloudResponseError", message.to_string()),
        Assigned::Pending => (None, "CloudResponsePending", "the call is due or under way".to_owned()),
    };
    let generation = seen.metadata.generation.unwrap_or_default();
    let mut conditions = vec![conditions::condition(ASSIGNED, holds, reason, message, generation)];
    let before = seen.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
    conditions::stamp(before, &mut conditions, Timestamp::now());
    CloudPrivateIpConfigStatus { node: status.node.as_deref().unwrap_or_default().to_owned(), conditions }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_lease_is_held_until_its_duration_has_passed_since_it_was_renewed() {
        let lease = |holder: &str| {
            let spec = json!({
                "holderIdentity": holder, "leaseDurationSeconds": 137, "renewTime": "1970-01-01T00:00:10.000000Z",
            });
            serde_json::from_value::<Lease>(json!({ "metadata": { "name": "lock" }, "spec": spec })).unwrap()
        };
        assert_eq!(held_until(&lease("pod-7")), Some(147_000));
        assert_eq!(held_until(&lease("")), None, "it was given back");
        assert_eq!(held_until(&Lease::default()), None);
    }

    #[test]
    fn an_address_is_assigned_once_the_condition_says_so() {
        let object = |status: &str, node: &str| {
            let condition = json!({
                "type": "Assigned", "status": status, "reason": "CloudResponsePending", "message": "full",
                "lastTransitionTime": "2026-11-17T12:00:00Z",
            });
            let object = json!({
                "metadata": { "name": "10.0.0.7", "finalizers": [PRIVATE_IP_FINALIZER] }, "spec": { "node": "new" },
                "status": { "node": node, "conditions": [condition] },
            });
            serde_json::from_value::<CloudPrivateIpConfig>(object).unwrap()
        };
        let read = private_ip(&object("True", "old"));
        assert_eq!((&*read.wanted, read.deleting, read.has_finalizer), ("new", false, true));
        assert_eq!(read.status, PrivateIpStatus { node: Some("old".into()), assigned: Assigned::Yes });
        let pending = private_ip(&object("Unknown", "new")).status;
        assert_eq!(pending, PrivateIpStatus { node: Some("new".into()), assigned: Assigned::Pending });
        let failed = private_ip(&object("False", "")).status;
        assert_eq!(failed, PrivateIpStatus { node: None, assigned: Assigned::Failed("full".into()) });
        let written = private_ip_status(&object("True", "old"), &failed);
        assert_eq!((read_status(&written), written.conditions.len()), (failed, 1));
    }
}
