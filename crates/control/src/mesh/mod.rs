//! Mesh: VirtualServices, Routes and Targets become listeners, routes and clusters on the proxies of pods.
//!
//! ```text
//!   VirtualService --rules--> Route --hops--> Target      users write these, in any dialect
//!   Service, EndpointSlice, Pod, Namespace                what names stand for
//!          |
//!          v
//!   resolve (core::mesh::control): pure, change by change
//!          |--> generated VirtualServices and Targets     what names make necessary
//!          |--> what every proxy should hold --> fleet: one task per proxy, over its REST API
//!          '--> verdicts ------------------------------> status, with what the proxies answered
//! ```
//!
//! Proxies hold nothing that matters: what they hold is read from them and compared. A replica that begins to lead looks
//! at all of them.

mod act;
mod fleet;
mod kinds;
mod metrics;
mod observe;
mod options;
pub mod pod;
mod query;
mod snapshot;
mod status;
mod tell;
mod validate;
pub mod webhooks;
mod worker;

pub use ipnet::IpNet;
pub use observe::Cache;
pub use portolan_core::mesh::control::{CrossNamespace, Domain, Settings};
pub use portolan_drivers::l7mp::{BadFile, TlsFiles};

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use portolan_core::mesh::control::types::ObjectName;
use portolan_core::mesh::control::{Change, ProxyFacts, Resolver, Touched};
use prometheus_client::registry::Registry;
use rustls::ClientConfig;
use tokio::time::Instant;
use tracing::debug;

use self::act::{Brought, Generating};
use self::fleet::{Fleet, Met, Owner};
use self::metrics::Metrics;
use self::observe::Moved;
use self::status::{Owned, Reporting};
use self::tell::{Absences, Teller};
use crate::runtime::Error;
use crate::runtime::app::Ctx;
use crate::runtime::backoff::Backoff;
use crate::runtime::capability::Capability;
use crate::runtime::turn::{Next, Turn};
use crate::runtime::write::{Writer, Wrote};

/// How the mesh runs.
#[derive(Debug, Clone)]
pub struct Options {
    pub settings: Settings,
    /// Objects of the operator that l7mp shipped are taken over on proxies.
    pub adopt_legacy: bool,
    /// Name of the Secret with the token of a namespace's proxies.
    pub token_secret: String,
    /// Proxies are spoken to with TLS: whom to trust, and who we are.
    pub proxy_tls: Option<Arc<ClientConfig>>,
    /// Looks after this namespace only; empty for all.
    pub namespace: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            adopt_legacy: true,
            token_secret: "portolan-proxy".to_owned(),
            proxy_tls: None,
            namespace: String::new(),
        }
    }
}

/// The mesh as a value.
pub const CAPABILITY: Capability = Capability {
    name: "mesh",
    description: "Through: routes between protocols inside the cluster",
    kinds: kinds::KINDS,
    options: <options::MeshArgs as clap::Args>::augment_args,
    configure: options::configure,
    admission: Some(webhooks::ADMISSION),
    queries: query::QUERIES,
};

/// Starts the loop on the process's tasks.
pub fn start(ctx: &Ctx, registry: &mut Registry, options: Options) -> Cache {
    let mut watches = ctx.watches();
    let cache = Cache::watched(&mut watches, &options);
    let metrics = Metrics::register(registry);
    let mesh = Mesh {
        cache: cache.clone(),
        writer: ctx.writer("mesh"),
        teller: Teller::start(ctx),
        fleet: Fleet::new(ctx.tasks.clone(), watches.waker(), &options, metrics.clone()),
        metrics,
        options,
        term: Term::default(),
    };
    ctx.tasks.spawn("mesh", ctx.turns("mesh").run(watches, mesh));
    cache
}

struct Mesh {
    cache: Cache,
    writer: Writer,
    teller: Teller,
    fleet: Fleet,
    metrics: Metrics,
    options: Options,
    term: Term,
}

/// What this replica knows and has yet to do since it began to lead.
#[derive(Default)]
struct Term {
    /// None until something was resolved.
    resolver: Option<Resolver>,
    /// Objects whose status may differ.
    due: BTreeMap<Owner, Due>,
    /// Generated objects that may differ.
    generated: BTreeMap<Owner, Due>,
    /// When the API server last did not let us write them.
    forbidden: Option<Instant>,
    /// When the status of each was written last, within the last second.
    shown: BTreeMap<Owner, Instant>,
    /// What owners are to say of those they own, by the name that the shipped operator has for these.
    children: BTreeMap<Owner, BTreeMap<String, i64>>,
    absences: Absences,
}

/// How often it is tried whether generated objects may be written by now.
const ASK_AGAIN: Duration = Duration::from_mins(1);

/// A write that is yet to be made. One that failed is tried again by itself: nothing else waits for it.
#[derive(Debug, Clone, Copy)]
struct Due {
    since: Instant,
    not_before: Instant,
    tries: u32,
}

impl Due {
    fn at(now: Instant) -> Self {
        Self { since: now, not_before: now, tries: 0 }
    }

    fn failed(&mut self, problem: &Error) {
        debug!(%problem, "a write failed and is tried again");
        let Backoff { first, most } =
            if matches!(problem, Error::Conflict { .. }) { Backoff::CONFLICTS } else { Backoff::REQUESTS };
        let pause = (first * 2_u32.saturating_pow(self.tries)).min(most).mul_f64(1.0 + fastrand::f64());
        self.not_before = Instant::now() + pause.max(problem.retry_after().unwrap_or_default());
        self.tries += 1;
    }
}

/// A status is written at most this often.
const GATHER: Duration = Duration::from_secs(1);
/// How long a status waits for proxies that have not answered yet: nearly always they do within that time, and one
/// write tells all.
const PATIENCE: Duration = Duration::from_secs(5);
/// About this many statuses, and as many generated objects, are written in one turn, so that proxies never wait for
/// long.
const PER_TURN: usize = 64;
/// Statuses that are written at once.
const AT_ONCE: usize = 16;

impl Turn for Mesh {
    fn begin(&mut self) {
        self.term = Term::default();
        self.metrics.forget();
        self.fleet.disband();
    }

    async fn turn(&mut self) -> Result<Next, Error> {
        let now = Instant::now();
        let Self { cache, writer, teller, fleet, metrics, options, term } = self;
        let Term { resolver, due, generated, forbidden, shown, children, absences } = term;
        // observe, validate, plan (no client; cannot fail): a bad object steps aside, what cannot be met is in its verdict
        let (resolver, mut touched, pods) = followed(resolver, cache, &options.settings, teller);
        for news in fleet.news() {
            teller.news(cache, &news);
            touched.objects.extend(news.about);
            if let Some(facts) = news.facts {
                join(&mut touched, resolver.change(Change::Proxy(news.pod, Some(facts))));
            }
        }
        let later = absences.follow(fleet, now, |pod, presence| teller.presence(cache, pod, presence));
        metrics.thought(now.elapsed());
        // act: what proxies should hold is told to their tasks, which nobody waits for
        let mut met = BTreeSet::new();
        for pod in pods {
            match fleet.meet(&pod, cache, resolver) {
                Met::New => drop(met.insert(pod)),
                Met::Gone if resolver.world().proxies.contains_key(&pod) => {
                    join(&mut touched, resolver.change(Change::Proxy(pod, None)));
                }
                Met::Known | Met::Gone => {}
            }
        }
        for (pod, names) in std::mem::take(&mut touched.pods).into_iter().filter(|(pod, _)| !met.contains(pod)) {
            let config = resolver.desired_of(&pod, &names);
            fleet.order(&pod, names, &config, taken_for(resolver, &pod));
        }
        for pod in met {
            let config = resolver.desired(&pod);
            fleet.order(&pod, config.names().collect(), &config, taken_for(resolver, &pod));
        }
        for object in std::mem::take(&mut touched.generated) {
            generated.entry(object).or_insert(Due::at(now)).not_before = now;
        }
        let asked = forbidden.map(|since: Instant| since + ASK_AGAIN).filter(|at| *at > now);
        let mut again = asked.into_iter().chain(later).min();
        if asked.is_none() {
            let generating = Generating { writer, teller, cache, resolver };
            let (brought, rest) = bring(&generating, generated, now).await;
            *forbidden = brought.forbidden.then_some(now);
            let asked = forbidden.map(|since| since + ASK_AGAIN);
            again = again.into_iter().chain(asked.or(rest)).min();
            if brought.forbidden || brought.wrote {
                join(&mut touched, resolver.change(Change::WritesGenerated(!brought.forbidden)));
            }
        }
        metrics.count(&fleet.count(), resolver.generated_count());
        // status: what the proxies answered, as far as they have
        for object in touched.objects {
            due.entry(object).or_insert(Due::at(now));
        }
        let reporting = Reporting { writer, teller, metrics, cache, resolver, fleet, children };
        let (rest, owned) = show(&reporting, due, shown, now).await;
        let mut again = again.into_iter().chain(rest).min();
        for Owned { owner, child, generation } in owned {
            if children.entry(owner.clone()).or_default().insert(child, generation) != Some(generation) {
                due.entry(owner).or_insert(Due::at(now));
                again = Some(now);
            }
        }
        Ok(again.map_or(Next::OnChange, |at| Next::After(at.saturating_duration_since(Instant::now()))))
    }
}

/// What is known of a proxy, or else taken for granted.
fn taken_for(resolver: &Resolver, pod: &ObjectName) -> ProxyFacts {
    resolver.world().proxies.get(pod).cloned().unwrap_or_default()
}

/// Follows what moved: what that touches, and the pods whose proxies may be others now. At first that is everything.
fn followed<'a>(
    resolver: &'a mut Option<Resolver>,
    cache: &Cache,
    settings: &Settings,
    teller: &Teller,
) -> (&'a mut Resolver, Touched, Vec<ObjectName>) {
    let Some(resolver) = resolver else {
        let resolver = resolver.insert(Resolver::new(cache.world(settings)));
        let pods = resolver.world().pods.keys().cloned().collect();
        let touched = resolver.everything();
        return (resolver, touched, pods);
    };
    let Moved { changes, pods, secrets, api_server } = cache.moved();
    let mut touched = Touched::default();
    // a node that goes stays out of reach: its address may be given again
    let mut nodes: BTreeSet<IpAddr> = changes.iter().flat_map(host_addresses).copied().collect();
    nodes.retain(|address| !resolver.world().settings.nodes.contains(address));
    if api_server || !nodes.is_empty() {
        nodes.extend(&resolver.world().settings.nodes);
        let api_servers = cache.api_servers(settings);
        join(&mut touched, resolver.change(Change::Machinery { api_servers, nodes }));
    }
    for change in changes {
        let withdrawn = tell::before(resolver, &change);
        join(&mut touched, resolver.change(change));
        if let Some(withdrawn) = withdrawn.and_then(|withdrawn| tell::after(resolver, withdrawn)) {
            teller.withdrawn(withdrawn);
        }
    }
    let pods = if secrets { resolver.world().pods.keys().cloned().collect() } else { pods };
    (resolver, touched, pods)
}

fn host_addresses(change: &Change) -> &[IpAddr] {
    if let Change::Pod(_, Some(pod)) = change { &pod.host_addresses } else { &[] }
}

fn join(all: &mut Touched, more: Touched) {
    for (pod, names) in more.pods {
        all.pods.entry(pod).or_default().extend(names);
    }
    all.objects.extend(more.objects);
    all.generated.extend(more.generated);
}

/// Writes the generated objects that are due; says what became of it, and when to come again for the rest.
async fn bring(
    generating: &Generating<'_>,
    due: &mut BTreeMap<Owner, Due>,
    now: Instant,
) -> (Brought, Option<Instant>) {
    let ready = due.iter().filter(|(_, due)| due.not_before <= now).map(|(object, _)| object.clone());
    let ready: BTreeSet<Owner> = ready.take(PER_TURN).collect();
    let mut left = ready.clone();
    let brought = generating.bring(&mut left).await;
    for object in ready {
        match (&brought.failure, due.get_mut(&object)) {
            (Some(problem), Some(due)) if left.contains(&object) => due.failed(problem),
            (None, Some(_)) if left.contains(&object) => {}
            _ => drop(due.remove(&object)),
        }
    }
    let next = due.values().map(|due| due.not_before).min();
    (brought, next)
}

/// Writes the statuses that are due; what failed, what is over the limit of a turn and what may soon be better stays.
/// Says when to come again, and what owners are to say.
async fn show(
    reporting: &Reporting<'_>,
    due: &mut BTreeMap<Owner, Due>,
    shown: &mut BTreeMap<Owner, Instant>,
    now: Instant,
) -> (Option<Instant>, Vec<Owned>) {
    shown.retain(|_, at| *at + GATHER > now);
    let mut again: Option<Instant> = None;
    let mut come_at = |at: Instant| again = Some(again.map_or(at, |earlier| earlier.min(at)));
    let mut ready = Vec::new();
    for (object, Due { since, not_before, .. }) in &*due {
        let gathered = shown.get(object).map_or(now, |at| *at + GATHER);
        let patient = if reporting.is_pending(object) { *since + PATIENCE } else { now };
        let at = gathered.max(patient).max(*not_before);
        if at <= now {
            ready.push((object.clone(), *since));
        } else {
            come_at(at);
        }
    }
    let (mut written, mut owned) = (0, Vec::new());
    for some in ready.chunks(AT_ONCE) {
        if written >= PER_TURN {
            come_at(now);
            break;
        }
        let told = futures::future::join_all(some.iter().map(|(object, _)| reporting.one(object))).await;
        for ((object, since), told) in some.iter().zip(told) {
            let wrote = told.as_ref().map(|told| told.as_ref().map_or(Wrote::Unchanged, |told| told.wrote));
            written += usize::from(!matches!(wrote, Ok(Wrote::Unchanged)));
            match told {
                Err(problem) => {
                    if let Some(due) = due.get_mut(object) {
                        due.failed(&problem);
                        come_at(due.not_before);
                    }
                }
                Ok(told) => {
                    if let Some(told) = told {
                        if told.in_force && told.wrote == Wrote::Changed {
                            reporting.metrics.lagged(since.elapsed());
                        }
                        owned.extend(told.owned);
                    }
                    due.remove(object);
                    shown.insert(object.clone(), now);
                }
            }
        }
    }
    (again, owned)
}
