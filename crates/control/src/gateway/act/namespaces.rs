//! Namespaces of the provider and of accounts.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ObjectMeta;
use portolan_api::well_known::gateway::CREATED_BY;
use portolan_core::gateway::NamespaceChange;

use super::super::names::GATEWAY;
use super::acting::Acting;
use crate::runtime::due::Prepared;
use crate::runtime::store::Key;

pub(super) fn prepare(acting: Acting<'_>, name: &Arc<str>) -> Prepared<()> {
    let (writer, store) = (acting.writer.clone(), acting.cache.namespaces.clone());
    let seen = store.get(&Key::of_cluster(name));
    match (acting.plan.namespaces.get(name), seen) {
        (Some(NamespaceChange::Create), None) => {
            let wanted = wanted(name);
            Prepared::write(async move { writer.create(&store, &wanted).await.map(drop) })
        }
        (Some(NamespaceChange::Delete), Some(seen)) => {
            Prepared::write(async move { writer.delete(&store, &*seen).await.map(drop) })
        }
        _ => Prepared::Nothing,
    }
}

fn wanted(name: &str) -> Namespace {
    let labels = [("name", name), ("component", "namespace"), ("part-of", "egw")];
    let labels = labels.map(|(key, value)| (format!("app.kubernetes.io/{key}"), value.to_owned()));
    Namespace {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            labels: Some(labels.into()),
            annotations: Some(BTreeMap::from([(CREATED_BY.to_owned(), GATEWAY.to_owned())])),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    }
}
