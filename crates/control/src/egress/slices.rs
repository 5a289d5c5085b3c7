//! The slices that list a policy's pods, for other readers: at most 100 pods each, owned by the policy.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Resource;
use kube::api::ObjectMeta;
use portolan_api::egress::{ENDPOINTS_PER_SLICE, EgressClusterEndpointSlice, EgressEndpointSlice, Endpoint};
use portolan_api::well_known::egress::POLICY_NAME;
use portolan_core::egress::PolicyName;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use super::model::Model;
use super::observe::Cache;
use crate::runtime::Error;
use crate::runtime::store::{Key, Store};
use crate::runtime::watch::Kind;
use crate::runtime::write::Writer;

/// Brings the slices of these policies to what they should be; what failed stays in the set.
pub(super) async fn apply(
    writer: &Writer,
    cache: &Cache,
    model: &Model,
    policies: &mut BTreeSet<PolicyName>,
) -> Result<(), Error> {
    let mut first = Ok(());
    for policy in std::mem::take(policies) {
        let endpoints = model.selected.endpoints(cache, &policy);
        let namespace = policy.namespace.as_deref().unwrap_or_default().to_owned();
        let key = Key { namespace, name: policy.name.to_string() };
        let done = if policy.namespace.is_some() {
            let owner = cache.policies.get(&key);
            of_policy(writer, &cache.slices, owner.as_deref(), &key, endpoints, namespaced).await
        } else {
            let owner = cache.cluster_policies.get(&key);
            of_policy(writer, &cache.cluster_slices, owner.as_deref(), &key, endpoints, of_cluster).await
        };
        if done.is_err() {
            policies.insert(policy);
        }
        first = first.and(done);
    }
    first
}

async fn of_policy<S: Kind + Serialize, P: Resource<DynamicType = ()>>(
    writer: &Writer,
    store: &Store<S>,
    owner: Option<&P>,
    policy: &Key,
    endpoints: Vec<Endpoint>,
    make: fn(ObjectMeta, Vec<Endpoint>) -> S,
) -> Result<(), Error> {
    // With its owner gone, the garbage collector takes the slices.
    let Some(owner) = owner.filter(|owner| owner.meta().deletion_timestamp.is_none()) else { return Ok(()) };
    let label = cut(&policy.name, 63);
    let chunks = endpoints.chunks(ENDPOINTS_PER_SLICE);
    let wanted = chunks.len();
    for (number, chunk) in chunks.enumerate() {
        let metadata = ObjectMeta {
            name: Some(slice_name(&policy.name, number)),
            namespace: (!policy.namespace.is_empty()).then(|| policy.namespace.clone()),
            labels: Some(BTreeMap::from([(POLICY_NAME.to_owned(), label.clone())])),
            owner_references: owner.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        };
        writer.apply(store, &make(metadata, chunk.to_vec())).await?;
    }
    let mut surplus = Vec::new();
    let mut visit = |key: &Arc<Key>, slice: &Arc<S>| {
        let of_policy = slice.meta().labels.as_ref().and_then(|labels| labels.get(POLICY_NAME)) == Some(&label);
        let numbered = (0..wanted).any(|number| key.name == slice_name(&policy.name, number));
        if of_policy && !numbered {
            surplus.push(slice.clone());
        }
    };
    store.beginning_with(&Key { name: cut(&policy.name, 240), ..policy.clone() }, &mut visit);
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
