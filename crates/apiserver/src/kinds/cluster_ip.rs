//! Cluster addresses and node ports of Services: chosen from a range, or checked when the user names them.
//!
//! Pure: the caller says what is in use and brings a seed. Runs before defaults of the strategy and before validation,
//! as in the real server.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;

use http::StatusCode;
use serde_json::{Map, Value, json};

use super::defaults::externally_accessible;
use super::json::{items, list, number, object, put, remove, text};
use super::validate::{Faults, service};
use crate::status::{About, Failure};

/// Node ports, as the real server hands them out by default.
pub const NODE_PORTS: RangeInclusive<u16> = 30000..=32767;

/// A network from which cluster addresses come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    network: IpAddr,
    bits: u8,
}

/// What is given out already, over all Services but the one being written.
#[derive(Debug, Clone, Default)]
pub struct Used {
    pub addresses: BTreeSet<IpAddr>,
    pub node_ports: BTreeSet<u16>,
}

/// The ranges of this server; IPv4 first.
#[derive(Debug, Clone)]
pub struct Ranges {
    pub v4: Range,
    pub v6: Option<Range>,
}

impl Range {
    /// A network such as `10.96.0.0/12`; bits beyond the prefix are ignored.
    pub fn parse(text: &str) -> Option<Self> {
        let (network, bits) = text.split_once('/')?;
        let (network, bits): (IpAddr, u8) = (network.parse().ok()?, bits.parse().ok()?);
        let width = if network.is_ipv4() { 32 } else { 128 };
        (bits <= width).then_some(Self { network, bits })
    }

    /// First and last usable address: neither the network's own nor, for IPv4, the broadcast address.
    fn bounds(self) -> (u128, u128) {
        let width = if self.network.is_ipv4() { 32 } else { 128 };
        let host = width - u32::from(self.bits);
        let size = 1_u128.checked_shl(host).unwrap_or(0).wrapping_sub(1);
        let first = to_number(self.network) & !size;
        (first.saturating_add(1), (first | size).saturating_sub(u128::from(self.network.is_ipv4())))
    }

    pub fn contains(self, address: IpAddr) -> bool {
        let (first, last) = self.bounds();
        address.is_ipv4() == self.network.is_ipv4() && (first..=last).contains(&to_number(address))
    }

    /// A free address, searched from a place that `seed` picks; `None` when all are used.
    pub fn pick(self, used: &BTreeSet<IpAddr>, seed: u64) -> Option<IpAddr> {
        let (first, last) = self.bounds();
        let size = last.checked_sub(first)?.saturating_add(1);
        let start = u128::from(seed) % size;
        // At most one more step than there are used addresses.
        let steps = size.min(used.len() as u128 + 1);
        (0..steps)
            .map(|step| from_number(first + (start + step) % size, self.network.is_ipv4()))
            .find(|address| !used.contains(address))
    }
}

/// Fills in families, cluster addresses and node ports of a Service that is created (`old` is none) or updated.
pub fn assign(new: &mut Value, old: Option<&Value>, ranges: &Ranges, used: &Used, seed: u64) -> Result<(), Failure> {
    if object(new, "spec").is_none() {
        return Ok(());
    }
    if let Some(old) = old {
        service::keep_assigned(new, old);
    }
    service::sync_cluster_ips(new, old);
    families(new, old, ranges)?;
    addresses(new, old, ranges, used, seed)?;
    node_ports(new, old, used, seed)
}

fn refused(new: &Value, faults: &Faults) -> Result<(), Failure> {
    if faults.is_empty() {
        return Ok(());
    }
    Err(Failure::invalid(About { group: "", resource: "Service", name: text(new, "/metadata/name") }, faults.causes()))
}

fn families(new: &mut Value, old: Option<&Value>, ranges: &Ranges) -> Result<(), Failure> {
    if text(new, "/spec/type") == "ExternalName" {
        return Ok(());
    }
    let headless = text(new, "/spec/clusterIP") == "None";
    let bare = headless && new.pointer("/spec/selector").and_then(Value::as_object).is_none_or(Map::is_empty);
    if text(new, "/spec/ipFamilyPolicy").is_empty() {
        let before = old.map_or("", |old| text(old, "/spec/ipFamilyPolicy"));
        let policy = match before {
            "" if bare => "RequireDualStack",
            "" => "SingleStack",
            before => before,
        };
        new["spec"]["ipFamilyPolicy"] = policy.into();
    }
    let policy = text(new, "/spec/ipFamilyPolicy").to_owned();
    let mut faults = Faults::default();
    service::cluster_ips(new, old, &mut faults);
    refused(new, &faults)?;

    let asked = list(new, "/spec/ipFamilies").len();
    let quoted = format!("{policy:?}");
    if policy == "SingleStack" {
        for (count, what) in [(list(new, "/spec/clusterIPs").len(), "cluster IPs"), (asked, "IP families")] {
            if count == 2 {
                let message =
                    format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
                faults.invalid("spec.ipFamilyPolicy", &quoted, &message);
            }
        }
    }
    let mut families: Vec<String> =
        list(new, "/spec/ipFamilies").iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let configured = |family: &str| family == "IPv4" || (family == "IPv6" && ranges.v6.is_some());
    for (at, address) in list(new, "/spec/clusterIPs").iter().enumerate() {
        let Some(address) = address.as_str().filter(|address| *address != "None") else { break };
        if at >= families.len() {
            let family = if address.contains(':') { "IPv6" } else { "IPv4" };
            if configured(family) {
                families.push(family.to_owned());
            } else {
                let all = new["spec"]["clusterIPs"].to_string();
                faults.invalid(
                    &format!("spec.clusterIPs[{at}]"),
                    &all,
                    &format!("{family} is not configured on this cluster"),
                );
            }
        }
    }
    refused(new, &faults)?;
    let other = |family: &str| if family == "IPv4" { "IPv6" } else { "IPv4" }.to_owned();
    if bare {
        if families.is_empty() {
            families.push("IPv4".to_owned());
        }
        if families.len() < 2 && policy != "SingleStack" {
            families.push(other(&families[0]));
        }
        new["spec"]["ipFamilies"] = families.into();
        return Ok(());
    }
    if policy == "RequireDualStack" && ranges.v6.is_none() {
        faults.invalid("spec.ipFamilyPolicy", &quoted, "this cluster is not configured for dual-stack services");
    }
    for (at, family) in families.iter().enumerate() {
        if !configured(family) {
            faults.invalid(&format!("spec.ipFamilies[{at}]"), &format!("{family:?}"), "not configured on this cluster");
        }
    }
    refused(new, &faults)?;
    if families.is_empty() {
        families.push("IPv4".to_owned());
    }
    if policy != "SingleStack" && families.len() == 1 && ranges.v6.is_some() {
        families.push(other(&families[0]));
    }
    if policy == "SingleStack" && old.is_some() {
        families.truncate(1);
    }
    new["spec"]["ipFamilies"] = families.into();
    Ok(())
}

fn addresses(new: &mut Value, old: Option<&Value>, ranges: &Ranges, used: &Used, seed: u64) -> Result<(), Failure> {
    let headless = text(new, "/spec/clusterIP") == "None";
    if text(new, "/spec/type") == "ExternalName" || headless {
        return Ok(());
    }
    let kept: Vec<Value> = old.map_or(Vec::new(), |old| list(old, "/spec/clusterIPs").to_vec());
    let was_headless = kept.first().is_some_and(|first| *first == "None");
    if was_headless {
        return Ok(());
    }
    let mut addresses: Vec<Value> = list(new, "/spec/clusterIPs").to_vec();
    let count = list(new, "/spec/ipFamilies").len();
    let mut faults = Faults::default();
    for at in 0..count {
        let family = text(new, &format!("/spec/ipFamilies/{at}")).to_owned();
        let Some(range) = (if family == "IPv6" { ranges.v6 } else { Some(ranges.v4) }) else { continue };
        match addresses.get(at).and_then(Value::as_str) {
            Some(given) if kept.get(at).is_some_and(|kept| *kept == *given) => {}
            // A change of what was assigned is a matter of validation.
            Some(_) if kept.get(at).is_some() => {}
            Some(given) => {
                let address: Option<IpAddr> = given.parse().ok();
                let why = match address {
                    Some(address) if !range.contains(address) => {
                        "the provided network does not match the current range"
                    }
                    Some(address) if used.addresses.contains(&address) => "provided IP is already allocated",
                    _ => continue,
                };
                let all = Value::from(addresses.clone()).to_string();
                faults.invalid("spec.clusterIPs", &all, &format!("failed to allocate IP {given}: {why}"));
                return refused(new, &faults);
            }
            None => {
                let Some(address) = range.pick(&used.addresses, seed) else {
                    let name = text(new, "/metadata/name");
                    return Err(Failure::internal(format!(
                        "Internal error occurred: failed to allocate a serviceIP for Service {name:?}: range is full"
                    )));
                };
                addresses.push(address.to_string().into());
            }
        }
    }
    if let Some(first) = addresses.first() {
        new["spec"]["clusterIP"] = first.clone();
        new["spec"]["clusterIPs"] = addresses.into();
    }
    Ok(())
}

fn node_ports(new: &mut Value, old: Option<&Value>, used: &Used, seed: u64) -> Result<(), Failure> {
    let kind = text(new, "/spec/type");
    let wanted =
        kind == "NodePort" || (kind == "LoadBalancer" && new["spec"]["allocateLoadBalancerNodePorts"] != false);
    let allowed = matches!(kind, "NodePort" | "LoadBalancer");
    let before: BTreeSet<i64> =
        old.map_or(&[][..], |old| list(old, "/spec/ports")).iter().map(|port| number(port, "/nodePort")).collect();
    let mut taken = used.node_ports.clone();
    let mut by_port: Vec<(i64, i64)> = Vec::new();
    let mut faults = Faults::default();
    let count = if allowed { list(new, "/spec/ports").len() } else { 0 };
    for at in 0..count {
        let port = new["spec"]["ports"][at].clone();
        let (service_port, asked) = (number(&port, "/port"), number(&port, "/nodePort"));
        if asked == 0 && !wanted {
            continue;
        }
        // The same port over two protocols shares one node port, also when only one of the two names it.
        let known = by_port.iter().find(|(port, _)| *port == service_port).map(|(_, node)| *node);
        let named = || {
            let same = list(new, "/spec/ports").iter().filter(|other| number(other, "/port") == service_port);
            same.map(|other| number(other, "/nodePort")).find(|node| *node != 0)
        };
        let asked = if asked != 0 { asked } else { known.or_else(named).unwrap_or(0) };
        if asked != 0 && (known == Some(asked) || before.contains(&asked)) {
            taken.extend(u16::try_from(asked));
        } else if asked != 0 {
            let path = format!("spec.ports[{at}].nodePort");
            let node = u16::try_from(asked).ok().filter(|node| NODE_PORTS.contains(node));
            let why = match node {
                None => "provided port is not in the valid range. The range of valid ports is 30000-32767",
                Some(node) if taken.contains(&node) => "provided port is already allocated",
                Some(_) => "",
            };
            if !why.is_empty() {
                faults.invalid(&path, &asked.to_string(), why);
                return refused(new, &faults);
            }
            taken.extend(node);
        }
        let node = if asked == 0 { pick_port(&taken, seed)? } else { asked };
        taken.extend(u16::try_from(node));
        by_port.push((service_port, node));
        put(&mut new["spec"]["ports"][at], "nodePort", node);
    }
    health_check_port(new, old, &taken, seed)
}

fn health_check_port(new: &mut Value, old: Option<&Value>, taken: &BTreeSet<u16>, seed: u64) -> Result<(), Failure> {
    let needs = |service: &Value| {
        text(service, "/spec/type") == "LoadBalancer" && text(service, "/spec/externalTrafficPolicy") == "Local"
    };
    if !needs(new) || old.is_some_and(needs) {
        return Ok(());
    }
    let asked = number(new, "/spec/healthCheckNodePort");
    if asked == 0 {
        new["spec"]["healthCheckNodePort"] = pick_port(taken, seed)?.into();
        return Ok(());
    }
    let why = match u16::try_from(asked).ok().filter(|port| NODE_PORTS.contains(port)) {
        None => "provided port is not in the valid range. The range of valid ports is 30000-32767",
        Some(port) if taken.contains(&port) => "provided port is already allocated",
        Some(_) => return Ok(()),
    };
    let message = format!("Internal error occurred: failed to allocate requested HealthCheck NodePort {asked}: {why}");
    Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message))
}

fn pick_port(taken: &BTreeSet<u16>, seed: u64) -> Result<i64, Failure> {
    let (first, last) = (u64::from(*NODE_PORTS.start()), u64::from(*NODE_PORTS.end()));
    let size = last - first + 1;
    (0..size)
        .filter_map(|step| u16::try_from(first + (seed % size + step) % size).ok())
        .find(|port| !taken.contains(port))
        .map(i64::from)
        .ok_or_else(|| Failure::internal("Internal error occurred: failed to allocate a nodePort: range is full"))
}

/// Addresses and node ports that a stored Service holds, to be counted as used.
pub fn held(service: &Value) -> (Vec<IpAddr>, Vec<u16>) {
    let addresses = list(service, "/spec/clusterIPs").iter().filter_map(Value::as_str);
    let ports = list(service, "/spec/ports").iter().map(|port| number(port, "/nodePort"));
    let ports = ports.chain([number(service, "/spec/healthCheckNodePort")]);
    (
        addresses.filter_map(|address| address.parse().ok()).collect(),
        ports.filter_map(|port| u16::try_from(port).ok().filter(|port| *port != 0)).collect(),
    )
}

/// Removes from an updated Service what its type has no use for, unless the user changed it too.
pub(super) fn drop_useless(new: &mut Value, old: &Value) {
    let kind = |service: &Value| text(service, "/spec/type").to_owned();
    let (before, after) = (kind(old), kind(new));
    let same = |new: &Value, key: &str| new.pointer(&format!("/spec/{key}")) == old.pointer(&format!("/spec/{key}"));
    let has_ports = |kind: &str| matches!(kind, "NodePort" | "LoadBalancer");
    let checked =
        |service: &Value| kind(service) == "LoadBalancer" && text(service, "/spec/externalTrafficPolicy") == "Local";
    let mut gone: Vec<&str> = Vec::new();
    if before != "ExternalName" && after == "ExternalName" {
        if same(new, "clusterIP") && same(new, "clusterIPs") {
            gone.extend(["clusterIP", "clusterIPs"]);
        }
        gone.extend(["ipFamilies", "ipFamilyPolicy"].into_iter().filter(|key| same(new, key)));
    }
    if checked(old) && !checked(new) && same(new, "healthCheckNodePort") {
        gone.push("healthCheckNodePort");
    }
    if before == "LoadBalancer" && after != "LoadBalancer" {
        gone.extend(["allocateLoadBalancerNodePorts", "loadBalancerClass"].into_iter().filter(|key| same(new, key)));
    }
    let open = |service: &Value| externally_accessible(&service["spec"]);
    if open(old) && !open(new) && same(new, "externalTrafficPolicy") {
        gone.push("externalTrafficPolicy");
    }
    let nodes = |service: &Value| -> BTreeSet<i64> {
        list(service, "/spec/ports").iter().map(|port| number(port, "/nodePort")).filter(|port| *port != 0).collect()
    };
    let wipe = has_ports(&before) && !has_ports(&after) && nodes(old).is_superset(&nodes(new));
    if let Some(spec) = new.get_mut("spec") {
        for key in gone {
            remove(spec, key);
        }
        if wipe {
            items(spec, "ports").for_each(|port| remove(port, "nodePort"));
        }
    }
    if after != "LoadBalancer" && new.get("status").is_some_and(Value::is_object) {
        new["status"]["loadBalancer"] = json!({});
    }
}

fn to_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

fn from_number(number: u128, v4: bool) -> IpAddr {
    if v4 {
        IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(number).unwrap_or(u32::MAX)))
    } else {
        IpAddr::V6(Ipv6Addr::from_bits(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges() -> Ranges {
        Ranges { v4: Range::parse("10.0.0.0/30").unwrap(), v6: None }
    }

    fn service() -> Value {
        json!({ "metadata": { "name": "s" }, "spec": { "type": "ClusterIP", "ports": [{ "port": 80 }] } })
    }

    #[test]
    fn a_service_gets_a_free_address_and_its_family() {
        let used = Used { addresses: ["10.0.0.1".parse().unwrap()].into(), ..Used::default() };
        for seed in 0..5 {
            let mut new = service();
            assign(&mut new, None, &ranges(), &used, seed).unwrap();
            assert_eq!(new["spec"]["clusterIP"], "10.0.0.2");
            assert_eq!(new["spec"]["clusterIPs"], json!(["10.0.0.2"]));
            assert_eq!(new["spec"]["ipFamilies"], json!(["IPv4"]));
            assert_eq!(new["spec"]["ipFamilyPolicy"], "SingleStack");
        }
    }

    #[test]
    fn a_full_range_is_an_error_and_never_a_used_address() {
        let used =
            Used { addresses: ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap()).into(), ..Used::default() };
        let failure = assign(&mut service(), None, &ranges(), &used, 3).unwrap_err();
        assert_eq!(failure.code, StatusCode::INTERNAL_SERVER_ERROR);
        assert!(failure.message.ends_with("failed to allocate a serviceIP for Service \"s\": range is full"));
    }

    #[test]
    fn node_ports_are_picked_in_range_and_never_twice() {
        let mut used = Used::default();
        for seed in [0, 2767, 2767, 5] {
            let mut new = service();
            new["spec"]["type"] = "NodePort".into();
            new["spec"]["clusterIP"] = "None".into();
            node_ports(&mut new, None, &used, seed).unwrap();
            let (_, ports) = held(&new);
            assert!(ports.iter().all(|port| NODE_PORTS.contains(port) && used.node_ports.insert(*port)));
        }
        assert_eq!(used.node_ports.len(), 4);
    }

    #[test]
    fn with_an_ipv6_range_a_service_can_have_both() {
        let ranges = Ranges { v6: Range::parse("fd00::/112"), ..ranges() };
        let mut new = service();
        new["spec"]["ipFamilyPolicy"] = "PreferDualStack".into();
        assign(&mut new, None, &ranges, &Used::default(), 0).unwrap();
        assert_eq!(new["spec"]["clusterIPs"], json!(["10.0.0.1", "fd00::1"]));
        assert_eq!(new["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    }
}
