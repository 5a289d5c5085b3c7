//! TLS in front of a fault proxy, for clients that refuse to speak without.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use parking_lot::Mutex;
use portolan_certs::CertificateAuthority;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, spawn};
use tokio_rustls::TlsAcceptor;

use crate::kubeconfig::kubeconfig;

/// A server that ends TLS and sends all bytes on; ends when dropped.
pub struct TlsFront {
    address: SocketAddr,
    serving: Arc<Mutex<Serving>>,
    accepting: AbortHandle,
}

struct Serving {
    ca: String,
    acceptor: TlsAcceptor,
}

impl TlsFront {
    /// Starts a server on a free port of 127.0.0.1 that leads there.
    pub async fn start(to: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let serving = Arc::new(Mutex::new(Serving::new()?));
        let accepting = spawn(accept(listener, serving.clone(), to)).abort_handle();
        Ok(Self { address, serving, accepting })
    }

    /// Has another authority sign its certificate from now on. Connections that are open stay.
    pub fn rotate(&self) -> anyhow::Result<()> {
        *self.serving.lock() = Serving::new()?;
        Ok(())
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Certificates to trust, in PEM.
    pub fn ca(&self) -> String {
        self.serving.lock().ca.clone()
    }

    /// A kubeconfig that leads here, with this token.
    pub fn kubeconfig(&self, token: &str) -> Value {
        let mut config = kubeconfig(&format!("https://{}", self.address), Some(&self.ca()), None);
        config["users"][0]["user"] = json!({ "token": token });
        config
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Serving {
    fn new() -> anyhow::Result<Self> {
        let (now, validity) = (Timestamp::now(), Duration::from_hours(24));
        let authority = CertificateAuthority::new("tls-front", now, validity)?;
        let signed =
            authority.sign_server("tls-front", &["127.0.0.1".to_owned(), "localhost".to_owned()], now, validity)?;
        let key = PrivateKeyDer::from_pem_slice(signed.key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .context("the provider has the default versions")?
            .with_no_client_auth()
            .with_single_cert(vec![signed.der()?], key)?;
        Ok(Self { ca: authority.certificate.clone(), acceptor: TlsAcceptor::from(Arc::new(config)) })
    }
}

async fn accept(listener: TcpListener, serving: Arc<Mutex<Serving>>, to: SocketAddr) {
    while let Ok((stream, _)) = listener.accept().await {
        let acceptor = serving.lock().acceptor.clone();
        spawn(async move {
            // Whoever is not content with the certificate goes away: nothing to do about it.
            let Ok(mut client) = acceptor.accept(stream).await else { return };
            let Ok(mut server) = TcpStream::connect(to).await else { return };
            tokio::io::copy_bidirectional(&mut client, &mut server).await.ok();
        });
    }
}
