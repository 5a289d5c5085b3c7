//! What the API server recorded of the operator's requests.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom};
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::Value;

use crate::installation::Installation;

pub(crate) const OPERATOR: &str = "system:serviceaccount:portolan:portolan-operator";
/// What every replica writes, whether it leads or not.
const OF_ALL_REPLICAS: [&str; 4] =
    ["leases", "secrets", "validatingwebhookconfigurations", "mutatingwebhookconfigurations"];

/// The requests from one moment on.
pub(crate) struct Audit<'a> {
    installation: &'a Installation,
    offset: u64,
    transitions: u64,
}

impl<'a> Audit<'a> {
    pub(crate) fn begin(installation: &'a Installation) -> anyhow::Result<Self> {
        let offset = installation.cluster.audit_log().metadata()?.len();
        Ok(Self { installation, offset, transitions: transitions(installation)? })
    }

    /// Nothing was forbidden, and no two replicas wrote in turns: they lead one after the other.
    pub(crate) fn shows_one_writer_at_a_time(self) -> anyhow::Result<()> {
        let requests = requests(&self.installation.cluster.audit_log(), self.offset, OPERATOR)?;
        nothing_was_forbidden(&requests)?;

        let is_write = |request: &&Value| {
            let verb = request["verb"].as_str().unwrap_or_default();
            let resource = request["objectRef"]["resource"].as_str().unwrap_or_default();
            ["create", "update", "patch", "delete"].contains(&verb) && !OF_ALL_REPLICAS.contains(&resource)
        };
        let mut writes = requests.iter().filter(is_write).map(written).collect::<anyhow::Result<Vec<_>>>()?;
        writes.sort_unstable();
        let mut writers: Vec<&str> = writes.iter().map(|(_, writer)| *writer).collect();
        writers.dedup();
        let led = transitions(self.installation)?.saturating_sub(self.transitions) + 1;
        ensure!(writers.len() > 1, "only {writers:?} wrote: nothing is shown by that");
        ensure!(u64::try_from(writers.len())? <= led, "{writers:?} wrote in turns, and leadership changed {led} times");
        Ok(())
    }
}

/// What a user asked for, as recorded from this offset on.
pub(crate) fn requests(log: &Path, offset: u64, user: &str) -> anyhow::Result<Vec<Value>> {
    let mut file = File::open(log)?;
    file.seek(SeekFrom::Start(offset))?;
    let mut requests = Vec::new();
    for line in BufReader::new(file).lines() {
        // the last line may not be whole yet
        let Ok(request) = serde_json::from_str::<Value>(&line?) else { continue };
        if request["user"]["username"] == user {
            requests.push(request);
        }
    }
    Ok(requests)
}

pub(crate) fn nothing_was_forbidden(requests: &[Value]) -> anyhow::Result<()> {
    // 403 is also the answer for an object in a namespace that is being deleted, and then the role allows it.
    let is_forbidden = |request: &&Value| {
        request["responseStatus"]["code"] == 403
            && request["annotations"]["authorization.k8s.io/decision"].as_str() != Some("allow")
    };
    let forbidden = requests.iter().find(is_forbidden);
    ensure!(forbidden.is_none(), "the operator lacks a permission: {forbidden:#?}");
    Ok(())
}

/// When a write was received, and from which pod.
fn written(request: &Value) -> anyhow::Result<(&str, &str)> {
    let pod = &request["user"]["extra"]["authentication.kubernetes.io/pod-name"][0];
    let received = request["requestReceivedTimestamp"].as_str();
    received.zip(pod.as_str()).with_context(|| format!("no time or pod in {request}"))
}

/// How often the Lease changed hands.
fn transitions(installation: &Installation) -> anyhow::Result<u64> {
    let lease = "get lease --namespace portolan portolan-operator --output=jsonpath={.spec.leaseTransitions}";
    Ok(installation.kubectl(lease)?.trim().parse()?)
}
