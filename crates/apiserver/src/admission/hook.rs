//! One webhook of a configuration, compiled, and whether it wants to see a request.

use std::time::Duration;

use serde_json::{Value, json};

use super::caller::Endpoint;
use super::conditions::Conditions;
use super::rules::Rule;
use super::selector::Selector;
use super::{Attributes, review};
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
    /// It has side effects even when asked not to.
    pub(super) side_effects: bool,
    /// reinvocationPolicy IfNeeded.
    pub(super) reinvoke: bool,
    /// The versions of AdmissionReview it reads.
    pub(super) reviews: Vec<String>,
    rules: Vec<Rule>,
    /// matchPolicy Equivalent.
    equivalent: bool,
    namespaces: Result<Selector, String>,
    objects: Result<Selector, String>,
    conditions: Conditions,
}

/// The form in which a webhook wants to see the object.
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
        let ignore_failures = word("failurePolicy") == "Ignore";
        let list = |field: &str| hook[field].as_array().into_iter().flatten();
        Self {
            name: word("name").to_owned(),
            mutating,
            endpoint: Endpoint::new(&hook["clientConfig"]),
            timeout: Duration::from_secs(hook["timeoutSeconds"].as_u64().unwrap_or(DEFAULT_TIMEOUT_SECONDS)),
            ignore_failures,
            side_effects: !matches!(word("sideEffects"), "None" | "NoneOnDryRun"),
            reinvoke: word("reinvocationPolicy") == "IfNeeded",
            reviews: list("admissionReviewVersions").filter_map(Value::as_str).map(str::to_owned).collect(),
            rules: list("rules").map(Rule::new).collect(),
            // Equivalent is the default that the API server writes.
            equivalent: word("matchPolicy") != "Exact",
            namespaces: Selector::new(hook.get("namespaceSelector")),
            objects: Selector::new(hook.get("objectSelector")),
            conditions: Conditions::new(&hook["matchConditions"]),
        }
    }

    /// Whether, and in which form, it wants to see a request.
    pub(super) fn wants(&self, attributes: &Attributes<'_>, object: &Value) -> Result<Option<Target>, Failure> {
        // A selector that cannot be answered is no error for those whom the rules do not mean.
        let namespace = self.selects_namespace(attributes, object);
        let selected = self.selects_object(attributes, object);
        if matches!(namespace, Ok(false)) || matches!(selected, Ok(false)) {
            return Ok(None);
        }
        let Some(target) = self.target(attributes) else { return Ok(None) };
        namespace?;
        selected?;
        if self.conditions.is_empty() {
            return Ok(Some(target));
        }
        match self.conditions.hold(attributes, &target, object) {
            Ok(true) => Ok(Some(target)),
            Ok(false) => Ok(None),
            Err(_) if self.ignore_failures => Ok(None),
            Err(why) => Err(forbidden(attributes, &why)),
        }
    }

    fn target(&self, attributes: &Attributes<'_>) -> Option<Target> {
        let version = |version: &str| Target { version: version.to_owned() };
        if self.rules.iter().any(|rule| rule.matches(attributes, attributes.version)) {
            return Some(version(attributes.version));
        }
        if !self.equivalent {
            return None;
        }
        let others = || attributes.versions.iter().filter(|other| *other != attributes.version);
        self.rules
            .iter()
            .find_map(|rule| others().find(|other| rule.matches(attributes, other)).map(|other| version(other)))
    }

    fn selects_namespace(&self, attributes: &Attributes<'_>, object: &Value) -> Result<bool, Failure> {
        let about_namespaces = attributes.resource == "namespaces";
        if attributes.namespace.is_empty() && !about_namespaces {
            return Ok(true);
        }
        let selector = self.namespaces.as_ref().map_err(|why| review::internal(why))?;
        if selector.is_empty() {
            return Ok(true);
        }
        let writes = matches!(attributes.operation, super::Operation::Create | super::Operation::Update);
        if about_namespaces && attributes.subresource.is_empty() && writes {
            return Ok(selector.matches(&object["metadata"]["labels"]));
        }
        let Some(labels) = attributes.namespace_labels else {
            let about = About { group: "", resource: "namespaces", name: attributes.namespace };
            return Err(Failure::not_found(about));
        };
        Ok(selector.matches(labels))
    }

    fn selects_object(&self, attributes: &Attributes<'_>, object: &Value) -> Result<bool, Failure> {
        let selector = self.objects.as_ref().map_err(|why| review::internal(why))?;
        let has = |object: &Value| !object.is_null() && selector.matches(&object["metadata"]["labels"]);
        Ok(selector.is_empty() || has(object) || attributes.old.is_some_and(has))
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

/// `configmaps "x" is forbidden: ...`.
fn forbidden(attributes: &Attributes<'_>, why: &str) -> Failure {
    let about = About { group: attributes.group, resource: attributes.resource, name: attributes.name };
    Failure::forbidden(about, why)
}
