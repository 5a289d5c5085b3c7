//! Objects and lists as the API server sends them: read one by one, so that an object which does not fit a type spoils
//! neither the list nor the watch.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;

use super::kind::Kind;
use super::store::{Key, Undecodable};

/// One page of a list, its objects still undecoded.
#[derive(Debug, Deserialize)]
pub(super) struct Page<'a> {
    pub(super) metadata: ListMeta,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

impl<'a> Page<'a> {
    pub(super) fn objects(&self) -> impl Iterator<Item = serde_json::Result<RawObject<'a>>> {
        self.items.iter().flatten().map(|item| RawObject::new(item.get()))
    }
}

/// An undecoded object: its identity, which every subscriber shares, and its text, which each decodes into its own type.
#[derive(Debug)]
pub(super) struct RawObject<'a> {
    pub(super) key: Arc<Key>,
    pub(super) uid: Option<String>,
    /// 0 without a numeric `resourceVersion`.
    pub(super) revision: u64,
    text: &'a str,
}

impl<'a> RawObject<'a> {
    pub(super) fn new(text: &'a str) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Object {
            metadata: Identity,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Identity {
            #[serde(default)]
            namespace: String,
            #[serde(default)]
            name: String,
            uid: Option<String>,
            resource_version: Option<String>,
        }
        let Object { metadata: Identity { namespace, name, uid, resource_version } } = serde_json::from_str(text)?;
        let revision = resource_version.and_then(|version| version.parse().ok()).unwrap_or_default();
        Ok(Self { key: Arc::new(Key { namespace, name }), uid, revision, text })
    }

    /// The object as a subscriber's type; managedFields are dropped.
    pub(super) fn decode<K: Kind>(&self) -> Result<K, Undecodable> {
        let mut object: K = serde_json::from_str(self.text).map_err(|problem| Undecodable {
            key: Key::clone(&self.key),
            uid: self.uid.clone().unwrap_or_default(),
            problem: problem.to_string(),
        })?;
        object.meta_mut().managed_fields = None;
        Ok(object)
    }
}

/// Reads an object by way of its text. Watches read text too, and one more way to read every kind is a lot of code.
pub(super) fn from_text<K: DeserializeOwned>(object: &Value) -> serde_json::Result<K> {
    serde_json::from_str(&object.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;

    #[test]
    fn a_page_is_read_although_an_object_in_it_does_not_fit_its_type() {
        let text = r#"{ "metadata": { "resourceVersion": "9" }, "items": [
            { "metadata": { "namespace": "ns", "name": "bad", "uid": "u", "resourceVersion": "7" }, "data": [] },
            { "metadata": { "name": "good", "managedFields": [{}] }, "data": { "k": "v" } } ] }"#;
        let page: Page = serde_json::from_str(text).unwrap();
        let objects: Vec<_> = page.objects().collect::<Result<_, _>>().unwrap();
        assert_eq!(objects[0].revision, 7);
        let bad = objects[0].decode::<ConfigMap>().unwrap_err();
        assert_eq!((bad.key.to_string().as_str(), bad.uid.as_str()), ("ns/bad", "u"));
        let good: ConfigMap = objects[1].decode().unwrap();
        assert_eq!((objects[1].key.to_string().as_str(), objects[1].revision), ("good", 0));
        assert_eq!(good.metadata.managed_fields, None);
        let empty: Page = serde_json::from_str(r#"{ "metadata": {}, "items": null }"#).unwrap();
        assert_eq!(empty.objects().count(), 0);
    }
}
