//! Agents of nodes that do not exist: their tunnels are ready while the Node is, and they hold every address that the
//! plan gives them. Everything a controller sees is as with real agents; no packet goes anywhere.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::core::object::HasStatus;
use portolan_api::address_claim::{AddressClaim, AddressClaimStatus, EgressHolding, HoldingState};
use portolan_api::egress::{EgressTunnel, EgressTunnelStatus, Phase};
use portolan_api::words::conditions::HELD;
use serde::Serialize;

use portolan_control::runtime::Error;
use portolan_control::runtime::app::Ctx;
use portolan_control::runtime::conditions::condition;
use portolan_control::runtime::store::{Key, Store};
use portolan_control::runtime::turn::{Next, Turn};
use portolan_control::runtime::watch::{Kind, Selection, Watches};
use portolan_control::runtime::write::Writer;

/// Starts one loop for the agents of all nodes.
pub fn start(ctx: &Ctx) {
    let mut watches = ctx.watches();
    let agents = Agents::new(&mut watches, ctx.writer("agent"));
    ctx.tasks.spawn("simulated agents", ctx.turns("agent").run(watches, agents));
}

struct Agents {
    nodes: Store<Node>,
    tunnels: Store<EgressTunnel>,
    claims: Store<AddressClaim>,
    writer: Writer,
    /// Tunnels and claims whose word may differ, kept until it was written.
    dirty_tunnels: BTreeSet<Arc<Key>>,
    dirty_claims: BTreeSet<Arc<Key>>,
}

impl Agents {
    fn new(watches: &mut Watches, writer: Writer) -> Self {
        Self {
            nodes: watches.add(Selection::default()),
            tunnels: watches.add(Selection::default()),
            claims: watches.add(Selection::default()),
            writer,
            dirty_tunnels: BTreeSet::new(),
            dirty_claims: BTreeSet::new(),
        }
    }

    fn is_ready(&self, node: &str) -> bool {
        let node = self.nodes.get(&Key::of_cluster(node));
        let conditions = node.as_ref().and_then(|node| node.status.as_ref()?.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }

    /// What the tunnel of a node says; none while it has no number yet.
    fn tunnel(&self, tunnel: &EgressTunnel) -> Option<EgressTunnelStatus> {
        let status = tunnel.status.as_ref().filter(|status| status.mark.is_some())?;
        let ready = self.is_ready(tunnel.metadata.name.as_deref()?);
        Some(EgressTunnelStatus {
            phase: Some(if ready { Phase::Ready } else { Phase::NodeNotReady }),
            ..status.clone()
        })
    }

    /// What the holder of an address says; none when its node is dead.
    fn holding(&self, claim: &AddressClaim) -> Option<AddressClaimStatus> {
        let record = claim.spec.egress.as_ref()?;
        let node = record.node.as_ref().filter(|node| self.is_ready(node))?;
        let going = claim.metadata.deletion_timestamp.is_some();
        let (state, reason) = if going { (HoldingState::Released, "Released") } else { (HoldingState::Held, "Held") };
        let generation = claim.metadata.generation.unwrap_or_default();
        let message = format!("node `{node}` is simulated: no packet goes anywhere");
        Some(AddressClaimStatus {
            egress: Some(EgressHolding { node: Some(node.clone()), epoch: Some(record.epoch), state: Some(state) }),
            conditions: vec![condition(HELD, Some(!going), reason, message, generation)],
        })
    }
}

impl Turn for Agents {
    async fn turn(&mut self) -> Result<Next, Error> {
        let moved = self.nodes.take_changes();
        self.dirty_tunnels.extend(self.tunnels.take_changes());
        self.dirty_claims.extend(self.claims.take_changes());
        if !moved.is_empty() {
            let dirty = &mut self.dirty_claims;
            self.claims.for_each(|key, _| _ = dirty.insert(key.clone()));
            self.dirty_tunnels.extend(moved);
        }
        let of_tunnels = words(&self.tunnels, &self.dirty_tunnels, |tunnel| self.tunnel(tunnel));
        let tunnels = say(&self.writer, &self.tunnels, of_tunnels, &mut self.dirty_tunnels).await;
        let of_claims = words(&self.claims, &self.dirty_claims, |claim| self.holding(claim));
        let claims = say(&self.writer, &self.claims, of_claims, &mut self.dirty_claims).await;
        tunnels.and(claims).map(|()| Next::OnChange)
    }
}

/// An object, and what its status should say.
type Word<K> = (Arc<K>, <K as HasStatus>::Status);

fn words<K: Kind + HasStatus>(
    store: &Store<K>,
    keys: &BTreeSet<Arc<Key>>,
    word: impl Fn(&K) -> Option<K::Status>,
) -> Vec<Word<K>> {
    let seen = keys.iter().filter_map(|key| store.get(key));
    seen.filter_map(|object| Some((object.clone(), word(&object)?))).collect()
}

/// Writes the words, several at a time as nodes would; what failed is what stays dirty.
async fn say<K>(
    writer: &Writer,
    store: &Store<K>,
    words: Vec<Word<K>>,
    dirty: &mut BTreeSet<Arc<Key>>,
) -> Result<(), Error>
where
    K: Kind + HasStatus,
    K::Status: Serialize + Send + Sync,
{
    dirty.clear();
    let work = futures::stream::iter(words).map(|(object, want)| async move {
        let outcome = writer.status(store, object.as_ref(), &want).await;
        (object, outcome)
    });
    let ended: Vec<_> = work.buffer_unordered(AT_ONCE).collect().await;
    let mut first = Ok(());
    for (object, outcome) in ended {
        if let Err(problem) = outcome {
            dirty.insert(Arc::new(Key::of(object.as_ref())));
            first = first.and(Err(problem));
        }
    }
    first
}

/// How many writes are under way at a time.
const AT_ONCE: usize = 16;
