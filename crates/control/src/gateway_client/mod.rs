//! Gateway client: Services of this cluster that a provider's gateway serves, on a public address of its own.
//!
//! ```text
//!   Service, EndpointSlice, Node --watch--> Cache --validate--> Model: World --decide--> Decisions
//!   gateway --answers, lists-------------------------------------^                         |
//!     ^                                                                                    |
//!     '-- calls: read, create, put endpoints, delete <------------ act --------------------'
//!         finalizers, addresses and conditions of Services <--------'
//! ```
//! The names of load balancers follow from cluster and Service, and nothing is stored: whatever a crash left at the gateway
//! is found by its name. What is not known is read before anything is changed.

mod act;
mod doctor;
mod events;
mod kinds;
mod login;
mod metrics;
mod model;
mod observe;
mod options;
mod pauses;
mod query;
mod settings;
mod status;
mod validate;

use std::collections::BTreeSet;

pub use observe::Cache;
use portolan_core::gateway_client::{ClusterKey, ServiceName};
pub use portolan_drivers::gateway::GroupUrl;
use prometheus_client::registry::Registry;
pub use settings::Options;
use tracing::warn;

use self::act::{Tools, Writes};
use self::login::Access;
use self::metrics::Metrics;
use self::model::Model;
use crate::runtime::app::Ctx;
use crate::runtime::capability::Capability;
use crate::runtime::due::WriteQueues;
use crate::runtime::events::Recorder;
use crate::runtime::lease::Term;
use crate::runtime::reconcile::{Next, Reconciler};
use crate::runtime::write::Writer;

/// The gateway client as a value.
pub const CAPABILITY: Capability = Capability {
    name: "gateway-client",
    description: "In, from a gateway elsewhere: public addresses for Services of this cluster",
    by_default: false,
    kinds: kinds::KINDS,
    options: <options::GatewayClientArgs as clap::Args>::augment_args,
    configure: options::configure,
    admission: None,
    queries: query::QUERIES,
};

/// Starts the loop on the process's tasks.
pub fn start(ctx: &Ctx, registry: &mut Registry, options: Options) -> Cache {
    let mut watches = ctx.watches();
    let cache = Cache::watched(&mut watches, &options);
    let client = GatewayClientLoop {
        cache: cache.clone(),
        writer: ctx.writer("gateway-client"),
        recorder: ctx.recorder("gateway-client"),
        metrics: Metrics::register(registry),
        queues: ctx.write_queues(&watches),
        options,
        term: None,
    };
    ctx.tasks.spawn("gateway-client", ctx.reconciles("gateway-client").run(watches, client));
    cache
}

struct GatewayClientLoop {
    cache: Cache,
    writer: Writer,
    recorder: Recorder,
    metrics: Metrics,
    queues: WriteQueues,
    options: Options,
    /// None while another replica leads.
    term: Option<TermState>,
}

/// What this replica knows and has yet to do since it began to lead.
struct TermState {
    /// None until the cluster is known.
    model: Option<Model>,
    access: Access,
    writes: Writes,
}

impl Reconciler for GatewayClientLoop {
    fn begin(&mut self, term: &Term) {
        let writes = Writes::new(&self.queues, &self.options, term.clone());
        self.term = Some(TermState { model: None, access: Access::default(), writes });
    }

    fn end(&mut self) {
        self.term = None;
        self.metrics.forget();
    }

    async fn reconcile(&mut self) -> Next {
        let Self { cache, writer, recorder, metrics, options, term, .. } = self;
        let Some(TermState { model, access, writes }) = term else { return Next::OnChange };

        // observe, validate (no client)
        let mut changes = cache.take_changes();
        if model.is_none() {
            let Some(id) = options.cluster_id.clone().or_else(|| cache.cluster_uid()) else {
                warn!("gateway-client waits: there is no namespace kube-system, so set --gateway-client-cluster-id");
                return Next::OnChange;
            };
            changes = cache.all();
            *model = Some(Model::new(ClusterKey::new(&id), options.url.group()));
        }
        let Some(model) = model else { return Next::OnChange };
        let mut touched = model.follow(cache, &changes);
        if access.follow(cache.login(options).as_deref(), options) {
            writes.login_changed();
            touched.extend(model.world.services.keys().cloned());
        }

        // decide (no client; cannot fail)
        decide(model, writes, metrics, &touched);

        // act, status (client): each Service by itself
        let tools = Tools { writer, recorder, cache, metrics, client: access.client() };
        let touched = writes.act(&tools, model).await;
        decide(model, writes, metrics, &touched);
        Next::at_earliest([writes.next_due(access.client().is_ok())])
    }
}

fn decide(model: &mut Model, writes: &mut Writes, metrics: &Metrics, touched: &BTreeSet<ServiceName>) {
    if !touched.is_empty() {
        model.decide(touched);
        writes.add(touched, model);
        metrics.show(model.decisions.values());
    }
}
