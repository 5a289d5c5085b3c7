//! A cluster's objects read once, and changes laid over them: for questions of what would be.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{Api, ListParams};
use kube::{Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::answers::Unanswered;

/// All objects of a kind; none of a kind that is not served.
pub(crate) async fn all<K>(client: &Client, what: &'static str) -> Result<Vec<K>, Unanswered>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    match Api::<K>::all(client.clone()).list(&ListParams::default()).await {
        Ok(list) => Ok(list.items),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
        Err(cause) => Err(Unanswered::Unreachable { what, cause: Box::new(cause) }),
    }
}

/// Lays an object over those that are there, as applying it would: what it leaves out stays.
pub(crate) fn lay<K>(objects: &mut Vec<K>, change: Value) -> Result<(), Unanswered>
where
    K: Resource<DynamicType = ()> + Clone + Serialize + DeserializeOwned,
{
    let unreadable = |cause: serde_json::Error| Unanswered::Unclear {
        what: format!("a {} cannot be read: {cause}", K::kind(&())),
        hint: "see which fields there are: kubectl explain".to_owned(),
    };
    let name = change["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let namespace = change["metadata"]["namespace"].as_str().map(str::to_owned);
    let same = |object: &&mut K| object.name_any() == name && object.namespace() == namespace;
    if let Some(before) = objects.iter_mut().find(same) {
        let mut merged = serde_json::to_value(&*before).map_err(unreadable)?;
        merge(&mut merged, change);
        *before = serde_json::from_value(merged).map_err(unreadable)?;
        return Ok(());
    }
    let mut added: K = serde_json::from_value(change).map_err(unreadable)?;
    let uid = format!("planned-{}-{name}", namespace.unwrap_or_default());
    added.meta_mut().uid.get_or_insert(uid);
    added.meta_mut().creation_timestamp.get_or_insert_with(|| Time(jiff::Timestamp::now()));
    objects.push(added);
    Ok(())
}

/// As a merge patch would: what is given replaces, null removes.
fn merge(target: &mut Value, patch: Value) {
    let (Value::Object(target), Value::Object(patch)) = (&mut *target, &patch) else {
        *target = patch;
        return;
    };
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value.clone());
        }
    }
}
