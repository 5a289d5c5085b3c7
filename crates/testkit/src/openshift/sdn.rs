//! OpenShift SDN on a cloud: asks by CloudPrivateIPConfig for every address that a HostSubnet hosts for a NetNamespace.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use super::private_ips::{PrivateIps, nodes};
use super::{Pass, Running, run};

/// A running SDN.
pub struct Sdn {
    _running: Running,
}

impl Sdn {
    /// Starts it.
    pub fn start(client: &Client) -> Self {
        let api = |kind: &str, plural: &str| {
            let kind = GroupVersionKind::gvk("network.openshift.io", "v1", kind);
            Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, plural))
        };
        let worker = Worker {
            private_ips: PrivateIps::of(client),
            net_namespaces: api("NetNamespace", "netnamespaces"),
            host_subnets: api("HostSubnet", "hostsubnets"),
        };
        Self { _running: run(worker) }
    }
}

struct Worker {
    private_ips: PrivateIps,
    net_namespaces: Api<DynamicObject>,
    host_subnets: Api<DynamicObject>,
}

impl Pass for Worker {
    async fn pass(&mut self) -> anyhow::Result<()> {
        let hosted = listed(&self.host_subnets).await?;
        let used = listed(&self.net_namespaces).await?;
        let wanted: BTreeMap<Ipv4Addr, String> =
            hosted.into_iter().filter(|(address, _)| used.contains_key(address)).collect();
        let asked = self.private_ips.list().await?;
        for (address, node) in &wanted {
            match asked.get(address) {
                None => self.private_ips.ask(*address, node, json!({})).await?,
                Some(object) if nodes(object).0 != node => {
                    self.private_ips.merge(*address, json!({ "spec": { "node": node } })).await?;
                }
                Some(_) => {}
            }
        }
        for (address, object) in &asked {
            if !wanted.contains_key(address) && object.metadata.deletion_timestamp.is_none() {
                self.private_ips.delete(*address).await?;
            }
        }
        Ok(())
    }
}

/// The object that lists each address.
async fn listed(api: &Api<DynamicObject>) -> anyhow::Result<BTreeMap<Ipv4Addr, String>> {
    let mut found = BTreeMap::new();
    for object in api.list(&ListParams::default()).await? {
        let addresses = object.data["egressIPs"].as_array().into_iter().flatten().filter_map(Value::as_str);
        for address in addresses {
            found.insert(address.parse()?, object.name_any());
        }
    }
    Ok(found)
}
