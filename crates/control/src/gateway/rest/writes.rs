//! All that REST asks of the API server.
//!
//! Every replica serves, so nothing here is fenced: a client's write is made as kubectl would make it, and the API server
//! decides between two.

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::{NamespaceResourceScope, Status};
use kube::{Api, Client, Resource, ResourceExt as _};
use portolan_api::gateway::Endpoint;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::refusal::Refusal;
use crate::runtime::watch::Kind;

/// Whom tokens must be for.
const AUDIENCE: &str = "portolan-gateway";

/// Writes of one request that find a newer version.
pub(super) const TRIES: u32 = 4;

/// Sends requests to the API server.
#[derive(Clone)]
pub(super) struct Writes {
    client: Client,
}

/// Why nothing was written.
pub(super) enum Failed {
    /// Another object has the name.
    Exists,
    /// There is no such object.
    Gone,
    /// The object is no longer what it was.
    Changed,
    Other(Refusal),
}

impl From<Failed> for Refusal {
    fn from(failed: Failed) -> Self {
        let again = |text: &str| Self::not_ready(text);
        match failed {
            Failed::Exists | Failed::Changed => again("the object changed at the same time: try again"),
            Failed::Gone => again("the object or its namespace is not there: try again"),
            Failed::Other(refusal) => refusal,
        }
    }
}

/// Kinds of a tenant.
pub(super) trait Tenant: Kind + Resource<Scope = NamespaceResourceScope> + Serialize + DeserializeOwned {}

impl<K: Kind + Resource<Scope = NamespaceResourceScope> + Serialize + DeserializeOwned> Tenant for K {}

impl Writes {
    pub(super) fn new(client: Client) -> Self {
        Self { client }
    }

    fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self, namespace: &str) -> Api<K> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(super) async fn get<K: Tenant>(&self, namespace: &str, name: &str) -> Result<Option<K>, Failed> {
        self.api::<K>(namespace).get_opt(name).await.map_err(failed)
    }

    pub(super) async fn create<K: Tenant>(&self, namespace: &str, object: &K) -> Result<K, Failed> {
        self.api::<K>(namespace).create(&params(), object).await.map_err(failed)
    }

    /// Replaces the version that the object carries.
    pub(super) async fn replace<K: Tenant>(&self, namespace: &str, object: &K) -> Result<K, Failed> {
        self.api::<K>(namespace).replace(&object.name_any(), &params(), object).await.map_err(failed)
    }

    /// Gives an endpoint another spec. Its status may be written at the same time: then the newer version is replaced.
    pub(super) async fn change(&self, namespace: &str, want: &Endpoint) -> Result<Endpoint, Failed> {
        let mut next = want.clone();
        for _ in 1..TRIES {
            match self.replace(namespace, &next).await {
                Err(Failed::Changed) => {}
                ended => return ended,
            }
            let fresh = self.get::<Endpoint>(namespace, &want.name_any()).await?;
            let fresh = fresh.filter(|fresh| fresh.metadata.uid == want.metadata.uid).ok_or(Failed::Gone)?;
            next = Endpoint { spec: want.spec.clone(), ..fresh };
        }
        self.replace(namespace, &next).await
    }

    /// Deletes the object with that uid, or any of the name.
    pub(super) async fn delete<K: Tenant>(&self, namespace: &str, name: &str, uid: Option<&str>) -> Result<(), Failed> {
        let preconditions = uid.map(|uid| Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        self.api::<K>(namespace).delete(name, &params).await.map(drop).map_err(failed)
    }

    /// A value of a Secret.
    pub(super) async fn secret(&self, namespace: &str, name: &str, key: &str) -> Result<Option<Vec<u8>>, Failed> {
        let secret = self.api::<Secret>(namespace).get_opt(name).await.map_err(hidden)?;
        Ok(secret.and_then(|secret| secret.data?.remove(key)).map(|value| value.0))
    }

    /// The user that a token proves; none if it proves nobody.
    pub(super) async fn review(&self, token: &str) -> Result<Option<String>, Failed> {
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: Some(vec![AUDIENCE.to_owned()]) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let status = reviews.create(&PostParams::default(), &review).await.map_err(hidden)?.status;
        let proven = status.filter(|status| {
            let audiences = status.audiences.as_deref().unwrap_or_default();
            status.authenticated == Some(true) && audiences.iter().any(|audience| audience == AUDIENCE)
        });
        Ok(proven.and_then(|status| status.user?.username))
    }
}

fn params() -> PostParams {
    PostParams { field_manager: Some("portolan-gateway-rest".to_owned()), ..PostParams::default() }
}

/// What the API server says of logins is for the provider alone.
fn hidden(cause: kube::Error) -> Failed {
    match answered(cause) {
        Ok(status) if status.is_not_found() => Failed::Gone,
        answered => {
            let cause = answered.map_or_else(|cause| cause.to_string(), |status| status.message);
            tracing::warn!(cause, "a login cannot be checked: may the operator get Secrets and create TokenReviews?");
            Failed::Other(Refusal::not_ready("logins cannot be checked at this moment: try again"))
        }
    }
}

fn failed(cause: kube::Error) -> Failed {
    match answered(cause) {
        Ok(status) if status.is_already_exists() => Failed::Exists,
        Ok(status) if status.is_not_found() => Failed::Gone,
        Ok(status) if status.is_conflict() => Failed::Changed,
        Ok(status) => {
            tracing::debug!(code = status.code, reason = status.reason, "the API server refused what REST sent");
            Failed::Other(Refusal::from(&status))
        }
        Err(cause) => {
            tracing::debug!(%cause, "the API server could not be reached for REST");
            Failed::Other(Refusal::not_ready("the API server cannot be reached: try again"))
        }
    }
}

/// What the API server answered; an error if it did not.
fn answered(cause: kube::Error) -> Result<Status, Box<kube::Error>> {
    if let kube::Error::Api(status) = cause { Ok(*status) } else { Err(Box::new(cause)) }
}
