//! Everything that the checks look at, read once.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use portolan_core::ipam::ovn::Ovn;
use portolan_core::ipam::{
    self as core, Claim, Cloud, CloudError, CloudInterface, CloudNode, InstanceId, Journal, NamespaceName, NodeName,
    OwnerKind, Seen, World,
};
use portolan_drivers::cloud::aws::{LazyAws, PermissionProbe};

use super::super::backend::Network;
use super::super::describe::described;
use super::super::names::ADDRESS_PREFIX;
use super::super::snapshot::{Known, Objects};
use super::finding::{Held, Leftover};
use crate::runtime::doctor::Examination;
use crate::runtime::query::QueryError;

/// The cluster and the cloud at one time.
pub(super) struct Snapshot {
    /// Only what concerns this namespace is examined.
    pub(super) scope: Option<NamespaceName>,
    pub(super) world: World,
    pub(super) journal: Journal,
    pub(super) network: Network,
    pub(super) ovn: Ovn,
    pub(super) leftovers: Vec<Leftover>,
    /// Deployments of other operators that write the same objects; or why they are not known.
    pub(super) other_operators: Result<Vec<String>, String>,
    /// What the credentials allow, or why that is not known. None: the cloud was not to be read.
    pub(super) access: Option<Result<PermissionProbe, String>>,
    /// Instances that the cloud did not answer for.
    pub(super) unanswered: BTreeSet<InstanceId>,
    /// Why the cloud was to be read and is not known.
    pub(super) unread: Option<CloudError>,
}

impl Snapshot {
    pub(super) async fn read(client: &Client, examination: &Examination) -> Result<Self, QueryError> {
        let Examination { name, cloud } = examination;
        let objects = Objects::read(client).await?;
        let mut leftovers = leftovers(Held::Namespace, &objects.namespaces);
        leftovers.extend(self::leftovers(Held::NetNamespace, &objects.net_namespaces));
        leftovers.extend(self::leftovers(Held::HostSubnet, &objects.host_subnets));
        let known = objects.known();
        let network = if known.is_served() { known.network } else { Network::Absent };
        let Known { world, journal, ovn, .. } = known;
        let mut snapshot = Self {
            scope: name.as_deref().map(NamespaceName::from),
            world,
            journal,
            network,
            ovn,
            leftovers,
            other_operators: other_operators(client).await,
            access: None,
            unanswered: BTreeSet::new(),
            unread: None,
        };
        let known = snapshot.world.namespaces.keys().map(|name| format!("Namespace/{name}"));
        let owners = snapshot.journal.claims.values().map(|claim| format!("Namespace/{}", claim.spec.owner.name));
        examination.require(known.chain(owners), "list the namespaces: kubectl get namespaces")?;
        if let Some(cloud) = cloud {
            snapshot.access = Some(snapshot.look(cloud).await);
        }
        Ok(snapshot)
    }

    /// Reads the cloud; gives what the credentials allow.
    async fn look(&mut self, cloud: &LazyAws) -> Result<PermissionProbe, String> {
        match described(cloud, &self.instances()).await {
            Ok((report, subnets)) => {
                let began = self.world.now;
                self.unanswered = report.unanswered;
                let nodes = report.nodes.into_iter().map(|what| (what.instance.clone(), Seen { what, began }));
                let subnets = subnets.into_iter().map(|what| (what.id.clone(), Seen { what, began }));
                self.world.cloud = Some(Cloud { nodes: nodes.collect(), subnets: subnets.collect() });
            }
            Err(problem) => self.unread = Some(problem),
        }
        let mut nodes = self.world.cloud.iter().flat_map(|cloud| cloud.nodes.values());
        let interface: Option<CloudInterface> = nodes.find_map(|seen| seen.what.interface.clone());
        let probed = async { cloud.get().await?.probe(interface.as_ref()).await };
        probed.await.map_err(|problem| problem.to_string())
    }

    /// Instances of nodes, and those that calls of the journal named.
    fn instances(&self) -> BTreeSet<InstanceId> {
        let of_nodes = self.world.nodes.values().filter_map(|node| node.instance.clone());
        let claims = self.journal.claims.values();
        let called = claims.flat_map(|claim| claim.status.calls().map(|target| target.instance.clone()));
        of_nodes.chain(called).collect()
    }

    /// Whether a namespace is examined.
    pub(super) fn examines(&self, namespace: &str) -> bool {
        self.scope.as_deref().is_none_or(|scope| scope == namespace)
    }

    /// Namespaces that ask for addresses and may get some.
    pub(super) fn asking(&self) -> impl Iterator<Item = (&NamespaceName, &core::Namespace)> {
        let examined = self.world.namespaces.iter().filter(move |(name, _)| self.examines(name));
        examined.filter(|(_, namespace)| namespace.opted_in && !namespace.terminating)
    }

    /// Claims of namespaces that are examined.
    pub(super) fn claims(&self) -> impl Iterator<Item = (Ipv4Addr, &Claim)> {
        let claims = self.journal.claims.iter().map(|(address, claim)| (*address, claim));
        claims.filter(move |(_, claim)| {
            claim.spec.owner.kind == OwnerKind::Namespace && self.examines(&claim.spec.owner.name)
        })
    }

    /// Claims of a namespace as it is: an earlier one of the same name is another owner. Those that only cool down are
    /// nobody's any more.
    pub(super) fn claims_of(&self, name: &str) -> impl Iterator<Item = (Ipv4Addr, &Claim)> {
        let uid = self.world.namespaces.get(name).map(|namespace| namespace.uid.clone());
        self.claims().filter(move |(_, claim)| {
            let owner = &claim.spec.owner;
            *owner.name == *name && Some(&owner.uid) == uid.as_ref() && !claim.is_cooling()
        })
    }

    /// Whether an address is in the journal, for whatever use.
    pub(super) fn is_ours(&self, address: Ipv4Addr) -> bool {
        self.journal.claims.contains_key(&address) || self.journal.other_use.contains(&address)
    }

    /// HostSubnets that list an address.
    pub(super) fn hosts(&self, address: Ipv4Addr) -> Vec<&NodeName> {
        let listing = self.world.host_subnets.iter().filter(|(_, subnet)| subnet.egress_ips.contains(&address));
        listing.map(|(name, _)| name).collect()
    }

    /// The instance of a node, if the cloud was read and shows it.
    pub(super) fn instance(&self, node: &str) -> Option<&CloudNode> {
        let instance = self.world.nodes.get(node)?.instance.as_ref()?;
        Some(&self.world.cloud.as_ref()?.nodes.get(instance)?.what)
    }

    /// Whether the cloud shows an address on the primary interface of a node. None: it was not read.
    pub(super) fn is_attached(&self, address: Ipv4Addr, node: &str) -> Option<bool> {
        self.world.cloud.as_ref()?;
        let interface = self.instance(node).and_then(|instance| instance.interface.as_ref());
        Some(interface.is_some_and(|interface| interface.secondary.contains(&address)))
    }
}

/// Finalizers of the Go operators: `namespace-handler`, `netnamespace-handler` and `hostsubnet-handler`.
fn leftovers<K: ResourceExt>(kind: Held, objects: &[K]) -> Vec<Leftover> {
    let is_theirs =
        |finalizer: &&String| finalizer.strip_prefix(ADDRESS_PREFIX).is_some_and(|rest| rest.ends_with("-handler"));
    let held = objects.iter().map(|object| Leftover {
        kind,
        name: object.name_any(),
        finalizers: object.finalizers().iter().filter(is_theirs).cloned().collect(),
    });
    held.filter(|leftover| !leftover.finalizers.is_empty()).collect()
}

/// Words in the names of Deployments of both Go operators.
const OTHERS: [&str; 2] = ["egressip-ipam-operator", "aws-egressip-operator"];

async fn other_operators(client: &Client) -> Result<Vec<String>, String> {
    let listed = match Api::<Deployment>::all(client.clone()).list(&ListParams::default()).await {
        Ok(listed) => listed.items,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        Err(cause) => return Err(cause.to_string()),
    };
    let runs = |deployment: &Deployment| {
        deployment.spec.as_ref().is_none_or(|spec| spec.replicas != Some(0))
            && OTHERS.iter().any(|word| deployment.name_any().contains(word))
    };
    let named = |one: &Deployment| format!("{}/{}", one.namespace().unwrap_or_default(), one.name_any());
    Ok(listed.iter().filter(|deployment| runs(deployment)).map(named).collect())
}
