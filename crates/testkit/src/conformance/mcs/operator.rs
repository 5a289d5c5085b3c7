//! The operator of one cluster.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use parking_lot::Mutex;
use serde_json::json;

use crate::{ControlPlane, Program, ReservedAddress};

/// The operator's namespace, with the Secret of its remote.
const NAMESPACE: &str = "portolan";
/// How long it may take until it has read the other cluster.
const LIMIT: Duration = Duration::from_mins(2);
const TICK: Duration = Duration::from_millis(100);
const MANAGER: &str = "portolan-testkit";

/// An operator that runs, with the other cluster as its remote.
pub(super) struct Operator {
    program: Mutex<Program>,
    remote: &'static str,
    _admin: ReservedAddress,
}

/// Writes the definition of `RemoteCluster` to a file. Upstream's definitions stand for our own of the same kinds.
pub(super) fn definition(portolan: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let folder = folder.join("crds");
    let output = Command::new(portolan).args(["crds", "--output-dir"]).arg(&folder).output()?;
    ensure!(output.status.success(), "`portolan crds` failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(folder.join("remoteclusters.portolan.dev.yaml"))
}

impl Operator {
    pub(super) async fn start(
        portolan: &Path,
        plane: &ControlPlane,
        name: &'static str,
        remote: &'static str,
        remote_plane: &ControlPlane,
    ) -> anyhow::Result<Self> {
        introduce(plane, remote, remote_plane).await.with_context(|| format!("telling {name} of {remote} failed"))?;
        let admin = ReservedAddress::new()?;
        let portolan = std::path::absolute(portolan)?;
        let arguments: Vec<String> = [
            // By its variable, which is ignored where it is not known.
            &format!("PORTOLAN_MIRROR_CLUSTER_ID={name}"),
            portolan.to_str().context("the program has a name in UTF-8")?,
            "operator",
            "--capabilities=mirror",
            "--mirror-allow-loopback-remotes",
            &format!("--lease-namespace={NAMESPACE}"),
            &format!("--identity={name}"),
            &format!("--kubeconfig={}", plane.kubeconfig_path().display()),
            &format!("--admin-listen={}", admin.address()),
            "--webhook-listen=127.0.0.1:0",
        ]
        .map(str::to_owned)
        .to_vec();
        let program = Program::start("operator", Path::new("/usr/bin/env"), &arguments, plane.folder())?;
        Ok(Self { program: Mutex::new(program), remote, _admin: admin })
    }

    /// Fails once the program has ended.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let mut program = self.program.lock();
        if let Some(status) = program.ended()? {
            anyhow::bail!("the operator that reads {} ended ({status}):\n{}", self.remote, program.log_tail());
        }
        Ok(())
    }

    /// Waits until it has read its remote.
    pub(super) async fn connected(&self, plane: &ControlPlane) -> anyhow::Result<()> {
        let (remotes, deadline) = (remotes(plane), Instant::now() + LIMIT);
        loop {
            self.check()?;
            let seen = remotes.get(self.remote).await?;
            let conditions = &seen.data["status"]["conditions"];
            let ready = |condition: &serde_json::Value| condition["type"] == "Ready" && condition["status"] == "True";
            if conditions.as_array().is_some_and(|all| all.iter().any(ready)) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "RemoteCluster {} is not ready: {conditions}", self.remote);
            tokio::time::sleep(TICK).await;
        }
    }
}

/// Makes the operator's namespace, and in it the credentials of the other cluster.
async fn introduce(plane: &ControlPlane, remote: &str, remote_plane: &ControlPlane) -> anyhow::Result<()> {
    let (client, manager) = (plane.client(), PatchParams::apply(MANAGER).force());
    let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } });
    Api::<Namespace>::all(client.clone()).patch(NAMESPACE, &manager, &Patch::Apply(namespace)).await?;
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": remote },
        "stringData": { "kubeconfig": fs::read_to_string(remote_plane.kubeconfig_path())? },
    });
    Api::<Secret>::namespaced(client, NAMESPACE).patch(remote, &manager, &Patch::Apply(secret)).await?;
    let cluster = json!({
        "apiVersion": "portolan.dev/v1alpha1",
        "kind": "RemoteCluster",
        "metadata": { "name": remote },
        "spec": {
            "credentials": { "kubeconfigSecret": { "name": remote } },
            "addresses": { "allowedCIDRs": ["10.0.0.0/8", "fd00::/8"] },
            "mcs": { "enabled": true, "mirrorServices": false },
        },
    });
    remotes(plane).create(&kube::api::PostParams::default(), &serde_json::from_value(cluster)?).await?;
    Ok(())
}

/// The testkit does not know our kinds.
fn remotes(plane: &ControlPlane) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "portolan.dev".into(),
        version: "v1alpha1".into(),
        api_version: "portolan.dev/v1alpha1".into(),
        kind: "RemoteCluster".into(),
        plural: "remoteclusters".into(),
    };
    Api::all_with(plane.client(), &resource)
}
