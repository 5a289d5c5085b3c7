//! What every capability needs on a cluster: an operator that leads, its kinds, and its webhooks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use crate::runtime::capability::{Admission, Capability, Kind};
use crate::runtime::doctor::Check;
use crate::runtime::lease;
use crate::runtime::query::QueryError;

/// Whether this is the API server of `portolan up`, whose operator needs no Lease and no webhook.
pub(super) async fn is_embedded(client: &Client) -> Result<bool, QueryError> {
    let version = client.apiserver_version().await.map_err(|cause| unreachable("the version", cause))?;
    Ok(version.git_version.ends_with("+portolan"))
}

const OPERATOR: &str = "operator";

/// Whether an operator holds its Lease and renews it.
pub(super) async fn operator(client: &Client, is_embedded: bool) -> Result<Check, QueryError> {
    let leases = || operator_leases(client);
    let seen = leases().await?;
    if seen.is_empty() && is_embedded {
        return Ok(Check::ok(OPERATOR, "it runs in the process of the API server"));
    }
    let Some(stale) = stale(&seen, Timestamp::now()) else { return Ok(judge(&seen)) };
    // Its clock may differ from ours: an operator that runs renews its Lease while we wait.
    tokio::time::sleep(stale).await;
    let again = leases().await?;
    Ok(if again == seen { not_renewed(&seen) } else { judge(&again) })
}

/// A Lease, whether or not somebody holds it.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    name: String,
    spec: LeaseSpec,
}

impl Seen {
    fn holder(&self) -> Option<&str> {
        self.spec.holder_identity.as_deref().filter(|holder| !holder.is_empty())
    }
}

async fn operator_leases(client: &Client) -> Result<Vec<Seen>, QueryError> {
    let name = lease::Options::of_operator("", "").name;
    let named = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = Api::<Lease>::all(client.clone()).list(&named).await.map_err(|cause| unreachable("leases", cause))?;
    let seen = found.items.into_iter().map(|lease| {
        let name = format!("{}/{}", lease.namespace().unwrap_or_default(), lease.name_any());
        Seen { name, spec: lease.spec.unwrap_or_default() }
    });
    Ok(seen.collect())
}

/// How long to wait for a renewal if no Lease that is held seems to be renewed.
fn stale(leases: &[Seen], now: Timestamp) -> Option<Duration> {
    let duration = |seen: &Seen| i64::from(seen.spec.lease_duration_seconds.unwrap_or(15));
    let is_fresh = |seen: &&Seen| {
        let renewed = seen.spec.renew_time.as_ref().map(|time| time.0);
        renewed.is_some_and(|at| now.duration_since(at).as_secs().abs() <= duration(seen))
    };
    let held = || leases.iter().filter(|seen| seen.holder().is_some());
    let is_stale = held().next().is_some() && !held().any(|seen| is_fresh(&seen));
    is_stale.then_some(RENEWAL)
}

/// An operator that runs renews its Lease every two seconds; a slow API server gets a few of them.
const RENEWAL: Duration = Duration::from_secs(7);

const START: &str = "see its pods and their log: kubectl get pods -A -l app.kubernetes.io/name=portolan";

fn judge(leases: &[Seen]) -> Check {
    let Some(first) = leases.first() else {
        return Check::fail(OPERATOR, "", "there is no Lease `portolan-operator`: no operator has run here", START);
    };
    match leases.iter().find_map(|seen| Some((seen, seen.holder()?))) {
        Some((seen, holder)) => Check { object: object(seen), ..Check::ok(OPERATOR, format!("{holder} leads")) },
        None => Check::fail(OPERATOR, object(first), "nobody holds the Lease: no operator runs", START),
    }
}

fn not_renewed(leases: &[Seen]) -> Check {
    let Some((seen, holder)) = leases.iter().find_map(|seen| Some((seen, seen.holder()?))) else {
        return judge(leases);
    };
    let at = seen.spec.renew_time.as_ref().map_or_else(|| "never".to_owned(), |time| time.0.to_string());
    Check::fail(OPERATOR, object(seen), format!("{holder} does not renew the Lease (last: {at})"), START)
}

fn object(seen: &Seen) -> String {
    format!("Lease/{}", seen.name)
}

const DEFINITIONS: &str = "definitions";

/// Whether the kinds of ours that a capability uses are served. Kinds of others are its own to judge.
pub(super) async fn definitions(client: &Client, capability: &Capability) -> Result<Vec<Check>, QueryError> {
    let Definitions { all, missing } = Definitions::of(client, capability).await?;
    let not_served = missing.iter().map(|kind| {
        let object = format!("CustomResourceDefinition/{}.{}", kind.plural, kind.group);
        let advice = "install the definitions: portolan crds | kubectl apply --server-side -f -";
        Check::fail(DEFINITIONS, object, format!("{} is not served", kind.version), advice)
    });
    let mut checks: Vec<Check> = not_served.collect();
    if checks.is_empty() && !all.is_empty() {
        checks.push(Check::ok(DEFINITIONS, format!("kinds of ours that are served: {}", all.len())));
    }
    Ok(checks)
}

/// The kinds that a capability uses and `portolan crds` defines.
pub(crate) struct Definitions {
    all: Vec<&'static Kind>,
    /// Those that the cluster does not serve.
    pub(crate) missing: Vec<&'static Kind>,
}

impl Definitions {
    /// Asks the cluster.
    pub(crate) async fn of(client: &Client, capability: &Capability) -> Result<Self, QueryError> {
        let definitions: BTreeSet<String> = portolan_api::crds().iter().map(ResourceExt::name_any).collect();
        let is_ours = |kind: &&Kind| definitions.contains(&format!("{}.{}", kind.plural, kind.group));
        let all: Vec<&Kind> = capability.kinds.iter().filter(is_ours).collect();
        let mut by_group: BTreeMap<(&str, &str), Vec<&Kind>> = BTreeMap::new();
        for kind in &all {
            by_group.entry((kind.group, kind.version)).or_default().push(kind);
        }
        let mut missing = Vec::new();
        for ((group, version), kinds) in by_group {
            let found: Vec<String> = match client.list_api_group_resources(&format!("{group}/{version}")).await {
                Ok(list) => list.resources.into_iter().map(|resource| resource.name).collect(),
                Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
                Err(cause) => return Err(unreachable("the kinds that are served", cause)),
            };
            missing.extend(kinds.into_iter().filter(|kind| !found.iter().any(|name| name == kind.plural)));
        }
        Ok(Self { all, missing })
    }

    /// Whether the cluster serves the kind that the capability is about: the first one.
    pub(crate) fn has_first(&self) -> bool {
        self.all.first().is_none_or(|first| self.missing.iter().all(|kind| kind.plural != first.plural))
    }
}

const WEBHOOKS: &str = "webhooks";

/// Whether the webhook configurations of a capability are there, and have the CA of the operator's webhook.
pub(super) async fn webhooks(client: &Client, capability: &Capability) -> Result<Vec<Check>, QueryError> {
    let Some(Admission { name, validating, mutating }) = capability.admission else { return Ok(Vec::new()) };
    let mut checks = Vec::new();
    if !validating.is_empty() {
        let api = Api::<ValidatingWebhookConfiguration>::all(client.clone());
        let found = api.get_opt(name).await.map_err(|cause| unreachable("webhook configurations", cause))?;
        let hooks = found.map(|found| found.webhooks.unwrap_or_default().into_iter().map(|hook| hook.client_config));
        checks.extend(unusable("ValidatingWebhookConfiguration", name, hooks));
    }
    if !mutating.is_empty() {
        let api = Api::<MutatingWebhookConfiguration>::all(client.clone());
        let found = api.get_opt(name).await.map_err(|cause| unreachable("webhook configurations", cause))?;
        let hooks = found.map(|found| found.webhooks.unwrap_or_default().into_iter().map(|hook| hook.client_config));
        checks.extend(unusable("MutatingWebhookConfiguration", name, hooks));
    }
    if checks.is_empty() {
        checks.push(Check::ok(WEBHOOKS, "the webhook configurations are installed"));
    }
    Ok(checks)
}

/// What is wrong with a webhook configuration; none is one that is not installed.
fn unusable(kind: &str, name: &str, hooks: Option<impl Iterator<Item = WebhookClientConfig>>) -> Option<Check> {
    let object = format!("{kind}/{name}");
    let Some(mut hooks) = hooks else {
        let seen = "not installed: a mistake is reported in the object's status only, after it was stored";
        return Some(Check::warn(WEBHOOKS, object, seen, "install the chart with webhook.enabled=true"));
    };
    let lacks_ca = hooks.any(|hook| hook.ca_bundle.is_none_or(|ca| ca.0.is_empty()));
    let advice = "the operator writes it: start it with --webhook-listen";
    lacks_ca.then(|| Check::fail(WEBHOOKS, object, "a webhook has no CA: the API server cannot call it", advice))
}

fn unreachable(what: &'static str, cause: kube::Error) -> QueryError {
    QueryError::Unreachable { what, cause: Box::new(cause) }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    use super::*;
    use crate::runtime::doctor::Verdict;

    fn lease(holder: &str, renewed: i64) -> Seen {
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(Timestamp::from_second(renewed).unwrap())),
            ..LeaseSpec::default()
        };
        Seen { name: "portolan/portolan-operator".to_owned(), spec }
    }

    #[test]
    fn an_operator_leads_if_its_lease_is_held_and_renewed() {
        let now = Timestamp::from_second(1_000).unwrap();
        let held = [lease("pod-1", 990)];
        assert_eq!(stale(&held, now), None);
        let check = judge(&held);
        assert_eq!((check.verdict, &*check.object), (Verdict::Ok, "Lease/portolan/portolan-operator"));
        assert!(stale(&[lease("pod-1", 900)], now).is_some());
        assert_eq!(not_renewed(&[lease("pod-1", 900)]).verdict, Verdict::Fail);
        assert_eq!(stale(&[lease("", 900)], now), None, "nobody holds it, so there is nothing to wait for");
        assert_eq!(judge(&[lease("", 900)]).verdict, Verdict::Fail);
        assert_eq!(judge(&[]).verdict, Verdict::Fail);
    }

    #[test]
    fn a_webhook_needs_a_ca_and_one_that_is_not_installed_is_a_warning() {
        let hook = |ca: &[u8]| WebhookClientConfig {
            ca_bundle: Some(ByteString(ca.to_vec())),
            ..WebhookClientConfig::default()
        };
        let verdict = |hooks: Option<Vec<WebhookClientConfig>>| {
            unusable("ValidatingWebhookConfiguration", "portolan", hooks.map(Vec::into_iter)).map(|check| check.verdict)
        };
        assert_eq!(verdict(None), Some(Verdict::Warn));
        assert_eq!(verdict(Some(vec![hook(b"ca"), hook(b"")])), Some(Verdict::Fail));
        assert_eq!(verdict(Some(vec![hook(b"ca")])), None);
    }
}
