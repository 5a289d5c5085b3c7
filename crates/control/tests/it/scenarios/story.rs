//! What a scenario file says.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Story {
    pub(super) about: String,
    /// Absent: faults are on. Else `off, because ...`.
    faults: Option<String>,
    pub(super) given: Vec<Value>,
    when: Vec<Step>,
    then: Then,
    /// What happens after that.
    #[serde(default)]
    next: Vec<Act>,
}

/// Things that happen, and what must be so afterwards.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Act {
    pub(super) when: Vec<Step>,
    pub(super) then: Then,
}

/// One thing that happens.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Step {
    /// Everybody does what there is to do.
    Settle,
    /// The operator ends and another one starts.
    Restart,
    /// The operator ends; what follows happens without one, until `restart`.
    Stop,
    /// The agents end: nobody speaks for the nodes any more.
    StopAgents,
    /// Notes where every address lives, for `moved_only_from`.
    Remember,
    /// Seconds go by.
    Wait(u64),
    /// An object is applied.
    Apply(Value),
    /// An object is applied, and the API server says no.
    Refused { apply: Value, says: String },
    /// `KIND NAME` is deleted.
    Delete(String),
    /// A Node changes.
    Node { name: String, ready: Option<bool>, labels: Option<Value> },
    /// The agent of a node reports a phase.
    Tunnel { name: String, phase: String },
    /// The proxy of a pod stops (`up: false`), starts again without configuration (`up: true`), or refuses ports.
    Proxy { pod: String, up: Option<bool>, refuses: Option<Vec<u16>> },
}

/// What must be so. What is not named is not looked at, save that `ledger`, `load` and `shares` are complete.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Then {
    pub(super) policies: BTreeMap<String, PolicyWord>,
    pub(super) gateways: BTreeMap<String, GatewayWord>,
    /// Every address with a claim, and its node.
    pub(super) ledger: Option<BTreeMap<String, String>>,
    /// Fields of `spec.egress` of a claim.
    pub(super) claims: BTreeMap<String, Value>,
    /// Fields of the status of an EgressTunnel.
    pub(super) tunnels: BTreeMap<String, Value>,
    /// Fields of the status of the EgressClusterInfo.
    pub(super) cluster_info: Option<Value>,
    /// The pods that the slices of a policy list.
    pub(super) slices: BTreeMap<String, Vec<String>>,
    /// How many policies each node of a gateway serves, the busiest first; idle nodes are left out.
    pub(super) load: Option<BTreeMap<String, Vec<usize>>>,
    /// How many policies each address serves.
    pub(super) shares: Option<BTreeMap<String, usize>>,
    /// The status of mesh objects, by `KIND NAMESPACE/NAME`.
    pub(super) objects: BTreeMap<String, ObjectWord>,
    /// What the proxies of pods hold.
    pub(super) proxies: BTreeMap<String, ProxyWord>,
    /// Since `remember`, only addresses of these nodes moved.
    pub(super) moved_only_from: Option<Vec<String>>,
    /// `KIND NAME` that must not exist.
    pub(super) absent: Vec<String>,
    /// `KIND NAME` that must exist.
    pub(super) present: Vec<String>,
    /// Reasons of events that were sent.
    pub(super) events: Vec<String>,
    /// How many writes follow when nothing happens, and when the operator starts once more.
    pub(super) idle_writes: Option<u64>,
}

/// What a policy's status says. `node: any` is any node, `none` is no value at all.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PolicyWord {
    pub(super) ipv4: Option<String>,
    pub(super) ipv6: Option<String>,
    pub(super) node: Option<String>,
    #[serde(flatten)]
    pub(super) conditions: Conditions,
}

/// What a gateway's status says.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct GatewayWord {
    /// All nodes, on each its addresses, for each its policies.
    pub(super) nodes: Option<BTreeMap<String, BTreeMap<String, Vec<String>>>>,
    /// The names of all nodes, and the phase of each.
    pub(super) phases: Option<BTreeMap<String, String>>,
    /// `FREE/TOTAL`.
    pub(super) ipv4_free: Option<String>,
    pub(super) ipv6_free: Option<String>,
    pub(super) policies: Option<i64>,
    #[serde(flatten)]
    pub(super) conditions: Conditions,
}

/// What the status of a mesh object says.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ObjectWord {
    /// `PROGRAMMED/MATCHED`.
    pub(super) proxies: Option<String>,
    pub(super) endpoints: Option<i64>,
    /// The objects that were generated for it, as `KIND/NAMESPACE/NAME`.
    pub(super) generated: Option<Vec<String>>,
    #[serde(flatten)]
    pub(super) conditions: Conditions,
}

/// What a proxy holds. Each list is complete.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct ProxyWord {
    /// `PROTOCOL PORT` of every listener; for each, the destinations of its rules in order: the protocol and the
    /// addresses of a cluster.
    pub(super) listeners: Option<BTreeMap<String, Vec<String>>>,
    /// The addresses of all endpoints.
    pub(super) endpoints: Option<Vec<String>>,
}

/// `Ready: true`, or `Ready: REASON` for False with that reason.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Conditions {
    #[serde(rename = "Accepted")]
    pub(super) accepted: Option<Value>,
    #[serde(rename = "ResolvedRefs")]
    pub(super) resolved_refs: Option<Value>,
    #[serde(rename = "Programmed")]
    pub(super) programmed: Option<Value>,
    #[serde(rename = "Ready")]
    pub(super) ready: Option<Value>,
    /// Part of the message of Ready, or of the first condition that is not True.
    pub(super) says: Option<String>,
}

impl Story {
    pub(super) fn read(text: &str) -> anyhow::Result<Self> {
        let value: Value = serde_saphyr::from_str(text)?;
        let story: Self = serde_json::from_value(value)?;
        let reason = story.faults.as_deref().map(|faults| faults.strip_prefix("off, because ").unwrap_or_default());
        anyhow::ensure!(
            reason.is_none_or(|reason| !reason.is_empty()),
            "faults: write `off, because ...`, or leave it out"
        );
        let last = story.acts().last().map(|act| act.then.idle_writes.is_some());
        anyhow::ensure!(last == Some(true), "the last act says nothing of idle_writes");
        Ok(story)
    }

    pub(super) const fn has_faults(&self) -> bool {
        self.faults.is_none()
    }

    pub(super) fn acts(&self) -> impl Iterator<Item = Act> {
        let first = Act { when: self.when.clone(), then: self.then.clone() };
        std::iter::once(first).chain(self.next.iter().cloned())
    }
}
