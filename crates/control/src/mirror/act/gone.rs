//! RemoteClusters that seem to be gone are asked for by name: what they made is deleted only then.

use std::sync::Arc;

use kube::{Api, ResourceExt as _};
use portolan_api::mirror::RemoteCluster;

use super::acting::Acting;
use crate::runtime::Error;
use crate::runtime::due::Prepared;

/// Finds out whether the RemoteCluster with this UID is gone.
pub(super) fn prepare(acting: &Acting<'_>, uid: &Arc<str>) -> Prepared<bool> {
    let Some(name) = acting.model.suspects().remove(uid) else { return Prepared::Nothing };
    let (api, uid) = (Api::<RemoteCluster>::all(acting.client.clone()), uid.clone());
    Prepared::write(async move {
        let found = api.get_opt(&name).await;
        let found = found.map_err(|cause| Error::from_request(format!("get RemoteCluster {name}"), cause))?;
        Ok(found.is_none_or(|found| found.uid().as_deref() != Some(&*uid)))
    })
}
