//! An engine that binds nothing and has the sessions that a test gives it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use portolan_proxy::config::engine::{
    BindError, Ending, Engine, EventDump, Page, SessionDump, SessionFilter, SessionPage, SourceDump, StageDump,
    StageEnd, Stats, Traffic,
};
use portolan_proxy::config::snapshot::Snapshot;
use portolan_proxy::config::spec;
use portolan_proxy::config::types::{ClusterSpec, ObjectId, TransportCluster};
use serde_json::json;

#[derive(Default)]
pub(super) struct Memory {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    snapshot: Arc<Snapshot>,
    applied: usize,
    sessions: Vec<Session>,
    ended: Vec<(String, Ending)>,
}

struct Session {
    dump: SessionDump,
    /// Listener, rulelist, rule, route, clusters, endpoints.
    ids: [Option<ObjectId>; 4],
    clusters: Vec<ObjectId>,
    endpoints: Vec<ObjectId>,
}

impl Memory {
    pub(super) fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.inner.lock().snapshot)
    }

    /// How many configurations were put in force.
    pub(super) fn applied(&self) -> usize {
        self.inner.lock().applied
    }

    /// Sessions that ended, and how.
    pub(super) fn ended(&self) -> Vec<(String, Ending)> {
        self.inner.lock().ended.clone()
    }

    /// A session that came in by a listener and took the first rule of its list.
    pub(super) fn open(&self, name: &str, listener: &str) {
        let mut inner = self.inner.lock();
        let snapshot = Arc::clone(&inner.snapshot);
        let listener = snapshot.listeners.get(listener).expect("the listener is there");
        let list = snapshot.rulelists.get(&listener.rules).expect("its rulelist is there");
        let rule = snapshot.rules.get(&list.rules[0]).expect("its first rule is there");
        let route = snapshot.routes.get(rule.action.route.as_ref().expect("a route")).expect("the route is there");
        let names = [&route.destination].into_iter().chain(&route.ingress).chain(&route.egress);
        let clusters: Vec<_> = names.map(|name| snapshot.clusters.get(name).expect("the cluster is there")).collect();
        let stage = |name: &Arc<str>| {
            let cluster = snapshot.clusters.get(name).expect("the cluster is there");
            let end = match (&cluster.spec, cluster.endpoints.first()) {
                (ClusterSpec::Transport(TransportCluster::Udp(_)), Some(first)) => {
                    StageEnd::Endpoint(Arc::clone(first))
                }
                (spec, _) if spec.is_virtual() => StageEnd::Virtual,
                _ => StageEnd::None,
            };
            StageDump { origin: Arc::clone(name), end, status: "READY" }
        };
        let dump = SessionDump {
            name: name.to_owned(),
            metadata: json!({"name": name, "IP": {"src_addr": "127.0.0.1"}}),
            source: SourceDump { origin: Arc::clone(&listener.name), listener: Arc::clone(listener), status: "READY" },
            destination: Some(stage(&route.destination)),
            ingress: route.ingress.iter().map(stage).collect(),
            egress: route.egress.iter().map(stage).collect(),
            status: "CONNECTED",
            events: vec![EventDump {
                event: "INIT",
                at: Duration::from_secs(1_600_000_000),
                message: format!("Session {name} initialized"),
                content: String::new(),
            }],
            traffic: Traffic { packets_in: 1, packets_out: 2, bytes_in: 3, bytes_out: 4 },
            created: Duration::from_secs(1_600_000_000),
            idle: Duration::from_millis(5),
        };
        let endpoints = clusters.iter().filter_map(|cluster| cluster.endpoints.first()).map(|first| first.id).collect();
        let session = Session {
            dump,
            ids: [Some(listener.id), Some(list.id), Some(rule.id), Some(route.id)],
            clusters: clusters.iter().map(|cluster| cluster.id).collect(),
            endpoints,
        };
        inner.sessions.push(session);
    }

    /// A session ends by itself.
    pub(super) fn close(&self, name: &str) {
        self.inner.lock().sessions.retain(|session| session.dump.name != name);
    }
}

impl Session {
    fn fits(&self, filter: &SessionFilter) -> bool {
        let SessionFilter { name, listener, rulelist, rule, route, cluster, endpoint } = filter;
        let same = |wanted: &Option<ObjectId>, index: usize| wanted.is_none() || *wanted == self.ids[index];
        name.as_ref().is_none_or(|name| *name == self.dump.name)
            && same(listener, 0)
            && same(rulelist, 1)
            && same(rule, 2)
            && same(route, 3)
            && cluster.is_none_or(|id| self.clusters.contains(&id))
            && endpoint.is_none_or(|id| self.endpoints.contains(&id))
    }
}

impl Engine for Memory {
    /// 9.9.9.9 is not ours, and `taken` is the name of a listener whose port someone else has.
    fn apply(&self, next: Arc<Snapshot>) -> Result<(), BindError> {
        for listener in next.changed_listeners.iter().filter_map(|change| change.after.as_ref()) {
            let address = spec::claim(&listener.spec).and_then(|(_, address, _)| address);
            let foreign = address.is_some_and(|address| address.to_string() == "9.9.9.9");
            if foreign || &*listener.name == "taken" {
                let port = spec::claim(&listener.spec).map_or(0, |(_, _, port)| port);
                let at = if foreign { format!("9.9.9.9:{port}") } else { format!("0.0.0.0:{port}") };
                let code = if foreign { "EADDRNOTAVAIL" } else { "EADDRINUSE" }.to_owned();
                let protocol = listener.spec.transport().protocol();
                return Err(BindError { listener: Arc::clone(&listener.name), protocol, call: "bind", at, code });
            }
        }
        let mut inner = self.inner.lock();
        assert_eq!(next.generation, inner.snapshot.generation + 1, "generations follow one another");
        for change in &next.changed_listeners {
            let name = change.before.as_ref().or(change.after.as_ref()).map(|listener| &listener.name).expect("a side");
            let id =
                |side: &Option<Arc<_>>| side.as_ref().map(|it: &Arc<portolan_proxy::config::types::Listener>| it.id);
            assert_eq!(id(&change.before), inner.snapshot.listeners.get(name).map(|it| it.id), "before is what was");
            assert_eq!(id(&change.after), next.listeners.get(name).map(|it| it.id), "after is what is");
        }
        inner.snapshot = next;
        inner.applied += 1;
        Ok(())
    }

    fn sessions(&self, filter: &SessionFilter, page: &Page) -> SessionPage {
        let inner = self.inner.lock();
        let from = page.from.as_ref().and_then(|from| from.parse().ok()).unwrap_or(0);
        let fitting: Vec<_> = inner.sessions.iter().filter(|session| session.fits(filter)).collect();
        let limit = page.limit.unwrap_or(usize::MAX);
        let sessions = fitting.iter().skip(from).take(limit).map(|session| session.dump.clone()).collect();
        let next = (fitting.len() > from.saturating_add(limit)).then(|| (from + limit).to_string());
        SessionPage { sessions, next }
    }

    fn count(&self, filter: &SessionFilter) -> usize {
        self.inner.lock().sessions.iter().filter(|session| session.fits(filter)).count()
    }

    fn end(&self, filter: &SessionFilter, how: Ending) -> usize {
        let mut inner = self.inner.lock();
        let fitting: Vec<String> = inner
            .sessions
            .iter()
            .filter(|session| session.fits(filter))
            .map(|session| session.dump.name.clone())
            .collect();
        if let Ending::End(_) = how {
            inner.sessions.retain(|session| !fitting.contains(&session.dump.name));
        }
        inner.ended.extend(fitting.iter().map(|name| (name.clone(), how)));
        fitting.len()
    }

    fn stats(&self) -> Stats {
        Stats { bound: true, sessions_active: self.inner.lock().sessions.len() as u64, ..Stats::default() }
    }
}
