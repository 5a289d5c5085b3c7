//! Single rules.

use super::super::*;
use super::lab::{Lab, address, name, service, slice};

fn lab_with(service: Service) -> (Lab, ServiceName) {
    let (mut lab, web) = (Lab::new(), name("web"));
    lab.world.services.insert(web.clone(), service);
    (lab, web)
}

fn unhonoured(lab: &Lab, name: &ServiceName) -> Vec<&'static str> {
    match decide(&lab.world, name).shown {
        Shown::Ours { unhonoured, .. } => unhonoured.iter().map(Unhonoured::reason).collect(),
        shown @ (Shown::Untouched | Shown::Nothing) => panic!("{shown:?}"),
    }
}

#[test]
fn the_finalizer_is_there_before_anything_is_made_and_goes_after_everything_is_gone() {
    let (mut lab, web) = lab_with(service());
    let first = decide(&lab.world, &web);
    assert_eq!((first.call, first.finalizer), (None, Some(FinalizerChange::Add)));
    lab.settle(&web);
    lab.world.services.get_mut(&web).unwrap().standing = Standing::Deleting;
    let last = decide(&lab.world, &web);
    assert_eq!((last.call, last.finalizer), (Some(Call::Delete), None));
    lab.settle(&web);
    assert!(lab.world.services.is_empty() && lab.gateway.load_balancers.is_empty());
}

#[test]
fn the_address_stays_while_the_gateway_is_silent_and_goes_when_it_says_so() {
    let (mut lab, web) = lab_with(service());
    lab.settle(&web);
    let shown = |lab: &Lab| match decide(&lab.world, &web).shown {
        Shown::Ours { address, .. } => address,
        shown @ (Shown::Untouched | Shown::Nothing) => panic!("{shown:?}"),
    };
    assert_eq!(shown(&lab), AddressShown::Is(address("192.0.2.1")));
    lab.world.seen.clear();
    assert_eq!(shown(&lab), AddressShown::Kept);
    let lb = lab.world.cluster.name(&web);
    lab.world.seen.insert(lb, Seen::Absent);
    assert_eq!(shown(&lab), AddressShown::Gone);
}

#[test]
fn what_a_gateway_would_silently_ignore_is_refused_or_reported() {
    let limits = |change: fn(&mut Service)| {
        let mut service = Service { is_held: true, ..service() };
        change(&mut service);
        lab_with(service)
    };
    let refused = |change| {
        let (lab, web) = limits(change);
        let decision = decide(&lab.world, &web);
        assert_eq!(decision.call, Some(Call::Delete), "what was announced before goes");
        match decision.shown {
            Shown::Ours { announced: Announced::Refused(refusal), .. } => refusal.reason(),
            shown @ (Shown::Untouched | Shown::Nothing | Shown::Ours { .. }) => panic!("{shown:?}"),
        }
    };
    assert_eq!(refused(|service| service.limits.source_ranges = true), "SourceRangesNotSupported");
    assert_eq!(refused(|service| service.ports[0].protocol = Protocol::Sctp), "UnsupportedProtocol");
    assert_eq!(refused(|service| service.requested = Requested::Invalid("x".into())), "InvalidAddress");
    let (lab, web) = limits(|service| {
        service.limits = Limits { session_affinity: true, local_traffic: true, source_ranges: false };
    });
    assert_eq!(unhonoured(&lab, &web), ["SessionAffinityNotSupported", "SourceAddressNotPreserved"]);
}

#[test]
fn an_address_that_is_asked_for_is_sent_and_another_one_is_reported() {
    let (mut lab, web) = lab_with(Service { requested: Requested::Address(address("192.0.2.77")), ..service() });
    lab.settle(&web);
    assert_eq!(lab.remote(&web).unwrap().address, Some(address("192.0.2.77")));
    assert_eq!(unhonoured(&lab, &web), [""; 0]);
    lab.world.services.get_mut(&web).unwrap().requested = Requested::Address(address("192.0.2.78"));
    assert_eq!(lab.settle(&web), 0, "an address cannot be changed");
    assert_eq!(unhonoured(&lab, &web), ["AddressDiffers"]);
}

#[test]
fn named_target_ports_are_what_each_slice_says_and_one_port_of_the_pods_feeds_one_port() {
    let port = |name: &str, port, target: TargetPort| Port { name: name.into(), port, protocol: Protocol::Tcp, target };
    let ports = vec![
        port("web", 80, TargetPort::Name("http".into())),
        port("admin", 81, TargetPort::Number(9000)),
        port("also", 82, TargetPort::Name("http".into())),
    ];
    let (mut lab, web) = lab_with(Service { ports, ..service() });
    let of = |number: u16, pod: &str| Slice {
        ports: [("web", number), ("admin", 9000), ("also", number)]
            .map(|(name, port)| SlicePort { name: name.into(), port, protocol: Protocol::Tcp })
            .into(),
        ..slice(&[(pod, "n1")])
    };
    lab.world
        .slices
        .insert(web.clone(), [("old".into(), of(8080, "10.1.0.1")), ("new".into(), of(8081, "10.1.0.2"))].into());
    lab.settle(&web);
    let endpoints = lab.remote(&web).unwrap().endpoints.clone().unwrap();
    let found: Vec<(String, u16, &str)> =
        endpoints[&address("10.0.0.1")].iter().map(|one| (one.address.to_string(), one.port, &*one.name)).collect();
    let want = [
        ("10.1.0.1", 8080, "web"),
        ("10.1.0.1", 9000, "admin"),
        ("10.1.0.2", 8081, "web"),
        ("10.1.0.2", 9000, "admin"),
    ];
    assert_eq!(found, want.map(|(address, port, name)| (address.to_owned(), port, name)));
    assert_eq!(unhonoured(&lab, &web), ["PortsShareTarget"]);
}

#[test]
fn endpoints_that_do_not_serve_are_left_out_and_those_without_a_node_are_reported() {
    let (mut lab, web) = lab_with(service());
    let mut of = slice(&[("10.1.0.1", "n1"), ("10.1.0.2", "n1"), ("10.1.0.3", "nowhere"), ("10.1.0.4", "n2")]);
    of.endpoints[1].serves = false;
    of.endpoints[3].node = None;
    lab.world.slices.insert(web.clone(), [("s".into(), of)].into());
    lab.settle(&web);
    let endpoints = lab.remote(&web).unwrap().endpoints.clone().unwrap();
    assert_eq!(endpoints.values().map(std::collections::BTreeSet::len).sum::<usize>(), 1, "{endpoints:?}");
    assert_eq!(unhonoured(&lab, &web), ["EndpointsWithoutNode"]);
}

#[test]
fn a_node_is_known_by_its_address_of_the_endpoints_family_or_by_any() {
    let (mut lab, web) = lab_with(service());
    lab.world.nodes.insert("n1".into(), vec![address("fd00::1"), address("10.0.0.1")]);
    lab.world.nodes.insert("n2".into(), vec![address("fd00::2")]);
    lab.world.slices.insert(web.clone(), [("s".into(), slice(&[("10.1.0.1", "n1"), ("10.1.0.2", "n2")]))].into());
    lab.settle(&web);
    let endpoints = lab.remote(&web).unwrap().endpoints.clone().unwrap();
    let nodes: Vec<String> = endpoints.keys().map(ToString::to_string).collect();
    assert_eq!(nodes, ["10.0.0.1", "fd00::2"]);
}
