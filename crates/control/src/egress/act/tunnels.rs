//! Every node has an EgressTunnel with a number of its own, from which its tunnel addresses follow.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use kube::api::ObjectMeta;
use portolan_api::egress::{EgressTunnel, EgressTunnelStatus, Phase, Tunnel};

use super::super::metrics::Metrics;
use super::super::observe::Cache;
use crate::runtime::Error;
use crate::runtime::due::Prepared;
use crate::runtime::endpoint::Part;
use crate::runtime::store::{Key, Store};
use crate::runtime::write::Writer;

/// The ranges that tunnel addresses come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subnets {
    pub ipv4: Ipv4Addr,
    pub ipv6: Ipv6Addr,
}

impl Default for Subnets {
    /// `198.18.0.0/16` and `fd11::/112`: ranges that no cloud gives out by default.
    fn default() -> Self {
        Self { ipv4: Ipv4Addr::new(198, 18, 0, 0), ipv6: Ipv6Addr::new(0xfd11, 0, 0, 0, 0, 0, 0, 0) }
    }
}

/// Numbers of nodes go from 1 to this one: 13 bits of a packet mark.
const LAST: u32 = 8_191;
/// The number of a node stands in the low bits of a mark that begins with this.
const MARK: u32 = 0x2600_0000;

/// What is to be done to a node's tunnel.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum TunnelChange {
    Create,
    Number(u32),
    Delete,
    Nothing,
}

/// Numbers that are being written: no cache shows them yet.
#[derive(Debug, Default)]
pub(super) struct Reserved {
    by_node: BTreeMap<String, u32>,
}

impl Reserved {
    /// The write of a node's tunnel has ended.
    pub(super) fn release(&mut self, node: &str) {
        self.by_node.remove(node);
    }
}

/// What numbers are given with, in one pass.
pub(super) struct Numbering<'a> {
    pub(super) writer: &'a Writer,
    pub(super) cache: &'a Cache,
    pub(super) metrics: &'a Metrics,
    pub(super) subnets: Subnets,
    pub(super) reserved: &'a mut Reserved,
    /// Who has which number; none until the first tunnel of the pass asks.
    numbers: Option<BTreeMap<u32, String>>,
}

impl<'a> Numbering<'a> {
    pub(super) fn new(
        writer: &'a Writer,
        cache: &'a Cache,
        metrics: &'a Metrics,
        subnets: Subnets,
        reserved: &'a mut Reserved,
    ) -> Self {
        Self { writer, cache, metrics, subnets, reserved, numbers: None }
    }

    /// What the tunnel of a node needs.
    pub(super) fn prepare(&mut self, name: &str) -> Prepared<()> {
        let Self { writer, cache, metrics, subnets, reserved, numbers } = self;
        let key = Key::of_cluster(name);
        let (node, tunnel) = (cache.nodes.get(&key), cache.tunnels.get(&key));
        let numbers = numbers.get_or_insert_with(|| {
            let mut numbers = numbers_of(cache);
            numbers.extend(reserved.by_node.iter().map(|(node, number)| (*number, node.clone())));
            numbers
        });
        let (writer, tunnels, metrics) = ((*writer).clone(), cache.tunnels.clone(), (*metrics).clone());
        match (change(node.is_some(), tunnel.as_deref(), numbers), tunnel) {
            (TunnelChange::Create, _) => {
                let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
                let tunnel = EgressTunnel { metadata, ..EgressTunnel::default() };
                Prepared::write(async move { writer.create(&tunnels, &tunnel).await.map(drop) })
            }
            (TunnelChange::Number(number), Some(tunnel)) => {
                numbers.insert(number, name.to_owned());
                reserved.by_node.insert(name.to_owned(), number);
                let mut tunnel = tunnel.as_ref().clone();
                tunnel.status = Some(numbered(tunnel.status.take().unwrap_or_default(), number, *subnets));
                Prepared::write(async move {
                    writer.replace(&tunnels, Part::Status, &tunnel).await?;
                    metrics.tunnel_numbered();
                    Ok(())
                })
            }
            (TunnelChange::Delete, Some(tunnel)) => {
                let tunnel = tunnel.as_ref().clone();
                Prepared::write(async move { delete(&writer, &tunnels, &metrics, tunnel).await })
            }
            (TunnelChange::Number(_) | TunnelChange::Delete | TunnelChange::Nothing, _) => Prepared::Nothing,
        }
    }
}

async fn delete(
    writer: &Writer,
    tunnels: &Store<EgressTunnel>,
    metrics: &Metrics,
    mut tunnel: EgressTunnel,
) -> Result<(), Error> {
    if tunnel.metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty()) {
        // Its node is gone, and nobody else can clean up there.
        tunnel.metadata.finalizers = None;
        writer.replace(tunnels, Part::Object, &tunnel).await?;
    }
    if tunnel.metadata.deletion_timestamp.is_none() {
        writer.delete(tunnels, &tunnel).await?;
        metrics.tunnel_released();
    }
    Ok(())
}

/// Pure: what a node's tunnel needs, given whose numbers are taken.
fn change(node_exists: bool, tunnel: Option<&EgressTunnel>, numbers: &BTreeMap<u32, String>) -> TunnelChange {
    match (node_exists, tunnel) {
        (true, None) => TunnelChange::Create,
        (false, Some(_)) => TunnelChange::Delete,
        (false, None) => TunnelChange::Nothing,
        (true, Some(tunnel)) => {
            let name = tunnel.metadata.name.as_deref().unwrap_or_default();
            let own = number(tunnel).filter(|own| numbers.get(own).is_some_and(|holder| holder == name));
            let free = || (1..=LAST).find(|candidate| !numbers.contains_key(candidate));
            match own {
                Some(_) => TunnelChange::Nothing,
                None => free().map_or(TunnelChange::Nothing, TunnelChange::Number),
            }
        }
    }
}

/// Who has which number; where two have the same, the first by name keeps it.
fn numbers_of(cache: &Cache) -> BTreeMap<u32, String> {
    let mut numbers = BTreeMap::new();
    cache.tunnels.for_each(|key, tunnel| {
        if let Some(number) = number(tunnel) {
            numbers.entry(number).or_insert_with(|| key.name.clone());
        }
    });
    numbers
}

/// The number in a tunnel's mark; marks of the original outside the range count as none.
fn number(tunnel: &EgressTunnel) -> Option<u32> {
    let mark = tunnel.status.as_ref()?.mark.as_deref()?.strip_prefix("0x")?;
    let number = u32::from_str_radix(mark, 16).ok()?.checked_sub(MARK)?;
    (1..=LAST).contains(&number).then_some(number)
}

fn numbered(status: EgressTunnelStatus, number: u32, subnets: Subnets) -> EgressTunnelStatus {
    let mac = 0x2000_2000 + number;
    let [a, b, c, d] = mac.to_be_bytes();
    let parent = status.tunnel.and_then(|tunnel| tunnel.parent);
    EgressTunnelStatus {
        tunnel: Some(Tunnel {
            ipv4: Some(Ipv4Addr::from_bits(subnets.ipv4.to_bits() + number).to_string()),
            ipv6: Some(Ipv6Addr::from_bits(subnets.ipv6.to_bits() + u128::from(number)).to_string()),
            mac: Some(format!("66:26:{a:02x}:{b:02x}:{c:02x}:{d:02x}")),
            parent,
        }),
        mark: Some(format!("0x{:08x}", MARK + number)),
        phase: Some(status.phase.unwrap_or(Phase::Pending)),
        ..status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tunnel(name: &str, mark: Option<&str>) -> EgressTunnel {
        let mut tunnel = EgressTunnel::default();
        tunnel.metadata.name = Some(name.to_owned());
        tunnel.status =
            mark.map(|mark| EgressTunnelStatus { mark: Some(mark.to_owned()), ..EgressTunnelStatus::default() });
        tunnel
    }

    #[test]
    fn a_tunnel_keeps_its_number_and_a_new_one_gets_the_lowest_free() {
        let numbers = BTreeMap::from([(1, "a".to_owned()), (3, "c".to_owned())]);
        assert_eq!(change(true, Some(&tunnel("a", Some("0x26000001"))), &numbers), TunnelChange::Nothing);
        assert_eq!(change(true, Some(&tunnel("b", None)), &numbers), TunnelChange::Number(2));
        assert_eq!(
            change(true, Some(&tunnel("x", Some("0x26000001"))), &numbers),
            TunnelChange::Number(2),
            "one number, one node"
        );
        assert_eq!(
            change(true, Some(&tunnel("old", Some("0x26ab1234"))), &numbers),
            TunnelChange::Number(2),
            "too large a mark"
        );
        assert_eq!(change(true, None, &numbers), TunnelChange::Create);
        assert_eq!(change(false, Some(&tunnel("a", Some("0x26000001"))), &numbers), TunnelChange::Delete);
    }

    #[test]
    fn addresses_follow_from_the_number() {
        let status = numbered(EgressTunnelStatus::default(), 258, Subnets::default());
        let tunnel = status.tunnel.unwrap();
        assert_eq!(status.mark.as_deref(), Some("0x26000102"));
        assert_eq!(tunnel.ipv4.as_deref(), Some("198.18.1.2"));
        assert_eq!(tunnel.ipv6.as_deref(), Some("fd11::102"));
        assert_eq!(tunnel.mac.as_deref(), Some("66:26:20:00:21:02"));
    }
}
