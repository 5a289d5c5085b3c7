//! Agents of nodes that do not exist: their tunnels are ready while the Node is, and they hold every address that the
//! plan gives them. Everything a controller sees is as with real agents; no packet goes anywhere.

use std::sync::Arc;

use kube::core::object::HasStatus;
use portolan_api::address_claim::{AddressClaim, AddressClaimStatus, EgressHolding, HoldingState};
use portolan_api::egress::{EgressTunnel, EgressTunnelStatus, Phase};
use portolan_api::well_known::conditions::HELD;
use portolan_apiserver::controllers::slim::Node;
use serde::Serialize;

use portolan_control::runtime::app::Ctx;
use portolan_control::runtime::conditions::condition;
use portolan_control::runtime::due::{DueWrites, Pace, Prepared, WriteQueues};
use portolan_control::runtime::reconcile::{Next, Reconciler};
use portolan_control::runtime::store::{Key, Store};
use portolan_control::runtime::watch::{Kind, Selection, Watches};
use portolan_control::runtime::write::Writer;

/// Starts one loop for the agents of all nodes.
pub fn start(ctx: &Ctx) {
    let mut watches = ctx.watches();
    let queues = ctx.write_queues(&watches);
    let agents = Agents { seen: Seen::new(&mut watches), writer: ctx.writer("agent"), due: Due::new(&queues) };
    ctx.tasks.spawn("simulated agents", ctx.reconciles("agent").run(watches, agents));
}

struct Agents {
    seen: Seen,
    writer: Writer,
    due: Due,
}

/// Tunnels and claims whose status may differ.
struct Due {
    tunnels: DueWrites<Arc<Key>>,
    claims: DueWrites<Arc<Key>>,
}

impl Due {
    fn new(queues: &WriteQueues) -> Self {
        Self {
            tunnels: queues.queue("simulated tunnels", Pace::URGENT),
            claims: queues.queue("simulated claims", Pace::URGENT),
        }
    }
}

struct Seen {
    nodes: Store<Node>,
    tunnels: Store<EgressTunnel>,
    claims: Store<AddressClaim>,
}

impl Seen {
    fn new(watches: &mut Watches) -> Self {
        Self {
            nodes: watches.add(Selection::default()),
            tunnels: watches.add(Selection::default()),
            claims: watches.add(Selection::default()),
        }
    }

    fn is_ready(&self, node: &str) -> bool {
        self.nodes.get(&Key::of_cluster(node)).is_some_and(|node| node.is_ready())
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
            cloud: None,
            conditions: vec![condition(HELD, Some(!going), reason, message, generation)],
        })
    }
}

impl Reconciler for Agents {
    async fn reconcile(&mut self) -> Next {
        let Self { seen, writer, due } = self;
        let moved = seen.nodes.take_changes();
        due.tunnels.extend(seen.tunnels.take_changes());
        due.claims.extend(seen.claims.take_changes());
        if !moved.is_empty() {
            seen.claims.for_each(|key, _| due.claims.add(key.clone()));
            due.tunnels.extend(moved);
        }
        due.tunnels.pass(|key, _| prepare(writer, &seen.tunnels, key, |tunnel| seen.tunnel(tunnel))).await;
        due.claims.pass(|key, _| prepare(writer, &seen.claims, key, |claim| seen.holding(claim))).await;
        Next::at_earliest([due.tunnels.next_due(), due.claims.next_due()])
    }
}

/// Writes what an agent would say of an object.
fn prepare<K>(
    writer: &Writer,
    store: &Store<K>,
    key: &Key,
    status: impl FnOnce(&K) -> Option<K::Status>,
) -> Prepared<()>
where
    K: Kind + HasStatus,
    K::Status: Serialize + Send + Sync + 'static,
{
    let Some(object) = store.get(key) else { return Prepared::Nothing };
    let Some(want) = status(&object) else { return Prepared::Nothing };
    let (writer, store) = (writer.clone(), store.clone());
    Prepared::write(async move { writer.status(&store, object.as_ref(), &want).await.map(drop) })
}
