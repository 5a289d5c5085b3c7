//! EndpointSlices for Services with selectors: watches in, a pure plan, the few writes it asks for.

mod plan;

use std::collections::BTreeSet;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use tokio_util::sync::CancellationToken;

use self::plan::{Change, MANAGED_BY, MANAGER, SERVICE_NAME, Target, plan};
use super::mirror::{Key, Mirror};
use super::{code, pause};

/// The loop.
pub struct Endpoints;

impl Endpoints {
    /// Runs until told to stop.
    pub async fn run(self, client: Client, stop: CancellationToken) {
        stop.run_until_cancelled(Box::pin(follow(client))).await;
    }
}

async fn follow(client: Client) {
    let all = watcher::Config::default;
    let ours = all().labels(&format!("{MANAGED_BY}={MANAGER}"));
    let services = watcher(Api::<Service>::all(client.clone()), all()).default_backoff();
    let pods = watcher(Api::<Pod>::all(client.clone()), all()).default_backoff();
    let nodes = watcher(Api::<Node>::all(client.clone()), all()).default_backoff();
    let slices = watcher(Api::<EndpointSlice>::all(client.clone()), ours).default_backoff();
    let (mut services, mut pods, mut nodes, mut slices) =
        (std::pin::pin!(services), std::pin::pin!(pods), std::pin::pin!(nodes), std::pin::pin!(slices));
    let mut world = World::default();
    let mut failures = 0;
    loop {
        let retry = tokio::time::sleep(pause(failures));
        tokio::select! {
            Some(event) = services.next() => {
                let changed = world.services.take_in(event, slim);
                world.due.extend(changed);
            }
            Some(event) = pods.next() => {
                let changed = world.pods.take_in(event, Target::read);
                world.touch(changed.into_iter().map(|(namespace, _)| namespace).collect());
            }
            Some(event) = nodes.next() => {
                // Every status a kubelet writes comes by here; only zones matter.
                if !world.nodes.take_in(event, plan::zone).is_empty() {
                    let namespaces = world.services.items().keys().map(|(namespace, _)| namespace.clone()).collect();
                    world.touch(namespaces);
                }
            }
            Some(event) = slices.next() => {
                let changed = world.slices.take_in(event, |slice: EndpointSlice| slice);
                world.touch_slices(&changed);
            }
            () = retry, if failures > 0 => {}
        }
        if world.is_synced() {
            failures = if world.mend(&client).await { 0 } else { failures + 1 };
        }
    }
}

#[derive(Default)]
struct World {
    services: Mirror<Service>,
    pods: Mirror<Target>,
    /// Zones.
    nodes: Mirror<Option<String>>,
    slices: Mirror<EndpointSlice>,
    /// Services to look at.
    due: BTreeSet<Key>,
}

impl World {
    fn is_synced(&self) -> bool {
        self.services.is_synced() && self.pods.is_synced() && self.nodes.is_synced() && self.slices.is_synced()
    }

    /// All services of these namespaces are to be looked at.
    fn touch(&mut self, namespaces: BTreeSet<String>) {
        for namespace in namespaces {
            let keys: Vec<Key> = self.services.within(&namespace).map(|(key, _)| key.clone()).collect();
            self.due.extend(keys);
        }
    }

    /// The services of these slices are to be looked at; a slice that went may have been anybody's.
    fn touch_slices(&mut self, slices: &BTreeSet<Key>) {
        for key in slices {
            match self.slices.items().get(key).and_then(service_of) {
                Some(service) => drop(self.due.insert(service)),
                None => self.touch(BTreeSet::from([key.0.clone()])),
            }
        }
    }

    /// Writes what is due; false if something failed, and is due still.
    async fn mend(&mut self, client: &Client) -> bool {
        let mut left = BTreeSet::new();
        for key in std::mem::take(&mut self.due) {
            let service = self.services.items().get(&key);
            let slices = self.slices.within(&key.0).map(|(_, slice)| slice);
            let slices: Vec<&EndpointSlice> = slices.filter(|slice| service_of(slice).as_ref() == Some(&key)).collect();
            let pods: Vec<&Target> = self.pods.within(&key.0).map(|(_, pod)| pod).collect();
            let changes = plan(service, &pods, self.nodes.items(), &slices);
            for change in changes {
                if let Err(error) = self.write(client, &key.0, change).await {
                    // Conflicts resolve themselves: the event of the newer slice is on its way.
                    tracing::debug!(%error, service = key.1, "writing an EndpointSlice failed and is tried again");
                    left.insert(key.clone());
                }
            }
        }
        self.due.append(&mut left.clone());
        left.is_empty()
    }

    async fn write(&mut self, client: &Client, namespace: &str, change: Change) -> kube::Result<()> {
        let api: Api<EndpointSlice> = Api::namespaced(client.clone(), namespace);
        let written = match change {
            Change::Create(slice) => match api.create(&PostParams::default(), &slice).await {
                // The namespace is on its way out.
                Err(error) if matches!(code(&error), 403 | 404) => return Ok(()),
                created => created?,
            },
            Change::Update(slice) => api.replace(&slice.name_any(), &PostParams::default(), &slice).await?,
            Change::Delete { name, uid } => {
                let preconditions = Some(Preconditions { uid, resource_version: None });
                match api.delete(&name, &DeleteParams { preconditions, ..DeleteParams::default() }).await {
                    Err(error) if code(&error) != 404 => return Err(error),
                    Ok(_) | Err(_) => {}
                }
                self.slices.remove(&(namespace.to_owned(), name));
                return Ok(());
            }
        };
        self.slices.put((namespace.to_owned(), written.name_any()), written);
        Ok(())
    }
}

fn service_of(slice: &EndpointSlice) -> Option<Key> {
    let name = slice.labels().get(SERVICE_NAME)?.clone();
    Some((slice.namespace().unwrap_or_default(), name))
}

/// A service without what others write to it and we do not read.
fn slim(mut service: Service) -> Service {
    service.metadata.managed_fields = None;
    service.metadata.resource_version = None;
    service.metadata.annotations = None;
    service.status = None;
    service
}
