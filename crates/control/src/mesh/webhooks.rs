//! Admission: what a spec says wrong by itself is refused before it is stored. No side effects: the object is judged
//! alone, and the controller judges it again in its place.

use k8s_openapi::api::admissionregistration::v1::{ValidatingWebhookConfiguration, WebhookClientConfig};
use kube::core::admission::AdmissionRequest;
use portolan_api::mesh::{Route, Rule, Target, VirtualService};
use portolan_core::mesh::control::types::MeshKind;
use portolan_core::mesh::control::{Reason, Resolver, Settings, World};
use serde::de::DeserializeOwned;

use super::Options;
use super::observe::Cache;
use super::validate::{self, Written};
use crate::runtime::capability::Admission;
use crate::runtime::store::Key;
use crate::runtime::webhook::{Denied, Hook, Warnings, Webhooks};

/// The name of the webhook configuration.
pub const NAME: &str = "portolan-mesh";

/// What API servers ask.
pub(super) const ADMISSION: Admission =
    Admission { name: NAME, validating: &[VIRTUAL_SERVICE, ROUTE, TARGET, RULE], mutating: &[] };

const fn hook(path: &'static str, resource: &'static str) -> Hook {
    Hook { group: "l7mp.io", version: "v1", path, resource, operations: &["CREATE", "UPDATE"], optional: false }
}

const VIRTUAL_SERVICE: Hook = hook("/validate-virtualservice", "virtualservices");
const ROUTE: Hook = hook("/validate-route", "routes");
const TARGET: Hook = hook("/validate-target", "targets");
const RULE: Hook = hook("/validate-rule", "rules");

/// The webhook configuration, for a webhook that is reached as `client` says for a path.
pub fn configuration(client: impl Fn(&str) -> WebhookClientConfig) -> ValidatingWebhookConfiguration {
    ADMISSION.validating(client)
}

/// Adds the handlers of this capability.
#[must_use]
pub fn handlers(webhooks: Webhooks, cache: &Cache, options: &Options) -> Webhooks {
    let judge = Judge { cache: cache.clone(), settings: options.settings.clone() };
    let [services, routes, targets, rules] = [judge.clone(), judge.clone(), judge.clone(), judge];
    webhooks
        .validate::<VirtualService>(VIRTUAL_SERVICE.path, move |request| services.of(MeshKind::VirtualService, request))
        .validate::<Route>(ROUTE.path, move |request| routes.of(MeshKind::Route, request))
        .validate::<Target>(TARGET.path, move |request| targets.of(MeshKind::Target, request))
        .validate::<Rule>(RULE.path, move |request| rules.of(MeshKind::Rule, request))
}

#[derive(Clone)]
struct Judge {
    cache: Cache,
    settings: Settings,
}

impl Judge {
    fn of<K: Written + DeserializeOwned>(
        &self,
        kind: MeshKind,
        request: &AdmissionRequest<K>,
    ) -> Result<Warnings, Denied> {
        let Some(new) = &request.object else { return Ok(Warnings::new()) };
        // whatever is wrong with it was there before: labels and finalizers stay editable
        if request.old_object.as_ref().is_some_and(|old| old.written() == new.written()) {
            return Ok(Warnings::new());
        }
        let namespace = request.namespace.clone().unwrap_or_default();
        let key = Key { namespace, name: request.name.clone() };
        let api_servers = self.cache.api_servers(&self.settings);
        let settings = Settings { api_servers, ..self.settings.clone() };
        let mut world = World { settings, ..World::default() };
        world.apply(validate::object(kind, &key, Some(new)));
        let verdict = Resolver::new(world).status(kind, &validate::name(&key)).unwrap_or_default();
        if let Some(note) = verdict.first_invalid() {
            return Err(Denied::invalid(note.to_string()));
        }
        let notes = verdict.diagnostics.into_iter().filter(|note| note.reason != Reason::NoPods);
        Ok(notes.map(|note| note.message).collect())
    }
}
