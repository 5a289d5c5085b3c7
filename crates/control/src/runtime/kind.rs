//! What can be watched.

use kube::Resource;
use serde::de::DeserializeOwned;

/// A kind that can be watched: known at compile time and readable.
pub trait Kind:
    Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static
{
}
impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + Sync + 'static> Kind for K {}
