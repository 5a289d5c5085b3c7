//! A second cluster beside the shared one, and its Service mirrored there.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use anyhow::{Context as _, ensure};
use parking_lot::{Mutex, MutexGuard};
use portolan_testkit::cluster::{Cluster, Host, NetworkPlan, Options};
use serde_json::{Value, json};

use crate::installation::{Installation, kubectl, until, workspace};
use crate::traffic::Answers;

/// Both protocols over both families, as positions in a list of addresses, IPv4 first.
pub(crate) const WAYS: [(&str, usize); 4] = [("tcp", 0), ("udp", 0), ("tcp", 1), ("udp", 1)];
/// The port on every node of the remote: see `objects/remote.yaml`.
const NODE_PORT: u16 = 30080;

/// The second cluster, connected to the shared one, with an application.
pub(crate) struct Remote {
    pub(crate) cluster: Cluster,
}

impl Remote {
    /// For one test at a time. It leaves the nodes as they were.
    pub(crate) fn alone() -> anyhow::Result<MutexGuard<'static, Self>> {
        static ONLY: OnceLock<Result<Mutex<Remote>, String>> = OnceLock::new();
        let only = ONLY.get_or_init(|| Self::make().map(Mutex::new).map_err(|error| format!("{error:#}")));
        Ok(only.as_ref().map_err(|error| anyhow::anyhow!("preparing a second cluster failed: {error}"))?.lock())
    }

    fn make() -> anyhow::Result<Self> {
        let options = Options { nodes: 2, network: NetworkPlan::new(1), ..Options::default() };
        let remote = Self { cluster: Cluster::start(options)? };
        remote.kubectl(&format!("apply --filename={}", workspace("examples/mirror/remote-rbac.yaml")))?;
        remote.kubectl(&format!("apply --filename={}", workspace("crates/cli/tests/cluster/objects/remote.yaml")))?;
        Installation::shared()?.cluster.connect(&remote.cluster)?;
        remote.kubectl("rollout status --namespace shop deployment/echo --timeout=5m")?;
        Ok(remote)
    }

    pub(crate) fn kubectl(&self, line: &str) -> anyhow::Result<String> {
        kubectl(&self.cluster, line)
    }

    /// The kubeconfig that the guide has, with the token of the account that may read what is mirrored.
    fn kubeconfig(&self) -> anyhow::Result<String> {
        let secret = |output: &str| {
            self.kubectl(&format!("get secret --namespace kube-system portolan-mirror --output={output}"))
        };
        let mut token = String::new();
        until("the account has a token", || {
            token = secret("go-template={{.data.token|base64decode}}")?;
            Ok(())
        })?;
        let authority = secret("jsonpath={.data.ca\\.crt}")?;
        let cluster = json!({ "server": self.cluster.server(), "certificate-authority-data": authority });
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "east",
            "contexts": [{ "name": "east", "context": { "cluster": "east", "user": "east" } }],
            "clusters": [{ "name": "east", "cluster": cluster }],
            "users": [{ "name": "east", "user": { "token": token } }],
        });
        Ok(config.to_string())
    }

    /// Counts new connections and datagrams to the Service's port at every node.
    fn count_arrivals(&self) -> anyhow::Result<()> {
        let table = format!(
            "table inet arrivals {{ }}; delete table inet arrivals; table inet arrivals {{ counter calls {{ }}; \
             chain prerouting {{ type filter hook prerouting priority raw; \
             tcp dport {NODE_PORT} tcp flags & (syn | ack) == syn counter name calls; \
             udp dport {NODE_PORT} counter name calls; }}; }}"
        );
        self.cluster.nodes().try_for_each(|(_, host)| host.run(&["nft", &table]).map(drop))
    }

    /// How many arrived at each node so far.
    pub(crate) fn arrivals(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let at = |host: &Host| -> anyhow::Result<u64> {
            let shown = host.run(&["nft", "--json", "list", "counter", "inet", "arrivals", "calls"])?;
            let shown: Value = serde_json::from_str(&shown)?;
            shown["nftables"][1]["counter"]["packets"].as_u64().with_context(|| format!("no counter in {shown}"))
        };
        self.cluster.nodes().map(|(plan, host)| Ok((plan.name.clone(), at(host)?))).collect()
    }
}

/// The remote's Service, mirrored in the shared cluster, and a pod there that calls it.
pub(crate) struct Mirror<'a> {
    installation: &'a Installation,
    /// The namespace of the pod.
    clients: &'a str,
    addresses: [String; 2],
}

impl<'a> Mirror<'a> {
    /// Names the remote, and waits until the pod, in a namespace of its own, can call the Service.
    pub(crate) fn start(installation: &'a Installation, remote: &Remote, clients: &'a str) -> anyhow::Result<Self> {
        remote.count_arrivals()?;
        let mut mirror = Self { installation, clients, addresses: <_>::default() };
        let config = tempfile::NamedTempFile::new()?;
        std::fs::write(config.path(), remote.kubeconfig()?)?;
        installation.kubectl(&format!(
            "create secret generic east --namespace portolan --from-file=kubeconfig={}",
            config.path().display()
        ))?;
        let hosts = json!(remote.cluster.network().hosts()).to_string();
        let objects = include_str!("objects/mirror.yaml").replace("[HOSTS]", &hosts).replace("CLIENTS", clients);
        installation.kubectl_on("apply", &objects)?;
        installation
            .kubectl("wait rcluster/east --for=condition=Ready --timeout=5m")
            .or_else(|error| anyhow::bail!("{error:#}\n{}", installation.kubectl("describe rcluster east")?))?;
        installation.kubectl(&format!("wait pod/client --namespace {clients} --for=condition=Ready --timeout=5m"))?;
        let shown = installation.kubectl("get service --namespace shop echo --output=jsonpath={.spec.clusterIPs}")?;
        let [v4, v6]: [String; 2] = serde_json::from_str(&shown).with_context(|| shown.clone())?;
        mirror.addresses = [format!("{v4}:80"), format!("[{v6}]:80")];
        for way in WAYS {
            until(&format!("{way:?} answers"), || mirror.is_answered(way, 2).map(drop))?;
        }
        Ok(mirror)
    }

    /// Calls the mirror's clusterIP from the pod, each time with a socket of its own.
    pub(crate) fn call(&self, (protocol, family): (&str, usize), count: u32) -> anyhow::Result<Answers> {
        let (clients, to) = (self.clients, &self.addresses[family]);
        let app = "/usr/bin/portolan-testapp";
        let line = format!("exec --namespace {clients} client -- {app} send {protocol} {to} {count} 5");
        Answers::read(self.installation.kubectl(&line)?.as_bytes())
    }

    /// Every call is answered, and by the remote's pod.
    pub(crate) fn is_answered(&self, way: (&str, usize), count: u32) -> anyhow::Result<Answers> {
        let answers = self.call(way, count)?;
        let by_remote = answers.by_pod.keys().eq(["the-remote-pod"]);
        ensure!(answers.lost.is_empty() && by_remote, "{way:?}: {answers:?}");
        Ok(answers)
    }

    /// The addresses that the mirror leads to.
    pub(crate) fn endpoints(&self) -> anyhow::Result<String> {
        let line = "get endpointslices --namespace shop --output=jsonpath={.items[*].endpoints[*].addresses[*]}";
        self.installation.kubectl(line)
    }

    pub(crate) fn end(self) -> anyhow::Result<()> {
        self.remove()
    }

    fn remove(&self) -> anyhow::Result<()> {
        self.installation.kubectl("delete rcluster east --ignore-not-found")?;
        self.installation.kubectl("delete secret east --namespace portolan --ignore-not-found")?;
        // The garbage collector would do so a little later.
        self.installation.kubectl("delete service --namespace shop echo --ignore-not-found")?;
        let namespace = format!("delete namespace {} --wait=false --ignore-not-found", self.clients);
        self.installation.kubectl(&namespace).map(drop)
    }
}

/// A test that fails must not make others fail.
impl Drop for Mirror<'_> {
    fn drop(&mut self) {
        drop(self.remove());
    }
}
