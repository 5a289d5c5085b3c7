//! The certificates of one control plane: a CA of its own, so that no client of one control plane can ever
//! talk to another that took over its port.

use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use kube::Config;
use portolan_certs::{CertificateAuthority, SignedCertificate};
use rcgen::KeyPair;

use super::folder::DataFolder;
use crate::kubeconfig::Identity;

/// The group with all rights; RBAC does not restrict it.
const ADMINISTRATORS: &str = "system:masters";
/// What the API server on loopback is called by.
pub(crate) const LOOPBACK_NAMES: [&str; 5] =
    ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
/// Much longer than any test takes.
const VALIDITY: Duration = Duration::from_hours(24 * 365);

/// Everything that is signed for one control plane.
pub(crate) struct Certificates {
    /// The CA of servers and clients, PEM.
    pub(crate) ca: String,
    /// The same CA, DER.
    pub(crate) ca_der: Vec<u8>,
    /// The serving certificate of kube-apiserver and kube-controller-manager.
    pub(crate) serving: Identity,
    /// The tests' own identity.
    pub(crate) admin: Identity,
    /// The controller manager's identity; without the administrators' group each controller would get 403.
    pub(crate) controller_manager: Identity,
    /// The CA of `webhook_client`, PEM; another one, so that only webhook calls are signed by it.
    pub(super) webhook_ca: String,
    /// The client certificate of the API server for webhooks.
    pub(super) webhook_client: Identity,
    /// The client certificate of the API server for kubelets, for logs and exec.
    pub(crate) kubelet_client: Identity,
    /// The scheduler's identity.
    pub(crate) scheduler: Identity,
    /// The identity of every kube-proxy.
    pub(crate) kube_proxy: Identity,
    authority: CertificateAuthority,
    /// The keys that sign and verify service account tokens: private, public, PEM.
    pub(crate) service_account: (String, String),
}

impl Certificates {
    /// Everything that is needed at the start, for an API server that is called by these names.
    pub(crate) fn new(names: &[String]) -> anyhow::Result<Self> {
        let now = Timestamp::now();
        let authority = |name| CertificateAuthority::new(name, now, VALIDITY).context("making a CA failed");
        let client = |ca: &CertificateAuthority, user: &str, group: Option<&str>| {
            let signed = ca.sign_client(user, group, now, VALIDITY);
            signed.map(identity).context("signing a client certificate failed")
        };
        let ca = authority("portolan-testkit")?;
        let webhook_ca = authority("portolan-testkit-webhooks")?;
        let serving = ca.sign_server("kubernetes", names, now, VALIDITY);
        let service_account = KeyPair::generate()?;
        Ok(Self {
            serving: serving.map(identity).context("signing a serving certificate failed")?,
            admin: client(&ca, "portolan-testkit-admin", Some(ADMINISTRATORS))?,
            controller_manager: client(&ca, "system:kube-controller-manager", Some(ADMINISTRATORS))?,
            webhook_client: client(&webhook_ca, "kube-apiserver", None)?,
            kubelet_client: client(&ca, "kube-apiserver-kubelet-client", Some(ADMINISTRATORS))?,
            scheduler: client(&ca, "system:kube-scheduler", None)?,
            kube_proxy: client(&ca, "system:kube-proxy", None)?,
            service_account: (service_account.serialize_pem(), service_account.public_key_pem()),
            ca_der: ca.der()?.to_vec(),
            ca: ca.certificate.clone(),
            webhook_ca: webhook_ca.certificate,
            authority: ca,
        })
    }

    /// The identity of a node's kubelet.
    pub(crate) fn node(&self, name: &str) -> anyhow::Result<Identity> {
        let user = format!("system:node:{name}");
        let signed = self.authority.sign_client(&user, Some("system:nodes"), Timestamp::now(), VALIDITY);
        signed.map(identity).context("signing a node's certificate failed")
    }

    /// A client configuration with an administrator's rights, which retries nothing by itself.
    pub(crate) fn admin_config(&self, server: &str, folder: &DataFolder) -> anyhow::Result<Config> {
        let mut config = Config::new(server.parse()?);
        config.root_cert = Some(vec![self.ca_der.clone()]);
        config.auth_info.client_certificate = Some(folder.write("admin.pem", &self.admin.certificate)?);
        config.auth_info.client_key = Some(folder.write("admin.key", &self.admin.key)?);
        config.default_retry = false;
        Ok(config)
    }
}

fn identity(signed: SignedCertificate) -> Identity {
    Identity { certificate: signed.certificate, key: signed.key }
}
