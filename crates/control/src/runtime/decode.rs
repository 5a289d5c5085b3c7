//! Reads objects one by one, so that one which does not fit its type spoils no list and no watch.

use kube::Resource;
use kube::api::ObjectMeta;
use kube::core::PartialObjectMeta;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::store::{Key, Undecodable};

/// An object with its metadata, or what is known of one that could not be read.
///
/// The text is read twice only when the first time fails: cheaper than going through a tree of values, as
/// [`kube::core::DeserializeGuard`] does for every object.
#[derive(Debug, Clone)]
pub(super) struct Guarded<K>(pub(super) Result<K, Bad>);

/// What is known of an object that could not be read as its kind.
#[derive(Debug, Clone)]
pub(super) struct Bad {
    metadata: ObjectMeta,
    problem: String,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        let problem = match serde_json::from_str(text.get()) {
            Ok(object) => return Ok(Self(Ok(object))),
            Err(problem) => problem.to_string(),
        };
        let PartialObjectMeta::<()> { metadata, .. } = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
        Ok(Self(Err(Bad { metadata, problem })))
    }
}

impl<K: Resource> Guarded<K> {
    pub(super) fn metadata(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|bad| &bad.metadata, Resource::meta)
    }
}

impl From<Bad> for Undecodable {
    fn from(Bad { metadata, problem }: Bad) -> Self {
        Self { key: Key::from(&metadata), uid: metadata.uid.unwrap_or_default(), problem }
    }
}
