//! The writes of a cold start, made by a plain client: what the API server itself takes for them.

use std::time::{Duration, Instant};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::clusters;

/// As many as the operator has workers.
const AT_ONCE: usize = 16;

/// Makes the mirrors of one cluster in another one that has none.
pub(crate) async fn copy(from: &Client, namespaces: &[String]) -> anyhow::Result<Duration> {
    let (_plane, to) = clusters::local().await?;
    let (mut services, mut slices) = (Vec::new(), Vec::new());
    for namespace in namespaces {
        clusters::namespace(&to, namespace).await?;
        let found = Api::<Service>::namespaced(from.clone(), namespace).list(&ListParams::default()).await?;
        services.extend(found.items.into_iter().map(|mut service| {
            if let Some(spec) = &mut service.spec {
                (spec.cluster_ip, spec.cluster_ips) = (None, None);
            }
            plain(service)
        }));
        let found = Api::<EndpointSlice>::namespaced(from.clone(), namespace).list(&ListParams::default()).await?;
        slices.extend(found.items.into_iter().map(plain));
    }
    let began = Instant::now();
    // a mirror has its Service before its slice, as the operator writes them
    let pairs = services.iter().zip(&slices).map(|(service, slice)| async {
        create(&to, service).await?;
        create(&to, slice).await
    });
    stream::iter(pairs).buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    Ok(began.elapsed())
}

/// Without what the API server added.
fn plain<K: Resource>(mut object: K) -> K {
    let meta = object.meta_mut();
    *meta = ObjectMeta {
        name: meta.name.take(),
        namespace: meta.namespace.take(),
        labels: meta.labels.take(),
        annotations: meta.annotations.take(),
        ..ObjectMeta::default()
    };
    object
}

async fn create<K>(client: &Client, object: &K) -> anyhow::Result<()>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let namespace = object.namespace().unwrap_or_default();
    Api::<K>::namespaced(client.clone(), &namespace).create(&PostParams::default(), object).await?;
    Ok(())
}
