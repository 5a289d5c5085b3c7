//! Clusters that each run the planner, and an API server that carries decisions out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::mirror::mcs::*;
use crate::mirror::{
    Endpoint, EndpointConditions, EndpointPort, Local, Namespace, NamespacePattern, Protocol, Reason, RecordedSlice,
    RemoteName, Rules, ServiceName, ServicePort, ServiceSpec, SourceEndpoint, SourceSlice, SourceSlices, Sync,
};
use crate::net::Family;

pub(super) const BOTH: [Family; 2] = [Family::V4, Family::V6];

pub(super) fn web() -> ServiceName {
    ServiceName::new("shop", "web")
}

pub(super) fn port(name: &str, protocol: Protocol, number: u16) -> ServicePort {
    ServicePort { name: name.into(), protocol, port: number, ..ServicePort::default() }
}

/// The Service of the conformance suite: one number on TCP and UDP, dual stack, client affinity.
pub(super) fn service() -> ExportedService {
    ExportedService {
        spec: ServiceSpec {
            families: BOTH.to_vec(),
            dual_stack: true,
            ports: vec![port("tcp", Protocol::Tcp, 42), port("udp", Protocol::Udp, 42)],
            session_affinity: Some(10),
            ..ServiceSpec::default()
        },
        ..ExportedService::default()
    }
}

pub(super) fn headless() -> ExportedService {
    let mut service = service();
    service.spec.headless = true;
    service
}

pub(super) fn endpoint(address: &str, node: Option<&str>) -> SourceEndpoint {
    let address = address.parse().unwrap();
    SourceEndpoint {
        endpoint: Endpoint { address, conditions: EndpointConditions::READY, zone: None, hostname: None },
        node: node.map(Into::into),
    }
}

/// A slice with both ports of [`service`].
pub(super) fn slice(addresses: &[&str]) -> SourceSlice {
    let port = |name: &str, protocol| EndpointPort { name: name.into(), protocol, app_protocol: None, port: 8042 };
    SourceSlice {
        family: addresses.first().map_or(Family::V4, |one| Family::of(one.parse().unwrap())),
        ports: vec![port("tcp", Protocol::Tcp), port("udp", Protocol::Udp)],
        endpoints: addresses.iter().map(|address| endpoint(address, Some("n1"))).collect(),
    }
}

/// Exports of one Service with one endpoint of each family.
pub(super) fn exports(created: i64, service: ExportedService, network: u8) -> Exports {
    let (v4, v6) = (format!("10.{network}.0.1"), format!("fd00:{network}::1"));
    let slices = BTreeMap::from([("v4".into(), slice(&[&v4])), ("v6".into(), slice(&[&v6]))]);
    Exports {
        exports: BTreeMap::from([(web(), Export { created, ..Export::default() })]),
        services: BTreeMap::from([(web(), service)]),
        slices: SourceSlices::Read(BTreeMap::from([(web(), slices)])),
    }
}

pub(super) fn here() -> Local {
    Local {
        namespaces: BTreeMap::from(["shop", "kube-system"].map(|namespace| (namespace.into(), Namespace::default()))),
        families: Some(BTreeSet::from(BOTH)),
        ranges: vec!["10.96.0.0/16".parse().unwrap(), "fd96::/64".parse().unwrap()],
        protected: vec![NamespacePattern::new("kube-*")],
        slice_size: 2,
        ..Local::default()
    }
}

pub(super) fn remote(cluster_id: &str, exports: Exports) -> RemoteMember {
    RemoteMember {
        rules: Rules { cluster_id: cluster_id.into(), ..Rules::default() },
        uid: format!("uid-{cluster_id}").into(),
        sync: Sync::Complete,
        exports,
        ..RemoteMember::default()
    }
}

/// The slices of an exported Service.
pub(super) fn slices_of(exports: &mut Exports) -> &mut BTreeMap<Arc<str>, SourceSlice> {
    let SourceSlices::Read(slices) = &mut exports.slices else { panic!("slices are read") };
    slices.entry(web()).or_default()
}

/// One cluster as it sees the others.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct View {
    pub(super) here: Local,
    pub(super) set: ClusterSet,
}

impl View {
    pub(super) fn new(cluster_id: &str, exports: Exports, remotes: impl IntoIterator<Item = RemoteMember>) -> Self {
        let remotes = remotes.into_iter().map(|remote| (remote.rules.cluster_id.clone(), remote)).collect();
        let local = LocalMember { cluster_id: cluster_id.into(), exports, ..LocalMember::default() };
        Self { here: here(), set: ClusterSet { local, remotes } }
    }

    pub(super) fn remote(&mut self, name: &str) -> &mut RemoteMember {
        self.set.remotes.get_mut(name).unwrap()
    }

    pub(super) fn plan(&self) -> Plan {
        plan(&self.here, &self.set)
    }

    pub(super) fn decide(&self) -> Decision {
        Planner::new(&self.here, &self.set).decide(&web())
    }

    /// Carries out decisions until there is nothing left to do.
    pub(super) fn settle(&mut self) -> &mut Self {
        for _ in 0..16 {
            let plan = self.plan();
            if plan.values().all(Decision::is_settled) {
                return self;
            }
            for (name, decision) in plan {
                self.carry_out(&name, decision);
            }
        }
        panic!("decisions never end: {:#?}", self.plan());
    }

    pub(super) fn import(&self) -> Option<&RecordedImport> {
        self.set.local.imports.get(&web())
    }

    pub(super) fn spec(&self) -> &ImportSpec {
        &self.import().expect("there is an import").spec
    }

    pub(super) fn derived(&self) -> Option<&RecordedDerived> {
        self.set.local.derived.get(&web())
    }

    pub(super) fn status(&self) -> &ExportStatus {
        &self.set.local.statuses[&web()]
    }

    /// The exported Service of this cluster.
    pub(super) fn own(&mut self) -> &mut ExportedService {
        self.set.local.exports.services.get_mut(&web()).unwrap()
    }

    pub(super) fn excluded(&self) -> Vec<(Option<RemoteName>, Excluded)> {
        self.decide().excluded.into_iter().map(|one| (one.remote, one.why)).collect()
    }

    pub(super) fn reasons(&self) -> Vec<Reason> {
        self.decide().unmet.into_iter().map(|unmet| unmet.reason).collect()
    }

    pub(super) fn slices(&self) -> Vec<&RecordedImportSlice> {
        self.set.local.slices.get(&web()).into_iter().flat_map(BTreeMap::values).collect()
    }

    /// Addresses of endpoints that came from a cluster.
    pub(super) fn addresses(&self, cluster_id: &str) -> BTreeSet<String> {
        let slices = self.slices().into_iter().filter(|slice| &*slice.slice.cluster_id == cluster_id);
        slices.flat_map(|slice| &slice.slice.content.endpoints).map(|one| one.address.to_string()).collect()
    }

    pub(super) fn carry_out(&mut self, name: &ServiceName, decision: Decision) {
        let local = &mut self.set.local;
        match decision.import {
            Action::None => {}
            Action::Create(want) => {
                assert!(!local.imports.contains_key(name), "{name} is there already");
                assert!(!self.here.namespaces[&name.namespace].terminating);
                let uid = format!("import-{name}").into();
                let made = RecordedImport { uid, managed: true, ..RecordedImport::default() };
                local.imports.insert(name.clone(), written(made, *want));
            }
            Action::Update(want) => {
                let before = local.imports.remove(name).expect("it is there");
                assert!(before.managed, "only our imports are changed");
                local.imports.insert(name.clone(), written(before, *want));
            }
            Action::Recreate => panic!("an import is never made anew"),
            Action::Delete => {
                assert!(local.imports.remove(name).expect("it is there").managed, "only our imports are deleted");
            }
        }
        if let (Some(status), Some(import)) = (decision.import_status, local.imports.get_mut(name)) {
            (import.clusters, import.ready) = (status.clusters, Some(status.ready));
        }
        carry_out_derived(local, name, decision.derived);
        for (slice_name, action) in decision.slices {
            let slices = local.slices.entry(name.clone()).or_default();
            match action {
                ImportSliceAction::Delete => drop(slices.remove(&slice_name)),
                ImportSliceAction::Write(want) => drop(slices.insert(slice_name, recorded(*want))),
            }
        }
        local.slices.retain(|_, slices| !slices.is_empty());
        if let Some(status) = decision.export_status {
            local.statuses.insert(name.clone(), status);
        }
    }
}

fn written(before: RecordedImport, want: DesiredImport) -> RecordedImport {
    let DesiredImport { spec, exported, derived } = want;
    RecordedImport { spec, exported, derived, ..before }
}

fn recorded(want: DesiredImportSlice) -> RecordedImportSlice {
    let DesiredImportSlice { slice, owner, nodes } = want;
    RecordedImportSlice {
        slice: RecordedSlice {
            remote: slice.remote,
            remote_uid: slice.remote_uid,
            cluster_id: slice.cluster_id,
            service_uid: owner.uid,
            content: slice.content,
        },
        service_name: owner.service_name,
        nodes,
    }
}

fn carry_out_derived(local: &mut LocalMember, name: &ServiceName, action: Action<DesiredDerived>) {
    match action {
        Action::None => {}
        Action::Create(want) => {
            assert!(!local.derived.contains_key(name), "{name} has a Service already");
            assert_eq!(want.import_uid, local.imports[name].uid, "the import is made first");
            let uid: Arc<str> = format!("{}-{}", want.name, want.spec.families[0]).into();
            local.derived.insert(name.clone(), applied(uid, &want));
        }
        Action::Update(want) => {
            let before = local.derived.remove(name).expect("it is there");
            assert!(before.managed, "only our Services are changed");
            assert_eq!(before.spec.families.first(), want.spec.families.first(), "it cannot be changed");
            local.derived.insert(name.clone(), applied(before.uid, &want));
        }
        Action::Recreate | Action::Delete => {
            assert!(local.derived.remove(name).expect("it is there").managed, "only our Services are deleted");
        }
    }
}

/// What the API server makes of a Service, and what it would refuse.
fn applied(uid: Arc<str>, want: &DesiredDerived) -> RecordedDerived {
    let ports = &want.spec.ports;
    let names: BTreeSet<&str> = ports.iter().map(|port| &*port.name).collect();
    let numbers: BTreeSet<_> = ports.iter().map(|port| (port.protocol, port.port)).collect();
    assert!(names.len() == ports.len() && numbers.len() == ports.len(), "ports are unique: {ports:?}");
    assert!(ports.len() == 1 || !names.contains(""), "several ports have names: {ports:?}");
    let address = |family: &Family| -> IpAddr {
        match family {
            Family::V4 => "10.96.0.7".parse().unwrap(),
            Family::V6 => "fd96::7".parse().unwrap(),
        }
    };
    RecordedDerived {
        uid,
        managed: true,
        import_uid: Some(want.import_uid.clone()),
        deleting: false,
        cluster_ips: want.spec.families.iter().map(address).collect(),
        spec: want.spec.clone(),
    }
}

/// West sees an export of east and exports nothing.
pub(super) fn importer() -> View {
    let mut view = View::new("west", Exports::default(), [remote("east", exports(1, service(), 1))]);
    view.settle();
    view
}

/// West exports too; east is older.
pub(super) fn both() -> View {
    let mut view = View::new("west", exports(2, service(), 2), [remote("east", exports(1, service(), 1))]);
    view.settle();
    view
}

/// Clusters that all see each other.
#[derive(Debug, Clone)]
pub(super) struct Lab(pub(super) BTreeMap<&'static str, View>);

impl Lab {
    pub(super) fn new<const N: usize>(clusters: [(&'static str, Exports); N]) -> Self {
        let views = clusters.into_iter().map(|(id, exports)| (id, View::new(id, exports, [])));
        let mut lab = Self(views.collect());
        lab.settle();
        lab
    }

    pub(super) fn view(&self, cluster_id: &str) -> &View {
        &self.0[cluster_id]
    }

    pub(super) fn exports(&mut self, cluster_id: &str) -> &mut Exports {
        &mut self.0.get_mut(cluster_id).unwrap().set.local.exports
    }

    pub(super) fn unexport(&mut self, cluster_id: &str) -> &mut Self {
        self.exports(cluster_id).exports.clear();
        self.settle();
        self
    }

    /// Every cluster reads what the others export, and settles.
    pub(super) fn settle(&mut self) {
        let all: Vec<(&'static str, Exports)> =
            self.0.iter().map(|(id, view)| (*id, view.set.local.exports.clone())).collect();
        for (id, view) in &mut self.0 {
            let others = all.iter().filter(|(other, _)| other != id);
            view.set.remotes =
                others.map(|(other, exports)| ((*other).into(), remote(other, exports.clone()))).collect();
            view.settle();
        }
    }
}
