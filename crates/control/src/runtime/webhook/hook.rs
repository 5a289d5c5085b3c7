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
}

impl Hook {
    /// As it is configured. It fails closed. Validating and mutating webhooks are written alike.
    pub fn configured<W: DeserializeOwned>(&self, client: &WebhookClientConfig) -> W {
        let Self { group, version, path, resource, operations } = self;
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
            "failurePolicy": "Fail",
        });
        serde_json::from_value(webhook).expect("both kinds have these fields")
    }
}
