//! Admission: the rules that the API server cannot check by itself, and defaults. No side effects: a request is judged
//! against what is stored, and controllers judge again.

use std::net::IpAddr;

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::ResourceExt;
use kube::core::admission::{AdmissionRequest, Operation};
use portolan_api::egress::{EgressClusterInfo, EgressClusterPolicy, EgressGateway, EgressIp, EgressPolicy, IpPools};
use portolan_api::well_known::egress as words;
use portolan_core::egress::{AddressRequest, Eip, GatewayName, PolicyName};
use portolan_core::net::{AddressSet, Family, Pool, parse_claim_name};

use super::Options;
use super::model::{each_policy, inside, namespace_labels};
use super::observe::Cache;
use super::ranges;
use super::validate::{
    CheckedGateway, Gateways, PolicyView, Problem, gateways, node_mode_warning, policy, policy_warnings, resolve,
};
use crate::runtime::capability::Admission;
use crate::runtime::webhook::{Denied, Hook, Warnings, Webhooks};

/// The name of both webhook configurations.
pub const NAME: &str = "portolan-egress";

/// What API servers ask.
pub(super) const ADMISSION: Admission = Admission {
    name: NAME,
    validating: &[VALIDATE_GATEWAY, VALIDATE_POLICY, VALIDATE_CLUSTER_POLICY, VALIDATE_CLUSTER_INFO],
    mutating: &[DEFAULT_GATEWAY, DEFAULT_POLICY, DEFAULT_CLUSTER_POLICY],
};

const fn hook(path: &'static str, resource: &'static str, operations: &'static [&'static str]) -> Hook {
    Hook { group: "egressgateway.spidernet.io", version: "v1beta1", path, resource, operations, optional: false }
}

const VALIDATE_GATEWAY: Hook = hook("/validate-egressgateway", "egressgateways", &["CREATE", "UPDATE", "DELETE"]);
const VALIDATE_POLICY: Hook = hook("/validate-egresspolicy", "egresspolicies", &["CREATE", "UPDATE"]);
const VALIDATE_CLUSTER_POLICY: Hook =
    hook("/validate-egressclusterpolicy", "egressclusterpolicies", &["CREATE", "UPDATE"]);
const VALIDATE_CLUSTER_INFO: Hook = hook("/validate-egressclusterinfo", "egressclusterinfos", &["DELETE"]);
const DEFAULT_GATEWAY: Hook = hook("/mutate-egressgateway", "egressgateways", &["CREATE", "UPDATE"]);
// Policies on CREATE only: what is defaulted there cannot change later.
const DEFAULT_POLICY: Hook = hook("/mutate-egresspolicy", "egresspolicies", &["CREATE"]);
const DEFAULT_CLUSTER_POLICY: Hook = hook("/mutate-egressclusterpolicy", "egressclusterpolicies", &["CREATE"]);

/// The webhook configurations, for a webhook that is reached as `client` says for a path.
pub fn configurations(
    client: impl Fn(&str) -> WebhookClientConfig,
) -> (ValidatingWebhookConfiguration, MutatingWebhookConfiguration) {
    (ADMISSION.validating(&client), ADMISSION.mutating(&client))
}

/// Adds the handlers of this capability.
#[must_use]
pub fn handlers(webhooks: Webhooks, cache: &Cache, options: Options) -> Webhooks {
    let (gateways, policies, cluster_policies, named, named_by_cluster) =
        (cache.clone(), cache.clone(), cache.clone(), cache.clone(), cache.clone());
    webhooks
        .validate::<EgressGateway>(VALIDATE_GATEWAY.path, move |request| gateway_request(&gateways, options, request))
        .validate::<EgressPolicy>(VALIDATE_POLICY.path, move |request| {
            let view = request.object.as_ref().map(PolicyView::from);
            policy_request(&policies, options, view, request.operation == Operation::Create)
        })
        .validate::<EgressClusterPolicy>(VALIDATE_CLUSTER_POLICY.path, move |request| {
            let view = request.object.as_ref().map(PolicyView::from);
            policy_request(&cluster_policies, options, view, request.operation == Operation::Create)
        })
        .validate::<EgressClusterInfo>(VALIDATE_CLUSTER_INFO.path, |request| match request.operation {
            Operation::Delete => {
                Err(Denied::forbidden("EgressClusterInfo `default` cannot be deleted: edit it instead"))
            }
            Operation::Create | Operation::Update | Operation::Connect => Ok(Warnings::new()),
        })
        .default::<EgressGateway>(DEFAULT_GATEWAY.path, default_gateway)
        .default::<EgressPolicy>(DEFAULT_POLICY.path, move |policy| {
            let gateway = resolve_now(&named, options, PolicyView::from(&*policy));
            default_policy(&mut policy.spec.egress_gateway_name, &mut policy.spec.egress_ip, gateway);
        })
        .default::<EgressClusterPolicy>(DEFAULT_CLUSTER_POLICY.path, move |policy| {
            let gateway = resolve_now(&named_by_cluster, options, PolicyView::from(&*policy));
            default_policy(&mut policy.spec.egress_gateway_name, &mut policy.spec.egress_ip, gateway);
        })
}

fn gateway_request(
    cache: &Cache,
    options: Options,
    request: &AdmissionRequest<EgressGateway>,
) -> Result<Warnings, Denied> {
    let Some(new) = &request.object else {
        return used_by(cache, options, &request.name).map_or(Ok(Warnings::new()), |policy| {
            Err(Denied::forbidden(format!(
                "policy `{policy}` uses gateway `{}`: delete the policies first",
                request.name
            )))
        });
    };
    if new.metadata.deletion_timestamp.is_some() {
        // it can only lose what holds it
        return Ok(Warnings::new());
    }
    let name: GatewayName = new.name_any().into();
    let found = inside(cache, &ranges::detect(cache));
    let alone = gateways([new], options.families, &found);
    let checked = alone.by_name.get(&name).ok_or_else(|| Denied::invalid("the gateway has no name"))?;
    if let Some(problem) = &checked.problem {
        return Err(denied(problem));
    }
    against_others(cache, options, &name, new, checked)?;
    in_use(cache, &name, &checked.gateway.pool)?;
    if let Some(old) = &request.old_object {
        let before = gateways([old], options.families, &AddressSet::default());
        let before = before.by_name.get(&name).map(|checked| checked.gateway.pool.clone()).unwrap_or_default();
        for (family, field) in [(Family::V4, "ipv4"), (Family::V6, "ipv6")] {
            let grown = before.family(family).count() == 0 && checked.gateway.pool.family(family).count() > 0;
            if grown && let Some(policy) = used_by(cache, options, &name).filter(|_| !before.is_empty()) {
                return Err(Denied::invalid(format!(
                    "spec.ippools.{field}: policy `{policy}` uses the gateway without it: a family can be added only while no policy does"
                )));
            }
        }
    }
    let word = new.spec.node_selector.as_ref().and_then(|nodes| nodes.policy.as_deref());
    Ok(node_mode_warning(word).into_iter().collect())
}

/// No address in two gateways, and one default.
fn against_others(
    cache: &Cache,
    options: Options,
    name: &GatewayName,
    new: &EgressGateway,
    checked: &CheckedGateway,
) -> Result<(), Denied> {
    for (key, other) in cache.gateways.all() {
        if *key.name == **name {
            continue;
        }
        if new.spec.cluster_default == Some(true) && other.spec.cluster_default == Some(true) {
            return Err(Denied::invalid(format!(
                "spec.clusterDefault: gateway `{}` is the default already: unset it there first",
                key.name
            )));
        }
        let others = gateways([&*other], options.families, &AddressSet::default());
        let pool = others.by_name.values().flat_map(|checked| checked.gateway.pool.ranges()).collect::<AddressSet>();
        if let Some(address) = checked.gateway.pool.ranges().find_map(|range| pool.first_intersection(range)) {
            return Err(Denied::invalid(format!(
                "spec.ippools: address {address} belongs to gateway `{}` already: take it out of one of the two pools",
                key.name
            )));
        }
    }
    Ok(())
}

/// An address in use stays in the pool; the ledger says which are.
fn in_use(cache: &Cache, name: &GatewayName, pool: &Pool) -> Result<(), Denied> {
    let mut lost = None;
    cache.claims.for_each(|key, claim| {
        let ours = claim.spec.egress.as_ref().is_some_and(|record| record.gateway == **name);
        if ours && let Some(address) = parse_claim_name(&key.name).filter(|address| !pool.contains(*address)) {
            lost.get_or_insert(address);
        }
    });
    lost.map_or(Ok(()), |address| {
        Err(Denied::invalid(format!(
            "spec.ippools: address {address} is in use: delete the policies that use it first"
        )))
    })
}

/// A policy that uses a gateway, by name or by default.
fn used_by(cache: &Cache, options: Options, gateway: &str) -> Option<PolicyName> {
    let all = all_gateways(cache, options);
    let mut user = None;
    each_policy(cache, |view| {
        if user.is_none() && resolve(view, &namespace_labels(cache, view), &all).is_some_and(|name| *name == *gateway) {
            user = Some(view.name());
        }
    });
    user
}

fn policy_request(
    cache: &Cache,
    options: Options,
    view: Option<PolicyView<'_>>,
    creating: bool,
) -> Result<Warnings, Denied> {
    let Some(view) = view else { return Ok(Warnings::new()) };
    let all = all_gateways(cache, options);
    let standing = policy(view, &namespace_labels(cache, view), &all, None);
    let Some(checked_policy) = standing.policy else {
        return Err(standing.problem.as_ref().map_or_else(|| Denied::forbidden("refused"), denied));
    };
    if let Some(problem) = &standing.problem
        && creating
    {
        return Err(denied(problem));
    }
    if let Some(gateway) = all.by_name.get(&checked_policy.gateway) {
        granted_by(cache, &checked_policy.gateway, gateway, view, checked_policy.request)?;
    }
    Ok(policy_warnings(view.egress_ip))
}

/// What is asked for can be had from the gateway at all.
fn granted_by(
    cache: &Cache,
    name: &GatewayName,
    checked: &CheckedGateway,
    view: PolicyView<'_>,
    ask: AddressRequest,
) -> Result<(), Denied> {
    let pool = &checked.gateway.pool;
    match ask {
        AddressRequest::NodeAddress => return Ok(()),
        AddressRequest::Explicit(eip) => {
            if let Some(address) =
                eip.addresses().find(|address| !pool.contains(*address) && !cache.is_claimed_by(*address, name))
            {
                return Err(Denied::invalid(format!(
                    "spec.egressIP: address {address} is not in the pool of gateway `{name}`: add it there, or ask for one that is"
                )));
            }
            paired(cache, pool, eip)?;
            if checked.gateway.exclusive
                && let Some(other) = explicit_user(cache, view, eip)
            {
                return Err(Denied::forbidden(format!(
                    "spec.egressIP: policy `{other}` of another namespace has the address for itself: ask for another one"
                )));
            }
        }
        AddressRequest::FromPool(_) => {}
    }
    if pool.is_empty() {
        return Err(Denied::invalid(format!(
            "gateway `{name}` has no addresses: give it a pool, or set spec.egressIP.useNodeIP"
        )));
    }
    Ok(())
}

/// With both halves given, they must be a pair: as recorded, else by their place in the pool.
fn paired(cache: &Cache, pool: &Pool, eip: Eip) -> Result<(), Denied> {
    let (Some(v4), Some(v6)) = (eip.v4, eip.v6) else { return Ok(()) };
    let claim = cache.claim(v4.into());
    let recorded = claim.and_then(|claim| claim.spec.egress.as_ref()?.pair.as_deref()?.parse::<IpAddr>().ok());
    let by_place = || pool.rank(v4.into()).and_then(|place| pool.v6_at(place)).map(IpAddr::V6);
    match recorded.or_else(by_place) {
        Some(pair) if pair != IpAddr::V6(v6) => Err(Denied::invalid(format!(
            "spec.egressIP: address {v4} goes with {pair}, not with {v6}: ask for that one, or leave ipv6 out"
        ))),
        Some(_) | None => Ok(()),
    }
}

/// A policy of another namespace that asked for this address by name.
fn explicit_user(cache: &Cache, view: PolicyView<'_>, eip: Eip) -> Option<PolicyName> {
    let own = view.name().namespace;
    let mut user = None;
    each_policy(cache, |other| {
        let name = other.name();
        let explicit = other.egress_ip.is_some_and(|asked| {
            [&asked.ipv4, &asked.ipv6]
                .into_iter()
                .flatten()
                .filter_map(|text| text.parse::<IpAddr>().ok())
                .any(|asked| eip.addresses().any(|address| address == asked))
        });
        if user.is_none() && explicit && name.namespace != own {
            user = Some(name);
        }
    });
    user
}

fn all_gateways(cache: &Cache, options: Options) -> Gateways {
    let seen = cache.gateways.all();
    gateways(seen.values().map(AsRef::as_ref), options.families, &AddressSet::default())
}

fn resolve_now(cache: &Cache, options: Options, view: PolicyView<'_>) -> Option<GatewayName> {
    resolve(view, &namespace_labels(cache, view), &all_gateways(cache, options))
}

fn default_gateway(gateway: &mut EgressGateway) {
    if !gateway.finalizers().iter().any(|finalizer| finalizer == words::GATEWAY_FINALIZER) {
        gateway.finalizers_mut().push(words::GATEWAY_FINALIZER.to_owned());
    }
    let Some(pools) = &mut gateway.spec.ippools else { return };
    let IpPools { ipv4, ipv6, ipv4_default_eip, ipv6_default_eip } = pools;
    // Both together or neither: the default is a pair.
    let unset = |text: &Option<String>| text.as_deref().is_none_or(|text| text.trim().is_empty());
    if !unset(ipv4_default_eip) || !unset(ipv6_default_eip) {
        return;
    }
    let Ok(pool) = Pool::parse(ipv4, ipv6) else { return };
    for (family, field) in [(Family::V4, ipv4_default_eip), (Family::V6, ipv6_default_eip)] {
        if let Some(first) = pool.first(family) {
            *field = Some(first.to_string());
        }
    }
}

fn default_policy(name: &mut Option<String>, egress_ip: &mut Option<EgressIp>, gateway: Option<GatewayName>) {
    if name.as_deref().is_none_or(str::is_empty)
        && let Some(gateway) = gateway
    {
        *name = Some(gateway.to_string());
    }
    let egress_ip = egress_ip.get_or_insert_default();
    egress_ip.use_node_ip.get_or_insert(false);
    egress_ip.allocator_policy.get_or_insert_with(|| "default".to_owned());
}

fn denied(problem: &Problem) -> Denied {
    let Problem { reason, message } = problem;
    Denied { message: message.clone(), code: if *reason == "NotAllowed" { 403 } else { 422 }, reason }
}
