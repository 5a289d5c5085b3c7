//! Objects kept as short text: a fraction of the memory, for kinds with very many objects that are read rarely.

use std::fmt;
use std::num::NonZeroU64;
use std::str::from_utf8;

use serde::Serialize;

use super::kind::Kind;
use super::store::Key;

/// Text that many objects of a capability contain; each phrase is stored as one byte.
///
/// A phrase's index is the byte it becomes: JSON escapes the 32 characters below the space, so these bytes are free.
/// Each phrase begins with a quotation mark, and the first one that matches is taken.
#[derive(Debug, Clone, Copy)]
pub struct Phrases(&'static [&'static str]);

impl Phrases {
    /// At most 32 phrases.
    pub const fn new(phrases: &'static [&'static str]) -> Self {
        assert!(phrases.len() <= 32, "there are 32 unused bytes");
        Self(phrases)
    }

    fn shorten(self, text: &[u8]) -> Vec<u8> {
        let mut short = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some((first, behind)) = rest.split_first() {
            let mut phrases = (0..).zip(self.0);
            let phrase = phrases.find(|(_, phrase)| *first == b'"' && rest.starts_with(phrase.as_bytes()));
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

    fn expand(self, short: &[u8]) -> Vec<u8> {
        let mut text = Vec::with_capacity(short.len() * 4);
        for byte in short {
            match self.0.get(usize::from(*byte)) {
                Some(phrase) => text.extend_from_slice(phrase.as_bytes()),
                None => text.push(*byte),
            }
        }
        text
    }

    /// A phrase that no text can be shortened by, for the tests of capabilities.
    #[cfg(test)]
    pub(crate) fn unusable(self) -> Option<&'static str> {
        let hidden = |index: usize, phrase: &str| self.0[..index].iter().any(|earlier| phrase.starts_with(earlier));
        let mut phrases = self.0.iter().enumerate();
        phrases.find(|(index, phrase)| !phrase.starts_with('"') || hidden(*index, phrase)).map(|(_, phrase)| *phrase)
    }
}

/// How a store packs objects of kind `K`.
pub struct Packing<K> {
    phrases: Phrases,
    write: fn(&K) -> Vec<u8>,
}

impl<K: Kind + Serialize> Packing<K> {
    /// Packing with the phrases of a capability.
    pub fn with(phrases: Phrases) -> Self {
        let write =
            |object: &K| serde_json::to_vec(object).expect("Kubernetes types have string keys, so they are JSON");
        Self { phrases, write }
    }
}

impl<K: Kind> Packing<K> {
    pub(super) fn pack(self, mut object: K) -> Packed {
        let metadata = object.meta_mut();
        let revision = metadata.resource_version.as_deref().and_then(|version| version.parse().ok());
        if revision.is_some() {
            metadata.resource_version = None;
        }
        (metadata.namespace, metadata.name) = (None, None);
        let text = self.phrases.shorten(&(self.write)(&object));
        // A copy of the right size: shrinking in place would leave a hole behind each object.
        Packed { revision, text: Box::from(text.as_slice()) }
    }

    pub(super) fn unpack(self, packed: &Packed, Key { namespace, name }: &Key) -> K {
        let text = self.phrases.expand(&packed.text);
        let mut object: K = from_utf8(&text)
            .ok()
            .and_then(|text| serde_json::from_str(text).ok())
            .expect("it was written from this type");
        let metadata = object.meta_mut();
        if let Some(revision) = packed.revision {
            metadata.resource_version = Some(revision.to_string());
        }
        metadata.namespace = Some(namespace.clone()).filter(|namespace| !namespace.is_empty());
        metadata.name = Some(name.clone());
        object
    }
}

impl<K> Clone for Packing<K> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K> Copy for Packing<K> {}

impl<K> fmt::Debug for Packing<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packing").finish_non_exhaustive()
    }
}

/// A packed object, without its key, and with its resource version as a number.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packed {
    revision: Option<NonZeroU64>,
    text: Box<[u8]>,
}

impl Packed {
    pub(super) fn revision(&self) -> Option<u64> {
        self.revision.map(NonZeroU64::get)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    const PHRASES: Phrases = Phrases::new(&[r#""kind":"ConfigMap","#, r#""metadata":{"#, r#""apiVersion":"v1","#]);

    #[test]
    fn an_object_is_unpacked_as_it_was_packed() {
        let packing = Packing::<ConfigMap>::with(PHRASES);
        for metadata in [
            json!({ "name": "a", "namespace": "ns", "resourceVersion": "712", "uid": "u-1", "generation": 1 }),
            json!({ "name": "a", "resourceVersion": "not a number" }),
        ] {
            let object = json!({ "metadata": metadata, "data": { "e\u{1}g\"1": "ünï\n", "kind": "ConfigMap" } });
            let object: ConfigMap = serde_json::from_value(object).unwrap();
            let packed = packing.pack(object.clone());
            assert_eq!(packing.unpack(&packed, &Key::of(&object)), object);
            let text = String::from_utf8_lossy(&packed.text);
            assert!(!text.contains("apiVersion") && !text.contains("metadata"), "{text}");
        }
    }

    #[test]
    fn phrases_that_never_match_are_found() {
        assert_eq!(PHRASES.unusable(), None);
        assert_eq!(Phrases::new(&[r#""a"#, r#""ab"#]).unusable(), Some(r#""ab"#));
        assert_eq!(Phrases::new(&["a"]).unusable(), Some("a"));
    }
}
