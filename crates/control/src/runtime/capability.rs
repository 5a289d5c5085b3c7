//! A capability as a value: one descriptor holds everything that the operator, the queries, the generated manifests
//! and the scenarios need to know about it. All of them iterate over a table of descriptors.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use clap::ArgMatches;
use futures::future::BoxFuture;
use ipnet::IpNet;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::Client;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ObjectMeta};
use portolan_drivers::cloud::MemoryCloud;
use portolan_drivers::cloud::aws::AwsSettings;
use prometheus_client::registry::Registry;
use serde_json::Value;

use super::app::Ctx;
use super::doctor::{Checks, Examination};
use super::query::{QueryError, QueryResult};
use super::webhook::{Hook, Webhooks};

/// Everything there is to know about a capability.
#[derive(Debug)]
pub struct Capability {
    /// The value of `--capabilities`, the folder's name, and the prefix of flags, metrics and Helm values.
    pub name: &'static str,
    /// One line, without a period.
    pub description: &'static str,
    /// It runs unless `--capabilities` leaves it out; else only if `--capabilities` names it.
    pub by_default: bool,
    /// The kinds that it reads or writes.
    pub kinds: &'static [Kind],
    /// Adds its flags to the operator's command; every flag has an environment variable and a help heading.
    pub options: fn(clap::Command) -> clap::Command,
    /// Checks the flags, and returns what starts the capability with them.
    pub configure: fn(&ArgMatches, &Platform) -> Result<Starter, OptionsError>,
    /// Its admission webhooks.
    pub admission: Option<Admission>,
    /// What `portolan plan`, `why`, `status` and `doctor` can ask.
    pub queries: Queries,
}

/// Starts the control loop, and adds the admission handlers.
pub type Starter = Box<dyn FnOnce(&Ctx, &mut Registry, Webhooks) -> Webhooks + Send>;

/// The result of a query that is still running.
pub type Query = BoxFuture<'static, Result<QueryResult, QueryError>>;

/// Where the process runs.
#[derive(Debug, Clone, Default)]
pub struct Platform {
    /// Address of the API server, if its URL has one.
    pub api_server: Option<IpAddr>,
    /// Loopback range of the pods, where pods run as processes of this machine.
    pub loopback_pods: Option<IpNet>,
    /// The operator's own namespace.
    pub namespace: String,
    /// The cloud whose instances the nodes are.
    pub cloud: CloudSource,
    /// What starts other programs.
    pub programs: Programs,
}

/// Where other programs are, and where they can keep files.
#[derive(Debug, Clone, Default)]
pub struct Programs {
    /// Envoy. None: `envoy` in the search path.
    pub envoy: Option<PathBuf>,
    /// Folders in which programs are looked for.
    pub search_path: Vec<PathBuf>,
    /// A folder for this process alone; it need not exist. Sockets stand in it, so its path is short.
    pub folder: PathBuf,
}

/// A cloud that a capability may need.
#[derive(Debug, Clone)]
pub enum CloudSource {
    /// AWS, with these settings.
    Aws(Box<AwsSettings>),
    /// One in this process.
    Memory(Arc<MemoryCloud>),
}

impl Default for CloudSource {
    fn default() -> Self {
        Self::Aws(Box::default())
    }
}

/// Flags that cannot be used as given; the text says why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OptionsError(pub String);

/// Queries that a capability answers.
#[derive(Debug)]
pub struct Queries {
    /// What applying these objects would change.
    pub plan: fn(Client, Vec<Value>) -> Query,
    /// Kinds of objects whose state can be explained.
    pub why: &'static [Why],
    /// The state of everything it looks after.
    pub status: fn(Client) -> Query,
    /// What the loss of this node would change, if the capability depends on nodes.
    pub node_loss: Option<fn(Client, String) -> Query>,
    /// What is wrong with what it looks after, besides what every capability needs.
    pub doctor: fn(Client, Examination) -> Checks,
}

/// One kind of question for `portolan why`.
#[derive(Debug)]
pub struct Why {
    /// The words for the kind: the one for hints first, then synonyms.
    pub words: &'static [&'static str],
    /// What the name that follows the word means.
    pub about: &'static str,
    /// Explains the object with this name; the last argument is the destination, if one is given.
    pub explain: fn(Client, String, Option<String>) -> Query,
}

/// The admission webhooks of a capability.
#[derive(Debug, Clone, Copy)]
pub struct Admission {
    /// Name of the webhook configurations.
    pub name: &'static str,
    pub validating: &'static [Hook],
    pub mutating: &'static [Hook],
}

impl Admission {
    /// The validating configuration, for a webhook that is reached as `client` says for a path.
    pub fn validating(&self, client: impl Fn(&str) -> WebhookClientConfig) -> ValidatingWebhookConfiguration {
        let hooks = self.validating.iter().map(|hook| hook.configured(&client(hook.path)));
        ValidatingWebhookConfiguration { metadata: self.metadata(), webhooks: Some(hooks.collect()) }
    }

    /// The mutating configuration, in the same way.
    pub fn mutating(&self, client: impl Fn(&str) -> WebhookClientConfig) -> MutatingWebhookConfiguration {
        let hooks = self.mutating.iter().map(|hook| hook.configured(&client(hook.path)));
        MutatingWebhookConfiguration { metadata: self.metadata(), webhooks: Some(hooks.collect()) }
    }

    fn metadata(&self) -> ObjectMeta {
        ObjectMeta { name: Some(self.name.to_owned()), ..ObjectMeta::default() }
    }
}

/// A kind that a capability uses, and what the operator may do with it. The roles in `deploy` are made from these.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
    pub namespaced: bool,
    /// `portolan plan` takes objects of this kind.
    pub planned: bool,
    /// What the operator may do with objects.
    pub verbs: &'static [&'static str],
    /// What the operator may do with their status.
    pub status_verbs: &'static [&'static str],
    /// The flag that names the only object it may touch.
    pub named_by: Option<&'static str>,
    /// The name of the only object it may touch.
    pub named: Option<&'static str>,
    /// Why it needs to; a comment in the roles.
    pub purpose: &'static str,
    /// What of it the operator leaves on a cluster.
    pub leftover: Option<Leftover>,
    /// Only objects in the operator's own namespace are meant.
    pub own_namespace: bool,
    /// It is used only with this flag: without, the chart does not grant it.
    pub with_flag: Option<&'static str>,
}

/// What an operator leaves on a cluster when it is gone, and `portolan cleanup` removes.
#[derive(Debug, Clone, Copy)]
pub enum Leftover {
    /// Objects that it made; the function tells them from those that a user made or changed.
    Objects(fn(&DynamicObject) -> bool),
    /// A finalizer that nobody removes any more, on objects that the function picks. The objects stay.
    Finalizer(&'static str, fn(&DynamicObject) -> bool),
}

impl Kind {
    /// A kind whose objects live in namespaces, read only.
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Self {
        Self {
            group,
            version,
            kind,
            plural,
            namespaced: true,
            planned: false,
            verbs: &["list", "watch"],
            status_verbs: &[],
            named_by: None,
            named: None,
            purpose: "",
            leftover: None,
            own_namespace: false,
            with_flag: None,
        }
    }

    /// A kind whose objects belong to the cluster, read only.
    pub const fn cluster(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> Self {
        Self { namespaced: false, ..Self::namespaced(group, version, kind, plural) }
    }

    /// Objects of it can be planned.
    #[must_use]
    pub const fn planned(self) -> Self {
        Self { planned: true, ..self }
    }

    /// The operator does this with objects of it.
    #[must_use]
    pub const fn verbs(self, verbs: &'static [&'static str]) -> Self {
        Self { verbs, ..self }
    }

    /// The operator does this with their status.
    #[must_use]
    pub const fn status(self, status_verbs: &'static [&'static str]) -> Self {
        Self { status_verbs, ..self }
    }

    /// The operator touches only the object that this flag names.
    #[must_use]
    pub const fn named_by(self, flag: &'static str) -> Self {
        Self { named_by: Some(flag), ..self }
    }

    /// The operator touches only the object of this name.
    #[must_use]
    pub const fn named(self, name: &'static str) -> Self {
        Self { named: Some(name), ..self }
    }

    /// The operator touches only those in its own namespace.
    #[must_use]
    pub const fn in_own_namespace(self) -> Self {
        Self { own_namespace: true, ..self }
    }

    /// It is used only with this flag.
    #[must_use]
    pub const fn with_flag(self, flag: &'static str) -> Self {
        Self { with_flag: Some(flag), ..self }
    }

    /// Why the operator needs to.
    #[must_use]
    pub const fn purpose(self, purpose: &'static str) -> Self {
        Self { purpose, ..self }
    }

    /// The operator leaves this of it.
    #[must_use]
    pub const fn leaves(self, leftover: Leftover) -> Self {
        Self { leftover: Some(leftover), ..self }
    }

    /// The kind as clients address it.
    pub fn resource(&self) -> ApiResource {
        let Self { group, version, kind, plural, .. } = self;
        ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
    }
}

impl Capability {
    /// Its flags at their defaults, whatever the environment says.
    pub fn defaults(&self) -> ArgMatches {
        let command = (self.options)(clap::Command::new(self.name).no_binary_name(true));
        let command = command.mut_args(|arg| arg.env(clap::builder::Resettable::Reset));
        command.get_matches_from(std::iter::empty::<&str>())
    }

    /// Its flags, in order.
    pub fn flags(&self) -> Vec<clap::Arg> {
        (self.options)(clap::Command::new(self.name)).get_arguments().cloned().collect()
    }
}

/// The descriptor of this name.
pub fn find<'a>(table: &[&'a Capability], name: &str) -> Option<&'a Capability> {
    table.iter().find(|capability| capability.name == name).copied()
}

/// The names of all capabilities in a table.
pub fn names(table: &[&Capability]) -> Vec<&'static str> {
    table.iter().map(|capability| capability.name).collect()
}

/// The names of those that run by default.
pub fn default_names(table: &[&Capability]) -> Vec<&'static str> {
    table.iter().filter(|capability| capability.by_default).map(|capability| capability.name).collect()
}
