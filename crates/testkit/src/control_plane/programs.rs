//! The three programs and the flags they are started with.

use serde_json::json;

use super::{Options, certificates::Certificates, folder::DataFolder};
use crate::program::Program;
use crate::{
    Binaries,
    kubeconfig::{self, Identity, kubeconfig},
};

/// etcd listens on a socket in the data folder, not on a port: no other control plane can ever be meant.
/// (The number is there because etcd wants one; it is part of the file's name.)
const ETCD_URL: &str = "unix://etcd.sock:1";
/// The file of that socket.
pub(super) const ETCD_SOCKET: &str = "etcd.sock:1";
const ETCD_PEER: &str = "unix://peer.sock:1";

/// Names of programs.
pub(super) const ETCD: &str = "etcd";
pub(super) const API_SERVER: &str = "kube-apiserver";

/// The controllers that tests rely on. The rest would only use up memory and start-up time.
const CONTROLLERS: [&str; 9] = [
    "deployment-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "endpointslice-mirroring-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "replicaset-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
];

/// The files and ports that the programs share.
pub(super) struct Layout<'a> {
    pub(super) binaries: &'a Binaries,
    pub(super) folder: &'a DataFolder,
    pub(super) certificates: &'a Certificates,
    pub(super) api_port: u16,
    pub(super) controller_port: u16,
    pub(super) options: &'a Options,
}

impl Layout<'_> {
    pub(super) fn etcd(&self) -> anyhow::Result<Program> {
        self.start(
            ETCD,
            &[
                "--name=testkit".into(),
                "--data-dir=etcd".into(),
                format!("--listen-client-urls={ETCD_URL}"),
                format!("--advertise-client-urls={ETCD_URL}"),
                format!("--listen-peer-urls={ETCD_PEER}"),
                format!("--initial-advertise-peer-urls={ETCD_PEER}"),
                format!("--initial-cluster=testkit={ETCD_PEER}"),
                "--unsafe-no-fsync".into(),
                "--log-level=warn".into(),
            ],
        )
    }

    pub(super) fn api_server(&self) -> anyhow::Result<Program> {
        let (certificate, key) = self.serving()?;
        let (signing, verifying) = &self.certificates.service_account;
        let mut arguments = vec![
            format!("--etcd-servers={ETCD_URL}"),
            // Without compaction a frozen view can be as old as the test likes.
            "--etcd-compaction-interval=0".into(),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={}", self.api_port),
            format!("--tls-cert-file={certificate}"),
            format!("--tls-private-key-file={key}"),
            format!("--client-ca-file={}", self.folder.write("ca.pem", &self.certificates.ca)?),
            format!("--service-account-issuer=https://127.0.0.1:{}", self.api_port),
            format!("--service-account-signing-key-file={}", self.folder.write("sa.key", signing)?),
            format!("--service-account-key-file={}", self.folder.write("sa.pub", verifying)?),
            format!("--service-cluster-ip-range={}", self.service_ranges()),
            "--authorization-mode=RBAC".into(),
            // No service account tokens for pods that never run; no not-ready taint that no kubelet lifts.
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition".into(),
            format!("--admission-control-config-file={}", self.admission()?),
            "--endpoint-reconciler-type=none".into(),
            "--allow-privileged=true".into(),
        ];
        if let Some(url) = &self.options.token_webhook {
            let config = self.folder.write("token-webhook.kubeconfig", &kubeconfig(url, None, None).to_string())?;
            arguments.push(format!("--authentication-token-webhook-config-file={config}"));
            arguments.push("--authentication-token-webhook-version=v1".into());
            // Tokens end when they end, not when a cache forgets them.
            arguments.push("--authentication-token-webhook-cache-ttl=0s".into());
        }
        self.start(API_SERVER, &arguments)
    }

    pub(super) fn controller_manager(&self) -> anyhow::Result<Program> {
        let (certificate, key) = self.serving()?;
        let server = format!("https://127.0.0.1:{}", self.api_port);
        let config = kubeconfig(&server, Some(&self.certificates.ca), Some(&self.certificates.controller_manager));
        self.start(
            "kube-controller-manager",
            &[
                format!("--kubeconfig={}", self.folder.write("controller-manager.kubeconfig", &config.to_string())?),
                "--bind-address=127.0.0.1".into(),
                format!("--secure-port={}", self.controller_port),
                format!("--tls-cert-file={certificate}"),
                format!("--tls-private-key-file={key}"),
                format!("--root-ca-file={}", self.folder.write("ca.pem", &self.certificates.ca)?),
                format!("--controllers={}", CONTROLLERS.join(",")),
                "--leader-elect=false".into(),
                "--use-service-account-credentials=false".into(),
            ],
        )
    }

    fn service_ranges(&self) -> &'static str {
        if self.options.dual_stack { "10.0.0.0/16,fd00::/108" } else { "10.0.0.0/16" }
    }

    fn start(&self, name: &'static str, arguments: &[String]) -> anyhow::Result<Program> {
        Program::start(name, &self.binaries.program(name), arguments, self.folder.path())
    }

    fn serving(&self) -> anyhow::Result<(String, String)> {
        let Identity { certificate, key } = &self.certificates.serving;
        Ok((self.folder.write("serving.pem", certificate)?, self.folder.write("serving.key", key)?))
    }

    /// Makes the API server show a client certificate to every webhook it calls.
    fn admission(&self) -> anyhow::Result<String> {
        let client = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "users": [{ "name": "*", "user": kubeconfig::user(&self.certificates.webhook_client) }],
        });
        let client = self.folder.write("webhook-client.kubeconfig", &client.to_string())?;
        let plugins = ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"].map(|name| {
            json!({ "name": name, "configuration": {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "WebhookAdmissionConfiguration",
                "kubeConfigFile": client,
            } })
        });
        let configuration = json!({
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": plugins,
        });
        self.folder.write("admission.json", &configuration.to_string())
    }
}
