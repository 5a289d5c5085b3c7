//! api -> core: the user's errors.

mod claim;
mod parts;
mod provider;
mod tenant;

pub(super) use claim::{claim, claim_section};
pub(super) use parts::gue_endpoint;
pub(super) use provider::{account, egw, misplaced, namespace, node_config, parents, service_prefix};
pub(super) use tenant::{endpoint, load_balancer, service_group};

use std::sync::Arc;

use kube::Resource;
use portolan_core::gateway::{Identity, ObjectName};

use crate::runtime::store::Key;

/// Which object it is; `finalizer` is the one that counts as ours.
fn identity<K: Resource>(object: &K, finalizer: &str) -> Identity {
    let meta = object.meta();
    let deleted =
        meta.deletion_timestamp.as_ref().map(|time| u64::try_from(time.0.as_millisecond()).unwrap_or_default());
    Identity {
        uid: meta.uid.as_deref().unwrap_or_default().into(),
        created: meta.creation_timestamp.as_ref().map_or(0, |time| time.0.as_second()),
        deleted,
        has_finalizer: meta.finalizers.iter().flatten().any(|found| found == finalizer),
    }
}

/// The name as the planner has it.
pub(super) fn name_of(key: &Key) -> ObjectName {
    ObjectName { namespace: Arc::from(key.namespace.as_str()), name: Arc::from(key.name.as_str()) }
}

/// The name as a store has it.
pub(super) fn key_of(name: &ObjectName) -> Key {
    Key { namespace: name.namespace.to_string(), name: name.name.to_string() }
}
