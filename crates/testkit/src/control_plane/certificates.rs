//! The certificates of one control plane: a CA of its own, so that no client of one control plane can ever
//! talk to another that took over its port.

use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use portolan_certs::{CertificateAuthority, SignedCertificate};
use rcgen::KeyPair;

use crate::kubeconfig::Identity;

/// The group with all rights; RBAC does not restrict it.
const ADMINISTRATORS: &str = "system:masters";
/// Much longer than any test takes.
const VALIDITY: Duration = Duration::from_hours(24 * 365);

/// Everything that is signed for one control plane.
pub(super) struct Certificates {
    /// The CA of servers and clients, PEM.
    pub(super) ca: String,
    /// The same CA, DER.
    pub(super) ca_der: Vec<u8>,
    /// The serving certificate of kube-apiserver and kube-controller-manager.
    pub(super) serving: Identity,
    /// The tests' own identity.
    pub(super) admin: Identity,
    /// The controller manager's identity; without the administrators' group each controller would get 403.
    pub(super) controller_manager: Identity,
    /// The CA of `webhook_client`, PEM; another one, so that only webhook calls are signed by it.
    pub(super) webhook_ca: String,
    /// The client certificate of the API server for webhooks.
    pub(super) webhook_client: Identity,
    /// The keys that sign and verify service account tokens: private, public, PEM.
    pub(super) service_account: (String, String),
}

impl Certificates {
    pub(super) fn new() -> anyhow::Result<Self> {
        let now = Timestamp::now();
        let authority = |name| CertificateAuthority::new(name, now, VALIDITY).context("making a CA failed");
        let client = |ca: &CertificateAuthority, user: &str, group: Option<&str>| {
            let signed = ca.sign_client(user, group, now, VALIDITY);
            signed.map(identity).context("signing a client certificate failed")
        };
        let ca = authority("portolan-testkit")?;
        let webhook_ca = authority("portolan-testkit-webhooks")?;
        let names = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let serving = ca.sign_server("kubernetes", &names.map(String::from), now, VALIDITY);
        let service_account = KeyPair::generate()?;
        Ok(Self {
            serving: serving.map(identity).context("signing a serving certificate failed")?,
            admin: client(&ca, "portolan-testkit-admin", Some(ADMINISTRATORS))?,
            controller_manager: client(&ca, "system:kube-controller-manager", Some(ADMINISTRATORS))?,
            webhook_client: client(&webhook_ca, "kube-apiserver", None)?,
            service_account: (service_account.serialize_pem(), service_account.public_key_pem()),
            ca_der: ca.der()?.to_vec(),
            ca: ca.certificate,
            webhook_ca: webhook_ca.certificate,
        })
    }
}

fn identity(signed: SignedCertificate) -> Identity {
    Identity { certificate: signed.certificate, key: signed.key }
}
