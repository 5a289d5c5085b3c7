//! The certificates of one control plane: a CA of its own, so that no client of one control plane can ever
//! talk to another that took over its port.

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

use crate::kubeconfig::Identity;

/// The group that may do everything; RBAC does not bind it.
const ADMINISTRATORS: &str = "system:masters";

/// Everything that is signed for one control plane.
pub(super) struct Certificates {
    /// The CA of servers and clients, PEM.
    pub(super) ca: String,
    /// The same CA, DER.
    pub(super) ca_der: Vec<u8>,
    /// What kube-apiserver and kube-controller-manager show to their clients.
    pub(super) serving: Identity,
    /// The tests' own identity.
    pub(super) admin: Identity,
    /// The controller manager's identity; without the administrators' group each controller would get 403.
    pub(super) controller_manager: Identity,
    /// The CA of `webhook_client`, PEM; apart from the other, so that only webhook calls carry it.
    pub(super) webhook_ca: String,
    /// What the API server shows to webhooks.
    pub(super) webhook_client: Identity,
    /// The keys that sign and verify service account tokens: private, public, PEM.
    pub(super) service_account: (String, String),
}

impl Certificates {
    pub(super) fn new() -> anyhow::Result<Self> {
        let ca = authority("portolan-testkit")?;
        let webhook_ca = authority("portolan-testkit-webhooks")?;
        let service_account = KeyPair::generate()?;
        Ok(Self {
            serving: serving(&ca)?,
            admin: client(&ca, "portolan-testkit-admin", Some(ADMINISTRATORS))?,
            controller_manager: client(&ca, "system:kube-controller-manager", Some(ADMINISTRATORS))?,
            webhook_client: client(&webhook_ca, "kube-apiserver", None)?,
            service_account: (service_account.serialize_pem(), service_account.public_key_pem()),
            ca: ca.pem(),
            ca_der: ca.der().to_vec(),
            webhook_ca: webhook_ca.pem(),
        })
    }
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority(name: &str) -> anyhow::Result<Authority> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    CertifiedIssuer::self_signed(params, KeyPair::generate()?).context("making a CA failed")
}

fn serving(ca: &Authority) -> anyhow::Result<Identity> {
    let names = ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let mut params = CertificateParams::new(names.map(String::from))?;
    params.distinguished_name.push(DnType::CommonName, "kubernetes");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    sign(ca, params)
}

fn client(ca: &Authority, user: &str, group: Option<&str>) -> anyhow::Result<Identity> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, user);
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    sign(ca, params)
}

fn sign(ca: &Authority, mut params: CertificateParams) -> anyhow::Result<Identity> {
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, ca).context("signing a certificate failed")?;
    Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
}
