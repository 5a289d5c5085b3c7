//! The application behind sidecars of `objects/sidecar.yaml`, and who answers there.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::installation::{Installation, until};

/// Numbered packets and their answers, as the test app counted them.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) sent: u64,
    /// The numbers of those without an answer, counted from zero.
    pub(crate) lost: Vec<u64>,
    /// How many each pod answered.
    pub(crate) by_pod: BTreeMap<String, u64>,
    /// The addresses that the application was asked from.
    pub(crate) asked_from: Vec<String>,
    /// How many failed with which kind of error.
    pub(crate) errors: BTreeMap<String, u64>,
    pub(crate) slowest_error: Duration,
}

/// The application in a namespace of its own.
pub(crate) struct Application<'a> {
    pub(crate) installation: &'a Installation,
    pub(crate) namespace: &'a str,
    gateway: String,
}

impl<'a> Application<'a> {
    /// Applies its objects, changed by this function, and waits until they are in force.
    pub(crate) fn start(
        installation: &'a Installation,
        namespace: &'a str,
        change: impl FnOnce(String) -> String,
    ) -> anyhow::Result<Self> {
        installation.namespace(namespace)?;
        let objects = change(include_str!("objects/sidecar.yaml").to_owned());
        // the webhook may be between two operators: other tests replace them
        until("the objects are taken", || {
            installation.kubectl_on(&format!("apply --namespace {namespace}"), &objects).map(drop)
        })?;
        installation.kubectl(&format!("rollout status --namespace {namespace} deployment/gateway --timeout=5m"))?;
        installation.programmed(namespace, "vsvc/gateway-vsvc vsvc/app-vsvc")?;
        let gateway = installation.kubectl(&format!(
            "get pods --namespace {namespace} --selector app=gateway --output=jsonpath={{.items[0].status.podIP}}"
        ))?;
        Ok(Self { installation, namespace, gateway })
    }

    /// One that was started before, with this gateway.
    pub(crate) fn running(installation: &'a Installation, namespace: &'a str, gateway: String) -> Self {
        Self { installation, namespace, gateway }
    }

    /// The address of its gateway.
    pub(crate) fn gateway(&self) -> &str {
        &self.gateway
    }

    /// Sends packets from outside of the cluster, each from a port of its own.
    pub(crate) fn send(&self, count: u32, every_ms: u32) -> anyhow::Result<Answers> {
        Answers::of(self.sender(&count.to_string(), every_ms).spawn()?)
    }

    /// The same in the background, until [`Answers::of`] is called.
    pub(crate) fn sending(&self, every_ms: u32) -> anyhow::Result<Child> {
        Ok(self.sender("-", every_ms).stdin(Stdio::piped()).spawn()?)
    }

    fn sender(&self, count: &str, every_ms: u32) -> Command {
        let (cluster, to) = (&self.installation.cluster, format!("{}:9001", self.gateway));
        let mut sender = cluster.outside().command(cluster.test_app());
        sender.args(["send", "udp", &to, count, &every_ms.to_string()]).stdout(Stdio::piped());
        sender
    }

    /// Every packet is answered, and by so many pods.
    pub(crate) fn is_answered_by(&self, pods: usize) -> anyhow::Result<Answers> {
        let answers = self.send(30, 10)?;
        ensure!(answers.lost.is_empty() && answers.by_pod.len() == pods, "{answers:?}");
        Ok(answers)
    }

    pub(crate) fn end(self) -> anyhow::Result<()> {
        let Self { installation, namespace, .. } = self;
        installation.kubectl(&format!("delete namespace {namespace} --wait=false"))?;
        // Its pods would serve on for a while, for traffic that nobody sends any more.
        installation.kubectl(&format!("delete pods --all --namespace {namespace} --grace-period=1 --wait=false"))?;
        installation.kubectl(&format!("wait namespace/{namespace} --for=delete --timeout=5m")).map(drop)
    }
}

impl Answers {
    /// Ends the input of a sender, and waits for what it counted.
    pub(crate) fn of(sender: Child) -> anyhow::Result<Self> {
        let output = sender.wait_with_output()?;
        ensure!(output.status.success(), "the sender ended with {}", output.status);
        Self::read(&output.stdout)
    }

    /// What a sender printed.
    pub(crate) fn read(printed: &[u8]) -> anyhow::Result<Self> {
        let said: Value = serde_json::from_slice(printed)?;
        let counts =
            |field: &str| -> anyhow::Result<BTreeMap<String, u64>> { Ok(serde_json::from_value(said[field].clone())?) };
        Ok(Self {
            sent: said["sent"].as_u64().context("no number of packets")?,
            lost: serde_json::from_value(said["lost"].clone())?,
            by_pod: counts("names")?,
            asked_from: counts("peers")?.into_keys().collect(),
            errors: counts("errors")?,
            slowest_error: Duration::from_millis(said["slowestErrorMs"].as_u64().context("no duration")?),
        })
    }
}
