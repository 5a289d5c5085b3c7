//! The programs of a node: containerd, kubelet and kube-proxy, and the files they read.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};

use super::{
    cgroups::{self, ClusterId},
    control_plane::server,
    host::Host,
    plan::{NetworkPlan, NodePlan},
};
use crate::{Binaries, control_plane::certificates::Certificates, kubeconfig::kubeconfig};

/// Everything that a node's programs need to know.
pub(super) struct NodeFiles<'a> {
    pub(super) plan: &'a NodePlan,
    pub(super) network: NetworkPlan,
    pub(super) cluster: ClusterId,
    pub(super) folder: PathBuf,
    pub(super) binaries: &'a Binaries,
    pub(super) certificates: &'a Certificates,
}

impl NodeFiles<'_> {
    /// Where containerd listens.
    pub(super) fn socket(&self) -> String {
        self.path("containerd.sock")
    }

    pub(super) fn start_containerd(&self, host: &mut Host) -> anyhow::Result<()> {
        fs::create_dir_all(self.folder.join("cni"))?;
        self.write("cni/10-bridge.conflist", &self.network().to_string())?;
        let config = self.write("containerd.toml", &self.containerd())?;
        host.start_program("containerd", &["containerd".into(), "--config".into(), config], &self.folder)
    }

    pub(super) fn start_kubelet(&self, host: &mut Host) -> anyhow::Result<()> {
        let identity = self.certificates.node(&self.plan.name)?;
        let credentials = kubeconfig(&server(self.network), Some(&self.certificates.ca), Some(&identity)).to_string();
        let words = vec![
            self.program("kubelet"),
            format!("--config={}", self.write("kubelet.json", &self.kubelet()?.to_string())?),
            format!("--kubeconfig={}", self.write("kubelet.kubeconfig", &credentials)?),
            format!("--hostname-override={}", self.plan.name),
            format!("--node-ip={}", self.plan.addresses.map(|address| address.to_string()).join(",")),
            format!("--root-dir={}", self.path("kubelet")),
            format!("--cert-dir={}", self.path("kubelet-certificates")),
        ];
        host.start_program("kubelet", &words, &self.folder)
    }

    pub(super) fn start_kube_proxy(&self, host: &mut Host) -> anyhow::Result<()> {
        let identity = &self.certificates.kube_proxy;
        let credentials = kubeconfig(&server(self.network), Some(&self.certificates.ca), Some(identity)).to_string();
        let words = vec![
            self.program("kube-proxy"),
            format!("--kubeconfig={}", self.write("kube-proxy.kubeconfig", &credentials)?),
            format!("--hostname-override={}", self.plan.name),
            format!("--cluster-cidr={}", self.network.pods().join(",")),
            "--proxy-mode=nftables".into(),
            // These settings are the machine's, not the host's.
            "--conntrack-max-per-core=0".into(),
            "--conntrack-tcp-timeout-established=0".into(),
            "--conntrack-tcp-timeout-close-wait=0".into(),
        ];
        host.start_program("kube-proxy", &words, &self.folder)
    }

    fn containerd(&self) -> String {
        let Self { folder, .. } = self;
        let folder = folder.display();
        format!(
            r#"version = 2
root = "{folder}/containerd"
state = "/run/containerd-state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{CNI_PROGRAMS}"
conf_dir = "{folder}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"#,
            socket = self.socket(),
            pause = super::images::PAUSE,
        )
    }

    fn network(&self) -> Value {
        json!({
            "cniVersion": "0.4.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "cni0",
                    "isGateway": true,
                    "ipMasq": self.plan.masquerade,
                    "hairpinMode": true,
                    "ipam": {
                        "type": "host-local",
                        "ranges": self.plan.pod_ranges.each_ref().map(|range| [json!({ "subnet": range })]),
                        "routes": [{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }],
                        "dataDir": "/run/cni-addresses",
                    },
                },
                { "type": "portmap", "capabilities": { "portMappings": true }, "backend": "iptables" },
            ],
        })
    }

    fn kubelet(&self) -> anyhow::Result<Value> {
        let cgroup = cgroups::name(self.cluster, &self.plan.name);
        cgroups::make(&cgroup)?;
        Ok(json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": format!("unix://{}", self.socket()),
            "authentication": {
                "anonymous": { "enabled": false },
                "webhook": { "enabled": true },
                "x509": { "clientCAFile": self.write("ca.pem", &self.certificates.ca)? },
            },
            "authorization": { "mode": "Webhook" },
            "podLogsDir": "/var/log/pods",
            "cgroupRoot": cgroup,
            // What this kind of machine lacks, or has in an older form.
            "failCgroupV1": false,
            "cgroupsPerQOS": false,
            "enforceNodeAllocatable": [],
            "cgroupDriver": "cgroupfs",
            "failSwapOn": false,
            "makeIPTablesUtilChains": false,
            "localStorageCapacityIsolation": false,
            "evictionHard": {},
            "resolvConf": "",
            // Tests wait for what a node says.
            "nodeStatusUpdateFrequency": "2s",
            "nodeLeaseDurationSeconds": 10,
            "syncFrequency": "2s",
            "shutdownGracePeriod": "0s",
            "imageGCHighThresholdPercent": 100,
        }))
    }

    fn program(&self, name: &str) -> String {
        self.binaries.program(name).display().to_string()
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn write(&self, name: &str, content: &str) -> anyhow::Result<String> {
        let path = self.folder.join(name);
        fs::write(&path, content)?;
        Ok(path.display().to_string())
    }
}

/// Where Debian's containernetworking-plugins lie.
const CNI_PROGRAMS: &str = "/usr/lib/cni";
