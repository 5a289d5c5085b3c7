//! The four Describes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use super::parameters::{Filter, Parameters};
use super::response::{Refusal, refused, wrap};
use super::world::{Instance, Interface, Subnet, TYPES, World, limit};

type Seen = BTreeMap<String, Interface>;
type Elastic = BTreeMap<Ipv4Addr, (String, Ipv4Addr)>;

/// Zones that do not answer.
#[derive(Default)]
pub(super) struct Disrupted {
    /// Calls without ids fail.
    pub(super) sweeps: BTreeSet<String>,
    /// Calls with ids fail, too.
    pub(super) wholly: BTreeSet<String>,
}

impl Disrupted {
    fn all(&self) -> impl Iterator<Item = &String> {
        self.sweeps.iter().chain(&self.wholly)
    }
}

pub(super) fn instances(
    world: &World,
    seen: &Seen,
    disrupted: &Disrupted,
    parameters: &Parameters,
) -> Result<String, Refusal> {
    parameters.check_names(&["InstanceId", "Filter", "MaxResults", "NextToken", "DryRun"])?;
    let (ids, filters, page) = (parameters.list("InstanceId"), parameters.filters(), parameters.page()?);
    if !ids.is_empty() && parameters.get("MaxResults").is_some() {
        let message = "The parameter instancesSet cannot be used with the parameter maxResults";
        return refused(400, "InvalidParameterCombination", message);
    }
    if let Some(unknown) = ids.iter().find(|id| !world.instances.contains_key(*id)) {
        return refused(400, "InvalidInstanceID.NotFound", format!("The instance ID '{unknown}' does not exist"));
    }
    let zones = filters.iter().find(|filter| filter.name == "availability-zone").map(|filter| &filter.values);
    let touches = |zone: &String| zones.is_none_or(|zones| zones.contains(zone));
    let is_lost = |id: &String| world.instances.get(id).is_some_and(|found| disrupted.wholly.contains(&found.zone));
    if (ids.is_empty() && disrupted.all().any(touches)) || ids.iter().any(is_lost) {
        return refused(503, "Unavailable", "The server is overloaded and can't handle the request.");
    }
    let mut chosen = Vec::new();
    for (id, instance) in &world.instances {
        let interface = instance.interface.as_ref().and_then(|interface| seen.get(interface));
        if (ids.is_empty() || ids.contains(id)) && matches_instance(id, instance, interface, &filters)? {
            chosen.push((id.clone(), (instance, interface)));
        }
    }
    let (chosen, next) = page.cut(chosen);
    let mut reservations: BTreeMap<&str, String> = BTreeMap::new();
    for (id, (instance, interface)) in &chosen {
        let item = instance_item(id, instance, *interface, &world.elastic);
        reservations.entry(&instance.reservation).or_default().push_str(&item);
    }
    let items = reservations.iter().map(|(id, instances)| {
        format!("<item><reservationId>{id}</reservationId><instancesSet>{instances}</instancesSet></item>")
    });
    Ok(answer("DescribeInstances", "reservationSet", &items.collect::<String>(), next))
}

fn matches_instance(
    id: &str,
    instance: &Instance,
    interface: Option<&Interface>,
    filters: &[Filter],
) -> Result<bool, Refusal> {
    for Filter { name, values } in filters {
        let has = |value: &str| values.iter().any(|wanted| wanted == value);
        let matches = match name.as_str() {
            "instance-id" => has(id),
            "instance-state-name" => has(instance.state),
            "availability-zone" => has(&instance.zone),
            "subnet-id" => has(&instance.subnet),
            "tag-key" => instance.tags.iter().any(|tag| has(tag)),
            "network-interface.addresses.private-ip-address" => {
                interface.is_some_and(|interface| has_address(interface, values))
            }
            _ => return bad_filter(name),
        };
        if !matches {
            return Ok(false);
        }
    }
    Ok(true)
}

fn instance_item(id: &str, instance: &Instance, interface: Option<&Interface>, elastic: &Elastic) -> String {
    let Instance { size, state, zone, subnet, .. } = instance;
    let mut item = format!(
        "<item><instanceId>{id}</instanceId><instanceState><code>16</code><name>{state}</name></instanceState>\
         <instanceType>{size}</instanceType><placement><availabilityZone>{zone}</availabilityZone></placement>"
    );
    if let Some(interface) = interface {
        let shown = interface_item(interface, elastic);
        // The interface with index 0 is not always listed first.
        let other = "<item><networkInterfaceId>eni-other</networkInterfaceId><subnetId>subnet-other</subnetId>\
                     <attachment><deviceIndex>1</deviceIndex></attachment></item>";
        let more = if instance.tags.contains("two-interfaces") { other } else { "" };
        write!(
            item,
            "<subnetId>{subnet}</subnetId><privateIpAddress>{}</privateIpAddress>\
             <networkInterfaceSet>{more}{shown}</networkInterfaceSet>",
            interface.primary
        )
        .expect("a string takes any text");
    }
    item + "</item>"
}

pub(super) fn interfaces(world: &World, seen: &Seen, parameters: &Parameters) -> Result<String, Refusal> {
    parameters.check_names(&["NetworkInterfaceId", "Filter", "MaxResults", "NextToken", "DryRun"])?;
    let (ids, filters, page) = (parameters.list("NetworkInterfaceId"), parameters.filters(), parameters.page()?);
    if let Some(unknown) = ids.iter().find(|id| !seen.contains_key(*id)) {
        let message = format!("The networkInterface ID '{unknown}' does not exist");
        return refused(400, "InvalidNetworkInterfaceID.NotFound", message);
    }
    let mut chosen = Vec::new();
    for (id, interface) in seen {
        if (ids.is_empty() || ids.contains(id)) && matches_interface(interface, &filters)? {
            chosen.push((id.clone(), interface));
        }
    }
    let (chosen, next) = page.cut(chosen);
    let items: String = chosen.iter().map(|(_, interface)| interface_item(interface, &world.elastic)).collect();
    Ok(answer("DescribeNetworkInterfaces", "networkInterfaceSet", &items, next))
}

fn matches_interface(interface: &Interface, filters: &[Filter]) -> Result<bool, Refusal> {
    for Filter { name, values } in filters {
        let has = |value: &str| values.iter().any(|wanted| wanted == value);
        let matches = match name.as_str() {
            "network-interface-id" => has(&interface.id),
            "subnet-id" => has(&interface.subnet),
            "attachment.instance-id" => interface.instance.as_deref().is_some_and(has),
            "addresses.private-ip-address" => has_address(interface, values),
            _ => return bad_filter(name),
        };
        if !matches {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Any address matches, the primary one and the others.
fn has_address(interface: &Interface, values: &[String]) -> bool {
    let is_own = |address: Ipv4Addr| interface.primary == address || interface.secondary.contains(&address);
    values.iter().any(|value| value.parse().is_ok_and(is_own))
}

fn interface_item(interface: &Interface, elastic: &Elastic) -> String {
    let Interface { id, subnet, primary, secondary, .. } = interface;
    let mut addresses = String::new();
    for address in [primary].into_iter().chain(secondary) {
        let public = elastic.iter().find(|(_, (on, private))| on == id && private == address);
        let public = public.map(|(public, _)| format!("<association><publicIp>{public}</publicIp></association>"));
        write!(
            addresses,
            "<item><privateIpAddress>{address}</privateIpAddress><primary>{}</primary>{}</item>",
            address == primary,
            public.unwrap_or_default()
        )
        .expect("a string takes any text");
    }
    let prefixes: Vec<String> =
        interface.prefixes.iter().map(|prefix| format!("<item><ipv4Prefix>{prefix}</ipv4Prefix></item>")).collect();
    let prefixes = prefixes.concat();
    let attachment = interface.instance.as_ref().map(|instance| {
        format!("<attachment><instanceId>{instance}</instanceId><deviceIndex>0</deviceIndex></attachment>")
    });
    format!(
        "<item><networkInterfaceId>{id}</networkInterfaceId><subnetId>{subnet}</subnetId>\
         <privateIpAddress>{primary}</privateIpAddress>{}<privateIpAddressesSet>{addresses}</privateIpAddressesSet>\
         <ipv4PrefixSet>{prefixes}</ipv4PrefixSet></item>",
        attachment.unwrap_or_default()
    )
}

pub(super) fn subnets(world: &World, parameters: &Parameters) -> Result<String, Refusal> {
    parameters.check_names(&["SubnetId", "Filter", "MaxResults", "NextToken", "DryRun"])?;
    let (ids, filters, page) = (parameters.list("SubnetId"), parameters.filters(), parameters.page()?);
    if let Some(unknown) = ids.iter().find(|id| !world.subnets.contains_key(*id)) {
        return refused(400, "InvalidSubnetID.NotFound", format!("The subnet ID '{unknown}' does not exist"));
    }
    let mut chosen = Vec::new();
    for (id, subnet) in &world.subnets {
        if (ids.is_empty() || ids.contains(id)) && matches_subnet(id, subnet, &filters)? {
            chosen.push((id.clone(), subnet));
        }
    }
    let (chosen, next) = page.cut(chosen);
    let items = chosen.iter().map(|(id, Subnet { zone, cidr })| {
        let free = world.free(id).len();
        format!(
            "<item><subnetId>{id}</subnetId><availabilityZone>{zone}</availabilityZone><cidrBlock>{cidr}</cidrBlock>\
             <availableIpAddressCount>{free}</availableIpAddressCount></item>"
        )
    });
    Ok(answer("DescribeSubnets", "subnetSet", &items.collect::<String>(), next))
}

fn matches_subnet(id: &str, subnet: &Subnet, filters: &[Filter]) -> Result<bool, Refusal> {
    for Filter { name, values } in filters {
        let matches = match name.as_str() {
            "subnet-id" => values.iter().any(|value| value == id),
            "availability-zone" => values.contains(&subnet.zone),
            _ => return bad_filter(name),
        };
        if !matches {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(super) fn types(parameters: &Parameters) -> Result<String, Refusal> {
    parameters.check_names(&["InstanceType", "Filter", "MaxResults", "NextToken", "DryRun"])?;
    let mut names = parameters.list("InstanceType");
    if let Some(unknown) = names.iter().find(|name| !TYPES.contains(&name.as_str())) {
        let message = format!("The following supplied instance types do not exist: [{unknown}]");
        return refused(400, "InvalidInstanceType", message);
    }
    if names.len() > 100 {
        return refused(400, "InvalidParameterValue", "at most 100 instance types");
    }
    if names.is_empty() {
        names = TYPES.iter().map(|name| (*name).to_owned()).collect();
    }
    let items = names.iter().map(|name| {
        format!(
            "<item><instanceType>{name}</instanceType><networkInfo><ipv4AddressesPerInterface>{}\
             </ipv4AddressesPerInterface><maximumNetworkInterfaces>3</maximumNetworkInterfaces></networkInfo></item>",
            limit(name)
        )
    });
    Ok(answer("DescribeInstanceTypes", "instanceTypeSet", &items.collect::<String>(), None))
}

fn answer(action: &str, list: &str, items: &str, next: Option<String>) -> String {
    let next = next.map(|token| format!("<nextToken>{token}</nextToken>")).unwrap_or_default();
    wrap(action, &format!("<{list}>{items}</{list}>{next}"))
}

fn bad_filter<T>(name: &str) -> Result<T, Refusal> {
    refused(400, "InvalidParameterValue", format!("The filter '{name}' is invalid"))
}
