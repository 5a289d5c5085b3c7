//! Envoys as Deployments: a loop of its own that brings the objects of each unit to what they should be, and removes
//! those of units that are not wanted once they have drained. The label of the objects is the record of which there
//! are, so nothing is lost or left by a restart.

mod authority;
mod networks;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use portolan_core::gateway::unit::{Unit, UnitId};
use portolan_drivers::envoy::{Server, Units};
use rustls::ServerConfig;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::time::Instant;

use self::authority::Keeper;
use self::networks::Networks;
use super::super::envoys::manifest::{self, Identity, UNIT_LABEL};
use super::super::envoys::networks::attachment;
use super::super::envoys::{DeploymentOptions, DeploymentProxies, Found, UnitProblem, is_same, pods};
use crate::runtime::app::Ctx;
use crate::runtime::backoff::{Backoff, Delays};
use crate::runtime::due::{DueWrites, Pace, Prepared, WriteQueues};
use crate::runtime::error::Error;
use crate::runtime::lease::Term;
use crate::runtime::problem::cleaned;
use crate::runtime::reconcile::{Next, Reconciler};
use crate::runtime::store::{Key, Store};
use crate::runtime::watch::{Kind, Selection, Watches};
use crate::runtime::write::Writer;

pub(in super::super) use self::authority::PURPOSE;

/// Everything is looked at this often, for what only time changes: certificates.
const LOOK_AT_ALL: Duration = Duration::from_mins(1);

/// Starts the loop that runs Envoys as Deployments, for a gateway that is given `proxies`; and the server that they connect
/// to, whose address is given back.
pub fn start(ctx: &Ctx, proxies: DeploymentProxies, options: DeploymentOptions) -> io::Result<SocketAddr> {
    let listener = std::net::TcpListener::bind(options.xds_listen)?;
    listener.set_nonblocking(true)?;
    let (address, listener) = (listener.local_addr()?, TcpListener::from_std(listener)?);
    let server = Server { listener, fleet: proxies.fleet().clone(), identify: manifest::identify };
    ctx.tasks.spawn("xds server", server.run(ctx.tasks.stop().cancelled_owned()));
    let mut watches = ctx.watches_that_wake(proxies.look());
    let envoys = Envoys {
        objects: Objects::watched(&mut watches, &options.namespace),
        networks: options.multus.then(|| Networks::watched(&mut watches)),
        writer: ctx.writer("gateway"),
        queues: ctx.write_queues(&watches),
        authority: Keeper::new(ctx.client.clone(), &options.namespace, options.schedule),
        delays: Backoff::REQUESTS.delays(),
        proxies,
        options,
        tls: None,
        term: None,
    };
    ctx.tasks.spawn("gateway envoys", ctx.reconciles("gateway").run(watches, envoys));
    Ok(address)
}

struct Envoys {
    objects: Objects,
    /// None without Multus.
    networks: Option<Networks>,
    writer: Writer,
    queues: WriteQueues,
    authority: Keeper,
    delays: Delays,
    proxies: DeploymentProxies,
    options: DeploymentOptions,
    /// What the server shows.
    tls: Option<Arc<ServerConfig>>,
    /// None while another replica leads.
    term: Option<TermState>,
}

struct TermState {
    writes: DueWrites<UnitId>,
    networks: networks::Writes,
    /// What was wanted when it was last looked at.
    wanted: Units,
    /// When the objects of units that are not wanted are removed.
    ends: BTreeMap<UnitId, Instant>,
    /// Why the objects of units could not be written.
    refused: BTreeMap<UnitId, Arc<str>>,
    looked_at_all: Option<Instant>,
    /// The authority that had signed all certificates when everything was last looked at, and the authorities that all
    /// Secrets were given.
    authorities: (String, String),
}

/// The objects of all units.
#[derive(Clone)]
struct Objects {
    secrets: Store<Secret>,
    deployments: Store<Deployment>,
    services: Store<Service>,
    pods: Store<Pod>,
    slices: Store<EndpointSlice>,
}

impl Objects {
    fn watched(watches: &mut Watches, namespace: &str) -> Self {
        fn of_units<K>(namespace: &str) -> Selection<K> {
            let (namespace, labels) = (namespace.to_owned(), Some(UNIT_LABEL.to_owned()));
            Selection { namespace, labels, ..Selection::default() }
        }
        let trim = |pod: &mut Pod| pod.spec = None;
        let trim_slice = |slice: &mut EndpointSlice| slice.ports = None;
        Self {
            secrets: watches.add(of_units(namespace)),
            deployments: watches.add(of_units(namespace)),
            services: watches.add(of_units(namespace)),
            pods: watches.add(Selection { trim, ..of_units(namespace) }),
            // they have the labels of their Service
            slices: watches.add(Selection { trim: trim_slice, ..of_units(namespace) }),
        }
    }

    /// The units of which there is anything but pods.
    fn units(&self) -> BTreeSet<UnitId> {
        let mut units = BTreeSet::new();
        self.secrets.for_each(|_, object| units.extend(manifest::unit_of(&**object)));
        self.deployments.for_each(|_, object| units.extend(manifest::unit_of(&**object)));
        self.services.for_each(|_, object| units.extend(manifest::unit_of(&**object)));
        units
    }

    /// Names of objects that changed since the last call.
    fn take_changes(&self) -> BTreeSet<String> {
        // what pods and slices say is read whenever anything changes
        drop((self.pods.take_changes(), self.slices.take_changes()));
        let changed = [self.secrets.take_changes(), self.deployments.take_changes(), self.services.take_changes()];
        changed.into_iter().flatten().map(|key| key.name.clone()).collect()
    }

    /// True if every Secret of a unit has exactly these authorities.
    fn all_trust(&self, authorities: &str) -> bool {
        let mut all = true;
        self.secrets.for_each(|_, secret| all &= manifest::authorities(secret) == Some(authorities.as_bytes()));
        all
    }

    /// The units that have a pod to which nodes send packets.
    fn reachable(&self, wanted: &Units) -> BTreeSet<UnitId> {
        let mut ready: BTreeSet<String> = BTreeSet::new();
        self.slices.for_each(|_, slice| {
            let name = slice.metadata.labels.as_ref().and_then(|labels| labels.get(UNIT_LABEL));
            ready.extend(name.filter(|_| pods::is_any_ready(slice)).cloned());
        });
        wanted.keys().filter(|unit| ready.contains(&manifest::name(unit))).cloned().collect()
    }

    /// What stops the Envoys of these units.
    fn problems(&self, wanted: &Units) -> BTreeMap<UnitId, UnitProblem> {
        let mut by_name: BTreeMap<String, Vec<Arc<Pod>>> = BTreeMap::new();
        self.pods.for_each(|_, pod| {
            let name = pod.metadata.labels.as_ref().and_then(|labels| labels.get(UNIT_LABEL));
            if let Some(name) = name.filter(|_| pod.metadata.deletion_timestamp.is_none()) {
                by_name.entry(name.clone()).or_default().push(Arc::clone(pod));
            }
        });
        let mut problems = BTreeMap::new();
        self.deployments.for_each(|key, deployment| {
            let unit = manifest::unit_of(&**deployment).filter(|unit| wanted.contains_key(unit));
            let pods = by_name.get(&key.name).map(Vec::as_slice).unwrap_or_default();
            problems.extend(unit.zip(pods::problem(deployment, pods).map(UnitProblem::Pods)));
        });
        problems
    }
}

impl Reconciler for Envoys {
    fn begin(&mut self, _term: &Term) {
        self.authority.look_again();
        self.term = Some(TermState {
            writes: self.queues.queue("gateway envoys", Pace::URGENT),
            networks: networks::Writes::new(&self.queues),
            wanted: Units::new(),
            ends: BTreeMap::new(),
            refused: BTreeMap::new(),
            looked_at_all: None,
            authorities: Default::default(),
        });
    }

    fn end(&mut self) {
        self.term = None;
        self.proxies.found(None);
    }

    async fn reconcile(&mut self) -> Next {
        let Self { objects, networks, writer, authority, delays, proxies, options, tls, term, .. } = self;
        let (Some(term), Some(wanted)) = (term, proxies.wanted()) else { return Next::OnChange };
        let now = Timestamp::now();

        // certificates (client)
        match authority.keep(now, |bundle| objects.all_trust(bundle)).await {
            Ok(changed) => {
                delays.reset();
                *tls = changed.or(tls.take());
            }
            Err(error) => {
                tracing::warn!(reason = error.reason(), %error, "the authority of Envoys is not as it should be");
                if authority.known().is_none() {
                    return Next::After(delays.pause());
                }
            }
        }
        // a lost race: look again
        let Some(authorities) = authority.known().map(|known| (known.current.name.clone(), known.bundle())) else {
            return Next::After(delays.pause());
        };
        // a term of before may have taken it away
        if let Some(tls) = &*tls {
            proxies.fleet().serve_with(Arc::clone(tls));
        }

        if let Some(networks) = networks
            && networks.keep(writer, &mut term.networks).await
        {
            // the networks of pods may be others
            term.looked_at_all = None;
        }

        // what is due (no client)
        let existing = objects.units();
        term.follow(&wanted, &existing, &objects.take_changes(), &authorities, options.drain);
        for unit in existing.iter().filter(|unit| !wanted.contains_key(unit)) {
            proxies.fleet().end(unit);
        }
        for (unit, report) in proxies.fleet().reports() {
            if !report.is_wanted && !existing.contains(&unit) {
                proxies.fleet().forget(&unit);
            }
        }

        // act (client): each unit by itself
        let (bundle, networks) = (&*authorities.1, networks.as_ref());
        let acting = Acting { objects, networks, writer, authority, options, wanted: &wanted, bundle, now };
        let ends = &term.ends;
        for (unit, result) in term.writes.pass(|unit, _| acting.prepare(unit, ends.get(unit).copied())).await {
            match result.as_ref().map_err(refusal) {
                Err(Some(why)) => drop(term.refused.insert(unit, why)),
                Ok(()) | Err(None) => drop(term.refused.remove(&unit)),
            }
        }

        // status (no client): the gateway's loop reports it
        let mut problems = objects.problems(&wanted);
        let detached = wanted.iter().filter_map(|(id, unit)| Some((id.clone(), term.networks.refused(&unit.prefix)?)));
        problems.extend(detached.map(|(unit, why)| (unit, UnitProblem::Objects(why))));
        problems.extend(term.refused.iter().map(|(unit, why)| (unit.clone(), UnitProblem::Objects(Arc::clone(why)))));
        proxies.found(Some(Found { problems, reachable: objects.reachable(&wanted) }));
        let look = term.looked_at_all.map(|looked| looked + LOOK_AT_ALL);
        Next::at_earliest([term.writes.next_due(), term.networks.next_due(), authority.next_look(), look])
    }
}

impl TermState {
    /// Adds the units whose objects may not be as they should be.
    fn follow(
        &mut self,
        wanted: &Units,
        existing: &BTreeSet<UnitId>,
        changed: &BTreeSet<String>,
        authorities: &(String, String),
        drain: Duration,
    ) {
        let now = Instant::now();
        let unwanted: BTreeSet<&UnitId> = existing.iter().filter(|unit| !wanted.contains_key(*unit)).collect();
        self.ends.retain(|unit, _| unwanted.contains(unit));
        for unit in &unwanted {
            self.ends.entry((*unit).clone()).or_insert(now + drain);
        }
        let is_time = self.looked_at_all.is_none_or(|looked| looked + LOOK_AT_ALL <= now);
        let everything = is_time || self.authorities != *authorities;
        let is_due = |unit: &UnitId| everything || changed.contains(&manifest::name(unit));
        let differs = |unit: &UnitId, want: &Arc<Unit>| !self.wanted.get(unit).is_some_and(|one| is_same(one, want));
        let due = wanted.iter().filter(|(unit, want)| differs(unit, want) || is_due(unit)).map(|(unit, _)| unit);
        self.writes.extend(due.chain(unwanted).cloned());
        self.refused.retain(|unit, _| wanted.contains_key(unit));
        if everything {
            self.looked_at_all = Some(now);
            self.authorities.clone_from(authorities);
        }
        self.wanted.clone_from(wanted);
    }
}

struct Acting<'a> {
    objects: &'a Objects,
    networks: Option<&'a Networks>,
    writer: &'a Writer,
    authority: &'a Keeper,
    options: &'a DeploymentOptions,
    wanted: &'a Units,
    bundle: &'a str,
    now: Timestamp,
}

impl Acting<'_> {
    fn prepare(&self, id: &UnitId, end: Option<Instant>) -> Prepared<()> {
        match (self.wanted.get(id), end) {
            (Some(unit), _) => self.bring(id, unit),
            (None, Some(end)) if end > Instant::now() => Prepared::At(end),
            (None, _) => self.remove(id),
        }
    }

    /// Brings the objects of a unit to what they should be; what is as it should be is not written.
    fn bring(&self, id: &UnitId, unit: &Unit) -> Prepared<()> {
        let key = Key { namespace: self.options.namespace.clone(), name: manifest::name(id) };
        let seen = self.objects.secrets.get(&key);
        let kept = seen.and_then(|secret| manifest::certificate(id, &secret));
        let certificate = match kept.filter(|kept| !self.authority.outdates(kept, self.now)) {
            Some(kept) => kept,
            None => match self.authority.sign(&manifest::uri(id), self.now) {
                Some(Ok(signed)) => signed,
                Some(Err(cause)) => {
                    let (what, problem) = (format!("signing a certificate for {id}"), cause.to_string());
                    return Prepared::write(async { Err(Error::Invalid { what, problem }) });
                }
                None => return Prepared::Nothing,
            },
        };
        let identity = Identity { certificate: &certificate, authorities: self.bundle };
        let attached = self.attached(&key, unit);
        let wanted = manifest::manifest(id, unit, identity, attached.as_deref(), self.options);
        let (writer, objects, address) = (self.writer.clone(), self.objects.clone(), unit.address.to_string());
        Prepared::write(async move {
            writer.apply(&objects.secrets, &wanted.secret).await?;
            writer.apply(&objects.deployments, &wanted.deployment).await?;
            writer.apply(&objects.services, &wanted.service).await?;
            // one that was just made is seen, and looked at again, in a moment
            let Some(service) = objects.services.get(&key) else { return Ok(()) };
            if shown(&service) == [address.as_str()] {
                return Ok(());
            }
            let part = json!({ "loadBalancer": { "ingress": [{ "ip": address }] } });
            writer.status_part(&objects.services, &*service, &[], &[], part).await.map(drop)
        })
    }

    /// The networks of a unit's pods. A prefix that is gone takes nothing away from those that run.
    fn attached(&self, key: &Key, unit: &Unit) -> Option<String> {
        let networks = self.networks?;
        let of_prefix = networks.prefix(&unit.prefix).and_then(|prefix| attachment(&prefix, unit.address));
        of_prefix.or_else(|| manifest::networks(&*self.objects.deployments.get(key)?).map(str::to_owned))
    }

    /// Removes the objects of a unit: first what brings packets to it.
    fn remove(&self, id: &UnitId) -> Prepared<()> {
        let key = Key { namespace: self.options.namespace.clone(), name: manifest::name(id) };
        let (writer, objects) = (self.writer.clone(), self.objects.clone());
        if objects.services.get(&key).is_none()
            && objects.deployments.get(&key).is_none()
            && objects.secrets.get(&key).is_none()
        {
            return Prepared::Nothing;
        }
        Prepared::write(async move {
            delete(&writer, &objects.services, &key).await?;
            delete(&writer, &objects.deployments, &key).await?;
            delete(&writer, &objects.secrets, &key).await
        })
    }
}

async fn delete<K: Kind>(writer: &Writer, store: &Store<K>, key: &Key) -> Result<(), Error> {
    match store.get(key).filter(|seen| seen.meta().deletion_timestamp.is_none()) {
        Some(seen) => writer.delete(store, &*seen).await.map(drop),
        None => Ok(()),
    }
}

/// The addresses in the status of a Service.
fn shown(service: &Service) -> Vec<&str> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = balancer.iter().flat_map(|balancer| balancer.ingress.iter().flatten());
    ingress.filter_map(|one| one.ip.as_deref()).collect()
}

/// Why the API server does not take an object as it is; none for what passes by itself.
fn refusal(error: &Error) -> Option<Arc<str>> {
    let Error::Request { cause, .. } = error else { return None };
    let is_final = matches!(&**cause, kube::Error::Api(status) if matches!(status.code, 400 | 403 | 422));
    is_final.then(|| cleaned(&error.to_string()).into())
}
