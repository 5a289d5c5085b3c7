//! Proxies whose API asks for certificates, and proves whose pod it is.

use std::path::{Path, PathBuf};

use portolan_api::mesh::VirtualService;
use portolan_control::mesh;
use portolan_drivers::l7mp::{ClientCertificate, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::away::echo;
use super::harness::World;
use crate::harness::{Backend, on_both_servers};

on_both_servers!(proxies_and_the_operator_prove_who_they_are);

/// An authority, and the folder for what it signs.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

impl Authority {
    fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "mesh");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("ca.crt"), params.self_signed(&key)?.pem())?;
        Ok(Self { issuer: Issuer::new(params, key), folder })
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A certificate for a name, and its key.
    fn sign(&self, name: &str) -> anyhow::Result<(PathBuf, PathBuf)> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec![name.to_owned()])?.signed_by(&key, &self.issuer)?;
        let (to, secret) = (self.file(&format!("{name}.crt")), self.file(&format!("{name}.key")));
        std::fs::write(&to, certificate.pem())?;
        std::fs::write(&secret, key.serialize_pem())?;
        Ok((to, secret))
    }
}

fn word(path: &Path) -> String {
    path.display().to_string()
}

async fn proxies_and_the_operator_prove_who_they_are(backend: Backend) -> anyhow::Result<()> {
    let mut world = World::new(backend).await?;
    let authority = Authority::new()?;
    for (pod, of) in [("honest", "honest"), ("impostor", "somebody-else")] {
        let (certificate, key) = authority.sign(&format!("{of}.{}.pod", world.namespace))?;
        let files = [word(&certificate), word(&key), word(&authority.file("ca.crt"))];
        let flags =
            ["--api", "ADDRESS:1234", "--api-cert", &files[0], "--api-key", &files[1], "--api-client-ca", &files[2]];
        world.pod(pod, &[("app", pod)], &flags).await?;
        world.apply(&echo(pod, pod, 7000)).await?;
    }
    let with = |own: Option<(PathBuf, PathBuf)>| {
        let client = own.map(|(certificate, key)| ClientCertificate { certificate, key });
        let tls = TlsFiles { ca: authority.file("ca.crt"), client }.read()?;
        anyhow::Ok(mesh::Options {
            namespace: world.namespace.clone(),
            proxy_tls: Some(tls),
            ..mesh::Options::default()
        })
    };

    // who brings no certificate is not let in
    let operator = world.operator_with(with(None)?).await?;
    world.until("honest", "Programmed", "False", "Unreachable").await?;
    operator.process.stop().await?;

    let operator = world.operator_with(with(Some(authority.sign("operator")?))?).await?;
    world.until("honest", "Programmed", "True", "Programmed").await?;
    world.until("impostor", "Programmed", "False", "Unreachable").await?;
    let status = world.api::<VirtualService>().get("impostor").await?.status.unwrap_or_default();
    let said = status.conditions.iter().find(|one| one.type_ == "Programmed").map(|one| one.message.clone());
    assert!(said.as_ref().is_some_and(|said| said.contains("certificate")), "{said:?}");
    operator.process.stop().await?;
    Ok(())
}
