//! Our finalizer on Services.

use portolan_api::well_known::gateway_client::FINALIZER;
use portolan_core::gateway_client::{FinalizerChange, ServiceName};
use serde_json::json;

use super::acting::Acting;
use crate::runtime::due::Prepared;

/// What the finalizer of a Service needs. Those of others stay.
pub(super) fn prepare(acting: &Acting<'_>, name: &ServiceName) -> Prepared<()> {
    let Acting { writer, cache, model, .. } = *acting;
    let (Some(seen), Some(decision)) = (model.objects.get(name), model.decisions.get(name)) else {
        return Prepared::Nothing;
    };
    let mut finalizers = seen.metadata.finalizers.clone().unwrap_or_default();
    match decision.finalizer {
        None => return Prepared::Nothing,
        Some(FinalizerChange::Add) => finalizers.push(FINALIZER.to_owned()),
        Some(FinalizerChange::Remove) => finalizers.retain(|one| one != FINALIZER),
    }
    let change = json!({ "metadata": { "finalizers": finalizers } });
    let (writer, services, seen) = (writer.clone(), cache.services.clone(), seen.clone());
    Prepared::write(async move {
        match writer.merge(&services, seen.as_ref(), change).await {
            Err(problem) if problem.is_gone() => Ok(()),
            wrote => wrote.map(drop),
        }
    })
}
