//! One webhook of a configuration, compiled, and which requests it matches.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::attributes::{Attributes, Operation};
use super::caller::Endpoint;
use crate::status::{About, Failure};

/// Kubernetes' default for `timeoutSeconds`.
const DEFAULT_TIMEOUT_SECONDS: u64 = 10;

/// One webhook.
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
pub(super) struct Hook {
    pub(super) name: String,
    pub(super) mutating: bool,
    pub(super) endpoint: Endpoint,
    pub(super) timeout: Duration,
    /// failurePolicy Ignore.
    pub(super) ignore_failures: bool,
    /// It has side effects even in a dry run.
    pub(super) side_effects: bool,
    /// It reads AdmissionReview v1.
    pub(super) reads_v1: bool,
    rules: Vec<RuleWithOperations>,
    /// matchPolicy Equivalent.
    equivalent: bool,
    namespaces: Selector,
    objects: Selector,
}

/// The version in which a webhook receives the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) version: String,
}

/// Compiles the webhooks of all configurations, in order of the configurations' names.
pub(super) fn all(configurations: &[Value]) -> Vec<Hook> {
    let mut sorted: Vec<&Value> = configurations.iter().collect();
    sorted.sort_by_key(|configuration| configuration["metadata"]["name"].as_str().unwrap_or_default());
    let mut hooks = Vec::new();
    for configuration in sorted {
        let mutating = configuration["kind"] == "MutatingWebhookConfiguration";
        hooks.extend(configuration["webhooks"].as_array().into_iter().flatten().map(|hook| Hook::new(hook, mutating)));
    }
    hooks
}

impl Hook {
    pub(super) fn new(hook: &Value, mutating: bool) -> Self {
        let word = |field: &str| hook[field].as_str().unwrap_or_default();
        Self {
            name: word("name").to_owned(),
            mutating,
            endpoint: Endpoint::new(&hook["clientConfig"]),
            timeout: Duration::from_secs(hook["timeoutSeconds"].as_u64().unwrap_or(DEFAULT_TIMEOUT_SECONDS)),
            ignore_failures: word("failurePolicy") == "Ignore",
            side_effects: !matches!(word("sideEffects"), "None" | "NoneOnDryRun"),
            reads_v1: read::<Vec<String>>(&hook["admissionReviewVersions"]).iter().any(|version| version == "v1"),
            rules: read(&hook["rules"]),
            // Equivalent is the default that the API server writes.
            equivalent: word("matchPolicy") != "Exact",
            namespaces: selector(&hook["namespaceSelector"]),
            objects: selector(&hook["objectSelector"]),
        }
    }

    /// Whether it matches a request, and in which version it receives the object.
    pub(super) fn wants(&self, attributes: &Attributes<'_>, object: &Value) -> Result<Option<Target>, Failure> {
        let Some(target) = self.target(attributes) else { return Ok(None) };
        let wanted = self.selects_object(attributes, object) && self.selects_namespace(attributes, object)?;
        Ok(wanted.then_some(target))
    }

    fn target(&self, attributes: &Attributes<'_>) -> Option<Target> {
        let others = attributes.versions.iter().map(String::as_str).filter(|_| self.equivalent);
        let mut versions = std::iter::once(attributes.version).chain(others);
        let version = versions.find(|version| self.rules.iter().any(|rule| matches(rule, attributes, version)))?;
        Some(Target { version: version.to_owned() })
    }

    fn selects_namespace(&self, attributes: &Attributes<'_>, object: &Value) -> Result<bool, Failure> {
        let about_namespaces = attributes.resource == "namespaces";
        if self.namespaces.selects_all() || (attributes.namespace.is_empty() && !about_namespaces) {
            return Ok(true);
        }
        let writes = matches!(attributes.operation, Operation::Create | Operation::Update);
        if about_namespaces && attributes.subresource.is_empty() && writes {
            return Ok(self.namespaces.matches(&read(&object["metadata"]["labels"])));
        }
        let Some(labels) = attributes.namespace_labels else {
            let about = About { group: "", resource: "namespaces", name: attributes.namespace };
            return Err(Failure::not_found(about));
        };
        Ok(self.namespaces.matches(&read(labels)))
    }

    fn selects_object(&self, attributes: &Attributes<'_>, object: &Value) -> bool {
        let has = |object: &Value| {
            let labels: BTreeMap<String, String> = read(&object["metadata"]["labels"]);
            !object.is_null() && self.objects.matches(&labels)
        };
        self.objects.selects_all() || has(object) || attributes.old.is_some_and(has)
    }
}

impl Target {
    /// The object in this version: versions of one resource differ in nothing else here.
    pub(super) fn convert(&self, attributes: &Attributes<'_>, object: &Value) -> Value {
        let mut object = object.clone();
        if self.version != attributes.version && object.is_object() {
            object["apiVersion"] = json!(format!("{}/{}", attributes.group, self.version));
        }
        object
    }
}

/// Whether a rule matches a request if its resource had this `version`.
fn matches(rule: &RuleWithOperations, attributes: &Attributes<'_>, version: &str) -> bool {
    let any =
        |words: &Option<Vec<String>>, wanted: &str| words.iter().flatten().any(|word| word == "*" || word == wanted);
    // Requests for a Namespace have its name as namespace, and are still cluster-scoped.
    let cluster =
        attributes.namespace.is_empty() || (attributes.group.is_empty() && attributes.resource == "namespaces");
    let in_scope = match rule.scope.as_deref() {
        None | Some("*") => true,
        Some(scope) => scope == if cluster { "Cluster" } else { "Namespaced" },
    };
    let mut resources = rule.resources.iter().flatten().map(|word| word.split_once('/').unwrap_or((word, "")));
    in_scope
        && any(&rule.operations, attributes.operation.as_str())
        && any(&rule.api_groups, attributes.group)
        && any(&rule.api_versions, version)
        && resources.any(|(resource, subresource)| {
            (resource == "*" || resource == attributes.resource)
                && (subresource == "*" || subresource == attributes.subresource)
        })
}

/// A part of a stored object; it was validated when it was stored.
fn read<T: DeserializeOwned + Default>(value: &Value) -> T {
    T::deserialize(value).unwrap_or_default()
}

/// A label selector; absent selects everything.
fn selector(value: &Value) -> Selector {
    read::<LabelSelector>(value).try_into().unwrap_or_default()
}
