//! The handle to all workers.

use super::cache_padded::CachePadded;
use super::cluster::update_clusters;
use super::command::{Command, SweepAction, SweepResult};
use super::log::Sink;
use super::loop_detection::LoopDetector;
use super::port::{BindAddress, ListenerState, Port, bind_addresses, bind_error, is_optional};
use super::resolve::{Lookup, Resolver};
use super::ring::Ring;
use super::shared::{CurrentConfig, SessionNames, Shared};
use super::stats::{DROPS, LIMITS, WorkerStats};
use super::sys::{self, Buffers};
use super::worker::{Worker, WorkerExit};
use crate::config::engine::{
    BindError, ByObject, Ending, Engine, Metered, Page, SessionDump, SessionFilter, SessionPage, Stats,
};
use crate::config::host_mapping::HostMapping;
use crate::config::snapshot::Snapshot;
use crate::config::types::{Admin, ClusterSpec, Listener, Qos};
use crate::proto::session::Finish;
use crate::rest::exchange::ApiHandler;
use crate::transport::unix::path::allowed_path;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Commands that wait for one worker.
const COMMANDS: usize = 65_536;
/// Sessions that one worker lists at a time: packets wait for about a tenth of a millisecond.
const SLICE: usize = 10;
/// How long an answer of a worker is waited for.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts to start a worker, and the time between two.
const RESTARTS: usize = 100;
const RESTART_PAUSE: Duration = Duration::from_millis(100);
/// How long a port that this process has just closed may still be in use, and the time between two attempts to open it.
const CLOSING_TIMEOUT: Duration = Duration::from_secs(2);
const CLOSING_PAUSE: Duration = Duration::from_millis(1);
/// Descriptors that are not for sessions; a quarter where there are few.
const RESERVE: u64 = 256;

/// How the data plane is started.
pub struct Options {
    /// 0: as many as processors.
    pub workers: usize,
    /// Whether worker threads stay on one processor each.
    pub pin: bool,
    pub buffers: Buffers,
    pub host_mapping: HostMapping,
    pub api_handler: Option<Arc<dyn ApiHandler>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: 0,
            pin: false,
            buffers: Buffers::Large,
            host_mapping: HostMapping::default(),
            api_handler: None,
        }
    }
}

/// The running data plane.
pub struct DataPlane {
    shared: Arc<Shared>,
    buffers: Buffers,
    threads: Mutex<Vec<JoinHandle<()>>>,
    ports: Mutex<ListeningPorts>,
}

/// ListeningPorts by address, and the listeners in force.
#[derive(Default)]
struct ListeningPorts {
    by_address: BTreeMap<BindAddress, Weak<Port>>,
    listeners: BTreeMap<Arc<str>, Running>,
}

struct Running {
    listener: Arc<ListenerState>,
    ports: Vec<Arc<Port>>,
}

impl DataPlane {
    /// Starts the workers; they wait for a configuration.
    pub fn start(options: Options) -> io::Result<Arc<Self>> {
        Self::start_with_names(options, &super::resolve::of_system())
    }

    /// The same, with names of endpoints looked up by `lookup`.
    pub fn start_with_names(options: Options, lookup: &Lookup) -> io::Result<Arc<Self>> {
        let Options { workers, pin, buffers, host_mapping, api_handler } = options;
        let workers = if workers == 0 { sys::processors() } else { workers };
        let descriptors = sys::raise_descriptor_limit();
        let rings = (0..workers).map(|_| Ring::new(COMMANDS)).collect::<io::Result<_>>()?;
        let shared = Arc::new(Shared {
            current: ArcSwap::default(),
            generation: AtomicU64::new(0),
            registry: super::cluster::Registry::default(),
            names: SessionNames::default(),
            counts: CachePadded::default(),
            most_sessions: (descriptors - RESERVE.min(descriptors / 4)) as usize,
            stats: (0..workers).map(|_| Arc::new(WorkerStats::default())).collect(),
            rings,
            api_handler,
            sink: Sink::start(host_mapping.clone())?,
            host_mapping,
            resolver: Resolver::start(lookup)?,
            loops: LoopDetector::default(),
            stdio: Arc::default(),
            seed: sys::random_u64(),
            close_token_seed: sys::random_u64(),
        });
        let threads = (0..workers).map(|id| spawn(id, Arc::clone(&shared), pin)).collect::<io::Result<_>>()?;
        Ok(Arc::new(Self { shared, buffers, threads: Mutex::new(threads), ports: Mutex::default() }))
    }

    /// Takes no further sessions, waits for the others to end, and stops.
    pub fn drain(&self, patience: Duration) {
        let until = Instant::now() + patience;
        // Listening streams close when the workers let go of them too; datagram sockets serve their sessions on.
        let listeners = std::mem::take(&mut self.ports.lock().listeners);
        listeners.values().flat_map(|running| &running.ports).for_each(|port| port.listener.store(None));
        drop(listeners);
        self.send_to_all(|| Command::Drain);
        let counts = &self.shared.counts;
        while counts.active.load(Relaxed) + counts.closing.load(Relaxed) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.stop();
    }

    /// Ends all sessions and all workers.
    pub fn stop(&self) {
        self.send_to_all(|| Command::Stop);
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a worker thread panicked");
            }
        }
        self.ports.lock().listeners.clear();
    }

    /// The address that a listener's first socket is bound to.
    pub fn local_address(&self, listener: &str) -> Option<std::net::SocketAddr> {
        self.ports.lock().listeners.get(listener)?.ports.first().map(|port| port.local)
    }

    #[cfg(test)]
    pub(crate) fn stdio(&self) -> &super::stdio::Stdio {
        &self.shared.stdio
    }

    fn send_to_all(&self, command: impl Fn() -> Command) {
        for ring in &self.shared.rings {
            if ring.push(command()).is_err() {
                tracing::error!("a worker is overloaded: a command was dropped");
            }
        }
    }

    /// Asks every worker and gathers the answers of those that are alive.
    fn query_all<T: Send>(&self, question: impl Fn(std::sync::mpsc::SyncSender<T>) -> Command) -> Vec<T> {
        let (sender, receiver) = sync_channel(self.shared.rings.len());
        let asked = self.shared.rings.iter().filter(|ring| ring.push(question(sender.clone())).is_ok()).count();
        drop(sender);
        let until = Instant::now() + REPLY_TIMEOUT;
        (0..asked).map_while(|_| receiver.recv_timeout(until.saturating_duration_since(Instant::now())).ok()).collect()
    }

    /// Looks at all sessions, slice by slice, all workers side by side.
    fn sweep(&self, filter: &SessionFilter, how: SweepAction) -> usize {
        let (sender, receiver) = sync_channel(self.shared.rings.len());
        let ask = |worker: usize, from: u64| {
            let reply = sender.clone();
            self.shared.rings[worker].push(Command::Sweep { filter: filter.clone(), from, how, reply }).is_ok()
        };
        let mut from: Vec<Option<u64>> = vec![Some(0); self.shared.rings.len()];
        let mut total = 0;
        while from.iter().any(Option::is_some) {
            let asked = (0..from.len()).filter(|at| from[*at].is_some_and(|next| ask(*at, next))).count();
            from.fill(None);
            for _ in 0..asked {
                let Ok(SweepResult { worker, count, next }) = receiver.recv_timeout(REPLY_TIMEOUT) else {
                    return total;
                };
                total += count;
                from[worker] = next;
            }
        }
        total
    }

    /// Opens the ports of a listener; those that exist are taken over.
    fn open_ports(
        &self,
        ports: &ListeningPorts,
        listener: &Listener,
        admin: &Admin,
    ) -> Result<Vec<Arc<Port>>, BindError> {
        let mut opened = Vec::new();
        for address in bind_addresses(listener, &self.shared.host_mapping) {
            if let BindAddress::Unix(path, _) = &address
                && !allowed_path(path, &self.shared.host_mapping.directories(&admin.uds_dirs))
            {
                // a missing folder, or a path that no socket can have, is not a matter of permission
                let missing = path.parent().is_none_or(|folder| !folder.is_dir());
                let code = if missing { libc::ENOENT } else { libc::EACCES };
                return Err(bind_error(listener, &address, &io::Error::from_raw_os_error(code)));
            }
            let known = ports.by_address.get(&address).and_then(Weak::upgrade);
            match known.map_or_else(|| self.open_port(ports, &address, listener), Ok) {
                Ok(port) => opened.push(port),
                Err(error) if is_optional(&address, &error) && !opened.is_empty() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(opened)
    }

    fn open_port(
        &self,
        ports: &ListeningPorts,
        address: &BindAddress,
        listener: &Listener,
    ) -> Result<Arc<Port>, BindError> {
        let own = ports.by_address.iter().filter(|(own, _)| own.overlaps(address));
        let (open, gone): (Vec<_>, Vec<_>) = own.partition(|(_, port)| port.strong_count() > 0);
        let workers = self.shared.rings.len();
        let until = Instant::now() + CLOSING_TIMEOUT;
        loop {
            match Port::open(address.clone(), listener, workers, self.buffers, !open.is_empty()) {
                // a worker may be closing the last socket on the port at this moment
                Err(error) if error.code == "EADDRINUSE" && !gone.is_empty() && Instant::now() < until => {
                    std::thread::sleep(CLOSING_PAUSE);
                }
                done => return done,
            }
        }
    }
}

impl Engine for DataPlane {
    fn apply(&self, next: Arc<Snapshot>) -> Result<(), BindError> {
        let mut ports = self.ports.lock();
        // Sockets first: if one cannot be opened, those opened here are closed again, and nothing has changed.
        let mut opened = Vec::new();
        for change in &next.changed_listeners {
            if let Some(listener) = &change.after {
                opened.push((Arc::clone(listener), self.open_ports(&ports, listener, &next.admin)?));
            }
        }
        let marks = self.switch(&next);
        let mut gone: Vec<Running> = Vec::new();
        let mut edited = BTreeMap::new();
        for before in next.changed_listeners.iter().filter_map(|change| change.before.as_ref()) {
            if let Some(running) = ports.listeners.remove(&before.name) {
                let limiter = Arc::clone(&running.listener.limiter);
                edited.insert(Arc::clone(&before.name), (running.listener.counts.next.load(Relaxed), limiter));
                gone.push(running);
            }
        }
        let mut kept: Vec<Arc<Port>> = Vec::new();
        for (listener, opened) in opened {
            let (next_number, limiter) = edited.get(&listener.name).cloned().unwrap_or_default();
            let name = Arc::clone(&listener.name);
            let listener = Arc::new(ListenerState::new(listener, next_number, limiter));
            for port in &opened {
                port.listener.store(Some(Arc::clone(&listener)));
                ports.by_address.insert(port.bind_address.clone(), Arc::downgrade(port));
                self.send_to_all(|| Command::Attach(Arc::clone(port)));
            }
            kept.extend(opened.iter().cloned());
            ports.listeners.insert(name, Running { listener, ports: opened });
        }
        for running in gone {
            for port in running.ports.iter().filter(|port| !kept.iter().any(|kept| Arc::ptr_eq(kept, port))) {
                port.listener.store(None);
                self.send_to_all(|| Command::Detach(Arc::clone(port)));
            }
            let edited = ports.listeners.contains_key(&running.listener.config.name);
            if running.listener.config.options.remove_orphan_sessions && !edited {
                self.send_to_all(|| Command::EndOf(Arc::clone(&running.listener)));
            }
        }
        ports.by_address.retain(|_, port| port.strong_count() > 0);
        drop(ports);
        // When all workers have passed this point, no session is set up with the old configuration any more.
        let nobody = SessionFilter { name: Some(String::new()), ..SessionFilter::default() };
        self.sweep(&nobody, SweepAction::Count);
        for (sessions, dscp) in marks {
            self.sweep(&sessions, SweepAction::Mark(dscp));
        }
        Ok(())
    }

    fn sessions(&self, filter: &SessionFilter, page: &Page) -> SessionPage {
        let mut from = page.from.as_ref().and_then(|from| from.parse().ok()).unwrap_or(0);
        let limit = page.limit.unwrap_or(usize::MAX);
        let mut sessions: Vec<SessionDump> = Vec::new();
        loop {
            let want = SLICE.min(limit - sessions.len());
            if want == 0 {
                return SessionPage { sessions, next: Some(from.to_string()) };
            }
            let asked = |reply| Command::List { filter: filter.clone(), from, limit: want + 1, reply };
            let mut slice: Vec<(u64, SessionDump)> = self.query_all(asked).into_iter().flatten().collect();
            slice.sort_by_key(|(sequence, _)| *sequence);
            let more = slice.len() > want;
            slice.truncate(want);
            from = slice.last().map_or(from, |(sequence, _)| sequence + 1);
            sessions.extend(slice.into_iter().map(|(_, dump)| dump));
            if !more {
                return SessionPage { sessions, next: None };
            }
        }
    }

    fn count(&self, filter: &SessionFilter) -> usize {
        self.sweep(filter, SweepAction::Count)
    }

    fn end(&self, filter: &SessionFilter, how: Ending) -> usize {
        self.sweep(filter, SweepAction::End(how))
    }

    fn stats(&self) -> Stats {
        let mut total =
            Stats { bound: true, sessions_active: self.shared.counts.active.load(Relaxed) as u64, ..Stats::default() };
        let mut listeners: BTreeMap<_, u64> = BTreeMap::new();
        let mut clusters: BTreeMap<_, u64> = BTreeMap::new();
        let mut rules: BTreeMap<_, u64> = BTreeMap::new();
        let mut circuits: BTreeMap<_, u64> = BTreeMap::new();
        for stats in &self.shared.stats {
            add_worker(&mut total, stats);
            let names = stats.by_name.lock();
            names.listeners.add_to(&mut listeners);
            names.clusters.add_to(&mut clusters);
            names.rules.iter().for_each(|(key, n)| *rules.entry(key.clone()).or_default() += n);
            names.circuits.add_to(&mut circuits);
        }
        let all: u64 = self.shared.stats.iter().map(|stats| stats.opened.get()).sum();
        total.sessions_total = all;
        total.sessions_ended = Finish::ALL
            .iter()
            .map(|finish| {
                (finish.word(), self.shared.stats.iter().map(|stats| stats.ended[*finish as usize].get()).sum())
            })
            .collect();
        total.drops = DROPS
            .iter()
            .enumerate()
            .map(|(at, word)| (*word, self.shared.stats.iter().map(|stats| stats.drops[at].get()).sum()))
            .collect();
        total.limits = LIMITS
            .iter()
            .enumerate()
            .map(|(at, word)| (*word, self.shared.stats.iter().map(|stats| stats.limits[at].get()).sum()))
            .collect();
        let by = |map: BTreeMap<(Arc<str>, &'static str), u64>| {
            map.into_iter().map(|((name, protocol), total)| ByObject { name, protocol, total }).collect()
        };
        total.listeners = by(listeners);
        total.clusters = by(clusters);
        total.rules = rules.into_iter().collect();
        total.circuits = circuits.into_iter().map(|((cluster, limit), n)| (cluster, limit, n)).collect();
        self.add_clusters(&mut total);
        total
    }
}

impl DataPlane {
    /// Puts a configuration in force: clusters that changed are put together here and not on a worker. Returns whose
    /// sessions are to be marked otherwise than they are.
    fn switch(&self, next: &Arc<Snapshot>) -> Vec<(SessionFilter, u8)> {
        let before = self.shared.current.load();
        let marks = marks(&before.snapshot, next);
        let changes = next.clusters.changes(&before.snapshot.clusters);
        let changes = changes.map(|(name, cluster)| (Arc::clone(name), cluster.cloned()));
        let clusters = update_clusters(&before.clusters, changes, &self.shared.registry, sys::monotonic_ms());
        self.shared.current.store(Arc::new(CurrentConfig { snapshot: Arc::clone(next), clusters }));
        self.shared.generation.store(next.generation, Release);
        marks
    }

    fn add_clusters(&self, total: &mut Stats) {
        let current = self.shared.current.load();
        for cluster_runtime in current.clusters.iter() {
            let cluster = &cluster_runtime.cluster;
            if let ClusterSpec::Metric(metric) = &cluster.spec {
                let meter = &cluster_runtime.cluster_state.meter;
                total.metered.push(Metered {
                    cluster: Arc::clone(&cluster.name),
                    session: None,
                    byte_counter: metric.byte_counter_name.clone(),
                    packet_counter: metric.packet_counter_name.clone(),
                    bytes: meter.bytes.load(Relaxed),
                    packets: meter.packets.load(Relaxed),
                });
                let of_sessions = cluster_runtime.cluster_state.meters.lock();
                total.metered.extend(of_sessions.iter().map(|(session, meter)| Metered {
                    cluster: Arc::clone(&cluster.name),
                    session: Some(session.clone()),
                    byte_counter: metric.byte_counter_name.clone(),
                    packet_counter: metric.packet_counter_name.clone(),
                    bytes: meter.bytes.load(Relaxed),
                    packets: meter.packets.load(Relaxed),
                }));
            }
            for (endpoint, open) in cluster.endpoints.iter().zip(cluster_runtime.open()) {
                total.endpoints.push((Arc::clone(&cluster.name), Arc::clone(&endpoint.name), open));
            }
        }
    }
}

/// Sessions whose listener or cluster has another code point than before.
fn marks(before: &Snapshot, next: &Snapshot) -> Vec<(SessionFilter, u8)> {
    let other = |before: Option<&Qos>, after: Option<&Qos>| {
        let [before, after] = [before, after].map(|qos| qos.map_or(0, Qos::code_point));
        Some(after).filter(|dscp| *dscp != before)
    };
    let listeners = next.changed_listeners.iter().filter_map(|change| {
        let (before, after) = (change.before.as_ref()?, change.after.as_ref()?);
        let dscp = other(before.options.qos.as_ref(), after.options.qos.as_ref())?;
        Some((SessionFilter { listener: Some(after.id), ..SessionFilter::default() }, dscp))
    });
    let clusters = next.clusters.changes(&before.clusters).filter_map(|(name, after)| {
        let (before, after) = (before.clusters.get(name)?, after?);
        let dscp = other(before.options.qos.as_ref(), after.options.qos.as_ref())?;
        Some((SessionFilter { cluster: Some(after.id), ..SessionFilter::default() }, dscp))
    });
    listeners.chain(clusters).collect()
}

fn add_worker(total: &mut Stats, stats: &WorkerStats) {
    let traffic = stats.traffic();
    total.traffic.packets_in += traffic.packets_in;
    total.traffic.packets_out += traffic.packets_out;
    total.traffic.bytes_in += traffic.bytes_in;
    total.traffic.bytes_out += traffic.bytes_out;
    total.retries += stats.retries.get();
    total.segments_in += stats.segments_in.get();
    total.segments_out += stats.segments_out.get();
    total.worker_restarts += stats.restarts.get();
    stats.connect.add_to(&mut total.connect_seconds);
    stats.setup.add_to(&mut total.setup_seconds);
    total.log_lines_dropped += stats.log_drops.get();
    total.workers_busy.push(stats.busy.get() as f64 / 1000.0);
}

fn spawn(id: usize, shared: Arc<Shared>, pin: bool) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(format!("proxy-{id}")).spawn(move || {
        if pin {
            sys::pin_to(id % sys::processors());
        }
        let mut before = None;
        while let Some(mut worker) = start_worker(id, &shared, before.take()) {
            if worker.run() == WorkerExit::Stopped {
                return;
            }
            tracing::error!(worker = id, "restarting a worker after a panic: please report this bug");
            worker.end_all();
            before = Some(worker);
        }
    })
}

/// Makes a worker, in the address of another if there was one; nothing if that fails again and again.
fn start_worker(id: usize, shared: &Arc<Shared>, mut before: Option<Worker>) -> Option<Worker> {
    for _ in 0..RESTARTS {
        match Worker::new(id, Arc::clone(shared)) {
            Ok(mut worker) => {
                before.take().into_iter().for_each(|before| worker.take_over(before));
                return Some(worker);
            }
            Err(error) => tracing::error!(worker = id, %error, "cannot start a worker, retrying"),
        }
        std::thread::sleep(RESTART_PAUSE);
    }
    None
}

#[cfg(test)]
mod tests;
