//! Reads a cluster's objects once and puts changed ones in their place, for queries about what would happen.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ListParams};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::decode::from_text;
use super::query::QueryError;

/// Lists all objects of a kind; an empty list if the kind is not served.
pub async fn list_all<K>(client: &Client, what: &'static str) -> Result<Vec<K>, QueryError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    Ok(list_served(client, what).await?.unwrap_or_default())
}

/// Lists all objects of a kind; none if the kind is not served.
pub async fn list_served<K>(client: &Client, what: &'static str) -> Result<Option<Vec<K>>, QueryError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    match Api::<K>::all(client.clone()).list(&ListParams::default()).await {
        Ok(list) => Ok(Some(list.items)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(cause) => Err(QueryError::Unreachable { what, cause: Box::new(cause) }),
    }
}

/// Puts an object into a list, in place of the one of its name. One without a uid is new.
pub fn put_object<K>(objects: &mut Vec<K>, change: &Value) -> Result<(), QueryError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let unreadable = |cause: serde_json::Error| QueryError::Invalid {
        what: format!("a {} cannot be read: {cause}", K::kind(&())),
        hint: format!("list its fields: kubectl explain {}", K::plural(&())),
    };
    let name = change["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let namespace = change["metadata"]["namespace"].as_str().map(str::to_owned);
    let same = |object: &&mut K| object.name_any() == name && object.namespace() == namespace;
    let mut object: K = from_text(change).map_err(unreadable)?;
    object.meta_mut().managed_fields = None;
    if let Some(before) = objects.iter_mut().find(same) {
        *before = object;
        return Ok(());
    }
    let uid = format!("planned-{}-{name}", namespace.unwrap_or_default());
    object.meta_mut().uid.get_or_insert(uid);
    object.meta_mut().creation_timestamp.get_or_insert_with(|| Time(jiff::Timestamp::now()));
    objects.push(object);
    Ok(())
}
