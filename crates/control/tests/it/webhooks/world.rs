//! What the tests of webhooks share: a namespace with its configurations, and replicas that serve them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use kube::api::{DeleteParams, PostParams};
use kube::core::admission::AdmissionRequest;
use kube::{Api, Client, ResourceExt};
use portolan_control::runtime::ready::Readiness;
use portolan_control::runtime::tasks::Tasks;
use portolan_control::runtime::webhook::{self, Config, Denied, Handle, Host, Schedule, Warnings, Webhooks};
use portolan_testkit::{FaultProxy, Faults, ReservedAddress};
use prometheus_client::registry::Registry;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::harness::{Backend, Server, eventually};

pub(super) const DENIAL: &str = "data.size: `none` is no size: give a number";
pub(super) const SECRET: &str = "webhook-authority";
pub(super) const FAST: Schedule = Schedule {
    authority: Duration::from_hours(1),
    serving: Duration::from_hours(1),
    settle: Duration::ZERO,
    retire: Duration::ZERO,
    poll: Duration::from_millis(100),
};

/// A namespace of its own, with webhook configurations that see no other, and an address for a replica that starts again.
#[derive(Clone)]
pub(super) struct World {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) server: Arc<Server>,
    reserved: Arc<ReservedAddress>,
}

impl World {
    pub(super) async fn new(backend: Backend, prefix: &str) -> anyhow::Result<Self> {
        Self::on(Arc::new(Server::start(backend).await?), prefix).await
    }

    pub(super) async fn on(server: Arc<Server>, prefix: &str) -> anyhow::Result<Self> {
        let (client, namespace) = (server.client.clone(), server.namespace(prefix).await?);
        Ok(Self { client, namespace, server, reserved: Arc::new(ReservedAddress::new()?) })
    }

    /// A replica on the reserved address: another one can be started there after it.
    pub(super) fn config_at_reserved_address(&self) -> Config {
        Config { listen: self.reserved.address(), ..self.config() }
    }

    /// A replica on any free port.
    pub(super) fn config(&self) -> Config {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            names: vec!["127.0.0.1".to_owned()],
            client_ca: None,
            secret_namespace: self.namespace.clone(),
            secret_name: SECRET.to_owned(),
            validating: vec![self.namespace.clone()],
            mutating: vec![self.namespace.clone()],
            schedule: FAST,
            linger: Duration::ZERO,
        }
    }

    /// Makes ConfigMaps validated and defaulted under a policy, and Services validated under `Fail`.
    pub(super) async fn install(&self, policy: &str, validate: SocketAddr, default: SocketAddr) -> anyhow::Result<()> {
        let hook = |name: &str, resource: &str, policy: &str, url: String| {
            json!({
                "name": name,
                "clientConfig": {"url": url},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "resources": [resource],
                    "operations": ["CREATE", "UPDATE"], "scope": "Namespaced"}],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
                "failurePolicy": policy,
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "timeoutSeconds": 30,
            })
        };
        let metadata = json!({"name": self.namespace});
        let validating = [
            hook("maps.portolan.dev", "configmaps", policy, format!("https://{validate}/validate-map")),
            hook("services.portolan.dev", "services", "Fail", format!("https://{validate}/validate-service")),
        ];
        let mutating = [hook("maps.portolan.dev", "configmaps", policy, format!("https://{default}/default-map"))];
        let validating = serde_json::from_value(json!({"metadata": metadata, "webhooks": validating}))?;
        let mutating = serde_json::from_value(json!({"metadata": metadata, "webhooks": mutating}))?;
        let params = PostParams::default();
        Api::<ValidatingWebhookConfiguration>::all(self.client.clone()).create(&params, &validating).await?;
        Api::<MutatingWebhookConfiguration>::all(self.client.clone()).create(&params, &mutating).await?;
        Ok(())
    }

    /// Waits until the API server has learnt of both configurations and of whom to trust.
    pub(super) async fn in_force(&self) -> anyhow::Result<()> {
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        eventually("the webhooks are in force", async || {
            let denied = self.maps().create(&dry_run, &map("probe", Some("none"))).await;
            let defaulted = self.maps().create(&dry_run, &map("probe", None)).await;
            let size = defaulted.ok().and_then(|map| map.data?.get("size").cloned());
            Ok(denied.is_err_and(|error| error.to_string().contains(DENIAL)) && size.as_deref() == Some("1"))
        })
        .await
    }

    pub(super) fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(super) fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(super) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Whom API servers are told to trust.
    pub(super) async fn bundle(&self) -> anyhow::Result<String> {
        let configurations = Api::<MutatingWebhookConfiguration>::all(self.client.clone());
        let hooks = configurations.get(&self.namespace).await?.webhooks.context("webhooks")?;
        let bundle = hooks[0].client_config.ca_bundle.clone().context("a bundle")?;
        Ok(String::from_utf8(bundle.0)?)
    }

    /// The resource versions of all that the webhook writes.
    pub(super) async fn versions(&self) -> anyhow::Result<[Option<String>; 3]> {
        let (client, name) = (&self.client, &self.namespace);
        Ok([
            self.secrets().get(SECRET).await?.resource_version(),
            Api::<ValidatingWebhookConfiguration>::all(client.clone()).get(name).await?.resource_version(),
            Api::<MutatingWebhookConfiguration>::all(client.clone()).get(name).await?.resource_version(),
        ])
    }

    /// Removes what is not in the namespace.
    pub(super) async fn remove(self) -> anyhow::Result<()> {
        let (client, name, params) = (&self.client, &self.namespace, DeleteParams::default());
        Api::<ValidatingWebhookConfiguration>::all(client.clone()).delete(name, &params).await?;
        Api::<MutatingWebhookConfiguration>::all(client.clone()).delete(name, &params).await?;
        Ok(())
    }
}

/// One webhook process, with its own view of the API server.
pub(super) struct Replica {
    pub(super) proxy: FaultProxy,
    pub(super) tasks: Tasks,
    pub(super) readiness: Readiness,
    pub(super) registry: Registry,
    pub(super) handle: Handle,
}

impl Replica {
    pub(super) async fn start(world: &World, faults: Faults, config: Config) -> anyhow::Result<Self> {
        let proxy = FaultProxy::start(world.client.clone(), faults).await?;
        let (tasks, readiness, mut registry) = (Tasks::new(), Readiness::new(), Registry::default());
        let host = Host { tasks: &tasks, readiness: &readiness, registry: &mut registry };
        let handle = webhook::run(&proxy.client(), config, webhooks(), host)?;
        Ok(Self { proxy, tasks, readiness, registry, handle })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.handle.address()
    }

    pub(super) fn status(&self) -> webhook::Status {
        self.handle.status().borrow().clone()
    }

    /// Waits until no rotation is under way, all is published, and `more` holds.
    pub(super) async fn settled(&self, what: &str, more: impl Fn(&webhook::Status) -> bool) -> anyhow::Result<()> {
        eventually(what, async || {
            let status = self.status();
            let done = status.stage == "Steady" && status.published && status.missing.is_empty() && more(&status);
            Ok(done && self.readiness.is_ready())
        })
        .await
    }

    pub(super) fn metrics(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).expect("a String takes all");
        text
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        let late = self.tasks.drain(Duration::from_secs(20)).await;
        ensure!(late.is_empty(), "did not end: {late:?}");
        Ok(())
    }
}

pub(super) fn webhooks() -> Webhooks {
    Webhooks::new()
        .validate("/validate-map", |request: &AdmissionRequest<ConfigMap>| {
            let data = request.object.as_ref().and_then(|map| map.data.as_ref());
            let size = data.and_then(|data| data.get("size"));
            if size.is_some_and(|size| size == "none") { Err(Denied::invalid(DENIAL)) } else { Ok(Warnings::new()) }
        })
        .validate("/validate-service", |_: &AdmissionRequest<Service>| Ok(Warnings::new()))
        .default("/default-map", |map: &mut ConfigMap| {
            map.data.get_or_insert_default().entry("size".to_owned()).or_insert_with(|| "1".to_owned());
        })
}

/// Calls as an API server does that trusts `bundle`: kept connections would hide what a fresh one meets.
pub(super) async fn handshake(address: SocketAddr, bundle: &str) -> anyhow::Result<()> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(certificate?)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    TlsConnector::from(Arc::new(config)).connect(ServerName::from(address.ip()), stream).await?;
    Ok(())
}

pub(super) fn map(name: &str, size: Option<&str>) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.data = size.map(|size| BTreeMap::from([("size".to_owned(), size.to_owned())]));
    map
}

pub(super) fn service(name: &str) -> Service {
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}))
        .expect("a service of the simplest kind")
}
