//! Sees every state that the API server goes through, and whether a number or an address was held twice in one of them.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use futures::StreamExt as _;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::{Api, Client};
use parking_lot::Mutex;
use portolan_api::gateway::LoadBalancer;
use tokio::task::JoinSet;

/// A watch of all load balancers; it ends when dropped.
pub(crate) struct Observer {
    seen: Arc<Mutex<Seen>>,
    _task: JoinSet<()>,
}

/// What was seen so far.
#[derive(Default)]
struct Seen {
    /// What each load balancer carries, by uid.
    carried: BTreeMap<String, Carried>,
    keys: BTreeMap<u32, String>,
    addresses: BTreeMap<String, String>,
    tunnels: BTreeMap<u32, String>,
    twice: Vec<String>,
}

#[derive(Default)]
struct Carried {
    key: u32,
    address: String,
    tunnels: Vec<u32>,
}

impl Observer {
    pub(crate) fn start(client: &Client) -> Self {
        let api: Api<LoadBalancer> = Api::all(client.clone());
        let seen = Arc::new(Mutex::new(Seen::default()));
        let into = Arc::clone(&seen);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut events = Box::pin(watcher(api, Config::default()));
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::InitApply(object) | Event::Apply(object)) => into.lock().apply(&object),
                    Ok(Event::Delete(object)) => into.lock().remove(&uid(&object)),
                    // a watch that was cut goes on where it ended
                    Ok(Event::Init | Event::InitDone) | Err(_) => {}
                }
            }
        });
        Self { seen, _task: task }
    }

    /// Waits until so many load balancers have a key, an address, and a tunnel if they need one.
    pub(crate) async fn until_allocated(&self, count: usize, with_tunnels: bool) -> anyhow::Result<()> {
        self.until(|seen| {
            let is_done = |carried: &&Carried| {
                carried.key != 0 && !carried.address.is_empty() && (!with_tunnels || !carried.tunnels.is_empty())
            };
            seen.carried.values().filter(is_done).count() == count
        })
        .await
    }

    pub(crate) async fn until_gone(&self) -> anyhow::Result<()> {
        self.until(|seen| seen.carried.is_empty()).await
    }

    async fn until(&self, is_met: impl Fn(&Seen) -> bool) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            {
                let seen = self.seen.lock();
                if is_met(&seen) {
                    return Ok(());
                }
                let (all, keys, addresses) = (seen.carried.len(), seen.keys.len(), seen.addresses.len());
                ensure!(
                    began.elapsed() < Duration::from_mins(30),
                    "of {all} load balancers, {keys} have a key and {addresses} an address"
                );
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What was held twice at any time.
    pub(crate) fn twice(&self) -> Vec<String> {
        self.seen.lock().twice.clone()
    }

    /// How many different keys, addresses and tunnel ids are held now.
    pub(crate) fn distinct(&self) -> [usize; 3] {
        let seen = self.seen.lock();
        [seen.keys.len(), seen.addresses.len(), seen.tunnels.len()]
    }
}

impl Seen {
    fn apply(&mut self, object: &LoadBalancer) {
        let uid = uid(object);
        self.remove(&uid);
        let tunnels = object.status.iter().flat_map(|status| status.gue_tunnel_endpoints.values());
        let carried = Carried {
            key: object.spec.gue_key,
            address: object.spec.public_address.clone(),
            tunnels: tunnels.map(|tunnel| tunnel.tunnel_id).filter(|id| *id != 0).collect(),
        };
        let Self { keys, addresses, tunnels, twice, .. } = self;
        if carried.key != 0 {
            hold("key", keys, &carried.key, &uid, twice);
        }
        if !carried.address.is_empty() {
            hold("address", addresses, &carried.address, &uid, twice);
        }
        for id in &carried.tunnels {
            hold("tunnel", tunnels, id, &uid, twice);
        }
        self.carried.insert(uid, carried);
    }

    fn remove(&mut self, uid: &str) {
        let Some(Carried { key, address, tunnels }) = self.carried.remove(uid) else { return };
        release(&mut self.keys, &key, uid);
        release(&mut self.addresses, &address, uid);
        for id in tunnels {
            release(&mut self.tunnels, &id, uid);
        }
    }
}

fn hold<K: Ord + Clone + Display>(
    what: &str,
    holders: &mut BTreeMap<K, String>,
    value: &K,
    uid: &str,
    twice: &mut Vec<String>,
) {
    if let Some(other) = holders.insert(value.clone(), uid.to_owned()) {
        twice.push(format!("{what} {value}: {other} and {uid}"));
    }
}

fn release<K: Ord>(holders: &mut BTreeMap<K, String>, value: &K, uid: &str) {
    if holders.get(value).is_some_and(|holder| holder == uid) {
        holders.remove(value);
    }
}

fn uid(object: &LoadBalancer) -> String {
    object.metadata.uid.clone().unwrap_or_default()
}
