//! Agents of nodes that do not exist: their tunnels are ready while the Node is, and they hold every address that the
//! plan gives them. Everything a controller sees is as with real agents; no packet goes anywhere.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Node;
use portolan_api::address_claim::{AddressClaim, AddressClaimStatus, EgressHolding, HoldingState};
use portolan_api::egress::{EgressTunnel, EgressTunnelStatus, Phase};
use portolan_api::words::conditions::HELD;

use crate::runtime::Error;
use crate::runtime::app::Ctx;
use crate::runtime::conditions::condition;
use crate::runtime::store::{Key, Store};
use crate::runtime::turn::{Next, Turn};
use crate::runtime::watch::{Selection, Watches};
use crate::runtime::write::Writer;

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
    dirty_tunnels: BTreeSet<Key>,
    dirty_claims: BTreeSet<Key>,
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
        let mut first = Ok(Next::OnChange);
        for key in std::mem::take(&mut self.dirty_tunnels) {
            let Some(tunnel) = self.tunnels.get(&key) else { continue };
            let Some(want) = self.tunnel(&tunnel) else { continue };
            if let Err(problem) = self.writer.status(&self.tunnels, tunnel.as_ref(), &want).await {
                self.dirty_tunnels.insert(key);
                first = first.and(Err(problem));
            }
        }
        for key in std::mem::take(&mut self.dirty_claims) {
            let Some(claim) = self.claims.get(&key) else { continue };
            let Some(want) = self.holding(&claim) else { continue };
            if let Err(problem) = self.writer.status(&self.claims, claim.as_ref(), &want).await {
                self.dirty_claims.insert(key);
                first = first.and(Err(problem));
            }
        }
        first
    }
}
