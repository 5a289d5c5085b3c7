//! Requests on one kind in one scope, whatever that scope is.
//!
//! `kube::Api` fixes the scope by type; the runtime has it as data, so it builds requests one level below.

use std::marker::PhantomData;

use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Client, Error, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::store::Key;

/// The part of an object that a write goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The object without its status.
    Object,
    /// The `status` subresource.
    Status,
}

/// Where requests for objects of kind `K` go: all of them, or those of one namespace.
pub struct Endpoint<K> {
    client: Client,
    request: Request,
    kind: PhantomData<fn() -> K>,
}

impl<K: Resource<DynamicType = ()>> Endpoint<K> {
    /// An empty namespace means all namespaces, or a cluster-scoped kind.
    pub fn new(client: &Client, namespace: &str) -> Self {
        let namespace = (!namespace.is_empty()).then_some(namespace);
        Self { client: client.clone(), request: Request::new(K::url_path(&(), namespace)), kind: PhantomData }
    }

    /// Where the object with this key lives.
    pub fn of(client: &Client, key: &Key) -> Self {
        Self::new(client, &key.namespace)
    }
}

impl<K: Clone + DeserializeOwned> Endpoint<K> {
    /// Reads one object; none if it does not exist.
    pub async fn get(&self, name: &str) -> Result<Option<K>, Error> {
        let request = self.request.get(name, &GetParams::default()).map_err(Error::BuildRequest)?;
        match self.client.request(request).await {
            Err(Error::Api(status)) if status.code == 404 => Ok(None),
            found => found.map(Some),
        }
    }

    /// Creates an object.
    pub async fn create(&self, object: &impl Serialize) -> Result<K, Error> {
        let body = serde_json::to_vec(object).map_err(Error::SerdeError)?;
        self.client.request(self.request.create(&PostParams::default(), body).map_err(Error::BuildRequest)?).await
    }

    /// Replaces an object, or its status; the resource version in it is the lock.
    pub async fn replace(&self, part: Part, name: &str, object: &impl Serialize) -> Result<K, Error> {
        let (body, params) = (serde_json::to_vec(object).map_err(Error::SerdeError)?, PostParams::default());
        let request = match part {
            Part::Object => self.request.replace(name, &params, body),
            Part::Status => self.request.replace_subresource("status", name, &params, body),
        };
        self.client.request(request.map_err(Error::BuildRequest)?).await
    }

    /// Patches an object, or its status.
    pub async fn patch<P: Serialize + std::fmt::Debug>(
        &self,
        part: Part,
        name: &str,
        params: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K, Error> {
        let request = match part {
            Part::Object => self.request.patch(name, params, patch),
            Part::Status => self.request.patch_subresource("status", name, params, patch),
        };
        self.client.request(request.map_err(Error::BuildRequest)?).await
    }

    /// Deletes an object. Gives the object back when finalizers keep it for a while.
    pub async fn delete(&self, name: &str, params: &DeleteParams) -> Result<Option<K>, Error> {
        let request = self.request.delete(name, params).map_err(Error::BuildRequest)?;
        Ok(self.client.request_status(request).await?.left())
    }
}
