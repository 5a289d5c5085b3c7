//! One fault at a time in a sound cluster: the checks find exactly that one.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use jiff::SignedDuration;
use portolan_core::ipam::ovn::{EgressIp, Ovn};
use portolan_core::ipam::{
    Assigned, Claim, ClaimSpec, ClaimStatus, Cloud, CloudError, CloudInterface, CloudNode, CloudSubnet, HostSubnet,
    InstanceState, Journal, Namespace, NetNamespace, Node, Owner, OwnerKind, PrivateIp, PrivateIpStatus, Seen, State,
    World,
};
use portolan_drivers::cloud::aws::{Access, CredentialsSource, PermissionProbe, ProbedAction};

use super::super::backend::Network;
use super::checked;
use super::finding::{Fix, Held, Leftover};
use super::snapshot::Snapshot;
use crate::runtime::doctor::Verdict;

const OURS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 7);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 99);

fn instance(name: &str, secondary: &[Ipv4Addr]) -> CloudNode {
    CloudNode {
        instance: name.into(),
        state: InstanceState::Running,
        instance_type: "m5.large".into(),
        zone: "a".into(),
        subnet: "subnet-1".into(),
        interface: Some(CloudInterface {
            id: format!("eni-{name}").into(),
            primary: Ipv4Addr::new(10, 0, 0, 4),
            secondary: secondary.iter().copied().collect(),
            prefixes: 0,
        }),
        address_limit: 10,
    }
}

fn claim() -> Claim {
    let owner = Owner { kind: OwnerKind::Namespace, name: "shop".into(), uid: "u1".into() };
    let spec = ClaimSpec { owner, requested: false, zone: "a".into(), subnet: "subnet-1".into(), node: "a1".into() };
    let status =
        ClaimStatus { state: State::Published, node: Some("a1".into()), served: true, ..ClaimStatus::reserved(0) };
    Claim { spec, status, deleting: false }
}

fn probe(access: Access) -> PermissionProbe {
    PermissionProbe {
        region: "eu-central-1".to_owned(),
        source: CredentialsSource::Environment,
        expires: None,
        clock_offset: SignedDuration::ZERO,
        reads_per_second: 10.0,
        writes_per_second: 4.0,
        actions: vec![ProbedAction { action: "ec2:DescribeInstances".to_owned(), access }],
    }
}

/// Namespace `shop` with an address on node `a1`, beside node `a2`.
fn sound() -> Snapshot {
    let node = |instance: &str| Node {
        compute: true,
        zone: Some("a".into()),
        instance: Some(instance.into()),
        ..Node::default()
    };
    let namespace = Namespace {
        uid: "u1".into(),
        opted_in: true,
        egressips: Some("10.0.0.7".into()),
        modified: true,
        ..Namespace::default()
    };
    let net_namespace =
        NetNamespace { netid: 7, egress_ips: BTreeSet::from([OURS]), annotation: Some("10.0.0.7".into()) };
    let host = HostSubnet {
        egress_ips: BTreeSet::from([OURS]),
        annotations: BTreeMap::from([(OURS, "shop".into())]),
        ..HostSubnet::default()
    };
    let subnet = CloudSubnet {
        id: "subnet-1".into(),
        zone: "a".into(),
        cidr: "10.0.0.0/24".parse().unwrap(),
        used: BTreeSet::from([OURS]),
    };
    let cloud = Cloud {
        nodes: [instance("i-1", &[OURS]), instance("i-2", &[])]
            .map(|what| (what.instance.clone(), Seen { what, began: 0 }))
            .into(),
        subnets: BTreeMap::from([("subnet-1".into(), Seen { what: subnet, began: 0 })]),
    };
    let world = World {
        now: 1_000,
        namespaces: BTreeMap::from([("shop".into(), namespace), ("idle".into(), Namespace::default())]),
        net_namespaces: BTreeMap::from([("shop".into(), net_namespace), ("idle".into(), NetNamespace::default())]),
        host_subnets: BTreeMap::from([("a1".into(), host), ("a2".into(), HostSubnet::default())]),
        nodes: BTreeMap::from([("a1".into(), node("i-1")), ("a2".into(), node("i-2"))]),
        cloud: Some(cloud),
        ..World::default()
    };
    Snapshot {
        scope: None,
        world,
        journal: Journal { claims: BTreeMap::from([(OURS, claim())]), other_use: BTreeSet::new() },
        network: Network::Sdn,
        ovn: Ovn::default(),
        leftovers: Vec::new(),
        other_operators: Ok(Vec::new()),
        access: Some(Ok(probe(Access::Allowed))),
        unanswered: BTreeSet::new(),
        unread: None,
    }
}

/// What is not well: the check, the object, and how it is fixed.
fn found(snapshot: &Snapshot) -> Vec<(&'static str, String, Option<Fix>)> {
    let wrong = checked(snapshot).into_iter().filter(|finding| finding.check.verdict != Verdict::Ok);
    wrong.map(|finding| (finding.check.name, finding.check.object, finding.fix)).collect()
}

fn set_host(others: &[&str]) -> Fix {
    let others = others.iter().map(|other| (*other).into()).collect();
    Fix::SetHost { address: OURS, namespace: "shop".into(), node: "a1".into(), others }
}

#[test]
fn a_sound_cluster_passes_every_check() {
    assert_eq!(found(&sound()), []);
}

#[test]
fn each_fault_is_found_alone_with_its_fix() {
    type Break = fn(&mut Snapshot);
    let annotate = |seen: Option<&str>| {
        let list = BTreeSet::from([OURS]);
        Some(Fix::AnnotateNamespace { name: "shop".into(), list, seen: seen.map(Into::into) })
    };
    let set_net = || Some(Fix::SetNetNamespace { name: "shop".into(), list: BTreeSet::from([OURS]) });
    let ask = || Some(Fix::AskOperator { address: OURS });
    let faults: Vec<(Break, &str, &str, Option<Fix>)> = vec![
        (|s| shop(s).egressips = None, "namespace-annotations", "Namespace/shop", annotate(None)),
        (|s| shop(s).modified = false, "namespace-annotations", "Namespace/shop", annotate(Some("10.0.0.7"))),
        (
            |s| shop(s).egressips = Some("10.0.0.8".into()),
            "namespace-annotations",
            "Namespace/shop",
            annotate(Some("10.0.0.8")),
        ),
        (|s| shop(s).status = Some("AddressInUse: taken".into()), "service", "Namespace/shop", None),
        (|s| net(s).annotation = None, "netnamespace-annotation", "NetNamespace/shop", set_net()),
        (|s| net(s).egress_ips.clear(), "netnamespace-addresses", "NetNamespace/shop", set_net()),
        (
            |s| list(&mut s.world.net_namespaces.get_mut("idle").unwrap().egress_ips, OURS),
            "netnamespace-addresses",
            "NetNamespace/idle",
            Some(Fix::SetNetNamespace { name: "idle".into(), list: BTreeSet::new() }),
        ),
        (|s| host(s, "a1").egress_ips.clear(), "hostsubnet-addresses", "HostSubnet/a1", Some(set_host(&[]))),
        (|s| host(s, "a1").annotations.clear(), "hostsubnet-addresses", "HostSubnet/a1", Some(set_host(&[]))),
        (
            |s| list(&mut host(s, "a2").egress_ips, OURS),
            "hostsubnet-addresses",
            "HostSubnet/a1",
            Some(set_host(&["a2"])),
        ),
        (detach, "cloud-addresses", "AddressClaim/10.0.0.7", ask()),
        (
            |s| s.journal.claims.get_mut(&OURS).unwrap().status.state = State::Moving,
            "journal",
            "AddressClaim/10.0.0.7",
            None,
        ),
        (|s| s.world.nodes.get_mut("a2").unwrap().instance = None, "nodes", "Node/a2", None),
        (|s| s.world.nodes.get_mut("a2").unwrap().zone = Some("b".into()), "nodes", "Node/a2", None),
        (|s| s.world.nodes.get_mut("a2").unwrap().not_ready_since = Some(1), "nodes", "Node/a2", None),
        (|s| s.access = Some(Ok(probe(Access::Denied))), "permissions", "", None),
        (|s| s.access = Some(Err("no region".to_owned())), "credentials", "", None),
        (|s| host(s, "a2").egress_cidrs = true, "egress-cidrs", "HostSubnet/a2", None),
        (|s| list(&mut host(s, "a2").egress_ips, OTHER), "foreign-addresses", "HostSubnet/a2", None),
        (
            |s| s.other_operators = Ok(vec!["x/egressip-ipam-operator".to_owned()]),
            "other-operators",
            "Deployment/x/egressip-ipam-operator",
            None,
        ),
    ];
    for (break_it, name, object, fix) in faults {
        let mut snapshot = sound();
        break_it(&mut snapshot);
        assert_eq!(found(&snapshot), [(name, object.to_owned(), fix)]);
    }
}

/// The same with OVN-Kubernetes.
fn sound_with_ovn() -> Snapshot {
    let mut snapshot = sound();
    snapshot.network = Network::Ovn;
    snapshot.world.net_namespaces.clear();
    snapshot.world.host_subnets.clear();
    for node in snapshot.world.nodes.values_mut() {
        (node.egress_assignable, node.egress_ip_config) = (true, Some("[]".into()));
    }
    let egress_ip = EgressIp {
        name: "shop".into(),
        addresses: BTreeSet::from([OURS]),
        items: BTreeMap::from([(OURS, "a1".into())]),
        is_intact: true,
    };
    let status = PrivateIpStatus { node: Some("a1".into()), assigned: Assigned::Yes };
    let private_ip = PrivateIp { wanted: "a1".into(), has_finalizer: true, status, ..PrivateIp::default() };
    snapshot.ovn = Ovn {
        egress_ips: BTreeMap::from([("shop".into(), egress_ip)]),
        private_ips: BTreeMap::from([(OURS, private_ip)]),
        serves: true,
        ..Ovn::default()
    };
    snapshot
}

fn egress_ip(snapshot: &mut Snapshot) -> &mut EgressIp {
    snapshot.ovn.egress_ips.get_mut("shop").unwrap()
}

#[test]
fn each_fault_with_ovn_kubernetes_is_found_alone_with_its_fix() {
    type Break = fn(&mut Snapshot);
    let set = || {
        let list = BTreeSet::from([OURS]);
        Some(Fix::SetEgressIp { name: "shop".into(), namespace: "shop".into(), list })
    };
    let ask = || Some(Fix::AskOperator { address: OURS });
    let faults: Vec<(Break, &str, &str, Option<Fix>)> = vec![
        (|s| egress_ip(s).addresses.clear(), "egressip-addresses", "EgressIP/shop", set()),
        (|s| list(&mut egress_ip(s).addresses, OTHER), "egressip-addresses", "EgressIP/shop", set()),
        (|s| egress_ip(s).is_intact = false, "egressip-addresses", "EgressIP/shop", set()),
        (|s| s.ovn.egress_ips.clear(), "egressip-addresses", "Namespace/shop", ask()),
        (|s| list(&mut s.ovn.foreign, OURS), "egressip-addresses", "AddressClaim/10.0.0.7", None),
        (|s| egress_ip(s).items.clear(), "egressip-nodes", "EgressIP/shop", None),
        (|s| drop(egress_ip(s).items.insert(OURS, "a2".into())), "egressip-nodes", "EgressIP/shop", ask()),
        (|s| s.ovn.private_ips.clear(), "cloudprivateipconfigs", "CloudPrivateIPConfig/10.0.0.7", None),
        (
            |s| s.ovn.private_ips.get_mut(&OURS).unwrap().status.assigned = Assigned::Failed("full".into()),
            "cloudprivateipconfigs",
            "CloudPrivateIPConfig/10.0.0.7",
            None,
        ),
        (|s| s.world.nodes.get_mut("a2").unwrap().egress_assignable = false, "egress-assignable", "Node/a2", None),
        (|s| s.world.nodes.get_mut("a2").unwrap().egress_ip_config = None, "egress-assignable", "Node/a2", None),
        (detach, "cloud-addresses", "AddressClaim/10.0.0.7", ask()),
    ];
    assert_eq!(found(&sound_with_ovn()), []);
    for (break_it, name, object, fix) in faults {
        let mut snapshot = sound_with_ovn();
        break_it(&mut snapshot);
        assert_eq!(found(&snapshot), [(name, object.to_owned(), fix)]);
    }
}

#[test]
fn leftover_finalizers_are_removed() {
    let mut snapshot = sound();
    let leftover =
        Leftover { kind: Held::Namespace, name: "shop".to_owned(), finalizers: vec!["x-handler".to_owned()] };
    snapshot.leftovers.push(leftover.clone());
    let expected = ("finalizers", "Namespace/shop".to_owned(), Some(Fix::RemoveFinalizers(leftover)));
    assert_eq!(found(&snapshot), [expected]);
}

#[test]
fn claims_without_an_owner_are_the_operators_work() {
    let ask = Some(Fix::AskOperator { address: OURS });
    let mut snapshot = sound();
    snapshot.world.namespaces.remove("shop");
    snapshot.world.net_namespaces.remove("shop");
    assert_eq!(found(&snapshot), [("journal", "AddressClaim/10.0.0.7".to_owned(), ask)]);
}

#[test]
fn an_owner_without_claims_is_the_operators_work() {
    let mut snapshot = sound();
    let idle = snapshot.world.namespaces.get_mut("idle").unwrap();
    idle.opted_in = true;
    assert_eq!(found(&snapshot), [("service", "Namespace/idle".to_owned(), None)]);
}

#[test]
fn what_the_cloud_does_not_show_is_announced_nowhere() {
    let mut snapshot = sound();
    detach(&mut snapshot);
    host(&mut snapshot, "a1").egress_ips.clear();
    let fixes: Vec<Option<Fix>> = found(&snapshot).into_iter().map(|(_, _, fix)| fix).collect();
    let ask = Some(Fix::AskOperator { address: OURS });
    assert_eq!(fixes, [ask.clone(), ask], "nothing is written behind the journal");
}

#[test]
fn without_a_cloud_one_line_says_that_it_was_not_read() {
    let mut snapshot = sound();
    (snapshot.world.cloud, snapshot.access) = (None, None);
    let found = checked(&snapshot).into_iter().filter(|finding| finding.check.verdict != Verdict::Ok);
    let checks: Vec<_> = found.map(|finding| (finding.check.name, finding.check.verdict)).collect();
    assert_eq!(checks, [("credentials", Verdict::Warn)]);
    snapshot.unread = Some(CloudError::Transient);
    assert!(checked(&snapshot).iter().any(|finding| finding.check.name == "cloud-addresses"));
}

#[test]
fn only_the_namespace_that_was_asked_for_is_examined() {
    let mut snapshot = sound();
    snapshot.scope = Some("idle".into());
    shop(&mut snapshot).egressips = None;
    net(&mut snapshot).egress_ips.clear();
    list(&mut host(&mut snapshot, "a2").egress_ips, OTHER);
    assert_eq!(found(&snapshot), []);
}

#[test]
fn missing_permissions_come_with_the_policy_to_add() {
    let mut snapshot = sound();
    snapshot.access = Some(Ok(probe(Access::Denied)));
    let check = checked(&snapshot).into_iter().find(|finding| finding.check.name == "permissions").unwrap().check;
    assert_eq!(check.seen, "not allowed: ec2:DescribeInstances");
    let policy = r#"{"Effect":"Allow","Action":["ec2:DescribeInstances"],"Resource":"*"}"#;
    assert!(check.advice.ends_with(policy), "{}", check.advice);
}

fn shop(snapshot: &mut Snapshot) -> &mut Namespace {
    snapshot.world.namespaces.get_mut("shop").unwrap()
}

fn net(snapshot: &mut Snapshot) -> &mut NetNamespace {
    snapshot.world.net_namespaces.get_mut("shop").unwrap()
}

fn host<'a>(snapshot: &'a mut Snapshot, name: &str) -> &'a mut HostSubnet {
    snapshot.world.host_subnets.get_mut(name).unwrap()
}

fn list(addresses: &mut BTreeSet<Ipv4Addr>, address: Ipv4Addr) {
    addresses.insert(address);
}

fn detach(snapshot: &mut Snapshot) {
    let what = instance("i-1", &[]);
    let cloud = snapshot.world.cloud.as_mut().unwrap();
    cloud.nodes.insert("i-1".into(), Seen { what, began: 0 });
}
