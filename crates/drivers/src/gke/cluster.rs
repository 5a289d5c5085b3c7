//! The record of a cluster: where its API server is, and what to trust there.

use std::fmt;

use http::uri::Authority;
use http::{Method, StatusCode};
use serde_json::Value;

use super::Gke;
use super::error::{GkeError, quoted};
use super::http::Request;
use super::token::Token;

/// Names a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClusterName {
    project: String,
    location: String,
    cluster: String,
}

/// A part of a cluster's name that cannot be one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} `{value}` is not a name: use letters, digits, `-`, `.`, `:` and `_`")]
pub struct InvalidClusterName {
    field: &'static str,
    value: String,
}

impl ClusterName {
    /// A name from its parts, which become a part of a URL.
    pub fn new(project: &str, location: &str, cluster: &str) -> Result<Self, InvalidClusterName> {
        for (field, value) in [("project", project), ("location", location), ("cluster", cluster)] {
            let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.' | ':' | '_');
            if value.is_empty() || value.starts_with('.') || !value.chars().all(is_plain) {
                return Err(InvalidClusterName { field, value: quoted(value) });
            }
        }
        Ok(Self { project: project.to_owned(), location: location.to_owned(), cluster: cluster.to_owned() })
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { project, location, cluster } = self;
        write!(f, "projects/{project}/locations/{location}/clusters/{cluster}")
    }
}

/// Which of a cluster's endpoints to use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EndpointKind {
    /// The one that the cluster names first.
    #[default]
    Auto,
    /// The public address.
    Public,
    /// The address inside the cluster's network.
    Private,
    /// The DNS name.
    Dns,
}

/// Where an API server is, and what to trust there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiEndpoint {
    /// Its URL.
    pub server: String,
    /// The certificates to trust, in PEM. None: the public authorities.
    pub ca: Option<Vec<u8>>,
    /// The version of its control plane.
    pub version: String,
}

impl Gke {
    /// Looks up a cluster.
    pub async fn cluster(
        &self,
        name: &ClusterName,
        kind: EndpointKind,
        token: &Token,
    ) -> Result<ApiEndpoint, GkeError> {
        let uri = format!("{}/v1/{name}", self.options.container_endpoint.trim_end_matches('/'));
        let request = Request {
            call: "cluster",
            what: "looking up the cluster failed",
            method: Method::GET,
            uri: &uri,
            headers: &[],
            token: Some(token.secret()),
            form: None,
        };
        let answer = self.http.send(request).await?;
        let message = || {
            let says = answer.body["error"]["message"].as_str().map(quoted);
            says.unwrap_or_else(|| answer.status.to_string())
        };
        match answer.status {
            StatusCode::OK => ApiEndpoint::read(name, kind, &answer.body),
            StatusCode::UNAUTHORIZED => Err(GkeError::CredentialsRefused { message: message() }),
            StatusCode::FORBIDDEN => Err(GkeError::PermissionDenied { message: message() }),
            StatusCode::NOT_FOUND => Err(GkeError::ClusterNotFound { cluster: name.to_string() }),
            _ => Err(GkeError::Transient {
                what: "looking up the cluster failed",
                problem: message(),
                retry_after: None,
            }),
        }
    }
}

impl ApiEndpoint {
    /// Reads the record of a cluster, as the Kubernetes Engine API gives it.
    pub fn read(name: &ClusterName, kind: EndpointKind, record: &Value) -> Result<Self, GkeError> {
        let status = record["status"].as_str().unwrap_or_default();
        if !matches!(status, "RUNNING" | "RECONCILING" | "DEGRADED") {
            return Err(GkeError::ClusterNotRunning { cluster: name.to_string(), status: quoted(status) });
        }
        let text = |pointer: &str| record.pointer(pointer).and_then(Value::as_str).filter(|text| !text.is_empty());
        let ip = "/controlPlaneEndpointsConfig/ipEndpointsConfig";
        let (host, kind_name) = match kind {
            EndpointKind::Auto => (text("/endpoint"), "default"),
            EndpointKind::Public => {
                let newer = text(&format!("{ip}/publicEndpoint"));
                (newer.or_else(|| text("/privateClusterConfig/publicEndpoint")), "public")
            }
            EndpointKind::Private => {
                let newer = text(&format!("{ip}/privateEndpoint"));
                (newer.or_else(|| text("/privateClusterConfig/privateEndpoint")), "private")
            }
            EndpointKind::Dns => (text("/controlPlaneEndpointsConfig/dnsEndpointConfig/endpoint"), "DNS"),
        };
        let host = host.ok_or_else(|| GkeError::NoEndpoint { cluster: name.to_string(), kind: kind_name })?;
        let unusable =
            |problem: String| GkeError::Transient { what: "looking up the cluster failed", problem, retry_after: None };
        let authority = host.parse::<Authority>().ok().filter(|authority| !authority.as_str().contains('@'));
        let host =
            authority.ok_or_else(|| unusable(format!("its {kind_name} endpoint {:?} is not a host", quoted(host))))?;
        let ca = match kind {
            EndpointKind::Dns => None,
            EndpointKind::Auto | EndpointKind::Public | EndpointKind::Private => {
                use base64::Engine as _;
                let encoded = text("/masterAuth/clusterCaCertificate").unwrap_or_default();
                let decoded = base64::engine::general_purpose::STANDARD.decode(encoded).ok();
                let pem = decoded.filter(|pem| !pem.is_empty());
                Some(pem.ok_or_else(|| unusable("its record has no clusterCaCertificate".to_owned()))?)
            }
        };
        let version = text("/currentMasterVersion").map(quoted).unwrap_or_default();
        Ok(Self { server: format!("https://{host}"), ca, version })
    }
}
