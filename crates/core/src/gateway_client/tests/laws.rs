//! Laws over drawn stories.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::*;
use super::lab::{Lab, address, name, service, slice};

#[derive(Debug, Clone)]
enum Event {
    /// Pods by address and node.
    Pods(BTreeMap<u8, u8>),
    Ports(u16),
    Forget,
    Restart,
    Away(bool),
    Step(bool),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let pods = prop::collection::btree_map(1u8..6, 1u8..=3, 0..5);
    let event = prop_oneof![
        3 => pods.prop_map(Event::Pods),
        1 => (80u16..83).prop_map(Event::Ports),
        1 => Just(Event::Forget),
        1 => Just(Event::Restart),
        1 => any::<bool>().prop_map(Event::Away),
        8 => any::<bool>().prop_map(Event::Step),
    ];
    prop::collection::vec(event, 0..40)
}

fn pods_slice(pods: &BTreeMap<u8, u8>) -> Slice {
    let texts: Vec<(String, String)> =
        pods.iter().map(|(pod, node)| (format!("10.1.0.{pod}"), format!("n{node}"))).collect();
    let pairs: Vec<(&str, &str)> = texts.iter().map(|(pod, node)| (pod.as_str(), node.as_str())).collect();
    slice(&pairs)
}

fn wanted(pods: &BTreeMap<u8, u8>) -> NodeEndpoints {
    let mut nodes = NodeEndpoints::new();
    for (pod, node) in pods {
        let endpoint = Endpoint {
            address: address(&format!("10.1.0.{pod}")),
            port: 8080,
            protocol: Protocol::Tcp,
            name: "".into(),
        };
        nodes.entry(address(&format!("10.0.0.{node}"))).or_default().insert(endpoint);
    }
    nodes
}

proptest! {
    #[test]
    fn whatever_happens_the_gateway_ends_up_as_wanted_and_then_nothing_is_called(events in events()) {
        let (mut lab, web) = (Lab::new(), name("web"));
        lab.world.services.insert(web.clone(), service());
        let mut pods = BTreeMap::new();
        let mut is_away = false;
        for event in events {
            let current = lab.world.services.get_mut(&web).unwrap();
            match event {
                Event::Pods(drawn) => {
                    lab.world.slices.insert(web.clone(), [("s".into(), pods_slice(&drawn))].into());
                    pods = drawn;
                }
                Event::Ports(port) => current.ports[0].port = port,
                Event::Away(away) => {
                    is_away = away;
                    current.standing = if away { Standing::Elsewhere } else { Standing::Ours };
                }
                Event::Forget => {
                    lab.gateway.load_balancers.clear();
                    lab.world.seen.clear();
                }
                Event::Restart => lab.world.seen.clear(),
                Event::Step(is_lost) => drop(lab.step(&web, is_lost)),
            }
        }
        lab.settle(&web);
        let held = lab.world.services[&web].is_held;
        if is_away {
            prop_assert!(lab.remote(&web).is_none() && !held);
        } else {
            let remote = lab.remote(&web).unwrap();
            prop_assert_eq!(remote.endpoints.clone().unwrap_or_default(), wanted(&pods));
            prop_assert_eq!(&remote.ports, &lab.world.services[&web].ports);
            prop_assert!(held);
        }
        lab.world.seen.clear();
        prop_assert_eq!(lab.settle(&web), 0, "after a restart: {:?}", lab.gateway.changes);
    }

    #[test]
    fn pods_that_do_not_move_cost_one_call_per_node_that_differs(
        first in prop::collection::btree_map(1u8..9, 1u8..=3, 0..8),
        kept in prop::collection::vec(any::<bool>(), 8),
        added in prop::collection::btree_map(10u8..18, 1u8..=3, 0..8),
    ) {
        let (mut lab, web) = (Lab::new(), name("web"));
        lab.world.services.insert(web.clone(), service());
        lab.world.slices.insert(web.clone(), [("s".into(), pods_slice(&first))].into());
        lab.settle(&web);
        let mut second: BTreeMap<u8, u8> =
            first.iter().zip(kept).filter(|(_, kept)| *kept).map(|((pod, node), _)| (*pod, *node)).collect();
        second.extend(added);
        lab.world.slices.insert(web.clone(), [("s".into(), pods_slice(&second))].into());
        let (was, is) = (wanted(&first), wanted(&second));
        let nodes: std::collections::BTreeSet<_> = was.keys().chain(is.keys()).collect();
        let differing = nodes.into_iter().filter(|node| was.get(*node) != is.get(*node)).count();
        prop_assert_eq!(lab.settle(&web), differing);
    }

    #[test]
    fn names_are_labels_that_one_cluster_alone_recognises(
        namespace in "[a-z]([a-z0-9-]{0,61}[a-z0-9])?", service in "[a-z]([a-z0-9-]{0,61}[a-z0-9])?",
    ) {
        let (one, other) = (ClusterKey::new("one"), ClusterKey::new("other"));
        let name = ServiceName::new(&namespace, &service);
        let lb = one.name(&name);
        let text = lb.as_str();
        prop_assert!(text.len() <= 63 && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
        prop_assert!(!text.starts_with('-') && !text.ends_with('-'));
        prop_assert!(one.owns(text) && !other.owns(text));
        let elsewhere = ServiceName::new(&(namespace + "x"), &service);
        prop_assert!(lb != other.name(&name) && lb != one.name(&elsewhere));
        prop_assert_eq!(one.listed(text), Some(lb));
    }
}
