//! EgressGateway -> a checked gateway: pool, default address, selector, mode.

use std::collections::BTreeMap;
use std::net::IpAddr;

use kube::ResourceExt;
use portolan_api::egress::{EgressGateway, IpPools};
use portolan_api::well_known::{egress as words, reasons};
use portolan_core::egress::{Eip, Gateway, GatewayName};
use portolan_core::net::{AddressSet, Family, Pool, Range};
use portolan_core::select::Selector;

use super::words::node_mode;
use super::{Families, Problem, nothing, selector, selector_text};

/// All gateways, checked, and which one is the default.
#[derive(Debug, Default, Clone, PartialEq)]
pub(in crate::egress) struct Gateways {
    pub(in crate::egress) by_name: BTreeMap<GatewayName, CheckedGateway>,
    pub(in crate::egress) default: Option<GatewayName>,
}

/// A gateway as the planner takes it, and what stands against it.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::egress) struct CheckedGateway {
    pub(in crate::egress) gateway: Gateway,
    /// It keeps what it granted and grants nothing new.
    pub(in crate::egress) problem: Option<Problem>,
    /// It is being deleted: those whom it serves notice nothing, and nobody else is served.
    deleting: bool,
    /// Namespaces whose policies may use it; none means all.
    pub(in crate::egress) allowed: Option<Selector>,
}

impl CheckedGateway {
    /// Why it grants nothing, to one that was granted something before or to anybody else.
    pub(in crate::egress) fn refusal(&self, granted: bool) -> Option<Problem> {
        let going = || {
            let message = "the gateway is being deleted: it serves the policies it has and no others";
            (self.deleting && !granted).then(|| Problem::new(reasons::INVALID, message))
        };
        self.problem.clone().or_else(going)
    }
}

/// At most this many addresses per family.
const LARGEST_POOL: u128 = 65_536;

/// Checks all gateways together, the oldest first: where two claim the same, the older one has it.
pub(in crate::egress) fn gateways<'a>(
    seen: impl IntoIterator<Item = &'a EgressGateway>,
    families: Families,
    inside: &AddressSet,
) -> Gateways {
    let mut seen: Vec<&EgressGateway> = seen.into_iter().collect();
    seen.sort_by_cached_key(|gateway| (created(gateway), gateway.name_any()));
    let mut gateways = Gateways::default();
    let mut given: Vec<(AddressSet, String)> = Vec::new();
    for object in seen {
        let name: GatewayName = object.name_any().into();
        let (mut checked, parts) = alone(object, families, inside);
        let overlap = given.iter().find_map(|(pool, owner)| Some((common(pool, &parts)?, owner)));
        if checked.problem.is_none()
            && let Some((address, owner)) = overlap
        {
            checked.problem = Some(Problem::new(
                reasons::POOL_OVERLAP,
                format!("address {address} belongs to gateway `{owner}` already: take it out of one of the two pools"),
            ));
        }
        if object.spec.cluster_default == Some(true) && !checked.deleting {
            match &gateways.default {
                None => gateways.default = Some(name.clone()),
                Some(default) => {
                    checked.problem.get_or_insert_with(|| {
                        Problem::new(
                            reasons::DUPLICATE_DEFAULT,
                            format!("gateway `{default}` is the cluster's default already: unset clusterDefault on one of the two"),
                        )
                    });
                }
            }
        }
        given.push((parts.into_iter().collect(), object.name_any()));
        gateways.by_name.insert(name, checked);
    }
    gateways
}

fn alone(object: &EgressGateway, families: Families, inside: &AddressSet) -> (CheckedGateway, Vec<Range>) {
    let mut problem = None;
    let mut complain = |found: Problem| {
        problem.get_or_insert(found);
    };
    let spec = &object.spec;
    let nodes = spec.node_selector.clone().unwrap_or_default();
    let chosen = nodes.selector.as_ref().map_or_else(|| Ok(Selector::default()), selector);
    let chosen = chosen.unwrap_or_else(|what| {
        complain(Problem::new(reasons::INVALID, format!("spec.nodeSelector.selector: {what}")));
        Selector::default()
    });
    // An empty selector would mean every node; here it means none.
    let chosen = if chosen.is_empty() {
        let message = "spec.nodeSelector.selector is empty: say with matchLabels or matchExpressions which nodes are gateway nodes";
        complain(Problem::new(reasons::INVALID, message));
        nothing()
    } else {
        chosen
    };
    let pools = spec.ippools.clone().unwrap_or_default();
    let pool = pool(&pools, families, &mut complain);
    let parts: Vec<Range> = pool.ranges().collect();
    if let Some(address) = common(inside, &parts) {
        complain(Problem::new(
            reasons::POOL_OVERLAP,
            format!(
                "address {address} is inside the cluster (a node, pod, service or tunnel has it): take it out of the pool"
            ),
        ));
    }
    let default = default_eip(&pools, &pool, &mut complain);
    let allowed = allowed_namespaces(object, &mut complain);
    let gateway = Gateway {
        uid: object.uid().unwrap_or_default().into(),
        pool,
        default,
        selector: chosen,
        mode: node_mode(nodes.policy.as_deref(), nodes.limit).0,
        exclusive: object.annotations().get(words::EXCLUSIVE_EIPS).is_some_and(|value| value == "true"),
    };
    let deleting = object.metadata.deletion_timestamp.is_some();
    (CheckedGateway { gateway, problem, deleting, allowed }, parts)
}

fn pool(pools: &IpPools, families: Families, complain: &mut impl FnMut(Problem)) -> Pool {
    let mut ranges = Vec::new();
    for (items, field, family, on) in
        [(&pools.ipv4, "ipv4", Family::V4, families.ipv4), (&pools.ipv6, "ipv6", Family::V6, families.ipv6)]
    {
        let items: Vec<&str> = items.iter().map(|item| item.trim()).filter(|item| !item.is_empty()).collect();
        if !items.is_empty() && !on {
            let message = format!(
                "spec.ippools.{field}: {field} is switched off on this operator: empty the list, or start it without --egress-no-{field}"
            );
            complain(Problem::new(reasons::INVALID, message));
            continue;
        }
        for item in items {
            match item.parse::<Range>() {
                Ok(range) if range.family() == family => ranges.push(range),
                Ok(_) => complain(Problem::new(
                    reasons::INVALID,
                    format!("spec.ippools.{field}: `{item}` is of the other family: move it to the other list"),
                )),
                Err(cause) => complain(Problem::new(reasons::INVALID, format!("spec.ippools.{field}: {cause}"))),
            }
        }
    }
    let pool = Pool::new(ranges);
    let [four, six] = [Family::V4, Family::V6].map(|family| pool.family(family).count());
    for (count, field) in [(four, "ipv4"), (six, "ipv6")] {
        if count > LARGEST_POOL {
            let message =
                format!("spec.ippools.{field}: {count} addresses are more than {LARGEST_POOL}: take a smaller range");
            complain(Problem::new(reasons::INVALID, message));
        }
    }
    if four > 0 && six > 0 && four != six {
        let message =
            format!("spec.ippools: {four} IPv4 and {six} IPv6 addresses cannot be paired: give as many of each");
        complain(Problem::new(reasons::PAIR_MISMATCH, message));
    }
    pool
}

/// The default pair: as given, else the first of the pool.
fn default_eip(pools: &IpPools, pool: &Pool, complain: &mut impl FnMut(Problem)) -> Eip {
    let given = |text: &Option<String>, field: &str, complain: &mut dyn FnMut(Problem)| -> Option<IpAddr> {
        let text = text.as_deref().map(str::trim).filter(|text| !text.is_empty())?;
        match text.parse::<IpAddr>() {
            Ok(address) if pool.contains(address) => Some(address),
            Ok(address) => {
                let message =
                    format!("spec.ippools.{field}: {address} is not in the pool: add it, or choose one that is");
                complain(Problem::new(reasons::OUTSIDE_POOL, message));
                None
            }
            Err(_) => {
                complain(Problem::new(reasons::INVALID, format!("spec.ippools.{field}: `{text}` is not an address")));
                None
            }
        }
    };
    let v4 = given(&pools.ipv4_default_eip, "ipv4DefaultEIP", complain);
    let v6 = given(&pools.ipv6_default_eip, "ipv6DefaultEIP", complain);
    // One half that is given brings its pair with it; with none, the first pair of the pool it is.
    let halves = match (v4, v6) {
        (None, None) => [pool.first(Family::V4), pool.first(Family::V6)],
        given => given.into(),
    };
    halves.into_iter().flatten().collect()
}

/// The annotation holds a label selector as kubectl writes them: `a=b,c in (d,e),!f`.
fn allowed_namespaces(object: &EgressGateway, complain: &mut impl FnMut(Problem)) -> Option<Selector> {
    let text = object.annotations().get(words::ALLOWED_NAMESPACES)?;
    match selector_text(text) {
        Ok(selector) => Some(selector),
        Err(cause) => {
            let message = format!("annotation {}: {cause}", words::ALLOWED_NAMESPACES);
            complain(Problem::new(reasons::INVALID, message));
            Some(nothing())
        }
    }
}

fn common(set: &AddressSet, ranges: &[Range]) -> Option<IpAddr> {
    ranges.iter().find_map(|range| set.first_intersection(*range))
}

fn created(gateway: &EgressGateway) -> i64 {
    gateway.metadata.creation_timestamp.as_ref().map_or(i64::MAX, |time| time.0.as_second())
}
