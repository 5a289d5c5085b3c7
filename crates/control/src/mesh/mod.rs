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
pub(crate) mod answers;
mod fleet;
mod metrics;
mod observe;
pub mod pod;
mod snapshot;
mod status;
mod tell;
mod validate;
pub mod webhooks;
mod worker;

pub use ipnet::IpNet;
pub use observe::Cache;
pub use portolan_core::mesh::control::{CrossNamespace, Domain, Settings};

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use futures::StreamExt as _;
use portolan_core::mesh::control::types::ObjectName;
use portolan_core::mesh::control::{Change, Ownership, Resolver, Touched};
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use self::act::Generating;
use self::fleet::{Fleet, Owner};
use self::metrics::Metrics;
use self::observe::Moved;
use self::status::{Owned, Reporting};
use self::tell::{Absences, Teller};
use crate::runtime::Error;
use crate::runtime::app::Ctx;
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
    /// Looks after this namespace only; empty for all.
    pub namespace: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            adopt_legacy: true,
            token_secret: "portolan-proxy".to_owned(),
            namespace: String::new(),
        }
    }
}

/// Starts the loop on the process's tasks.
pub fn start(ctx: &Ctx, registry: &mut Registry, options: Options) -> Cache {
    let mut watches = ctx.watches();
    let cache = Cache::watched(&mut watches, &options);
    let metrics = Metrics::register(registry);
    let ownership = Ownership { domain: options.settings.domain.clone(), adopt_legacy: options.adopt_legacy };
    let mesh = Mesh {
        cache: cache.clone(),
        writer: ctx.writer("mesh"),
        teller: Teller::start(ctx),
        fleet: Fleet::new(ctx.tasks.clone(), watches.waker(), ownership, metrics.clone()),
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
    /// Objects whose status may differ, and since when.
    due: BTreeMap<Owner, Instant>,
    /// Generated objects that may differ.
    generated: BTreeSet<Owner>,
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
/// A status is written at most this often.
const GATHER: Duration = Duration::from_secs(1);
/// How long a status waits for proxies that have not answered yet: nearly always they do within that time, and one
/// write tells all.
const PATIENCE: Duration = Duration::from_secs(5);
/// At most this many get their status in one turn, so that proxies never wait for long.
const PER_TURN: usize = 100;
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
        let met: BTreeSet<ObjectName> = pods.into_iter().filter(|pod| fleet.meet(pod, cache, resolver)).collect();
        for (pod, names) in std::mem::take(&mut touched.pods).into_iter().filter(|(pod, _)| !met.contains(pod)) {
            let config = resolver.desired_of(&pod, &names);
            fleet.order(&pod, names, &config);
        }
        for pod in met {
            let config = resolver.desired(&pod);
            fleet.order(&pod, config.names().collect(), &config);
        }
        generated.extend(std::mem::take(&mut touched.generated));
        let due_later = forbidden.is_some_and(|since: Instant| since + ASK_AGAIN > now);
        let mut failure = None;
        if !due_later {
            let brought = Generating { writer, teller, cache, resolver }.bring(generated).await;
            *forbidden = brought.forbidden.then_some(now);
            failure = brought.failure;
            if brought.forbidden || brought.wrote {
                join(&mut touched, resolver.change(Change::WritesGenerated(!brought.forbidden)));
            }
        }
        metrics.count(&fleet.count(), resolver.generated_count());
        // status: what the proxies answered, as far as they have
        for object in touched.objects {
            due.entry(object).or_insert(now);
        }
        let reporting = Reporting { writer, teller, metrics, cache, resolver, fleet, children };
        let (unshown, again, owned) = show(&reporting, due, shown, now).await;
        let asked = forbidden.map(|since| since + ASK_AGAIN);
        let mut again = again.into_iter().chain(later).chain(asked).min();
        for Owned { owner, child, generation } in owned {
            if children.entry(owner.clone()).or_default().insert(child, generation) != Some(generation) {
                due.entry(owner).or_insert(now);
                again = Some(now);
            }
        }
        failure = failure.or(unshown);
        if let Some(problem) = failure {
            return Err(problem);
        }
        Ok(again.map_or(Next::OnChange, |at| Next::After(at.saturating_duration_since(now))))
    }
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

/// Writes the statuses that are due; what failed, what is over the limit of a turn and what may soon be better stays.
/// Gives the first failure, when to come again, and what owners are to say.
async fn show(
    reporting: &Reporting<'_>,
    due: &mut BTreeMap<Owner, Instant>,
    shown: &mut BTreeMap<Owner, Instant>,
    now: Instant,
) -> (Option<Error>, Option<Instant>, Vec<Owned>) {
    shown.retain(|_, at| *at + GATHER > now);
    let mut again: Option<Instant> = None;
    let mut ready = Vec::new();
    for (object, since) in &*due {
        let gathered = shown.get(object).map_or(now, |at| *at + GATHER);
        let patient = if reporting.is_pending(object) { *since + PATIENCE } else { now };
        let at = gathered.max(patient);
        if at <= now && ready.len() < PER_TURN {
            ready.push((object.clone(), *since));
        } else {
            again = Some(again.map_or(at, |earlier| earlier.min(at)));
        }
    }
    let work = futures::stream::iter(ready).map(|(object, since)| async move {
        let told = reporting.one(&object).await;
        (object, since, told)
    });
    let (mut first, mut owned) = (None, Vec::new());
    for (object, since, told) in work.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await {
        match told {
            Err(problem) => {
                first.get_or_insert(problem);
            }
            Ok(told) => {
                if let Some(told) = told {
                    if told.in_force && told.wrote == Wrote::Changed {
                        reporting.metrics.lagged(since.elapsed());
                    }
                    owned.extend(told.owned);
                }
                due.remove(&object);
                shown.insert(object, now);
            }
        }
    }
    (first, again, owned)
}
