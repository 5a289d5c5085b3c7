//! How objects are named.

use std::fmt;

use kube::Resource;
use kube::api::ObjectMeta;

/// Namespace and name of an object; the namespace of a cluster-scoped one is empty.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

impl Key {
    /// The key of a cluster-scoped object.
    pub fn of_cluster(name: &str) -> Self {
        Self { namespace: String::new(), name: name.to_owned() }
    }

    /// The key of an object.
    pub fn of(object: &impl Resource) -> Self {
        Self::from(object.meta())
    }
}

impl From<&ObjectMeta> for Key {
    fn from(ObjectMeta { namespace, name, .. }: &ObjectMeta) -> Self {
        Self { namespace: namespace.clone().unwrap_or_default(), name: name.clone().unwrap_or_default() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() { f.write_str(&self.name) } else { write!(f, "{}/{}", self.namespace, self.name) }
    }
}

/// An object that could not be read as its kind: set aside, so that the others go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undecodable {
    pub key: Key,
    pub uid: String,
    pub problem: String,
}
