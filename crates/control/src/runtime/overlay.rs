//! Reads a cluster's objects once and merges changes into them, for queries about what would happen.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ListParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
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

/// Merges an object into a list as applying it would: fields that it leaves out keep their values.
pub fn merge_object<K>(objects: &mut Vec<K>, change: &Value) -> Result<(), QueryError>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned,
{
    let unreadable = |cause: serde_json::Error| QueryError::Invalid {
        what: format!("a {} cannot be read: {cause}", K::kind(&())),
        hint: format!("list its fields: kubectl explain {}", K::plural(&())),
    };
    let name = change["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let namespace = change["metadata"]["namespace"].as_str().map(str::to_owned);
    let same = |object: &&mut K| object.name_any() == name && object.namespace() == namespace;
    if let Some(before) = objects.iter_mut().find(same) {
        let mut merged = serde_json::to_value(&*before).map_err(unreadable)?;
        json_patch::merge(&mut merged, change);
        *before = from_text(&merged).map_err(unreadable)?;
        return Ok(());
    }
    let mut added: K = from_text(change).map_err(unreadable)?;
    let uid = format!("planned-{}-{name}", namespace.unwrap_or_default());
    added.meta_mut().uid.get_or_insert(uid);
    added.meta_mut().creation_timestamp.get_or_insert_with(|| Time(jiff::Timestamp::now()));
    objects.push(added);
    Ok(())
}
