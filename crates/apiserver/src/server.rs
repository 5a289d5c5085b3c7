//! The server as one value: its store, the kinds it serves at this moment, and who may ask.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Request, Response};
use jiff::Timestamp;
use kube::Client;
use parking_lot::{Mutex, RwLock};
use serde_json::Value;

use tokio_util::task::TaskTracker;

use crate::admission::{Caller, Hooks};
use crate::auth::Recorder;
use crate::auth::{Authenticator, Authorizer, Identity, User};
use crate::kinds::cluster_ip::{self, Range, Ranges, Used};
use crate::kinds::{Kind, builtin, events};
use crate::object::{get_meta, has_finalizers, is_deleting, meta, set_meta, time};
use crate::rest;
use crate::schema::cel::Rules;
use crate::status::Failure;
use crate::store::{self, Change, Entry, Expect, Key, Resource, Store};
use crate::{crd, schema};

/// The embedded API server. Clones are the same server.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) store: Store,
    pub(crate) authenticator: Authenticator,
    pub(crate) authorizer: Authorizer,
    pub(crate) recorder: Recorder,
    served: RwLock<Arc<Served>>,
    hooks: RwLock<Arc<Hooks>>,
    caller: Arc<Caller>,
    ranges: Ranges,
    /// Held from the choice of a cluster address to its commit: two Services never get the same.
    pub(crate) allocation: tokio::sync::Mutex<()>,
    definitions: Mutex<()>,
}

/// A kind with what was compiled for it.
#[derive(Debug)]
pub(crate) struct ServedKind {
    pub(crate) kind: Kind,
    pub(crate) rules: Rules,
    /// Whether its definition is being deleted.
    pub(crate) ending: bool,
    pub(crate) resource: Resource,
}

/// All kinds served, by group, version and plural. A change of definitions makes a new one.
#[derive(Debug, Default)]
pub(crate) struct Served {
    kinds: BTreeMap<(String, String, String), Arc<ServedKind>>,
}

impl Served {
    pub(crate) fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ServedKind>> {
        self.kinds.get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    pub(crate) fn kinds(&self) -> Vec<&Kind> {
        self.kinds.values().map(|served| &served.kind).collect()
    }

    /// Whether Kubernetes itself has this group.
    pub(crate) fn is_builtin(&self, group: &str) -> bool {
        group.is_empty() || self.kinds.values().any(|served| !served.kind.custom && served.kind.group == group)
    }

    /// All versions in which a resource is served.
    pub(crate) fn versions(&self, group: &str, plural: &str) -> Vec<String> {
        let same = self.kinds.values().filter(|served| served.kind.group == group && served.kind.plural == plural);
        same.map(|served| served.kind.version.clone()).collect()
    }
}

const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");
const MUTATING: (&str, &str) = ("admissionregistration.k8s.io", "mutatingwebhookconfigurations");
const VALIDATING: (&str, &str) = ("admissionregistration.k8s.io", "validatingwebhookconfigurations");
/// Namespaces that are always there.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

impl ApiServer {
    /// A fresh server that keeps everything in memory.
    pub async fn memory() -> Self {
        Self::new(Store::memory(store::Options::default()), Authenticator::new()).await
    }

    /// The server kept in `folder`, made when missing.
    pub async fn open(folder: &Path) -> Result<Self, store::Error> {
        Ok(Self::new(Store::open(folder, store::Options::default())?, Authenticator::new()).await)
    }

    async fn new(store: Store, authenticator: Authenticator) -> Self {
        let tasks = TaskTracker::new();
        let caller = Arc::new(Caller::new(tasks.clone()));
        let ranges = Ranges { v4: Range::parse("10.96.0.0/12").expect("it is a network"), v6: None };
        let inner = Inner {
            store,
            authenticator,
            authorizer: Authorizer::default(),
            recorder: Recorder::default(),
            served: RwLock::default(),
            hooks: RwLock::new(Arc::new(Hooks::new(&[], &[], caller.clone()))),
            caller,
            ranges,
            allocation: tokio::sync::Mutex::new(()),
            definitions: Mutex::new(()),
        };
        inner.serve_definitions();
        inner.compile_hooks();
        let server = Self { inner: Arc::new(inner) };
        for namespace in NAMESPACES {
            server.inner.ensure_namespace(namespace).await;
        }
        server
    }

    /// Answers one request; `peer` is who the client's certificate says it is.
    pub async fn answer(&self, request: Request<rest::Body>, peer: Option<&Identity>) -> Response<rest::Body> {
        rest::answer(&self.inner, request, rest::Peer::Certificate(peer)).await
    }

    /// A client in this process, with all rights and without a socket.
    pub fn client(&self) -> Client {
        let inner = self.inner.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| in_process(inner.clone(), request));
        Client::new(service, "default")
    }

    /// A client in this process that shows no credentials.
    pub fn stranger(&self) -> Client {
        let inner = self.inner.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| anonymous(inner.clone(), request));
        Client::new(service, "default")
    }

    /// What each user asked for, once switched on.
    pub fn recorder(&self) -> &Recorder {
        &self.inner.recorder
    }
}

/// Named, because its type must hold for every lifetime.
type Answered = BoxFuture<'static, Result<Response<rest::Body>, Infallible>>;

fn in_process(inner: Arc<Inner>, request: Request<kube::client::Body>) -> Answered {
    Box::pin(async move {
        let user = User::new("system:admin", &["system:masters", "system:authenticated"]);
        Ok(rest::answer(&inner, request.map(rest::boxed), rest::Peer::Trusted(&user)).await)
    })
}

fn anonymous(inner: Arc<Inner>, request: Request<kube::client::Body>) -> Answered {
    Box::pin(async move { Ok(rest::answer(&inner, request.map(rest::boxed), rest::Peer::Certificate(None)).await) })
}

impl Inner {
    pub(crate) fn served(&self) -> Arc<Served> {
        self.served.read().clone()
    }

    pub(crate) fn hooks(&self) -> Arc<Hooks> {
        self.hooks.read().clone()
    }

    /// The object of an entry in the version of `kind`.
    pub(crate) fn decode(kind: &Kind, entry: &Entry) -> Result<Value, Failure> {
        let mut object: Value = serde_json::from_slice(&entry.json)
            .map_err(|problem| Failure::internal(format!("{} is not JSON: {problem}", entry.key.name)))?;
        if events::is_view(kind) {
            events::to_view(&mut object);
        } else if kind.custom && object["apiVersion"] != kind.api_version().as_str() {
            object["apiVersion"] = kind.api_version().into();
            schema::prune::prune(&kind.schema, &mut object);
            schema::default::default(&kind.schema, &mut object);
        }
        Ok(object)
    }

    /// The bytes to store for an object of `kind`.
    pub(crate) fn encode(kind: &Kind, mut object: Value, revision: u64) -> Vec<u8> {
        set_meta(&mut object, "resourceVersion", revision.to_string());
        if events::is_view(kind) {
            events::to_stored(&mut object);
        } else if kind.custom {
            object["apiVersion"] = format!("{}/{}", kind.group, kind.storage_version).into();
        }
        object.to_string().into_bytes()
    }

    /// A namespace as stored.
    pub(crate) fn namespace(&self, name: &str) -> Option<Value> {
        let entry = self.store.get(&Key::new(&Resource::new("", "namespaces"), "", name))?;
        serde_json::from_slice(&entry.json).ok()
    }

    /// Fills in what a Service is given from the ranges of this server.
    pub(crate) fn assign_addresses(&self, service: &mut Value, old: Option<&Value>) -> Result<(), Failure> {
        let mut used = Used::default();
        for entry in self.store.list(&Resource::new("", "services"), None).entries {
            let Ok(stored) = serde_json::from_slice::<Value>(&entry.json) else { continue };
            if get_meta(&stored, "uid") == get_meta(service, "uid") {
                continue;
            }
            let (addresses, ports) = cluster_ip::held(&stored);
            used.addresses.extend(addresses);
            used.node_ports.extend(ports);
        }
        cluster_ip::assign(service, old, &self.ranges, &used, fastrand::u64(..))
    }

    /// To be called after each write: definitions and webhooks take effect at once.
    pub(crate) async fn wrote(self: &Arc<Self>, kind: &Kind) {
        let written = (kind.group.as_str(), kind.plural.as_str());
        let is_ending = || self.served().get(&kind.group, &kind.version, &kind.plural).is_some_and(|kind| kind.ending);
        if written == DEFINITIONS || (kind.custom && is_ending()) {
            self.accept_definitions().await;
            if self.end_definitions().await {
                // What they held is free for others.
                self.accept_definitions().await;
            }
            self.serve_definitions();
        } else if written == MUTATING || written == VALIDATING {
            self.compile_hooks();
        }
    }

    fn all(&self, (group, plural): (&str, &str)) -> Vec<(u64, Value)> {
        let listed = self.store.list(&Resource::new(group, plural), None);
        let read = |entry: &Arc<Entry>| Some((entry.revision, serde_json::from_slice(&entry.json).ok()?));
        listed.entries.iter().filter_map(read).collect()
    }

    fn compile_hooks(&self) {
        let objects = |which| self.all(which).into_iter().map(|(_, object)| object).collect::<Vec<_>>();
        *self.hooks.write() = Arc::new(Hooks::new(&objects(MUTATING), &objects(VALIDATING), self.caller.clone()));
    }

    /// Serves the built-in kinds and those of definitions whose names were accepted.
    fn serve_definitions(&self) {
        let _one_at_a_time = self.definitions.lock();
        let mut kinds = BTreeMap::new();
        let definitions = self.all(DEFINITIONS);
        let custom = definitions.iter().flat_map(|(_, definition)| {
            let ending = is_deleting(definition);
            crd::kinds(definition).into_iter().map(move |kind| (kind, ending))
        });
        for (kind, ending) in builtin::all().into_iter().map(|kind| (kind, false)).chain(custom) {
            let plural = if events::is_view(&kind) {
                Resource::new("", "events")
            } else {
                Resource::new(&kind.group, &kind.plural)
            };
            let rules = if kind.custom { Rules::compile(&kind.schema) } else { Rules::default() };
            let key = (kind.group.clone(), kind.version.clone(), kind.plural.clone());
            kinds.insert(key, Arc::new(ServedKind { kind, rules, ending, resource: plural }));
        }
        *self.served.write() = Arc::new(Served { kinds });
    }

    /// Deletes the objects of definitions that are being deleted, and those definitions that have none left. Says
    /// whether one went.
    async fn end_definitions(&self) -> bool {
        let mut ended = false;
        for (revision, mut definition) in self.all(DEFINITIONS) {
            let mut finalizers = get_meta(&definition, "finalizers").as_array().cloned().unwrap_or_default();
            if !is_deleting(&definition) || !finalizers.iter().any(|finalizer| finalizer == crd::CLEANUP) {
                continue;
            }
            let text = |pointer| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let resource = Resource::new(text("/spec/group"), text("/spec/names/plural"));
            for entry in self.store.list(&resource, None).entries {
                self.end(&entry).await;
            }
            if !self.store.list(&resource, None).entries.is_empty() {
                continue;
            }
            let key = Key::new(&Resource::new(DEFINITIONS.0, DEFINITIONS.1), "", meta(&definition, "name"));
            finalizers.retain(|finalizer| finalizer != crd::CLEANUP);
            let last = finalizers.is_empty();
            if !last {
                set_meta(&mut definition, "finalizers", finalizers);
            }
            let change = move |revision: u64| {
                set_meta(&mut definition, "resourceVersion", revision.to_string());
                let bytes = definition.to_string().into_bytes();
                if last { Change::Delete(bytes) } else { Change::Set(bytes) }
            };
            ended |= self.store.commit(key, Expect::Revision(revision), change).await.is_ok();
        }
        ended
    }

    /// Deletes an object whose kind goes; one with finalizers is marked.
    async fn end(&self, entry: &Entry) {
        let Ok(mut object) = serde_json::from_slice::<Value>(&entry.json) else { return };
        let held = has_finalizers(&object);
        if held && is_deleting(&object) {
            return;
        }
        if held {
            set_meta(&mut object, "deletionTimestamp", time(Timestamp::now()));
            set_meta(&mut object, "deletionGracePeriodSeconds", 0);
            let generation = get_meta(&object, "generation").as_i64().unwrap_or(0);
            set_meta(&mut object, "generation", generation + 1);
        }
        let change = move |revision: u64| {
            set_meta(&mut object, "resourceVersion", revision.to_string());
            let bytes = object.to_string().into_bytes();
            if held { Change::Set(bytes) } else { Change::Delete(bytes) }
        };
        // Whoever wrote in between has this called again.
        self.store.commit(entry.key.clone(), Expect::Revision(entry.revision), change).await.ok();
    }

    /// Brings the status of every definition up to date.
    async fn accept_definitions(self: &Arc<Self>) {
        let definitions = self.all(DEFINITIONS);
        for (revision, definition) in &definitions {
            let held = crd::Names::held(definition, definitions.iter().map(|(_, other)| other));
            let status = crd::conditions(definition, &held, &time(Timestamp::now()));
            if definition["status"] == status {
                continue;
            }
            let mut accepted = definition.clone();
            accepted["status"] = status;
            let resource = Resource::new(DEFINITIONS.0, DEFINITIONS.1);
            let key = Key::new(&resource, "", definition["metadata"]["name"].as_str().unwrap_or_default());
            let value = move |revision: u64| {
                set_meta(&mut accepted, "resourceVersion", revision.to_string());
                Change::Set(accepted.to_string().into_bytes())
            };
            // Whoever wrote in between calls this again.
            self.store.commit(key, Expect::Revision(*revision), value).await.ok();
        }
    }

    async fn ensure_namespace(self: &Arc<Self>, name: &str) {
        if self.namespace(name).is_none() {
            rest::create_namespace(self, name).await;
        }
    }
}
