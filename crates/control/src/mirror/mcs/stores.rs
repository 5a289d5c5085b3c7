//! What this cluster exports, and the EndpointSlices of its imports, as its watches show them.

use portolan_api::well_known::mirror::MANAGED_BY as MIRROR;

use super::exported::Exported;
use crate::mirror::names::{IMPORT_NAME, MANAGED_BY, SERVICE_NAME};
use crate::mirror::slim::Slice;
use crate::runtime::store::Store;
use crate::runtime::watch::{Selection, Watches};

/// What this cluster exports, and the EndpointSlices of its imports. Its Services are also those that imports derive.
pub(in crate::mirror) struct LocalStores {
    pub(in crate::mirror) own: Exported,
    /// EndpointSlices of imports.
    pub(in crate::mirror) slices: Store<Slice>,
    watches: Option<Watches>,
}

impl LocalStores {
    /// Watches everything.
    pub(in crate::mirror) fn watched(mut watches: Watches) -> Self {
        let labelled = |labels| Selection { labels: Some(labels), ..Selection::default() };
        // Those of mirrors have endpoints of other clusters.
        let of_others = format!("{SERVICE_NAME},{MANAGED_BY}!={MIRROR}");
        Self {
            own: Exported::watched(&mut watches, labelled(of_others)),
            slices: watches.add(labelled(format!("{MANAGED_BY}={MIRROR},{IMPORT_NAME}"))),
            watches: Some(watches),
        }
    }

    /// The same of objects that were read once.
    pub(in crate::mirror) fn of(own: Exported, slices: Store<Slice>) -> Self {
        Self { own, slices, watches: None }
    }

    /// True when every store is complete and shows our own last writes.
    pub(in crate::mirror) fn settled(&self) -> bool {
        self.watches.as_ref().is_none_or(Watches::settled)
    }

    /// Lists everything anew: another replica may have written.
    pub(in crate::mirror) fn refresh(&mut self) {
        self.own.reload();
        self.watches.iter().for_each(Watches::refresh);
    }
}
