//! Credentials of remotes, from Secrets of the operator's own namespace.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use portolan_api::mirror::{GkeEndpoint, RemoteCluster};
use portolan_drivers::gke::{ClusterName, Credentials, EndpointKind};
use portolan_drivers::kubeconfig;

use super::remote::{GkeKey, Target};
use super::validate::Problem;
use crate::runtime::store::{Key, Store};

/// Where the credentials of remotes are.
#[derive(Clone, Copy)]
pub(super) struct SecretFolder<'a> {
    pub(super) secrets: &'a Store<Secret>,
    pub(super) namespace: &'a str,
    pub(super) allow_loopback: bool,
}

impl SecretFolder<'_> {
    /// Where a remote is and how we get in.
    pub(super) fn target(&self, remote: &RemoteCluster) -> Result<Target, Problem> {
        let credentials = &remote.spec.credentials;
        match (&credentials.kubeconfig_secret, &credentials.gke) {
            (Some(secret), None) => {
                let text = self.read(&secret.name, secret.key.as_deref().unwrap_or("kubeconfig"))?;
                let refused = |problem: String| Problem::new("KubeconfigRefused", problem);
                let text = std::str::from_utf8(&text).map_err(|_| refused("kubeconfig: it is not text".to_owned()))?;
                let access = kubeconfig::parse(text, secret.context.as_deref(), self.allow_loopback);
                let access = access.map_err(|problem| refused(problem.to_string()))?;
                access.tls().map_err(|problem| refused(problem.to_string()))?;
                Ok(Target::Server(access))
            }
            (None, Some(gke)) => {
                let cluster = ClusterName::new(&gke.project, &gke.location, &gke.cluster)
                    .map_err(|problem| Problem::new("InvalidSpec", format!("spec.credentials.gke: {problem}")))?;
                let key = match &gke.key_secret {
                    None => GkeKey::Ambient,
                    Some(secret) => {
                        let text = self.read(&secret.name, secret.key.as_deref().unwrap_or("credentials.json"))?;
                        Credentials::parse(&text)
                            .map_err(|problem| Problem::new(problem.reason(), problem.to_string()))?;
                        GkeKey::Given(text)
                    }
                };
                let endpoint = match gke.endpoint {
                    GkeEndpoint::Auto => EndpointKind::Auto,
                    GkeEndpoint::Public => EndpointKind::Public,
                    GkeEndpoint::Private => EndpointKind::Private,
                    GkeEndpoint::Dns => EndpointKind::Dns,
                };
                let ca = gke.ca_bundle.as_ref().map(|pem| pem.clone().into_bytes());
                Ok(Target::Gke { cluster, endpoint, ca, key })
            }
            _ => {
                let message = "spec.credentials needs exactly one of kubeconfigSecret and gke";
                Err(Problem::new("InvalidSpec", message))
            }
        }
    }

    fn read(&self, name: &str, key: &str) -> Result<Arc<[u8]>, Problem> {
        let namespace = self.namespace;
        let missing = |what: String| Problem::new("SecretMissing", what);
        let secret = self.secrets.get(&Key { namespace: namespace.to_owned(), name: name.to_owned() });
        let secret = secret.ok_or_else(|| {
            missing(format!("there is no Secret {name} in namespace {namespace}, the operator's own: create it there"))
        })?;
        let data = secret.data.as_ref().and_then(|data| data.get(key));
        let data = data.ok_or_else(|| missing(format!("Secret {namespace}/{name} has no key `{key}`: add it")))?;
        Ok(data.0.as_slice().into())
    }
}
