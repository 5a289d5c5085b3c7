//! Tells API servers whom to trust: keeps `caBundle` of our webhook configurations as it should be.
//!
//! A configuration is written only where it differs, and under the resource version that was read **before** the
//! Secret was: a replica with an older view of the Secret then loses against one with a newer view, whatever the
//! order in which they arrive.

use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::Error;

/// The field manager of what we write.
pub(super) const MANAGER: &str = "portolan-webhook";

/// The webhook configurations to keep, by name.
pub(super) struct Publisher {
    targets: Vec<Target>,
}

struct Target {
    api: Api<DynamicObject>,
    kind: String,
    name: String,
}

/// What the configurations held at one moment.
pub(super) struct Seen {
    /// One for each target, none where it is not installed.
    configurations: Vec<Option<DynamicObject>>,
}

impl Publisher {
    pub(super) fn new(client: &Client, validating: &[String], mutating: &[String]) -> Self {
        let target = |resource: ApiResource, name: &String| Target {
            api: Api::all_with(client.clone(), &resource),
            kind: resource.kind,
            name: name.clone(),
        };
        let validating =
            validating.iter().map(|name| target(ApiResource::erase::<ValidatingWebhookConfiguration>(&()), name));
        let mutating =
            mutating.iter().map(|name| target(ApiResource::erase::<MutatingWebhookConfiguration>(&()), name));
        Self { targets: validating.chain(mutating).collect() }
    }

    /// Reads every configuration.
    pub(super) async fn read(&self) -> Result<Seen, Error> {
        let mut configurations = Vec::with_capacity(self.targets.len());
        for target in &self.targets {
            let read = target.api.get_opt(&target.name).await;
            configurations.push(read.map_err(|cause| Error::request("reading", target, cause))?);
        }
        Ok(Seen { configurations })
    }

    /// Writes the bundle where it differs from what was seen; false when someone else wrote meanwhile.
    pub(super) async fn publish(&self, seen: &Seen, bundle: &str) -> Result<bool, Error> {
        let mut result = Ok(true);
        for (target, configuration) in self.targets.iter().zip(&seen.configurations) {
            let Some(change) = configuration.as_ref().and_then(|configuration| change(configuration, bundle)) else {
                continue;
            };
            let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
            match target.api.patch(&target.name, &params, &Patch::Strategic(change)).await {
                Ok(_) => tracing::info!(configuration = %target, "published the webhook's authority"),
                Err(kube::Error::Api(status)) if status.code == 409 || status.is_not_found() => {
                    tracing::debug!(configuration = %target, %status, "changed meanwhile");
                    result = result.map(|_| false);
                }
                // The others are written all the same.
                Err(cause) => result = Err(Error::request("publishing the authority in", target, cause)),
            }
        }
        result
    }

    /// The configurations that are not installed.
    pub(super) fn missing(&self, seen: &Seen) -> Vec<String> {
        let both = self.targets.iter().zip(&seen.configurations);
        both.filter(|(_, configuration)| configuration.is_none()).map(|(target, _)| target.to_string()).collect()
    }
}

impl Seen {
    /// True when every installed configuration holds the bundle.
    pub(super) fn holds(&self, bundle: &str) -> bool {
        self.configurations.iter().flatten().all(|configuration| change(configuration, bundle).is_none())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`", self.kind, self.name)
    }
}

/// The patch that a configuration needs, if any; its webhooks are merged by name.
fn change(configuration: &DynamicObject, bundle: &str) -> Option<Value> {
    let bundle = json!(ByteString(bundle.as_bytes().to_vec()));
    let webhooks = configuration.data.get("webhooks").and_then(Value::as_array)?;
    let differing: Vec<Value> = webhooks
        .iter()
        .filter(|webhook| webhook.pointer("/clientConfig/caBundle") != Some(&bundle))
        .map(|webhook| json!({"name": webhook["name"], "clientConfig": {"caBundle": bundle}}))
        .collect();
    let version = configuration.resource_version();
    (!differing.is_empty()).then(|| json!({"metadata": {"resourceVersion": version}, "webhooks": differing}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_written_and_only_over_what_was_read() {
        let configuration: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "portolan", "resourceVersion": "7"},
            "webhooks": [
                {"name": "a.portolan.dev", "clientConfig": {"caBundle": "bmV3"}},
                {"name": "b.portolan.dev", "clientConfig": {"caBundle": "b2xk", "url": "https://b"}},
                {"name": "c.portolan.dev", "clientConfig": {"service": {"name": "hooks"}}},
            ],
        }))
        .unwrap();
        let expected = json!({
            "metadata": {"resourceVersion": "7"},
            "webhooks": [
                {"name": "b.portolan.dev", "clientConfig": {"caBundle": "bmV3"}},
                {"name": "c.portolan.dev", "clientConfig": {"caBundle": "bmV3"}},
            ],
        });
        assert_eq!(change(&configuration, "new"), Some(expected));

        let mut merged = configuration.clone();
        for webhook in merged.data["webhooks"].as_array_mut().unwrap() {
            webhook["clientConfig"]["caBundle"] = json!("bmV3");
        }
        assert_eq!(change(&merged, "new"), None);
        let seen = |configuration| Seen { configurations: vec![None, Some(configuration)] };
        assert!(seen(merged).holds("new"));
        assert!(!seen(configuration).holds("new"));
    }
}
