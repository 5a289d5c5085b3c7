//! The state of a server that every request shares: its store, the kinds it serves, webhooks, authentication.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admission::{Caller, Hooks};
use crate::auth::{self, Authenticator, Authorizer, Recorder, User};
use crate::clock::Clock;
use crate::crd::Served;
use crate::kinds::{Kind, autoscaler, cluster_ip, events};
use crate::object::{get_meta, set_meta};
use crate::schema;
use crate::status::Failure;
use crate::store::{Entry, Key, Resource, Store};

const MUTATING: (&str, &str) = ("admissionregistration.k8s.io", "mutatingwebhookconfigurations");
const VALIDATING: (&str, &str) = ("admissionregistration.k8s.io", "validatingwebhookconfigurations");

/// The state of a server.
pub(crate) struct ServerState {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) authenticator: Authenticator,
    /// The administrator's bearer token, generated at the start.
    pub(crate) token: String,
    pub(crate) authorizer: Authorizer,
    pub(crate) recorder: Recorder,
    pub(crate) served: RwLock<Arc<Served>>,
    /// Held while `served` is rebuilt from the stored definitions.
    pub(crate) serving: Mutex<()>,
    hooks: RwLock<Arc<Hooks>>,
    caller: Arc<Caller>,
    /// Held from the choice of a cluster IP to its commit, so that no two Services get the same.
    pub(crate) allocation: tokio::sync::Mutex<()>,
    /// Ends every watch.
    pub(crate) stopping: CancellationToken,
}

impl ServerState {
    /// A state over a store; the kinds of its definitions are not served yet.
    pub(crate) fn new(store: Store, clock: Clock) -> Self {
        let caller = Arc::new(Caller::new(TaskTracker::new()));
        let token = auth::token();
        let state = Self {
            store,
            clock,
            authenticator: Authenticator::new().with_token(&token, User::new("portolan-admin", &[auth::MASTERS])),
            token,
            authorizer: Authorizer,
            recorder: Recorder::default(),
            served: RwLock::default(),
            serving: Mutex::default(),
            hooks: RwLock::new(Arc::new(Hooks::new(&[], &[], caller.clone()))),
            caller,
            allocation: tokio::sync::Mutex::new(()),
            stopping: CancellationToken::new(),
        };
        state.compile_hooks();
        state
    }

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
        } else if autoscaler::is_view(kind) {
            autoscaler::to_view(&mut object);
        } else if kind.custom
            && (entry.revision < kind.defined_at || object["apiVersion"] != kind.api_version().as_str())
        {
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
        } else if autoscaler::is_view(kind) {
            autoscaler::to_stored(&mut object);
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

    /// Fills in the cluster address of a Service.
    pub(crate) fn assign_addresses(&self, service: &mut Value, old: Option<&Value>) -> Result<(), Failure> {
        let mut used = BTreeSet::new();
        for (_, stored) in self.all(("", "services")) {
            if get_meta(&stored, "uid") != get_meta(service, "uid") {
                used.extend(cluster_ip::held(&stored));
            }
        }
        cluster_ip::assign(service, old, &used, fastrand::u32(..))
    }

    /// To be called after each write, so that definitions and webhooks take effect immediately.
    pub(crate) async fn wrote(&self, kind: &Kind) {
        let written = (kind.group.as_str(), kind.plural.as_str());
        if written == MUTATING || written == VALIDATING {
            self.compile_hooks();
        } else if self.is_of_definitions(kind) {
            self.settle_definitions().await;
        }
    }

    /// All objects of a group and plural, with their entries.
    pub(crate) fn all(&self, (group, plural): (&str, &str)) -> Vec<(Arc<Entry>, Value)> {
        let listed = self.store.list(&Resource::new(group, plural), None);
        let read = |entry: Arc<Entry>| serde_json::from_slice(&entry.json).ok().map(|object| (entry, object));
        listed.entries.into_iter().filter_map(read).collect()
    }

    fn compile_hooks(&self) {
        let mut hooks = self.hooks.write();
        let objects = |which| self.all(which).into_iter().map(|(_, object)| object).collect::<Vec<_>>();
        *hooks = Arc::new(Hooks::new(&objects(MUTATING), &objects(VALIDATING), self.caller.clone()));
    }
}
