//! Admission: what is wrong with an object is refused before it is stored. No side effects and no allocation; the API
//! server goes on without an answer, and the controller judges again.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::core::NamespaceResourceScope;
use kube::core::admission::{AdmissionRequest, Operation};
use kube::{Resource, ResourceExt as _};
use portolan_api::gateway::{Account, Egw, Endpoint, LoadBalancer, NodeConfig, ServiceGroup, ServicePrefix};
use portolan_api::well_known::gateway::OWNING_LB;
use portolan_core::gateway::{PROVIDER_NAMESPACE, Problem, World, denied, namespace_of};

use super::Options;
use super::model::singleton;
use super::names::NODE_CONFIG;
use super::observe::Cache;
use super::validate;
use crate::runtime::capability::Admission;
use crate::runtime::store::Key;
use crate::runtime::webhook::{Denied, Hook, Warnings, Webhooks};

/// The name of both webhook configurations.
pub const NAME: &str = "portolan-gateway";

/// What API servers ask.
pub(super) const ADMISSION: Admission = Admission {
    name: NAME,
    validating: &[EGW, ACCOUNT, NODE_CONFIGS, PREFIX, GROUP, LOAD_BALANCER, ENDPOINT],
    mutating: &[DEFAULT_ENDPOINT],
};

const fn hook(path: &'static str, resource: &'static str, operations: &'static [&'static str]) -> Hook {
    Hook { group: "egw.acnodal.io", version: "v1", path, resource, operations, optional: true }
}

const WRITTEN: &[&str] = &["CREATE", "UPDATE"];
const EGW: Hook = hook("/validate-egw", "egws", WRITTEN);
const ACCOUNT: Hook = hook("/validate-account", "accounts", &["CREATE", "UPDATE", "DELETE"]);
const NODE_CONFIGS: Hook = hook("/validate-nodeconfig", "nodeconfigs", WRITTEN);
const PREFIX: Hook = hook("/validate-serviceprefix", "serviceprefixes", WRITTEN);
const GROUP: Hook = hook("/validate-servicegroup", "servicegroups", WRITTEN);
const LOAD_BALANCER: Hook = hook("/validate-loadbalancer", "loadbalancers", WRITTEN);
const ENDPOINT: Hook = hook("/validate-endpoint", "endpoints", WRITTEN);
const DEFAULT_ENDPOINT: Hook = hook("/mutate-endpoint", "endpoints", WRITTEN);

/// The webhook configurations, for a webhook that is reached as `client` says for a path.
pub fn configurations(
    client: impl Fn(&str) -> WebhookClientConfig,
) -> (ValidatingWebhookConfiguration, MutatingWebhookConfiguration) {
    (ADMISSION.validating(&client), ADMISSION.mutating(&client))
}

/// Adds the handlers of this capability.
#[must_use]
pub fn handlers(webhooks: Webhooks, cache: &Cache, options: &Options) -> Webhooks {
    let judge = Arc::new(Judge { cache: cache.clone(), options: options.clone() });
    let [accounts, groups, endpoints] = std::array::from_fn(|_| Arc::clone(&judge));
    webhooks
        .validate::<Egw>(EGW.path, |request| written(request, "EGW", |_| None))
        .validate::<Account>(ACCOUNT.path, move |request| accounts.account(request))
        .validate::<NodeConfig>(NODE_CONFIGS.path, |request| {
            written(request, "NodeConfig", |object| validate::node_config(object).problem)
        })
        .validate::<ServicePrefix>(PREFIX.path, |request| written(request, "ServicePrefix", prefix_problem))
        .validate::<ServiceGroup>(GROUP.path, move |request| {
            written(request, "ServiceGroup", |object| validate::service_group(object, &groups.options.images).problem)
        })
        .validate::<LoadBalancer>(LOAD_BALANCER.path, |request| {
            written(request, "LoadBalancer", |object| validate::load_balancer(object).problem)
        })
        .validate::<Endpoint>(ENDPOINT.path, move |request| endpoints.endpoint(request))
        .default::<Endpoint>(DEFAULT_ENDPOINT.path, |endpoint| {
            let owner = endpoint.spec.load_balancer.clone();
            endpoint.labels_mut().insert(OWNING_LB.to_owned(), owner);
        })
}

struct Judge {
    cache: Cache,
    options: Options,
}

/// Judges an object that is created or changed. One that is being deleted can only lose what holds it.
fn written<K>(
    request: &AdmissionRequest<K>,
    kind: &'static str,
    problem: impl FnOnce(&K) -> Option<Problem>,
) -> Result<Warnings, Denied>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Debug,
{
    let Some(object) = request.object.as_ref().filter(|object| object.meta().deletion_timestamp.is_none()) else {
        return Ok(Warnings::new());
    };
    // whatever is wrong with an object that was there before, its labels and finalizers stay editable
    if request.operation == Operation::Update && is_same_generation(request) {
        return Ok(Warnings::new());
    }
    let key = Key { namespace: request.namespace.clone().unwrap_or_default(), name: request.name.clone() };
    match validate::misplaced(kind, &key).or_else(|| problem(object)) {
        Some(problem) => Err(refused(&problem)),
        None => Ok(Warnings::new()),
    }
}

/// The API server raises the generation with each change of the spec, before it asks.
fn is_same_generation<K: Resource>(request: &AdmissionRequest<K>) -> bool {
    let generation = |object: &Option<K>| object.as_ref().and_then(|object| object.meta().generation);
    generation(&request.object) == generation(&request.old_object)
}

fn refused(problem: &Problem) -> Denied {
    Denied { message: problem.to_string(), code: 422, reason: problem.reason() }
}

/// Overlaps with other prefixes are for the controller: it knows which one is older.
fn prefix_problem(object: &ServicePrefix) -> Option<Problem> {
    let read = validate::service_prefix(object);
    let unreadable = read.prefix.err().map(|error| Problem::Invalid(error.to_string().into()));
    unreadable.or(read.problem)
}

impl Judge {
    fn account(&self, request: &AdmissionRequest<Account>) -> Result<Warnings, Denied> {
        let settings = self.options.planner();
        if request.operation != Operation::Delete {
            return written(request, "Account", |object| validate::account(object, &settings).problem);
        }
        let old = request.old_object.as_ref().map(|object| validate::account(object, &settings));
        if old.is_some_and(|account| account.is_deleted_with_contents) {
            return Ok(Warnings::new());
        }
        let namespace = namespace_of(&request.name);
        let count = self.cache.load_balancers.keys().iter().filter(|key| key.namespace == namespace).count();
        if request.namespace.as_deref() != Some(PROVIDER_NAMESPACE) || count == 0 {
            return Ok(Warnings::new());
        }
        let problem = Problem::HasLoadBalancers { account: request.name.as_str().into(), count };
        Err(Denied { code: 403, ..refused(&problem) })
    }

    fn endpoint(&self, request: &AdmissionRequest<Endpoint>) -> Result<Warnings, Denied> {
        let warnings = written(request, "Endpoint", |object| self.endpoint_problem(object))?;
        let Some(object) = &request.object else { return Ok(warnings) };
        let namespace = request.namespace.clone().unwrap_or_default();
        let owner = Key { namespace, name: object.spec.load_balancer.clone() };
        // No error: what was created a moment ago may not have arrived here.
        let is_known = self.cache.load_balancers.get(&owner).is_some() || request.operation != Operation::Create;
        let missing = Problem::LoadBalancerNotFound { name: owner.name.as_str().into() };
        Ok(if is_known { warnings } else { warnings.into_iter().chain([missing.to_string()]).collect() })
    }

    fn endpoint_problem(&self, object: &Endpoint) -> Option<Problem> {
        let spec = match validate::endpoint(object).spec {
            Ok(spec) => spec,
            Err(problem) => return Some(problem),
        };
        if let Some(why) = denied(&self.endpoint_rules(), spec.address) {
            return Some(Problem::AddressDenied { address: spec.address, why });
        }
        let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
        let is_same = |other: &Endpoint| {
            let read = validate::endpoint(other).spec;
            other.spec.load_balancer == object.spec.load_balancer
                && read.is_ok_and(|other| (other.address, other.port.number) == (spec.address, spec.port.number))
        };
        let mut duplicate = None;
        self.cache.endpoints.in_namespace(&namespace, |key, other| {
            if duplicate.is_none() && key.name != name && is_same(other) {
                duplicate = Some(Problem::DuplicateEndpoint { other: key.name.as_str().into() });
            }
        });
        duplicate
    }

    /// What decides where endpoints may be.
    fn endpoint_rules(&self) -> World {
        let node_config = self.cache.node_configs.get(&singleton(NODE_CONFIG));
        let prefixes = self.cache.prefixes.all().into_iter();
        World {
            settings: self.options.planner(),
            prefixes: prefixes
                .filter(|(key, _)| key.namespace == PROVIDER_NAMESPACE)
                .map(|(key, object)| (key.name.as_str().into(), validate::service_prefix(&object)))
                .collect(),
            node_config: node_config.map(|object| validate::node_config(&object)),
            ..World::default()
        }
    }
}
