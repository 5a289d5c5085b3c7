//! cloud-network-config-controller: attaches what CloudPrivateIPConfigs ask for, says on each Node what it can have, and
//! holds a Lease meanwhile.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;

use super::private_ips::{FINALIZER, PrivateIps, nodes};
use super::{Pass, Running, run};
use crate::aws::{Neighbour, PrimaryInterface};

/// The Lease that it holds.
pub const LOCK: &str = "cloud-network-config-controller-lock";
/// Where that is.
pub const LOCK_NAMESPACE: &str = "openshift-cloud-network-config-controller";

const ANNOTATION: &str = "cloud.network.openshift.io/egress-ipconfig";
/// In seconds; the real one has 137.
const LEASE_DURATION: i32 = 3;
const RENEWAL: Duration = Duration::from_secs(1);

/// A running controller. Dropped, it attaches nothing more, and its Lease ends within 3 s.
pub struct CloudController {
    _running: Running,
}

impl CloudController {
    /// Takes the Lease, and then attaches on EC2.
    pub async fn start(client: Client, ec2: Neighbour) -> anyhow::Result<Self> {
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": LOCK_NAMESPACE } });
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.patch(LOCK_NAMESPACE, &manager(), &Patch::Apply(namespace)).await?;
        let mut worker = Worker { private_ips: PrivateIps::of(&client), client, ec2, renewed: None };
        worker.renew().await?;
        Ok(Self { _running: run(worker) })
    }
}

struct Worker {
    client: Client,
    private_ips: PrivateIps,
    ec2: Neighbour,
    renewed: Option<Instant>,
}

impl Pass for Worker {
    async fn pass(&mut self) -> anyhow::Result<()> {
        self.renew().await?;
        let interfaces = self.interfaces().await?;
        for (address, object) in self.private_ips.list().await? {
            self.serve(address, &object, &interfaces).await?;
        }
        Ok(())
    }
}

impl Worker {
    async fn renew(&mut self) -> anyhow::Result<()> {
        if self.renewed.is_some_and(|at| at.elapsed() < RENEWAL) {
            return Ok(());
        }
        let spec = json!({
            "holderIdentity": "stand-in", "leaseDurationSeconds": LEASE_DURATION, "renewTime": MicroTime(Timestamp::now()),
        });
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": LOCK }, "spec": spec,
        });
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), LOCK_NAMESPACE);
        leases.patch(LOCK, &manager(), &Patch::Apply(lease)).await?;
        self.renewed = Some(Instant::now());
        Ok(())
    }

    /// Interfaces by node; each node says what it can have.
    async fn interfaces(&self) -> anyhow::Result<BTreeMap<String, PrimaryInterface>> {
        let api: Api<Node> = Api::all(self.client.clone());
        let mut found = BTreeMap::new();
        for node in api.list(&ListParams::default()).await? {
            let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
            let instance = provider_id.rsplit('/').next().unwrap_or_default();
            let Some(interface) = self.ec2.interface(instance) else { continue };
            let config = json!([{
                "interface": interface.id,
                "ifaddr": { "ipv4": interface.subnet },
                "capacity": { "ipv4": interface.capacity },
            }]);
            if node.annotations().get(ANNOTATION) != Some(&config.to_string()) {
                let patch = json!({ "metadata": { "annotations": { ANNOTATION: config.to_string() } } });
                api.patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
            }
            found.insert(node.name_any(), interface);
        }
        Ok(found)
    }

    async fn serve(
        &self,
        address: Ipv4Addr,
        object: &DynamicObject,
        interfaces: &BTreeMap<String, PrimaryInterface>,
    ) -> anyhow::Result<()> {
        let (wanted, assigned) = nodes(object);
        if object.metadata.deletion_timestamp.is_some() {
            self.detach(address, interfaces.values());
            return self.private_ips.merge(address, json!({ "metadata": { "finalizers": null } })).await;
        }
        if assigned == Some(wanted) {
            return Ok(());
        }
        if object.finalizers().is_empty() {
            self.private_ips.merge(address, json!({ "metadata": { "finalizers": [FINALIZER] } })).await?;
        }
        self.status(address, object, wanted, "Unknown", "CloudResponsePending").await?;
        self.detach(address, interfaces.iter().filter(|(node, _)| *node != wanted).map(|(_, interface)| interface));
        let interface = interfaces.get(wanted).with_context(|| format!("{wanted} has no instance"))?;
        if self.ec2.attach(&interface.id, address) {
            self.status(address, object, wanted, "True", "CloudResponseSuccess").await
        } else {
            self.status(address, object, "", "False", "CloudResponseError").await
        }
    }

    fn detach<'a>(&self, address: Ipv4Addr, interfaces: impl Iterator<Item = &'a PrimaryInterface>) {
        for interface in interfaces.filter(|interface| interface.secondary.contains(&address)) {
            self.ec2.detach(&interface.id, address);
        }
    }

    async fn status(
        &self,
        address: Ipv4Addr,
        object: &DynamicObject,
        node: &str,
        status: &str,
        reason: &str,
    ) -> anyhow::Result<()> {
        let condition = json!({
            "type": "Assigned", "status": status, "reason": reason, "message": "",
            "observedGeneration": object.metadata.generation, "lastTransitionTime": Timestamp::now(),
        });
        self.private_ips.merge_status(address, json!({ "node": node, "conditions": [condition] })).await
    }
}

/// Ends the Lease of an earlier test.
pub(super) async fn wipe(client: &Client) -> anyhow::Result<()> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LOCK_NAMESPACE);
    if leases.get_opt(LOCK).await?.is_some() {
        leases.delete(LOCK, &DeleteParams::default()).await?;
    }
    Ok(())
}

fn manager() -> PatchParams {
    PatchParams::apply("cloud-network-config-controller").force()
}
