//! Which pod has which address.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::node::FakeNode;

/// The first and the last number of a pod on its node; the node itself would have 1.
const NUMBERS: std::ops::RangeInclusive<u8> = 2..=254;

/// The numbers of pods on their nodes, by the pod's UID. A pod has one number for both families.
#[derive(Debug, Default)]
pub(super) struct PodAddresses {
    taken: BTreeMap<String, Place>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    node: String,
    number: u8,
}

impl PodAddresses {
    /// Forgets everything but what these pods have.
    pub(super) fn reset(&mut self, pods: &[Pod], nodes: &[FakeNode]) {
        let place = |pod: &Pod| {
            let node = pod.spec.as_ref()?.node_name.as_ref()?;
            let address: Ipv4Addr = pod.status.as_ref()?.pod_ip.as_ref()?.parse().ok()?;
            let node = nodes.iter().find(|known| known.name == *node)?;
            Some((pod.uid()?, Place { node: node.name.clone(), number: address.octets()[3] }))
        };
        self.taken = pods.iter().filter_map(place).collect();
    }

    /// The addresses of a pod: those that it has, or free ones. `None` when the node has none left.
    pub(super) fn claim(&mut self, pod: &Pod, node: &FakeNode) -> Option<(Ipv4Addr, Ipv6Addr)> {
        let uid = pod.uid()?;
        let number = match self.taken.get(&uid) {
            Some(place) => place.number,
            None => NUMBERS.into_iter().find(|number| self.is_free(node, *number))?,
        };
        self.taken.insert(uid, Place { node: node.name.clone(), number });
        Some(node.pod_addresses(number))
    }

    /// Frees the addresses of a pod that is gone.
    pub(super) fn release(&mut self, pod: &Pod) {
        if let Some(uid) = pod.uid() {
            self.taken.remove(&uid);
        }
    }

    fn is_free(&self, node: &FakeNode, number: u8) -> bool {
        !self.taken.values().any(|place| place.node == node.name && place.number == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builders;

    fn pod(uid: &str) -> Pod {
        let mut pod = builders::pod("shop", uid).build();
        pod.metadata.uid = Some(uid.into());
        pod
    }

    #[test]
    fn a_pod_keeps_its_addresses_and_a_freed_one_is_given_again() {
        let (mut addresses, node) = (PodAddresses::default(), FakeNode::new(7, 1));
        let first = addresses.claim(&pod("a"), &node).unwrap();
        assert_eq!(first, ("10.7.1.2".parse().unwrap(), "fd00:7:1::2".parse().unwrap()));
        let second = addresses.claim(&pod("b"), &node).unwrap();
        assert_eq!(second.0, Ipv4Addr::new(10, 7, 1, 3));
        assert_eq!(addresses.claim(&pod("a"), &node), Some(first), "it has them already");
        assert_eq!(addresses.claim(&pod("c"), &FakeNode::new(7, 2)).unwrap().0, Ipv4Addr::new(10, 7, 2, 2));
        addresses.release(&pod("a"));
        assert_eq!(addresses.claim(&pod("d"), &node), Some(first));
    }

    #[test]
    fn a_full_node_has_no_address_and_pods_that_run_keep_theirs_after_a_new_list() {
        let (mut addresses, node) = (PodAddresses::default(), FakeNode::new(7, 1));
        for number in NUMBERS {
            assert!(addresses.claim(&pod(&number.to_string()), &node).is_some());
        }
        assert_eq!(addresses.claim(&pod("one more"), &node), None);

        let mut running = builders::pod("shop", "old").on(&node.name).ip("10.7.1.2").build();
        running.metadata.uid = Some("old".into());
        addresses.reset(&[running], std::slice::from_ref(&node));
        assert_eq!(addresses.claim(&pod("new"), &node).unwrap().0, Ipv4Addr::new(10, 7, 1, 3));
    }
}
