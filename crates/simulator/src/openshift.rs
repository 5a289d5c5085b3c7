//! What ipam needs of OpenShift on a cloud: instances of nodes in memory, a NetNamespace for each Namespace, and a
//! HostSubnet for each Node. No packet goes anywhere.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use kube::api::{ObjectMeta, TypeMeta};
use portolan_api::ipam::{HostSubnet, NetNamespace};
use portolan_apiserver::controllers::slim::Node;
use portolan_control::runtime::app::Ctx;
use portolan_control::runtime::due::{DueWrites, Pace, Prepared};
use portolan_control::runtime::reconcile::{Next, Reconciler};
use portolan_control::runtime::store::{Key, Store};
use portolan_control::runtime::watch::{Kind, Selection};
use portolan_control::runtime::write::Writer;
use portolan_core::ipam::CloudError;
use portolan_drivers::cloud::MemoryCloud;
use serde::Serialize;

/// Nodes take turns in these zones, so that of three nodes two share one, and its addresses can move.
const ZONES: [(&str, Ipv4Addr); 2] = [("sim-a", Ipv4Addr::new(10, 6, 32, 0)), ("sim-b", Ipv4Addr::new(10, 6, 33, 0))];

/// Has room for nine addresses beside the primary one.
const INSTANCE_TYPE: &str = "m5.large";

/// A cloud with an instance for each of the nodes `node-1`, `node-2` and so on.
pub fn cloud(nodes: usize) -> Result<MemoryCloud, CloudError> {
    let cloud = MemoryCloud::new();
    for (zone, network) in ZONES {
        cloud.add_subnet(&subnet(zone), zone, Ipv4Net::new_assert(network, 24));
    }
    for number in 1..=nodes {
        cloud.run_instance(&instance(number), INSTANCE_TYPE, &subnet(zone(number)))?;
    }
    Ok(cloud)
}

/// The zone of the node with this number.
pub fn zone(number: usize) -> &'static str {
    ZONES[(number - 1) % ZONES.len()].0
}

/// What names the instance of that node in `spec.providerID`.
pub fn provider_id(number: usize) -> String {
    format!("aws:///{}/{}", zone(number), instance(number))
}

fn instance(number: usize) -> String {
    format!("i-sim-{number}")
}

fn subnet(zone: &str) -> String {
    format!("subnet-{zone}")
}

/// Starts the loop that makes NetNamespaces and HostSubnets, as OpenShift SDN does.
pub fn start(ctx: &Ctx) {
    let mut watches = ctx.watches();
    let queues = ctx.write_queues(&watches);
    let sdn = Sdn {
        namespaces: watches.add(Selection { trim: keep_name, ..Selection::default() }),
        nodes: watches.add(Selection::default()),
        net_namespaces: watches.add(Selection::default()),
        host_subnets: watches.add(Selection::default()),
        writer: ctx.writer("openshift-sdn"),
        due_namespaces: queues.queue("simulated netnamespaces", Pace::URGENT),
        due_nodes: queues.queue("simulated hostsubnets", Pace::URGENT),
        numbers: BTreeMap::new(),
    };
    ctx.tasks.spawn("simulated openshift", ctx.reconciles("openshift").run(watches, sdn));
}

fn keep_name(namespace: &mut Namespace) {
    namespace.spec = None;
    namespace.metadata.annotations = None;
    namespace.metadata.labels = None;
}

struct Sdn {
    namespaces: Store<Namespace>,
    nodes: Store<Node>,
    net_namespaces: Store<NetNamespace>,
    host_subnets: Store<HostSubnet>,
    writer: Writer,
    due_namespaces: DueWrites<Arc<Key>>,
    due_nodes: DueWrites<Arc<Key>>,
    /// Numbers of virtual networks that were given out and may not be in a store yet.
    numbers: BTreeMap<String, u32>,
}

impl Reconciler for Sdn {
    async fn reconcile(&mut self) -> Next {
        let Self { namespaces, nodes, net_namespaces, host_subnets, writer, due_namespaces, due_nodes, numbers } = self;
        due_namespaces.extend(namespaces.take_changes());
        due_namespaces.extend(net_namespaces.take_changes());
        due_nodes.extend(nodes.take_changes());
        due_nodes.extend(host_subnets.take_changes());
        net_namespaces.for_each(|_, object| {
            numbers.insert(object.name_any(), object.netid);
        });
        due_namespaces
            .pass(|key, _| {
                let is_wanted = namespaces.get(key).is_some();
                prepare(writer, net_namespaces, key, is_wanted.then(|| net_namespace(&key.name, numbers)))
            })
            .await;
        due_nodes
            .pass(|key, _| {
                let is_wanted = nodes.get(key).is_some();
                prepare(writer, host_subnets, key, is_wanted.then(|| host_subnet(&key.name)))
            })
            .await;
        Next::at_earliest([due_namespaces.next_due(), due_nodes.next_due()])
    }
}

/// Creates what is missing and deletes what is not wanted; what is there is left to its users.
fn prepare<K: Kind + Serialize>(writer: &Writer, store: &Store<K>, key: &Key, want: Option<K>) -> Prepared<()> {
    let (writer, kept) = (writer.clone(), store.clone());
    match (store.get(key), want) {
        (Some(_), Some(_)) | (None, None) => Prepared::Nothing,
        (None, Some(want)) => Prepared::write(async move { writer.create(&kept, &want).await.map(drop) }),
        (Some(seen), None) => Prepared::write(async move { writer.delete(&kept, seen.as_ref()).await.map(drop) }),
    }
}

fn net_namespace(name: &str, numbers: &mut BTreeMap<String, u32>) -> NetNamespace {
    let next = numbers.values().max().map_or(1, |most| most + 1);
    let netid = *numbers.entry(name.to_owned()).or_insert(next);
    NetNamespace {
        types: Some(TypeMeta::resource::<NetNamespace>()),
        metadata: named(name),
        netname: name.to_owned(),
        netid,
        ..NetNamespace::default()
    }
}

/// The addresses in it are for show: nothing routes by them.
fn host_subnet(name: &str) -> HostSubnet {
    let number = name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0_u8);
    HostSubnet {
        types: Some(TypeMeta::resource::<HostSubnet>()),
        metadata: named(name),
        host: name.to_owned(),
        host_ip: Ipv4Addr::new(10, 6, 0, number.saturating_add(1)).to_string(),
        subnet: format!("10.128.{number}.0/24"),
        ..HostSubnet::default()
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() }
}
