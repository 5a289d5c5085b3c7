//! Cluster IPs of Services: allocated from a range, or checked when the user names them. They are IPv4: this server
//! has no second family. Node ports are what the user asks for: nothing here would listen on others.
//!
//! Pure: the addresses in use and a seed are arguments.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

use serde_json::{Value, json};

use super::error_list::ErrorList;
use crate::json::{fill, items, list, put, remove, text};
use crate::status::{About, Failure};

/// The address of the server itself, Service `default/kubernetes`: the first of the range.
pub const OF_SERVER: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The addresses that Services may have: 10.96.0.0/12 without its network and broadcast addresses.
const RANGE: RangeInclusive<u32> = OF_SERVER.to_bits()..=0x0a6f_fffe;
/// The addresses that are handed out.
const ALLOCATED: RangeInclusive<u32> = OF_SERVER.to_bits() + 1..=0x0a6f_fffe;

/// Fields of Services in the cluster, and of load balancers.
const INSIDE: [&str; 5] = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"];
const BALANCER: [&str; 2] = ["allocateLoadBalancerNodePorts", "loadBalancerClass"];

/// Fills in the cluster address of a Service that is created (`old` is none) or updated. `used` is what all other
/// Services hold.
pub fn assign(new: &mut Value, old: Option<&Value>, used: &BTreeSet<Ipv4Addr>, seed: u32) -> Result<(), Failure> {
    if !new["spec"].is_object() || text(new, "/spec/type") == "ExternalName" {
        return Ok(());
    }
    let mut errors = ErrorList::default();
    for (at, family) in list(new, "/spec/ipFamilies").iter().enumerate().filter(|(_, family)| **family != "IPv4") {
        errors.invalid(&format!("spec.ipFamilies[{at}]"), family, "this server has IPv4 only");
    }
    if text(new, "/spec/ipFamilyPolicy") == "RequireDualStack" {
        errors.invalid("spec.ipFamilyPolicy", &new["spec"]["ipFamilyPolicy"], "this server has IPv4 only");
    }
    let before = old.map_or("", |old| text(old, "/spec/clusterIP"));
    let asked = [text(new, "/spec/clusterIP"), text(new, "/spec/clusterIPs/0"), before];
    let asked = asked.into_iter().find(|address| !address.is_empty()).map(str::to_owned);
    let address = asked.or_else(|| pick(&ALLOCATED, used, seed).map(|free| free.to_string()));
    let address = address.ok_or_else(|| Failure::internal("every cluster address is in use"))?;
    let parsed = address.parse::<Ipv4Addr>().ok().filter(|address| RANGE.contains(&address.to_bits()));
    if !before.is_empty() && before != address {
        errors.invalid("spec.clusterIPs[0]", &json!([address]), "may not change once set");
    } else if parsed.is_none() && address != "None" {
        errors.invalid("spec.clusterIPs", &json!([address]), "is not in the range of this server");
    } else if parsed.is_some_and(|address| used.contains(&address)) {
        errors.invalid("spec.clusterIPs", &json!([address]), "is already allocated");
    }
    if !errors.0.is_empty() {
        let about = About { group: "", resource: "Service", name: text(new, "/metadata/name") };
        return Err(Failure::invalid(about, &errors.0));
    }
    let spec = &mut new["spec"];
    put(spec, "clusterIPs", json!([address]));
    put(spec, "clusterIP", address);
    fill(spec, "ipFamilies", json!(["IPv4"]));
    fill(spec, "ipFamilyPolicy", "SingleStack");
    Ok(())
}

/// The address that a stored Service holds.
pub fn held(service: &Value) -> Option<Ipv4Addr> {
    text(service, "/spec/clusterIP").parse().ok()
}

/// Removes from an updated Service what its new type has no use for.
pub(super) fn drop_useless(new: &mut Value, old: &Value) {
    let after = text(new, "/spec/type").to_owned();
    if after == text(old, "/spec/type") {
        return;
    }
    let inside = INSIDE.iter().filter(|_| after == "ExternalName");
    for key in inside.chain(BALANCER.iter().filter(|_| after != "LoadBalancer")) {
        remove(&mut new["spec"], key);
    }
    if !matches!(after.as_str(), "LoadBalancer" | "NodePort") {
        remove(&mut new["spec"], "externalTrafficPolicy");
        items(&mut new["spec"], "ports").for_each(|port| remove(port, "nodePort"));
    }
    if after != "LoadBalancer" {
        put(&mut new["status"], "loadBalancer", json!({}));
    }
}

/// A free address, searched once around from a place that `seed` picks; `None` when all are used.
fn pick(range: &RangeInclusive<u32>, used: &BTreeSet<Ipv4Addr>, seed: u32) -> Option<Ipv4Addr> {
    let (first, last) = (*range.start(), *range.end());
    let start = first + seed % (last - first + 1);
    let around = (start..=last).chain(first..start).map(Ipv4Addr::from_bits);
    around.into_iter().find(|address| !used.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(spec: &Value) -> Value {
        json!({ "metadata": { "name": "s" }, "spec": spec })
    }

    /// What a Service becomes, or the fields that are wrong with it.
    fn assigned(spec: &Value, old: Option<&Value>) -> Result<Value, Vec<String>> {
        let mut new = service(spec);
        let used = [Ipv4Addr::new(10, 96, 0, 1)].into();
        let fields = |failure: Failure| {
            let causes = failure.details["causes"].as_array().unwrap().clone();
            causes.iter().map(|cause| cause["field"].as_str().unwrap().to_owned()).collect()
        };
        assign(&mut new, old, &used, 0).map(|()| new).map_err(fields)
    }

    #[test]
    fn a_service_gets_a_free_address_and_its_family() {
        let new = assigned(&json!({}), None).unwrap();
        let spec = json!({
            "clusterIP": "10.96.0.2", "clusterIPs": ["10.96.0.2"], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
        });
        assert_eq!(new["spec"], spec);
        assert_eq!(assigned(&json!({}), Some(&new)).unwrap(), new, "what is left out is kept");
        assert_eq!(assigned(&json!({ "type": "ExternalName" }), None).unwrap()["spec"].get("clusterIP"), None);
    }

    #[test]
    fn an_address_is_free_whatever_the_seed_and_none_when_all_are_used() {
        let range = 0x0a00_0001..=0x0a00_0002;
        let mut used = BTreeSet::from([Ipv4Addr::new(10, 0, 0, 1)]);
        for seed in 0..5 {
            assert_eq!(pick(&range, &used, seed), Some(Ipv4Addr::new(10, 0, 0, 2)));
        }
        used.insert(Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(pick(&range, &used, 3), None);
    }

    #[test]
    fn an_address_that_is_asked_for_is_free_in_range_and_stays() {
        for (address, fits) in [("10.96.0.2", true), ("None", true), ("10.96.0.1", false), ("10.0.0.9", false)] {
            let answer = assigned(&json!({ "clusterIP": address }), None);
            assert_eq!(answer.map_err(|fields| assert_eq!(fields, ["spec.clusterIPs"])).is_ok(), fits, "{address}");
        }
        let old = assigned(&json!({}), None).unwrap();
        let change = assigned(&json!({ "clusterIP": "None" }), Some(&old));
        assert_eq!(change, Err(vec!["spec.clusterIPs[0]".to_owned()]));
    }

    #[test]
    fn a_second_family_is_refused() {
        let both = json!({ "ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"] });
        assert_eq!(assigned(&both, None).unwrap_err(), ["spec.ipFamilies[1]", "spec.ipFamilyPolicy"]);
    }

    #[test]
    fn a_type_that_changes_leaves_nothing_behind() {
        let mut spec = json!({ "type": "LoadBalancer", "ports": [{ "port": 80, "nodePort": 30000 }] });
        let old = assigned(&spec, None).unwrap();
        spec["type"] = "ExternalName".into();
        let mut new = service(&spec);
        drop_useless(&mut new, &old);
        assert_eq!(new["spec"], json!({ "type": "ExternalName", "ports": [{ "port": 80 }] }));
    }
}
