//! The one EgressClusterInfo: made when it is missing, its status as found.

use kube::api::ObjectMeta;
use portolan_api::egress::EgressClusterInfo;

use super::super::ranges;
use super::acting::Acting;
use crate::runtime::due::Prepared;
use crate::runtime::store::Key;

/// What the EgressClusterInfo needs.
pub(super) fn prepare(acting: &Acting<'_>) -> Prepared<()> {
    let Acting { writer, cache, model, .. } = acting;
    let key = Key::of_cluster(ranges::NAME);
    let (writer, infos, seen) = ((*writer).clone(), cache.infos.clone(), cache.infos.get(&key));
    let Some(seen) = seen else {
        let metadata = ObjectMeta { name: Some(key.name), ..ObjectMeta::default() };
        let info = EgressClusterInfo { metadata, ..EgressClusterInfo::default() };
        return Prepared::write(async move { writer.create(&infos, &info).await.map(drop) });
    };
    let want = model.found.clone();
    Prepared::write(async move { writer.status(&infos, seen.as_ref(), &want).await.map(drop) })
}
