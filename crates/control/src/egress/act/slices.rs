//! The slices that list a policy's pods, for other readers: at most 100 pods each, owned by the policy.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::Resource;
use kube::api::ObjectMeta;
use portolan_api::egress::{ENDPOINTS_PER_SLICE, EgressClusterEndpointSlice, EgressEndpointSlice, Endpoint};
use portolan_api::well_known::egress::POLICY_NAME;
use portolan_core::egress::PolicyName;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use super::acting::Acting;
use crate::runtime::Error;
use crate::runtime::due::Prepared;
use crate::runtime::store::{Key, Store};
use crate::runtime::watch::Kind;
use crate::runtime::write::Writer;

/// What the slices of a policy need.
pub(super) fn prepare(acting: &Acting<'_>, policy: &PolicyName) -> Prepared<()> {
    let Acting { writer, cache, model, .. } = acting;
    let namespace = policy.namespace.as_deref().unwrap_or_default().to_owned();
    let key = Key { namespace, name: policy.name.to_string() };
    let endpoints = || model.selected.endpoints(cache, policy);
    if policy.namespace.is_some() {
        let owner = cache.policies.get(&key);
        of_policy(writer, &cache.slices, owner.as_deref(), &key, endpoints, namespaced)
    } else {
        let owner = cache.cluster_policies.get(&key);
        of_policy(writer, &cache.cluster_slices, owner.as_deref(), &key, endpoints, of_cluster)
    }
}

fn of_policy<S: Kind + Serialize, P: Resource<DynamicType = ()>>(
    writer: &Writer,
    store: &Store<S>,
    owner: Option<&P>,
    policy: &Key,
    endpoints: impl FnOnce() -> Vec<Endpoint>,
    make: fn(ObjectMeta, Vec<Endpoint>) -> S,
) -> Prepared<()> {
    // With its owner gone, the garbage collector takes the slices.
    let Some(owner) = owner.filter(|owner| owner.meta().deletion_timestamp.is_none()) else { return Prepared::Nothing };
    let label = cut(&policy.name, 63);
    let endpoints = endpoints();
    let metadata = |number| ObjectMeta {
        name: Some(slice_name(&policy.name, number)),
        namespace: (!policy.namespace.is_empty()).then(|| policy.namespace.clone()),
        labels: Some(BTreeMap::from([(POLICY_NAME.to_owned(), label.clone())])),
        owner_references: owner.controller_owner_ref(&()).map(|owner| vec![owner]),
        ..ObjectMeta::default()
    };
    let chunks = endpoints.chunks(ENDPOINTS_PER_SLICE).enumerate();
    let wanted: Vec<S> = chunks.map(|(number, chunk)| make(metadata(number), chunk.to_vec())).collect();
    let surplus = surplus(store, policy, &label, wanted.len());
    let (writer, store) = (writer.clone(), store.clone());
    Prepared::write(async move { write(&writer, &store, &wanted, &surplus).await })
}

/// Slices of the policy beyond those that are wanted.
fn surplus<S: Kind>(store: &Store<S>, policy: &Key, label: &String, wanted: usize) -> Vec<Arc<S>> {
    let mut surplus = Vec::new();
    let mut visit = |key: &Arc<Key>, slice: &Arc<S>| {
        let of_policy = slice.meta().labels.as_ref().and_then(|labels| labels.get(POLICY_NAME)) == Some(label);
        let numbered = (0..wanted).any(|number| key.name == slice_name(&policy.name, number));
        if of_policy && !numbered {
            surplus.push(slice.clone());
        }
    };
    store.beginning_with(&Key { name: cut(&policy.name, 240), ..policy.clone() }, &mut visit);
    surplus
}

async fn write<S: Kind + Serialize>(
    writer: &Writer,
    store: &Store<S>,
    wanted: &[S],
    surplus: &[Arc<S>],
) -> Result<(), Error> {
    for slice in wanted {
        writer.apply(store, slice).await?;
    }
    for slice in surplus {
        writer.delete(store, slice.as_ref()).await?;
    }
    Ok(())
}

/// Numbered, so that the same pods give the same objects.
fn slice_name(policy: &str, number: usize) -> String {
    format!("{}-{number}", cut(policy, 240))
}

/// A name that has at most so many bytes; one that was cut ends in a hash, so that no two become the same.
fn cut(name: &str, most: usize) -> String {
    if name.len() <= most {
        return name.to_owned();
    }
    format!("{}-{:016x}", &name[..name.floor_char_boundary(most - 17)], xxh3_64(name.as_bytes()))
}

fn namespaced(metadata: ObjectMeta, endpoints: Vec<Endpoint>) -> EgressEndpointSlice {
    EgressEndpointSlice { metadata, endpoints }
}

fn of_cluster(metadata: ObjectMeta, endpoints: Vec<Endpoint>) -> EgressClusterEndpointSlice {
    EgressClusterEndpointSlice { metadata, endpoints }
}
