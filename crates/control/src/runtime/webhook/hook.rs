//! What API servers ask a webhook about, as it is configured there.

use k8s_openapi::api::admissionregistration::v1::WebhookClientConfig;
use serde::de::DeserializeOwned;
use serde_json::json;

/// What the API server asks about, or lets us complete.
#[derive(Debug, Clone, Copy)]
pub struct Hook {
    pub group: &'static str,
    pub version: &'static str,
    pub path: &'static str,
    pub resource: &'static str,
    pub operations: &'static [&'static str],
    /// The API server goes on without an answer: controllers judge again anyway.
    pub optional: bool,
}

impl Hook {
    /// As it is configured. It fails closed, unless it is optional. Validating and mutating webhooks are written alike.
    pub fn configured<W: DeserializeOwned>(&self, client: &WebhookClientConfig) -> W {
        let Self { group, version, path, resource, operations, optional } = self;
        let (failure_policy, seconds) = if *optional { ("Ignore", Some(2)) } else { ("Fail", None) };
        let rule = json!({
            "apiGroups": [group],
            "apiVersions": [version],
            "operations": operations,
            "resources": [resource],
        });
        let webhook = json!({
            "name": format!("{}.portolan.dev", path.trim_start_matches('/')),
            "clientConfig": client,
            "rules": [rule],
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "failurePolicy": failure_policy,
            "timeoutSeconds": seconds,
        });
        serde_json::from_value(webhook).expect("both kinds have these fields")
    }
}
