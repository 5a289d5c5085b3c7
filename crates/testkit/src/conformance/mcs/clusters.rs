//! Two clusters that know each other.

use std::{fs, path::Path};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::{
    operator::{self, Operator},
    suite::Suite,
};
use crate::{ControlPlane, FakeKubelet, control_plane, kubelet};

/// The names of the clusters: of their contexts, their cluster IDs, and the RemoteCluster in the other one.
pub(super) const NAMES: [&str; 2] = ["east", "west"];
/// Different ones: an endpoint in a network of the importing cluster is refused.
const POD_NETWORKS: [u8; 2] = [101, 102];

/// Both clusters, at work. Dropped in this order: operators, kubelets, control planes.
pub(super) struct Pair {
    operators: [Operator; 2],
    _kubelets: [FakeKubelet; 2],
    planes: [ControlPlane; 2],
}

impl Pair {
    /// Starts both, and waits until each operator has read the other cluster.
    pub(super) async fn start(suite: &Suite, portolan: &Path) -> anyhow::Result<Self> {
        let [east, west] = [start_plane(), start_plane()];
        let (east, west) = tokio::try_join!(east, west)?;
        let planes = [east, west];
        let definitions = operator::definition(portolan, planes[0].folder())?;
        let [east, west] = [0, 1].map(|index| kubelet(&planes[index], POD_NETWORKS[index]));
        let kubelets = tokio::try_join!(east, west)?;
        for plane in &planes {
            for definition in suite.definitions.iter().chain([&definitions]) {
                apply(plane, definition)?;
            }
        }
        let [east, west] = [(0, 1), (1, 0)]
            .map(|(own, other)| Operator::start(portolan, &planes[own], NAMES[own], NAMES[other], &planes[other]));
        let operators = tokio::try_join!(east, west)?;
        let pair = Self { operators: operators.into(), _kubelets: kubelets.into(), planes };
        let [east, west] = [0, 1].map(|index| pair.operators[index].connected(&pair.planes[index]));
        tokio::try_join!(east, west)?;
        Ok(pair)
    }

    /// Fails once an operator has ended.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.operators.iter().try_for_each(Operator::check)
    }

    /// One kubeconfig with a context of each cluster's name.
    pub(super) fn kubeconfig(&self) -> anyhow::Result<Value> {
        let mut merged = json!({ "apiVersion": "v1", "kind": "Config" });
        let mut lists = [("clusters", "cluster"), ("users", "user")].map(|(list, item)| (list, item, Vec::new()));
        for (plane, name) in self.planes.iter().zip(NAMES) {
            let own: Value = serde_json::from_str(&fs::read_to_string(plane.kubeconfig_path())?)?;
            for (list, item, items) in &mut lists {
                items.push(json!({ "name": name, *item: own[*list][0][*item] }));
            }
        }
        for (list, _, items) in lists {
            merged[list] = items.into();
        }
        let context = |name| json!({ "name": name, "context": { "cluster": name, "user": name } });
        merged["contexts"] = NAMES.map(context).to_vec().into();
        Ok(merged)
    }
}

async fn start_plane() -> anyhow::Result<ControlPlane> {
    let options = control_plane::Options { dual_stack: true, ..control_plane::Options::default() };
    tokio::task::spawn_blocking(move || ControlPlane::start_with(options)).await?
}

async fn kubelet(plane: &ControlPlane, network: u8) -> anyhow::Result<FakeKubelet> {
    FakeKubelet::start(plane.client(), kubelet::Options { network, ..kubelet::Options::default() }).await
}

fn apply(plane: &ControlPlane, definition: &Path) -> anyhow::Result<()> {
    let shown = definition.display();
    let output = plane.kubectl().args(["apply", "--server-side", "-f"]).arg(definition).output();
    let output = output.with_context(|| format!("applying {shown} failed"))?;
    ensure!(output.status.success(), "applying {shown} failed: {}", String::from_utf8_lossy(&output.stderr));
    let wait = ["wait", "--for=condition=Established", "--timeout=60s", "-f"];
    let output = plane.kubectl().args(wait).arg(definition).output()?;
    ensure!(output.status.success(), "{shown} is not served: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
