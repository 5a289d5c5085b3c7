//! Random calls and packets against a simple model: same answers, same dumps, same deliveries, and nothing left over.
//!
//! It has a process of its own, so that descriptors can be counted.
#![expect(clippy::unwrap_used, reason = "helpers of a test, outside its function")]

use portolan_core::hash::SplitMix;
use portolan_proxy::config::json::Json;
use portolan_proxy::io::{DataPlane, Options};
use portolan_proxy::rest::exchange::Request;
use portolan_proxy::rest::{Access, Api, Settings};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

const STEPS: usize = 250;
const SEEDS: u64 = 4;
const CLIENTS: usize = 4;
const LISTENERS: usize = 3;
const CLUSTERS: usize = 2;

/// What the proxy is expected to be, one step at a time.
#[derive(Default)]
struct Model {
    /// Listeners in order: which one, to which cluster, and the number of its next session.
    listeners: Vec<(usize, usize, u64)>,
    clusters: Vec<usize>,
    sessions: Vec<Expected>,
    opened: u64,
}

#[derive(Clone)]
struct Expected {
    name: String,
    client: usize,
    listener: usize,
    /// The very listener that took it in is still there.
    lives: bool,
    cluster: usize,
    /// The very cluster that it leads to is still there.
    of_cluster: bool,
    packets: u64,
}

/// The real thing, with its clients and upstreams around it.
struct World {
    plane: Arc<DataPlane>,
    api: Api,
    ports: [u16; LISTENERS],
    upstreams: Vec<UdpSocket>,
    clients: Vec<UdpSocket>,
}

#[derive(Debug)]
enum Step {
    AddListener(usize, usize),
    DeleteListener(usize, bool),
    AddCluster(usize),
    DeleteCluster(usize, bool),
    DeleteSession(usize),
    Send(usize, usize),
}

fn step(random: &mut SplitMix) -> Step {
    let mut below = |bound: usize| usize::try_from(random.next_u64() % bound as u64).unwrap();
    match below(12) {
        0 | 1 => Step::AddListener(below(LISTENERS), below(CLUSTERS)),
        2 => Step::DeleteListener(below(LISTENERS), below(2) == 0),
        3 => Step::AddCluster(below(CLUSTERS)),
        4 => Step::DeleteCluster(below(CLUSTERS), below(2) == 0),
        5 => Step::DeleteSession(below(10)),
        _ => Step::Send(below(CLIENTS), below(LISTENERS)),
    }
}

impl World {
    fn new() -> Self {
        let plane = DataPlane::start(Options { workers: 1, ..Options::default() }).unwrap();
        let access = Access::new(None, false, true).unwrap();
        let api = Api::new(Arc::clone(&plane) as _, access, Settings::default());
        api.load(&Json::from(&json!({}))).unwrap();
        let socket = || {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            socket
        };
        let ports = [(); LISTENERS].map(|()| socket().local_addr().unwrap().port());
        let upstreams = (0..CLUSTERS).map(|_| socket()).collect();
        Self { plane, api, ports, upstreams, clients: (0..CLIENTS).map(|_| socket()).collect() }
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let request = Request {
            method: method.to_owned(),
            target: format!("/api/v1{path}"),
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body: if body.is_null() { Vec::new() } else { body.to_string().into_bytes() },
            ..Request::default()
        };
        let response = self.api.handle(&request);
        (response.status, serde_json::from_slice(&response.body).unwrap())
    }

    fn client_name(&self, client: usize) -> String {
        self.clients[client].local_addr().unwrap().to_string()
    }

    /// Does a step and says whether the API took it.
    fn take(&self, step: &Step, model: &Model) -> Option<bool> {
        let (method, path, body) = match step {
            Step::AddListener(l, c) => {
                let spec = json!({ "protocol": "UDP", "port": self.ports[*l], "address": "127.0.0.1" });
                let rules = json!([{ "action": { "route": { "destination": format!("c{c}") } } }]);
                (
                    "POST",
                    "/listeners".to_owned(),
                    json!({ "listener": { "name": format!("l{l}"), "spec": spec, "rules": rules } }),
                )
            }
            Step::AddCluster(c) => {
                let spec = json!({ "protocol": "UDP", "port": self.upstreams[*c].local_addr().unwrap().port() });
                let endpoints = json!([{ "name": format!("e{c}"), "spec": { "address": "127.0.0.1" } }]);
                (
                    "POST",
                    "/clusters".to_owned(),
                    json!({ "cluster": { "name": format!("c{c}"), "spec": spec, "endpoints": endpoints } }),
                )
            }
            Step::DeleteListener(l, recursive) => {
                ("DELETE", format!("/listeners/l{l}?recursive={recursive}"), Value::Null)
            }
            Step::DeleteCluster(c, recursive) => {
                ("DELETE", format!("/clusters/c{c}?recursive={recursive}"), Value::Null)
            }
            Step::DeleteSession(at) => {
                let name = model.sessions.get(*at).map_or("nobody", |session| &session.name);
                ("DELETE", format!("/sessions/{name}"), Value::Null)
            }
            Step::Send(..) => return None,
        };
        Some(self.call(method, &path, &body).0 == 200)
    }

    /// Sends a packet and, where one is expected, sees it arrive and brings an answer back.
    fn exchange(&self, client: usize, listener: usize, cluster: Option<usize>, payload: &str) {
        let to = ("127.0.0.1", self.ports[listener]);
        self.clients[client].send_to(payload.as_bytes(), to).unwrap();
        let Some(cluster) = cluster else {
            // a worker that wakes may look at its calls first and at its sockets then: at the second call it has seen both
            for _ in 0..2 {
                self.call("GET", "/sessions", &Value::Null);
            }
            return;
        };
        let mut buffer = [0; 100];
        let (n, from) = self.upstreams[cluster].recv_from(&mut buffer).expect("the packet at its endpoint");
        assert_eq!(std::str::from_utf8(&buffer[..n]).unwrap(), payload);
        self.upstreams[cluster].send_to(payload.to_uppercase().as_bytes(), from).unwrap();
        let n = self.clients[client].recv(&mut buffer).expect("the answer");
        assert_eq!(std::str::from_utf8(&buffer[..n]).unwrap(), payload.to_uppercase());
    }

    /// What the API shows, in the model's terms.
    fn shown(&self) -> Value {
        let names = |kind: &str| -> Vec<Value> {
            let (_, listed) = self.call("GET", &format!("/{kind}"), &Value::Null);
            listed.as_array().unwrap().iter().map(|object| object["name"].clone()).collect()
        };
        let (_, sessions) = self.call("GET", "/sessions", &Value::Null);
        let sessions: Vec<Value> = sessions
            .as_array()
            .unwrap()
            .iter()
            .map(|session| {
                json!([
                    session["name"],
                    session["source"]["origin"],
                    session["source"]["listener"] != "<INVALID>",
                    session["destination"]["origin"],
                    session["destination"]["endpoint"]["name"],
                    session["status"],
                    session["stats"]["packets"]
                ])
            })
            .collect();
        json!({ "listeners": names("listeners"), "clusters": names("clusters"), "sessions": sessions })
    }
}

impl Model {
    /// The same step; whether it is to be taken.
    fn take(&mut self, step: &Step) -> bool {
        match *step {
            Step::AddListener(l, c) => {
                let free = self.listeners.iter().all(|(other, ..)| *other != l);
                if free {
                    self.listeners.push((l, c, 0));
                }
                free
            }
            Step::DeleteListener(l, recursive) => {
                let there = self.listeners.iter().any(|(other, ..)| *other == l);
                self.listeners.retain(|(other, ..)| *other != l);
                self.sessions.retain(|session| !(there && recursive && session.listener == l && session.lives));
                self.sessions
                    .iter_mut()
                    .filter(|session| there && session.listener == l)
                    .for_each(|it| it.lives = false);
                there
            }
            Step::AddCluster(c) => {
                let free = !self.clusters.contains(&c);
                if free {
                    self.clusters.push(c);
                }
                free
            }
            Step::DeleteCluster(c, recursive) => {
                let there = self.clusters.contains(&c);
                self.clusters.retain(|other| *other != c);
                self.sessions.retain(|session| !(there && recursive && session.cluster == c && session.of_cluster));
                self.sessions.iter_mut().filter(|it| there && it.cluster == c).for_each(|it| it.of_cluster = false);
                there
            }
            Step::DeleteSession(at) => {
                let there = at < self.sessions.len();
                if there {
                    self.sessions.remove(at);
                }
                there
            }
            Step::Send(..) => true,
        }
    }

    /// Which cluster a packet comes out at, if any; it may make a session.
    fn deliver(&mut self, client: usize, listener: usize, world: &World) -> Option<usize> {
        let known = self.sessions.iter_mut().find(|session| (session.client, session.listener) == (client, listener));
        if let Some(session) = known {
            session.packets += 1;
            return Some(session.cluster);
        }
        let at = self.listeners.iter_mut().find(|(other, ..)| *other == listener)?;
        let (cluster, number) = (at.1, at.2);
        at.2 += 1;
        self.opened += 1;
        if !self.clusters.contains(&cluster) {
            return None;
        }
        let wanted = format!("UDP:{}-127.0.0.1:{}-{number}", world.client_name(client), world.ports[listener]);
        let taken: BTreeSet<&String> = self.sessions.iter().map(|session| &session.name).collect();
        let numbered = (1..).map(|n| format!("{wanted}_{n}"));
        let name = std::iter::once(wanted.clone()).chain(numbered).find(|name| !taken.contains(name))?;
        self.sessions.push(Expected { name, client, listener, lives: true, cluster, of_cluster: true, packets: 1 });
        Some(cluster)
    }

    fn shown(&self) -> Value {
        let sessions: Vec<Value> = self.sessions.iter().map(|it| {
            json!([it.name, format!("l{}", it.listener), it.lives, format!("c{}", it.cluster), format!("e{}", it.cluster),
                "CONNECTED", { "in": it.packets, "out": it.packets }])
        }).collect();
        let listeners: Vec<String> = self.listeners.iter().map(|(l, ..)| format!("l{l}")).collect();
        let clusters: Vec<String> = self.clusters.iter().map(|c| format!("c{c}")).collect();
        json!({ "listeners": listeners, "clusters": clusters, "sessions": sessions })
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn random_calls_and_packets_do_what_a_simple_model_says_and_leave_nothing_behind() {
    for seed in 0..SEEDS {
        let world = World::new();
        let before = descriptors();
        let (mut model, mut random) = (Model::default(), SplitMix::new(seed));
        for number in 0..STEPS {
            let step = step(&mut random);
            let context = format!("seed {seed}, step {number}: {step:?}");
            let taken = world.take(&step, &model);
            let expected = model.take(&step);
            assert!(taken.is_none_or(|taken| taken == expected), "{context}: taken {taken:?}, expected {expected}");
            if let Step::Send(client, listener) = step {
                let cluster = model.deliver(client, listener, &world);
                world.exchange(client, listener, cluster, &format!("packet {seed} {number}"));
            }
            assert_eq!(world.shown(), model.shown(), "{context}");
        }
        let opened = world.api.metrics().lines().find_map(|line| {
            line.strip_prefix("portolan_proxy_sessions_total ").map(|count| count.parse::<u64>().unwrap())
        });
        assert_eq!(opened, Some(model.opened), "seed {seed}");
        for session in &model.sessions {
            assert_eq!(world.call("DELETE", &format!("/sessions/{}", session.name), &Value::Null).0, 200);
        }
        for kind in ["listeners", "clusters"] {
            let (_, listed) = world.call("GET", &format!("/{kind}"), &Value::Null);
            for object in listed.as_array().unwrap() {
                let path = format!("/{kind}/{}?recursive=true", object["name"].as_str().unwrap());
                assert_eq!(world.call("DELETE", &path, &Value::Null).0, 200);
            }
        }
        world.api.sweep();
        let (_, left) = world.call("GET", "/config", &Value::Null);
        let left: BTreeMap<String, Value> = serde_json::from_value(left).unwrap();
        for (kind, objects) in left.iter().filter(|(kind, _)| *kind != "admin") {
            assert_eq!(objects, &json!([]), "seed {seed} leaves {kind} behind");
        }
        let end = std::time::Instant::now() + Duration::from_secs(10);
        while descriptors() > before && std::time::Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(descriptors() <= before, "seed {seed} leaves descriptors open");
        world.plane.stop();
    }
}
