//! The handle to all workers.

use super::commands::{Command, Swept};
use super::log::Sink;
use super::port::{Inlet, Place, Port, is_optional, places};
use super::resolve::Resolver;
use super::ring::Ring;
use super::shared::{SessionNames, Shared};
use super::stats::{DROPS, WorkerStats};
use super::sys::{self, Buffers};
use super::worker::Worker;
use crate::config::engine::{
    BindError, ByObject, Ending, Engine, Metered, Page, SessionDump, SessionFilter, SessionPage, Stats,
};
use crate::config::snapshot::Snapshot;
use crate::config::types::{ClusterSpec, Listener};
use crate::proto::session::Finish;
use crate::rest::exchange::Desk;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Commands that wait for one worker.
const COMMANDS: usize = 65_536;
/// Sessions that one worker lists at a time: about a millisecond.
const SLICE: usize = 100;
/// How long an answer of a worker is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// Descriptors that are not for sessions.
const RESERVE: u64 = 256;

/// How the data plane is started.
pub struct Options {
    /// 0: as many as processors.
    pub workers: usize,
    /// Whether worker threads stay on one processor each.
    pub pin: bool,
    pub buffers: Buffers,
    pub desk: Option<Arc<dyn Desk>>,
}

impl Default for Options {
    fn default() -> Self {
        Self { workers: 0, pin: false, buffers: Buffers::Large, desk: None }
    }
}

/// The running data plane.
pub struct DataPlane {
    shared: Arc<Shared>,
    buffers: Buffers,
    threads: Mutex<Vec<JoinHandle<()>>>,
    ports: Mutex<Ports>,
}

/// Ports by place, and the listeners in force.
#[derive(Default)]
struct Ports {
    by_place: BTreeMap<Place, Weak<Port>>,
    listeners: BTreeMap<Arc<str>, Running>,
}

struct Running {
    inlet: Arc<Inlet>,
    ports: Vec<Arc<Port>>,
}

impl DataPlane {
    /// Starts the workers; they wait for a configuration.
    pub fn start(options: Options) -> io::Result<Arc<Self>> {
        let Options { workers, pin, buffers, desk } = options;
        let workers = if workers == 0 { sys::processors() } else { workers };
        let descriptors = sys::raise_descriptor_limit();
        let rings = (0..workers).map(|_| Ring::new(COMMANDS)).collect::<io::Result<_>>()?;
        let shared = Arc::new(Shared {
            snapshot: ArcSwap::default(),
            generation: AtomicU64::new(0),
            registry: super::cluster::Registry::default(),
            names: SessionNames::default(),
            sequence: AtomicU64::new(0),
            active: AtomicUsize::new(0),
            most_sessions: descriptors.saturating_sub(RESERVE) as usize,
            stats: (0..workers).map(|_| Arc::new(WorkerStats::default())).collect(),
            rings,
            desk,
            sink: Sink::start()?,
            resolver: Resolver::start()?,
            seed: sys::random_u64(),
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
        self.tell_all(|| Command::Drain);
        while self.shared.active.load(Relaxed) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.stop();
    }

    /// Ends all sessions and all workers.
    pub fn stop(&self) {
        self.tell_all(|| Command::Stop);
        for thread in self.threads.lock().drain(..) {
            if thread.join().is_err() {
                tracing::error!("a worker had ended before it was told to");
            }
        }
        self.ports.lock().listeners.clear();
    }

    /// The address that a listener's first socket is bound to.
    pub fn local_address(&self, listener: &str) -> Option<std::net::SocketAddr> {
        self.ports.lock().listeners.get(listener)?.ports.first().map(|port| port.local)
    }

    fn tell_all(&self, command: impl Fn() -> Command) {
        for ring in &self.shared.rings {
            if ring.push(command()).is_err() {
                tracing::error!("a worker does not keep up: a command was dropped");
            }
        }
    }

    /// Asks every worker and gathers the answers of those that are alive.
    fn ask_all<T: Send>(&self, question: impl Fn(std::sync::mpsc::SyncSender<T>) -> Command) -> Vec<T> {
        let (sender, receiver) = sync_channel(self.shared.rings.len());
        let asked = self.shared.rings.iter().filter(|ring| ring.push(question(sender.clone())).is_ok()).count();
        drop(sender);
        let until = Instant::now() + PATIENCE;
        (0..asked).map_while(|_| receiver.recv_timeout(until.saturating_duration_since(Instant::now())).ok()).collect()
    }

    /// Looks at all sessions, slice by slice, all workers side by side.
    fn sweep(&self, filter: &SessionFilter, how: Option<Ending>) -> usize {
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
                let Ok(Swept { worker, count, next }) = receiver.recv_timeout(PATIENCE) else { return total };
                total += count;
                from[worker] = next;
            }
        }
        total
    }

    /// Opens the ports of a listener; those that exist are taken over.
    fn open_ports(&self, ports: &Ports, listener: &Listener) -> Result<Vec<Arc<Port>>, BindError> {
        let workers = self.shared.rings.len();
        let mut opened = Vec::new();
        for place in places(listener) {
            let known = ports.by_place.get(&place).and_then(Weak::upgrade);
            match known.map_or_else(|| Port::open(place.clone(), listener, workers, self.buffers), Ok) {
                Ok(port) => opened.push(port),
                Err(error) if is_optional(&place, &error) && !opened.is_empty() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(opened)
    }
}

impl Engine for DataPlane {
    fn apply(&self, next: Arc<Snapshot>) -> Result<(), BindError> {
        let mut ports = self.ports.lock();
        // Sockets first: if one cannot be opened, those opened here are closed again, and nothing has changed.
        let mut opened = Vec::new();
        for change in &next.changed_listeners {
            if let Some(listener) = &change.after {
                opened.push((Arc::clone(listener), self.open_ports(&ports, listener)?));
            }
        }
        self.shared.snapshot.store(Arc::clone(&next));
        self.shared.generation.store(next.generation, Release);
        let mut gone: Vec<Running> = Vec::new();
        let mut edited = BTreeMap::new();
        for before in next.changed_listeners.iter().filter_map(|change| change.before.as_ref()) {
            if let Some(running) = ports.listeners.remove(&before.name) {
                edited.insert(Arc::clone(&before.name), running.inlet.next.load(Relaxed));
                gone.push(running);
            }
        }
        let mut kept: Vec<Arc<Port>> = Vec::new();
        for (listener, opened) in opened {
            let next_number = edited.get(&listener.name).copied().unwrap_or(0);
            let name = Arc::clone(&listener.name);
            let inlet = Arc::new(Inlet::new(listener, next_number));
            for port in &opened {
                port.listener.store(Some(Arc::clone(&inlet)));
                ports.by_place.insert(port.place.clone(), Arc::downgrade(port));
                self.tell_all(|| Command::Attach(Arc::clone(port)));
            }
            kept.extend(opened.iter().cloned());
            ports.listeners.insert(name, Running { inlet, ports: opened });
        }
        for running in gone {
            for port in running.ports.iter().filter(|port| !kept.iter().any(|kept| Arc::ptr_eq(kept, port))) {
                port.listener.store(None);
                self.tell_all(|| Command::Detach(Arc::clone(port)));
            }
            let edited = ports.listeners.contains_key(&running.inlet.listener.name);
            if running.inlet.listener.options.remove_orphan_sessions && !edited {
                self.tell_all(|| Command::EndOf(Arc::clone(&running.inlet)));
            }
        }
        ports.by_place.retain(|_, port| port.strong_count() > 0);
        drop(ports);
        // When all workers have passed this point, no session is set up with the old configuration any more.
        let nobody = SessionFilter { name: Some(String::new()), ..SessionFilter::default() };
        self.sweep(&nobody, None);
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
            let mut slice: Vec<(u64, SessionDump)> = self.ask_all(asked).into_iter().flatten().collect();
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
        self.sweep(filter, None)
    }

    fn end(&self, filter: &SessionFilter, how: Ending) -> usize {
        self.sweep(filter, Some(how))
    }

    fn stats(&self) -> Stats {
        let mut total =
            Stats { bound: true, sessions_active: self.shared.active.load(Relaxed) as u64, ..Stats::default() };
        let mut listeners: BTreeMap<_, u64> = BTreeMap::new();
        let mut clusters: BTreeMap<_, u64> = BTreeMap::new();
        let mut rules: BTreeMap<_, u64> = BTreeMap::new();
        for stats in &self.shared.stats {
            add_worker(&mut total, stats);
            let names = stats.by_name.lock();
            names.listeners.iter().for_each(|(key, n)| *listeners.entry(key.clone()).or_default() += n);
            names.clusters.iter().for_each(|(key, n)| *clusters.entry(key.clone()).or_default() += n);
            names.rules.iter().for_each(|(key, n)| *rules.entry(key.clone()).or_default() += n);
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
        let by = |map: BTreeMap<(Arc<str>, &'static str), u64>| {
            map.into_iter().map(|((name, protocol), total)| ByObject { name, protocol, total }).collect()
        };
        total.listeners = by(listeners);
        total.clusters = by(clusters);
        total.rules = rules.into_iter().collect();
        self.add_clusters(&mut total);
        total
    }
}

impl DataPlane {
    fn add_clusters(&self, total: &mut Stats) {
        let snapshot = self.shared.snapshot.load();
        let now = sys::monotonic_ms();
        for cluster in snapshot.clusters.iter() {
            if let ClusterSpec::Metric(metric) = &cluster.spec {
                let meter = Arc::clone(&self.shared.registry.outlet(cluster.id).meter);
                total.metered.push(Metered {
                    cluster: Arc::clone(&cluster.name),
                    session: None,
                    byte_counter: metric.byte_counter_name.clone(),
                    packet_counter: metric.packet_counter_name.clone(),
                    bytes: meter.bytes.load(Relaxed),
                    packets: meter.packets.load(Relaxed),
                });
            }
            for endpoint in &cluster.endpoints {
                let open = !self.shared.registry.endpoint(endpoint.id).is_ejected_now(now) && endpoint.weight > 0;
                total.endpoints.push((Arc::clone(&cluster.name), Arc::clone(&endpoint.name), open));
            }
        }
    }
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
    let wall = stats.wall_ms.get() as f64 * 1e6;
    total.workers_busy.push(if wall > 0.0 { (stats.busy_ns.get() as f64 / wall).min(1.0) } else { 0.0 });
}

fn spawn(id: usize, shared: Arc<Shared>, pin: bool) -> io::Result<JoinHandle<()>> {
    let mut worker_ready = Some(());
    std::thread::Builder::new().name(format!("proxy-{id}")).spawn(move || {
        if pin {
            sys::pin_to(id % sys::processors());
        }
        if worker_ready.take().is_some() {
            match Worker::new(id, shared).and_then(|mut worker| worker.run()) {
                Ok(()) => {}
                Err(error) => tracing::error!(worker = id, %error, "a worker has stopped"),
            }
        }
    })
}
