//! The words of the wire that choose a mode. Upper and lower case are the same; an unknown word is a warning.

use portolan_api::egress::EgressIp;
use portolan_core::egress::{AddressRequest, AllocationMode, Eip, NodeMode};

/// How many policies share a node with `Limit`, unless said otherwise.
const DEFAULT_LIMIT: u16 = 5;

/// The node mode, and whether the word for it was known.
pub(super) fn node_mode(word: Option<&str>, limit: Option<u16>) -> (NodeMode, bool) {
    match word.unwrap_or_default().to_ascii_lowercase().as_str() {
        "average" | "" => (NodeMode::Average, true),
        "fewestnodes" => (NodeMode::FewestNodes, true),
        "limit" => (NodeMode::Limit(limit.unwrap_or(DEFAULT_LIMIT).max(1)), true),
        _ => (NodeMode::Average, false),
    }
}

/// What a policy asks for.
pub(super) fn ask(egress_ip: Option<&EgressIp>, explicit: Eip) -> AddressRequest {
    let Some(egress_ip) = egress_ip else { return AddressRequest::FromPool(AllocationMode::Default) };
    if egress_ip.use_node_ip == Some(true) {
        AddressRequest::NodeAddress
    } else if explicit.is_none() {
        let word = egress_ip.allocator_policy.as_deref().unwrap_or_default();
        AddressRequest::FromPool(AllocationMode::parse(word, egress_ip.limit).unwrap_or_default())
    } else {
        AddressRequest::Explicit(explicit)
    }
}

/// What the user of a gateway is told although it is accepted.
pub(in crate::egress) fn node_mode_warning(word: Option<&str>) -> Option<String> {
    let (_, known) = node_mode(word, None);
    (!known).then(|| {
        let word = word.unwrap_or_default();
        format!("spec.nodeSelector.policy: `{word}` is none of Average, FewestNodes, Limit and counts as Average")
    })
}

/// What the user of a policy is told although it is accepted.
pub(in crate::egress) fn policy_warnings(egress_ip: Option<&EgressIp>) -> Vec<String> {
    let word = egress_ip.and_then(|egress_ip| egress_ip.allocator_policy.as_deref()).unwrap_or_default();
    if AllocationMode::parse(word, None).is_some() {
        return Vec::new();
    }
    let words = AllocationMode::WORDS;
    vec![format!("spec.egressIP.allocatorPolicy: `{word}` is none of {words} and counts as default")]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doing_means_average() {
        for word in [None, Some(""), Some("doing"), Some("Average"), Some("AVERAGE")] {
            assert_eq!(node_mode(word, None).0, NodeMode::Average, "{word:?}");
        }
        assert!(node_mode_warning(Some("doing")).is_some() && node_mode_warning(Some("average")).is_none());
    }

    #[test]
    fn modes_ignore_case_and_limits_default_to_five() {
        assert_eq!(node_mode(Some("fewestNODES"), None).0, NodeMode::FewestNodes);
        assert_eq!(node_mode(Some("limit"), None).0, NodeMode::Limit(5));
        assert_eq!(node_mode(Some("Limit"), Some(2)).0, NodeMode::Limit(2));
    }
}
