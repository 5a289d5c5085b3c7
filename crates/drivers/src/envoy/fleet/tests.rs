//! Who may connect. That a real Envoy does is shown where its files are made, by the tests of `control`.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use portolan_certs::{CertificateAuthority, SignedCertificate, provider, roots};
use portolan_core::gateway::unit::{Unit, UnitId};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ServerConfig};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::{Fleet, Server};
use crate::envoy::Units;

const HOUR: Duration = Duration::from_hours(1);
const LIMIT: Duration = Duration::from_mins(1);
const UNIT: &str = "egw://unit/";

struct Lab {
    address: SocketAddr,
    authority: CertificateAuthority,
    fleet: Fleet,
    _stop: oneshot::Sender<()>,
    _tasks: JoinSet<()>,
}

impl Lab {
    async fn start() -> Self {
        let authority = CertificateAuthority::new("test", Timestamp::now(), HOUR).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let (address, fleet) = (listener.local_addr().unwrap(), Fleet::new(|| {}));
        let (stop, stopped) = oneshot::channel();
        let mut tasks = JoinSet::new();
        let server = Server { listener, fleet: fleet.clone(), identify };
        tasks.spawn(server.run(async { stopped.await.unwrap_or_default() }));
        let lab = Self { address, authority, fleet, _stop: stop, _tasks: tasks };
        lab.lead();
        lab
    }

    fn lead(&self) {
        let serving = self.authority.sign_server("xds", &["xds.portolan".to_owned()], Timestamp::now(), HOUR).unwrap();
        let clients = roots(&self.authority.certificate).unwrap();
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(clients), Arc::new(provider()));
        let tls = ServerConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap())
            .with_single_cert(
                vec![serving.der().unwrap()],
                PrivateKeyDer::from_pem_slice(serving.key.as_bytes()).unwrap(),
            );
        self.fleet.want(&units());
        self.fleet.serve_with(Arc::new(tls.unwrap()));
    }

    fn signed(&self, uri: &str) -> SignedCertificate {
        self.authority.sign_client_uri(uri, Timestamp::now(), HOUR).unwrap()
    }

    /// Connects with a certificate.
    async fn connect(&self, with: Option<&SignedCertificate>) -> std::io::Result<TlsStream<TcpStream>> {
        let client = ClientConfig::builder_with_provider(Arc::new(provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots(&self.authority.certificate).unwrap());
        let client = match with {
            None => client.with_no_client_auth(),
            Some(own) => {
                let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
                client.with_client_auth_cert(vec![own.der().unwrap()], key).unwrap()
            }
        };
        let tcp = TcpStream::connect(self.address).await?;
        TlsConnector::from(Arc::new(client)).connect(ServerName::try_from("xds.portolan").unwrap(), tcp).await
    }

    /// A client that is accepted is greeted with the settings of HTTP/2, and one that is not is told nothing.
    async fn is_served(&self, with: Option<&SignedCertificate>) -> bool {
        let Ok(mut connection) = self.connect(with).await else { return false };
        let mut bytes = [0; 9];
        timeout(LIMIT, connection.read_exact(&mut bytes)).await.expect("it is served or closed").is_ok()
    }
}

fn identify(certificate: &[u8]) -> Option<UnitId> {
    let names = portolan_certs::uri_names(certificate);
    let (namespace, name) = names.first()?.strip_prefix(UNIT)?.split_once('/')?;
    Some(UnitId { namespace: namespace.into(), name: name.into() })
}

fn units() -> Units {
    let id = UnitId { namespace: "egw-acme".into(), name: "web".into() };
    let address = Ipv4Addr::new(192, 0, 2, 1).into();
    let unit = Unit { address, image: "".into(), prefix: "default".into(), listeners: BTreeMap::new() };
    Units::from([(id, Arc::new(unit))])
}

#[tokio::test]
async fn only_the_certificate_of_a_unit_that_is_wanted_connects() {
    let lab = Lab::start().await;
    let own = lab.signed("egw://unit/egw-acme/web");
    assert!(lab.is_served(Some(&own)).await);
    assert!(!lab.is_served(None).await, "no certificate");
    assert!(!lab.is_served(Some(&lab.signed("egw://unit/egw-acme/other"))).await, "a unit that nobody wants");
    assert!(!lab.is_served(Some(&lab.signed("egw://account/acme"))).await, "a certificate for something else");
    let long_ago = Timestamp::now() - 10 * HOUR;
    let expired = lab.authority.sign_client_uri("egw://unit/egw-acme/web", long_ago, HOUR).unwrap();
    assert!(!lab.is_served(Some(&expired)).await, "an expired one");
    let foreign = CertificateAuthority::new("test", Timestamp::now(), HOUR).unwrap();
    let foreign = foreign.sign_client_uri("egw://unit/egw-acme/web", Timestamp::now(), HOUR).unwrap();
    assert!(!lab.is_served(Some(&foreign)).await, "one of another authority");
}

#[tokio::test]
async fn a_replica_that_leads_no_more_closes_all_connections_and_accepts_none() {
    let lab = Lab::start().await;
    let own = lab.signed("egw://unit/egw-acme/web");
    let mut open = lab.connect(Some(&own)).await.unwrap();
    let mut bytes = [0; 9];
    open.read_exact(&mut bytes).await.unwrap();
    lab.fleet.stand_by();
    let mut rest = Vec::new();
    // the end may come with or without a word of TLS
    timeout(LIMIT, open.read_to_end(&mut rest)).await.expect("it is closed").ok();
    assert!(!lab.is_served(Some(&own)).await, "another replica leads");
    lab.lead();
    assert!(lab.is_served(Some(&own)).await, "it leads again");
}

#[tokio::test]
async fn a_unit_has_few_connections_and_a_forgotten_one_none() {
    let lab = Lab::start().await;
    let own = lab.signed("egw://unit/egw-acme/web");
    let mut open = Vec::new();
    for _ in 0..super::MAX_CONNECTIONS {
        let mut connection = lab.connect(Some(&own)).await.unwrap();
        connection.read_exact(&mut [0; 9]).await.unwrap();
        open.push(connection);
    }
    assert!(!lab.is_served(Some(&own)).await, "it has enough");
    let id = units().into_keys().next().unwrap();
    lab.fleet.forget(&id);
    assert!(lab.fleet.reports().contains_key(&id), "it is wanted");
    lab.fleet.want(&Units::new());
    lab.fleet.forget(&id);
    for mut connection in open {
        timeout(LIMIT, connection.read_to_end(&mut Vec::new())).await.expect("it is closed").ok();
    }
    assert!(lab.fleet.reports().is_empty() && !lab.is_served(Some(&own)).await);
}
