//! A stand-in for OVN-Kubernetes on a cloud: chooses a node for each address of an EgressIP by its rules, asks for the
//! address there by CloudPrivateIPConfig, and shows it in the status once it is assigned.
//!
//! A node can have an address if it is ready, has the label `k8s.ovn.org/egress-assignable`, says by annotation that its
//! subnet holds the address and that it has room, and has no other address of the same EgressIP. The one with the fewest
//! addresses is taken.

mod node;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Node;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use kube::{Api, Client, Error, ResourceExt as _};
use serde_json::{Value, json};

use self::node::EgressNode;
use crate::openshift::{Pass, PrivateIps, Running, nodes, run};

const OWNER: &str = "k8s.ovn.org/egressip-owner-ref";

/// A running OVN-Kubernetes.
pub struct Ovn {
    _running: Running,
}

impl Ovn {
    /// Starts it.
    pub fn start(client: &Client) -> Self {
        let nodes = Api::all(client.clone());
        Self { _running: run(Worker { nodes, egress_ips: egress_ips(client), private_ips: PrivateIps::of(client) }) }
    }
}

/// Removes the EgressIPs of an earlier test.
pub async fn wipe(client: &Client) -> anyhow::Result<()> {
    let api = egress_ips(client);
    match api.list(&ListParams::default()).await {
        Ok(left) => {
            for object in left {
                api.delete(&object.name_any(), &DeleteParams::default()).await?;
            }
            Ok(())
        }
        Err(Error::Api(status)) if status.code == 404 => Ok(()),
        Err(problem) => Err(problem.into()),
    }
}

fn egress_ips(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("k8s.ovn.org", "v1", "EgressIP");
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, "egressips"))
}

struct Worker {
    nodes: Api<Node>,
    egress_ips: Api<DynamicObject>,
    private_ips: PrivateIps,
}

/// A CloudPrivateIPConfig of an EgressIP.
struct Asked {
    owner: String,
    node: String,
    is_assigned: bool,
    is_deleted: bool,
}

impl Pass for Worker {
    async fn pass(&mut self) -> anyhow::Result<()> {
        let all = ListParams::default();
        let nodes: Vec<EgressNode> = self.nodes.list(&all).await?.iter().filter_map(EgressNode::of).collect();
        let mut asked = self.asked().await?;
        let mut wanted: BTreeMap<Ipv4Addr, String> = BTreeMap::new();
        for object in self.egress_ips.list(&all).await? {
            let name = object.name_any();
            for address in addresses(&object) {
                wanted.insert(address, name.clone());
                self.place(address, &name, &nodes, &mut asked).await?;
            }
            self.report(&object, &asked).await?;
        }
        for (address, asked) in &asked {
            if wanted.get(address) != Some(&asked.owner) && !asked.is_deleted {
                self.private_ips.delete(*address).await?;
            }
        }
        Ok(())
    }
}

impl Worker {
    async fn asked(&self) -> anyhow::Result<BTreeMap<Ipv4Addr, Asked>> {
        let objects = self.private_ips.list().await?;
        let asked = objects.into_iter().map(|(address, object)| {
            let (node, assigned) = nodes(&object);
            let asked = Asked {
                owner: object.annotations().get(OWNER).cloned().unwrap_or_default(),
                node: node.to_owned(),
                is_assigned: assigned == Some(node),
                is_deleted: object.metadata.deletion_timestamp.is_some(),
            };
            (address, asked)
        });
        Ok(asked.collect())
    }

    /// Asks for an address on a node that can have it.
    async fn place(
        &self,
        address: Ipv4Addr,
        owner: &str,
        nodes: &[EgressNode],
        asked: &mut BTreeMap<Ipv4Addr, Asked>,
    ) -> anyhow::Result<()> {
        let before = asked.get(&address);
        let is_taken = before.is_some_and(|before| before.owner != owner || before.is_deleted);
        let stays = before.is_some_and(|before| nodes.iter().any(|node| node.name == before.node && node.is_usable));
        if is_taken || stays {
            return Ok(());
        }
        let load = |node: &EgressNode| asked.values().filter(|one| one.node == node.name).count();
        let has_owner = |node: &EgressNode| {
            asked.iter().any(|(other, one)| *other != address && one.owner == owner && one.node == node.name)
        };
        let fits = |node: &&EgressNode| {
            node.is_usable && node.subnet.contains(&address) && load(node) < node.capacity && !has_owner(node)
        };
        let chosen = nodes.iter().filter(fits).min_by_key(|node| load(node)).map(|node| node.name.clone());
        match (before.is_some(), chosen) {
            (false, None) => {}
            (true, None) => {
                self.private_ips.delete(address).await?;
                asked.remove(&address);
            }
            (is_known, Some(node)) => {
                if is_known {
                    self.private_ips.merge(address, json!({ "spec": { "node": node } })).await?;
                } else {
                    self.private_ips.ask(address, &node, json!({ OWNER: owner })).await?;
                }
                let new = Asked { owner: owner.to_owned(), node, is_assigned: false, is_deleted: false };
                asked.insert(address, new);
            }
        }
        Ok(())
    }

    /// Shows where the addresses of an EgressIP are.
    async fn report(&self, object: &DynamicObject, asked: &BTreeMap<Ipv4Addr, Asked>) -> anyhow::Result<()> {
        let name = object.name_any();
        let assigned = addresses(object).into_iter().filter_map(|address| {
            let found = asked.get(&address).filter(|found| found.is_assigned && found.owner == name)?;
            Some(json!({ "node": found.node, "egressIP": address }))
        });
        let items: Vec<Value> = assigned.collect();
        if object.data["status"]["items"].as_array().is_none_or(|before| *before != items) {
            let patch = Patch::Merge(json!({ "status": { "items": items } }));
            self.egress_ips.patch(&name, &PatchParams::default(), &patch).await?;
        }
        Ok(())
    }
}

fn addresses(object: &DynamicObject) -> Vec<Ipv4Addr> {
    let texts = object.data["spec"]["egressIPs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    texts.filter_map(|text| text.parse().ok()).collect()
}
