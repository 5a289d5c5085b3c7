//! Objects as short text: a fraction of the memory, for kinds with very many objects that are looked at rarely.

use std::num::NonZeroU64;

use serde::Serialize;

use super::store::Key;
use super::watch::Kind;

/// An object without what its key and revision tell, what most objects repeat written as one byte.
#[derive(Debug, PartialEq, Eq)]
pub struct Packed {
    revision: Option<NonZeroU64>,
    text: Box<[u8]>,
}

/// Packs an object of a kind.
pub type Pack<K> = fn(K) -> Packed;

/// The one way to pack, for a [`Selection`](super::watch::Selection).
pub fn pack<K: Kind + Serialize>(mut object: K) -> Packed {
    let metadata = object.meta_mut();
    let revision = metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
    if revision.is_some() {
        metadata.resource_version = None;
    }
    (metadata.namespace, metadata.name) = (None, None);
    let text = serde_json::to_vec(&object).expect("Kubernetes types have string keys, so they are JSON");
    Packed { revision, text: shorten(&text).into() }
}

impl Packed {
    /// The object as it was.
    pub(super) fn open<K: Kind>(&self, Key { namespace, name }: &Key) -> K {
        let mut object: K = serde_json::from_slice(&lengthen(&self.text)).expect("it was written from this type");
        let metadata = object.meta_mut();
        if let Some(revision) = self.revision {
            metadata.resource_version = Some(revision.to_string());
        }
        metadata.namespace = Some(namespace.clone()).filter(|namespace| !namespace.is_empty());
        metadata.name = Some(name.clone());
        object
    }
}

/// What objects repeat; a phrase's place is the byte it becomes. JSON writes no byte below the blank as it is, so
/// these are free. Each begins with a quotation mark, and none is the beginning of one behind it.
const PHRASES: [&str; 32] = [
    r#""apiVersion":"egressgateway.spidernet.io/v1beta1","#,
    r#""kind":"Egress"#,
    r#""metadata":{"#,
    r#""annotations":{"portolan.dev/applied":""#,
    r#""creationTimestamp":""#,
    r#""generation":"#,
    r#""labels":{""#,
    r#""spidernet.io/policy-name":""#,
    r#""ownerReferences":[{"#,
    r#""blockOwnerDeletion":true,"controller":true,"#,
    r#""name":""#,
    r#""uid":""#,
    r#""spec":{"#,
    r#""status":{"#,
    r#""status":"True","type":""#,
    r#""status":"False","type":""#,
    r#""conditions":[{"lastTransitionTime":""#,
    r#""lastTransitionTime":""#,
    r#""message":"","observedGeneration":"#,
    r#""message":""#,
    r#""observedGeneration":"#,
    r#""reason":""#,
    r#""appliedTo":{"podSelector":{"matchLabels":{""#,
    r#""egressGatewayName":""#,
    r#""egressIP":{"allocatorPolicy":""#,
    r#""eip":{"ipv4":""#,
    r#""endpoints":[{"#,
    r#""ipv4":[""#,
    r#""ipv6":[""#,
    r#""nodeName":""#,
    r#""phase":"Running","podIPs":[{"ip":""#,
    r#""pod":""#,
];

fn shorten(text: &[u8]) -> Vec<u8> {
    let mut short = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        let phrase = (0..).zip(PHRASES).find(|(_, phrase)| *first == b'"' && rest.starts_with(phrase.as_bytes()));
        if let Some((code, phrase)) = phrase {
            short.push(code);
            rest = &rest[phrase.len()..];
        } else {
            short.push(*first);
            rest = behind;
        }
    }
    short
}

fn lengthen(short: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(short.len() * 4);
    for byte in short {
        match PHRASES.get(usize::from(*byte)) {
            Some(phrase) => text.extend_from_slice(phrase.as_bytes()),
            None => text.push(*byte),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::lean::Pod;
    use portolan_api::egress::EgressPolicy;
    use serde_json::json;

    #[test]
    fn an_object_is_opened_as_it_was_packed() {
        let policy = json!({
            "metadata": { "name": "p1", "namespace": "ns1", "resourceVersion": "712", "uid": "u-1", "generation": 1 },
            "spec": { "egressGatewayName": "e\u{1}g\"1", "egressIP": { "allocatorPolicy": "rr" },
                "appliedTo": { "podSelector": { "matchLabels": { "app": "ünï\n" } } } },
            "status": { "eip": { "ipv4": "10.6.1.60" }, "conditions": [{ "type": "Ready", "status": "True",
                "reason": "Programmed", "message": "", "lastTransitionTime": "2026-11-15T17:00:00Z" }] },
        });
        let policy: EgressPolicy = serde_json::from_value(policy).unwrap();
        let packed = pack(policy.clone());
        let written = serde_json::to_vec(&policy).unwrap();
        assert_eq!(packed.open::<EgressPolicy>(&Key::of(&policy)), policy);
        assert!(packed.text.len() * 2 < written.len(), "{} of {}", packed.text.len(), written.len());
        let odd = json!({ "metadata": { "name": "node-agent", "resourceVersion": "none" } });
        let odd: Pod = serde_json::from_value(odd).unwrap();
        assert_eq!(pack(odd.clone()).open::<Pod>(&Key::of(&odd)), odd, "a version that is no number, no namespace");
    }

    #[test]
    fn every_phrase_can_be_met() {
        for (place, phrase) in PHRASES.iter().enumerate() {
            assert!(phrase.starts_with('"'));
            let hidden = PHRASES[..place].iter().find(|earlier| phrase.starts_with(**earlier));
            assert_eq!(hidden, None, "it hides {phrase}");
        }
    }
}
