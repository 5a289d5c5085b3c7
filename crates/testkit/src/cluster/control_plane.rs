//! The control plane of a cluster: a host of its own, whose addresses its nodes reach.

use serde_json::json;

use super::{host::Host, plan::NetworkPlan};
use crate::{
    Binaries,
    control_plane::{
        certificates::{Certificates, LOOPBACK_NAMES},
        folder::DataFolder,
    },
    kubeconfig::{Identity, kubeconfig},
};

/// Where the API server listens, on the control plane's host.
pub(super) const API_PORT: u16 = 6443;

/// Where the API server records requests, in the cluster's folder.
pub(super) const AUDIT_LOG: &str = "audit.log";

/// Who reads a cluster for the operator of another one: see `examples/mirror/remote-rbac.yaml`.
const MIRROR_READER: &str = "system:serviceaccount:kube-system:portolan-mirror";

/// Records what pods ask for, without bodies; what the cluster's own parts ask for is of no use.
fn audit_policy() -> serde_json::Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            { "level": "Metadata", "users": [MIRROR_READER] },
            { "level": "None", "userGroups": ["system:serviceaccounts:kube-system"] },
            { "level": "Metadata", "userGroups": ["system:serviceaccounts"] },
        ],
    })
}

/// What the programs of the control plane share.
pub(super) struct ControlPlaneFiles<'a> {
    pub(super) binaries: &'a Binaries,
    pub(super) folder: &'a DataFolder,
    pub(super) certificates: &'a Certificates,
    pub(super) network: NetworkPlan,
}

/// The URL of the API server on the network of the hosts.
pub(super) fn server(network: NetworkPlan) -> String {
    let [address, _] = network.control_plane();
    format!("https://{address}:{API_PORT}")
}

/// The names and addresses that the API server is called by.
pub(super) fn names(network: NetworkPlan) -> Vec<String> {
    let mut names: Vec<String> = LOOPBACK_NAMES.map(String::from).into();
    names.extend(network.control_plane().map(|address| address.to_string()));
    names.push(network.kubernetes_service().to_string());
    names
}

impl ControlPlaneFiles<'_> {
    pub(super) fn start_etcd(&self, host: &mut Host) -> anyhow::Result<()> {
        let (client, peer) = ("unix://etcd.sock:1", "unix://peer.sock:1");
        self.start(
            host,
            "etcd",
            &[
                "--name=testkit".into(),
                "--data-dir=etcd".into(),
                format!("--listen-client-urls={client}"),
                format!("--advertise-client-urls={client}"),
                format!("--listen-peer-urls={peer}"),
                format!("--initial-advertise-peer-urls={peer}"),
                format!("--initial-cluster=testkit={peer}"),
                "--unsafe-no-fsync".into(),
                "--log-level=warn".into(),
            ],
        )
    }

    pub(super) fn start_api_server(&self, host: &mut Host) -> anyhow::Result<()> {
        let Certificates { ca, serving, kubelet_client, service_account: (signing, verifying), .. } = self.certificates;
        let (certificate, key) = self.identity("serving", serving)?;
        let (kubelet_certificate, kubelet_key) = self.identity("kubelet-client", kubelet_client)?;
        self.start(
            host,
            "kube-apiserver",
            &[
                "--etcd-servers=unix://etcd.sock:1".into(),
                format!("--advertise-address={}", self.network.control_plane()[0]),
                format!("--secure-port={API_PORT}"),
                format!("--tls-cert-file={certificate}"),
                format!("--tls-private-key-file={key}"),
                format!("--client-ca-file={}", self.folder.write("ca.pem", ca)?),
                format!("--kubelet-client-certificate={kubelet_certificate}"),
                format!("--kubelet-client-key={kubelet_key}"),
                "--kubelet-preferred-address-types=InternalIP".into(),
                "--service-account-issuer=https://kubernetes.default.svc".into(),
                format!("--service-account-signing-key-file={}", self.folder.write("sa.key", signing)?),
                format!("--service-account-key-file={}", self.folder.write("sa.pub", verifying)?),
                format!("--service-cluster-ip-range={}", self.network.services().join(",")),
                "--authorization-mode=Node,RBAC".into(),
                "--enable-admission-plugins=NodeRestriction".into(),
                "--allow-privileged=true".into(),
                format!("--audit-policy-file={}", self.folder.write("audit-policy.json", &audit_policy().to_string())?),
                format!("--audit-log-path={AUDIT_LOG}"),
                // There is no kube-proxy on this host: webhooks are called at the endpoints of their Service.
                "--enable-aggregator-routing=true".into(),
            ],
        )
    }

    pub(super) fn start_controller_manager(&self, host: &mut Host) -> anyhow::Result<()> {
        let config = self.kubeconfig("controller-manager.kubeconfig", &self.certificates.controller_manager)?;
        self.start(
            host,
            "kube-controller-manager",
            &[
                format!("--kubeconfig={config}"),
                format!("--authentication-kubeconfig={config}"),
                format!("--authorization-kubeconfig={config}"),
                format!("--root-ca-file={}", self.folder.write("ca.pem", &self.certificates.ca)?),
                format!(
                    "--service-account-private-key-file={}",
                    self.folder.write("sa.key", &self.certificates.service_account.0)?
                ),
                format!("--cluster-cidr={}", self.network.pods().join(",")),
                "--leader-elect=false".into(),
                "--use-service-account-credentials=true".into(),
                // A node that says nothing is lost sooner than the usual 40 s.
                "--node-monitor-grace-period=12s".into(),
                "--node-monitor-period=2s".into(),
            ],
        )
    }

    pub(super) fn start_scheduler(&self, host: &mut Host) -> anyhow::Result<()> {
        let config = self.kubeconfig("scheduler.kubeconfig", &self.certificates.scheduler)?;
        let settings = json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": { "kubeconfig": config },
            "leaderElection": { "leaderElect": false },
        });
        self.start(
            host,
            "kube-scheduler",
            &[
                format!("--config={}", self.folder.write("scheduler.json", &settings.to_string())?),
                format!("--authentication-kubeconfig={config}"),
                format!("--authorization-kubeconfig={config}"),
            ],
        )
    }

    fn kubeconfig(&self, file: &str, identity: &Identity) -> anyhow::Result<String> {
        let server = format!("https://127.0.0.1:{API_PORT}");
        self.folder.write(file, &kubeconfig(&server, Some(&self.certificates.ca), Some(identity)).to_string())
    }

    fn identity(&self, name: &str, Identity { certificate, key }: &Identity) -> anyhow::Result<(String, String)> {
        Ok((self.folder.write(&format!("{name}.pem"), certificate)?, self.folder.write(&format!("{name}.key"), key)?))
    }

    fn start(&self, host: &mut Host, name: &str, arguments: &[String]) -> anyhow::Result<()> {
        let mut words = vec![self.binaries.program(name).display().to_string()];
        words.extend(arguments.iter().cloned());
        host.start_program(name, &words, self.folder.path())
    }
}
