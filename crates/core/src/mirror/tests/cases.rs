//! Single rules, one case each.

use std::collections::{BTreeMap, BTreeSet};

use super::worlds::{name, node, port, remote, service, settle, source, world};
use crate::mirror::*;
use crate::net::Family;

/// The settled world of one remote with one Service and what `change` does to them.
fn settled(change: impl FnOnce(&mut Remote, &ServiceName)) -> (World, ServiceName) {
    let web = name("shop", "web");
    let mut east = remote("uid-east");
    east.services.insert(web.clone(), source(30080));
    change(&mut east, &web);
    (settle(&world([("east", east)])), web)
}

fn contents<'a>(world: &'a World, service: &ServiceName) -> Vec<&'a SliceContent> {
    world.local.slices.get(service).into_iter().flatten().map(|(_, slice)| &*slice.content).collect()
}

fn addresses(world: &World, service: &ServiceName) -> Vec<String> {
    let endpoints = contents(world, service).into_iter().flat_map(|content| &content.endpoints);
    endpoints.map(|endpoint| endpoint.address.to_string()).collect()
}

fn reasons(world: &World, service: &ServiceName) -> Vec<Reason> {
    Planner::new(world.clone()).decide(service).unmet.into_iter().map(|unmet| unmet.reason).collect()
}

#[test]
fn a_mirror_leads_to_the_node_ports_of_the_usable_nodes() {
    let (world, web) = settled(|east, _| {
        east.nodes.insert("n2".into(), node("10.1.0.2"));
        east.nodes.insert("n3".into(), Node { ready: false, ..node("10.1.0.3") });
    });
    assert_eq!(addresses(&world, &web), ["10.1.0.1", "10.1.0.2"]);
    assert_eq!(contents(&world, &web)[0].ports[0].port, 30080);
    assert_eq!(world.local.services[&web].spec.ports[0].target, TargetPort::Number(30080));
    assert!(reasons(&world, &web).is_empty());
}

#[test]
fn without_a_usable_node_the_slice_is_empty_or_kept() {
    let (mut world, web) = settled(|_, _| {});
    world.remotes.get_mut("east").unwrap().nodes.get_mut("n1").unwrap().ready = false;
    let mut keeping = world.clone();
    let after = settle(&world);
    assert_eq!((contents(&after, &web).len(), addresses(&after, &web).len()), (1, 0));
    assert_eq!(reasons(&after, &web), [Reason::NoUsableNode]);
    keeping.remotes.get_mut("east").unwrap().rules.nodes.keep_when_none = true;
    let after = settle(&keeping);
    assert_eq!(addresses(&after, &web), ["10.1.0.1"]);
    assert_eq!(reasons(&after, &web), [Reason::NoUsableNode], "and it says so");
}

#[test]
fn a_stale_remote_keeps_its_mirrors_and_its_policy_decides_on_endpoints() {
    for (policy, ready) in
        [(StalePolicy::Keep, vec![true]), (StalePolicy::NotReady, vec![false]), (StalePolicy::Remove, vec![])]
    {
        let (mut world, web) = settled(|_, _| {});
        let east = world.remotes.get_mut("east").unwrap();
        (east.stale, east.rules.stale, east.sync) = (true, policy, Sync::Broken);
        east.services.clear();
        let after = settle(&world);
        assert!(after.local.services.contains_key(&web), "{policy:?}");
        let endpoints = contents(&after, &web).into_iter().flat_map(|content| &content.endpoints);
        assert_eq!(endpoints.map(|endpoint| endpoint.conditions.ready).collect::<Vec<_>>(), ready, "{policy:?}");
    }
}

#[test]
fn local_traffic_policy_lists_only_nodes_with_endpoints() {
    let slice = |ready| SourceSlice {
        family: Family::V4,
        ports: Vec::new(),
        endpoints: vec![SourceEndpoint {
            endpoint: Endpoint {
                address: "10.2.0.1".parse().unwrap(),
                conditions: if ready { EndpointConditions::READY } else { EndpointConditions::NOT_READY },
                zone: None,
                hostname: None,
            },
            node: Some("n2".into()),
        }],
    };
    let with = |slices: SourceSlices| {
        settled(|east, web| {
            east.nodes.insert("n2".into(), node("10.1.0.2"));
            east.services.get_mut(web).unwrap().local_traffic_only = true;
            east.slices = slices;
        })
    };
    let read = |ready| {
        let slices = BTreeMap::from([("s".into(), slice(ready))]);
        SourceSlices::Read(BTreeMap::from([(name("shop", "web"), slices)]))
    };
    let (world, web) = with(read(true));
    assert_eq!(addresses(&world, &web), ["10.1.0.2"]);
    let (world, web) = with(read(false));
    assert!(addresses(&world, &web).is_empty());
    let (world, web) = with(SourceSlices::Forbidden);
    assert_eq!(addresses(&world, &web), ["10.1.0.1", "10.1.0.2"]);
    assert_eq!(reasons(&world, &web), [Reason::EndpointSlicesForbidden]);
    let (world, web) = with(SourceSlices::Unread);
    assert!(contents(&world, &web).is_empty(), "nothing is decided before they are read");
}

#[test]
fn the_order_of_ports_is_no_change_and_type_alone_is() {
    let (mut world, web) = settled(|east, web| {
        east.services.get_mut(web).unwrap().spec.ports = vec![port(80, Some(30080)), port(443, Some(30443))];
    });
    let mirror = world.local.services.get_mut(&web).unwrap();
    mirror.spec.ports.reverse();
    assert!(Planner::new(world.clone()).decide(&web).is_settled());
    world.local.services.get_mut(&web).unwrap().spec.service_type = ServiceType::LoadBalancer;
    assert!(matches!(Planner::new(world).decide(&web).action, Action::Update(_)));
}

#[test]
fn a_node_port_of_another_service_makes_the_mirror_a_cluster_ip() {
    let other = name("shop", "other");
    let (mut world, web) = settled(|east, _| east.rules.mirror_type = MirrorType::NodePort);
    assert_eq!(world.local.services[&web].spec.ports[0].node_port, Some(30080));
    let mut taken = service(Role::Foreign);
    taken.spec.ports = vec![port(80, Some(30080))];
    world.local.services.clear();
    world.local.slices.clear();
    world.local.services.insert(other.clone(), taken);
    let mut world = settle(&world);
    assert_eq!(world.local.services[&web].spec.service_type, ServiceType::ClusterIp);
    assert_eq!(reasons(&world, &web), [Reason::NodePortTaken]);
    let mut planner = Planner::new(world.clone());
    assert!(planner.change(Change::Service(other.clone(), None)).contains(&web), "tried again when it changes");
    world.local.services.remove(&other);
    assert_eq!(settle(&world).local.services[&web].spec.ports[0].node_port, Some(30080));
}

#[test]
fn hand_labelled_services_get_the_nodes_of_their_remotes() {
    let web = name("shop", "mine");
    let make = |change: fn(&mut LocalService)| {
        let mut world = world([("east", remote("uid-east")), ("west", remote("uid-west"))]);
        world.remotes.get_mut("west").unwrap().nodes = BTreeMap::from([("w1".into(), node("10.2.0.1"))]);
        let mut mine = service(Role::HandLabelled);
        change(&mut mine);
        world.local.services.insert(web.clone(), mine);
        settle(&world)
    };
    let both = make(|mine| mine.remotes = Some(BTreeSet::from(["east".into(), "west".into()])));
    let mut all = addresses(&both, &web);
    all.sort();
    assert_eq!(all, ["10.1.0.1", "10.2.0.1"]);
    assert_eq!(contents(&both, &web)[0].ports[0].port, 31000);
    let one = make(|mine| mine.remotes = Some(BTreeSet::from(["west".into()])));
    assert_eq!(addresses(&one, &web), ["10.2.0.1"]);
    assert_eq!(reasons(&make(|_| {}), &web), [Reason::RemoteAmbiguous]);
    assert_eq!(reasons(&make(|mine| mine.has_selector = true), &web), [Reason::SelectorPresent]);
    let external = make(|mine| mine.spec.service_type = ServiceType::ExternalName);
    assert_eq!(reasons(&external, &web), [Reason::NotMirrorable]);
    let mut default = make(|_| {});
    default.remotes.get_mut("east").unwrap().rules.default_since = Some(5);
    assert_eq!(addresses(&settle(&default), &web), ["10.1.0.1"]);
}

#[test]
fn a_named_target_port_is_looked_up_in_the_remote_service() {
    let web = name("shop", "web");
    let mut east = remote("uid-east");
    let mut theirs = source(30080);
    theirs.spec.ports = vec![
        ServicePort { target: TargetPort::Name("http".into()), ..port(8000, Some(30800)) },
        ServicePort { name: "metrics".into(), ..port(9000, Some(30900)) },
    ];
    east.services.insert(web.clone(), theirs);
    let mut world = world([("east", east)]);
    let mut mine = service(Role::HandLabelled);
    let named = |number, target: &str| ServicePort { target: TargetPort::Name(target.into()), ..port(number, None) };
    mine.spec.ports = vec![named(80, "http"), named(90, "metrics"), named(70, "nothing")];
    world.local.services.insert(web.clone(), mine);
    let world = settle(&world);
    let ports: Vec<u16> = contents(&world, &web)[0].ports.iter().map(|port| port.port).collect();
    assert_eq!(ports, [30800, 30900]);
    assert_eq!(reasons(&world, &web), [Reason::NamedTargetPort]);
}

#[test]
fn a_service_whose_label_was_removed_is_released_with_its_slices() {
    let (mut world, web) = settled(|_, _| {});
    let mirror = world.local.services.get_mut(&web).unwrap();
    mirror.role = Role::Foreign;
    let after = settle(&world);
    assert!(after.local.services.contains_key(&web) && contents(&after, &web).is_empty());
    assert_eq!(reasons(&after, &web), [Reason::NameConflict]);
}

#[test]
fn barrelmans_mirrors_are_taken_over_by_a_remote_that_adopts() {
    let (mut world, web) = settled(|_, _| {});
    let mirror = world.local.services.get_mut(&web).unwrap();
    (mirror.owner, mirror.remote_uid, mirror.owner_reference) = (None, None, None);
    let before = mirror.clone();
    let untouched = settle(&world);
    assert_eq!(untouched.local.services[&web], before, "only an adopting remote may touch it");
    world.remotes.get_mut("east").unwrap().rules.adopts = true;
    assert_eq!(settle(&world).local.services[&web].owner.as_deref(), Some("east"));
}

#[test]
fn a_suffix_keeps_names_of_clusters_apart() {
    let (world, _) = settled(|east, _| east.rules.naming = Naming::Suffix);
    assert_eq!(world.local.services.keys().map(ToString::to_string).collect::<Vec<_>>(), ["shop/web-uid-east"]);
    let long = "a".repeat(60);
    let (world, _) = settled(|east, web| {
        east.rules.naming = Naming::Suffix;
        let source = east.services.remove(web).unwrap();
        east.services.insert(name("shop", &long), source);
    });
    assert!(world.local.services.is_empty());
    assert_eq!(reasons(&world, &name("shop", &format!("{long}-uid-east"))), [Reason::NameTooLong]);
}

#[test]
fn one_node_more_writes_one_slice_per_service() {
    let (mut world, web) = settled(|east, _| {
        east.nodes = (1..=7).map(|number| (format!("n{number}").into(), node(&format!("10.1.0.{number}")))).collect();
    });
    assert_eq!(contents(&world, &web).len(), 3);
    let nodes = BTreeMap::from([("n8".into(), Some(node("10.1.0.0")))]);
    let mut planner = Planner::new(world.clone());
    let affected = planner.change(Change::Nodes("east".into(), nodes));
    assert_eq!(affected, BTreeSet::from([web.clone()]));
    assert_eq!(planner.decide(&web).slices.len(), 1);
    let heartbeat = BTreeMap::from([("n7".into(), Some(node("10.1.0.7")))]);
    assert!(planner.change(Change::Nodes("east".into(), heartbeat)).is_empty());
    world.remotes.get_mut("east").unwrap().nodes.remove("n1");
    assert_eq!(plan(&world)[&web].slices.len(), 1);
}
