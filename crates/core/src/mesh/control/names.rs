//! Names: what a user's text refers to, and the names of objects on a proxy.
//!
//! ```text
//! name.namespace.<kind>.cluster.local            an object, its listener, rulelist, route or cluster
//! name.namespace.<kind>.cluster.local~89abcdef   an inline object in it, by the hash of its content
//! <cluster>@10.0.0.1                             an endpoint, because endpoint names are global on a proxy
//! ```
//! Only objects with these names belong to the operator; it never changes others.

use std::sync::Arc;

use serde_json::Value;

use super::types::{MeshKind, ObjectName};
use crate::pick;

/// What a user's text refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// A full name fixes the kind.
    pub kind: Option<MeshKind>,
    /// The object.
    pub name: ObjectName,
}

/// Kinds with their words in full names, in object references and in paths.
const WORDS: [(MeshKind, &str, &str, &str); 5] = [
    (MeshKind::VirtualService, "virtualservice", "VirtualService", "virtualservices"),
    (MeshKind::Route, "route", "Route", "routes"),
    (MeshKind::Target, "target", "Target", "targets"),
    (MeshKind::Rule, "rule", "Rule", "rules"),
    (MeshKind::Service, "svc", "Service", "services"),
];

impl MeshKind {
    /// The kind as Kubernetes writes it.
    pub fn as_str(self) -> &'static str {
        WORDS.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, _, kind, _)| kind)
    }

    /// The word in full names.
    pub fn word(self) -> &'static str {
        WORDS.iter().find(|(kind, ..)| *kind == self).map_or("", |(_, word, ..)| word)
    }
}

/// Makes and reads full names under one cluster domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterDomain(Arc<str>);

impl Default for ClusterDomain {
    fn default() -> Self {
        Self::new("cluster.local")
    }
}

impl ClusterDomain {
    /// The domain, with or without dots around it.
    pub fn new(domain: &str) -> Self {
        Self(Arc::from(domain.trim_matches('.')))
    }

    /// The domain itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The full name of an object.
    pub fn full(&self, kind: MeshKind, name: &ObjectName) -> Arc<str> {
        Arc::from(format!("{}.{}.{}.{}", name.name, name.namespace, kind.word(), self.0))
    }

    /// What a text in an object of this namespace refers to.
    pub fn reference(&self, text: &str, namespace: &Arc<str>) -> Reference {
        let fixed = self.parse(text).or_else(|| legacy(text));
        match fixed {
            Some((kind, name)) => Reference { kind: Some(kind), name },
            None => Reference { kind: None, name: ObjectName::new(Arc::clone(namespace), text) },
        }
    }

    /// Parses a full name from the right: names may contain dots, namespaces may not.
    pub fn parse(&self, text: &str) -> Option<(MeshKind, ObjectName)> {
        let rest = text.strip_suffix(&*self.0)?.strip_suffix('.')?;
        let (rest, word) = rest.rsplit_once('.')?;
        let (kind, ..) = WORDS.iter().find(|(_, known, ..)| *known == word)?;
        let (name, namespace) = rest.rsplit_once('.')?;
        let whole = !name.is_empty() && !namespace.is_empty();
        whole.then(|| (*kind, ObjectName::new(namespace, name)))
    }

    /// Whether a name on a proxy belongs to the operator; with `legacy` also those of the l7mp operator.
    pub fn is_ours(&self, name: &str, legacy: bool) -> bool {
        let cluster = name.split_once('@').map_or(name, |(cluster, _)| cluster);
        let owner = match cluster.split_once('~') {
            Some((owner, mark)) if is_mark(mark) => owner,
            Some(_) => return false,
            None => cluster,
        };
        let is_our_kind = |kind| kind != MeshKind::Service;
        self.parse(owner).is_some_and(|(kind, _)| is_our_kind(kind)) || (legacy && is_legacy(name))
    }
}

/// Whether it is a name of the l7mp operator.
pub fn is_legacy(name: &str) -> bool {
    name.starts_with("/l7mp.io/v1/") && legacy(name).is_some()
}

/// Parses the two long forms of the l7mp operator.
fn legacy(text: &str) -> Option<(MeshKind, ObjectName)> {
    let (word, namespace, name) = if let Some(rest) = text.strip_prefix("/l7mp.io/v1/") {
        let (kind, rest) = rest.split_once('/')?;
        let (namespace, name) = rest.split_once('/')?;
        (kind, namespace, name)
    } else {
        let rest = text.strip_prefix("/apis/l7mp.io/v1/namespaces/")?;
        let (namespace, rest) = rest.split_once('/')?;
        let (plural, name) = rest.split_once('/')?;
        (plural, namespace, name)
    };
    let (kind, ..) =
        WORDS.iter().find(|(kind, _, one, many)| *kind != MeshKind::Service && (*one == word || *many == word))?;
    let whole = !name.is_empty() && !name.contains('/') && !namespace.is_empty();
    whole.then(|| (*kind, ObjectName::new(namespace, name)))
}

/// Eight hex digits, and a counter for equal contents.
fn is_mark(mark: &str) -> bool {
    let (hash, count) = mark.split_once('-').map_or((mark, None), |(hash, count)| (hash, Some(count)));
    let is_hex = |letter: u8| letter.is_ascii_digit() || (b'a'..=b'f').contains(&letter);
    hash.len() == 8
        && hash.bytes().all(is_hex)
        && count.is_none_or(|count| count.parse::<u32>().is_ok_and(|count| count >= 2))
}

/// Names the inline objects of one object; equal contents are numbered.
#[derive(Debug, Default)]
pub(super) struct InlineNames {
    taken: std::collections::BTreeMap<Arc<str>, u32>,
}

impl InlineNames {
    /// The name of an inline object.
    pub(super) fn name(&mut self, owner: &str, content: &Value) -> Arc<str> {
        let base: Arc<str> = Arc::from(format!("{owner}~{:08x}", mark(content)));
        let count = self.taken.entry(Arc::clone(&base)).or_default();
        *count += 1;
        if *count == 1 { base } else { Arc::from(format!("{base}-{count}")) }
    }
}

/// A stable hash of some content: names must not change with an upgrade.
pub(super) fn mark(content: &Value) -> u32 {
    let hash = pick::hash(0, &[content.to_string().as_bytes()]);
    u32::try_from(hash >> 32).expect("32 bits are left")
}

/// The hash that shows whether a user has edited a generated spec.
pub fn spec_hash(spec: &Value) -> String {
    format!("{:016x}", pick::hash(0, &[spec.to_string().as_bytes()]))
}

/// The name of an endpoint.
pub(super) fn endpoint(cluster: &str, address: &str) -> Arc<str> {
    Arc::from(format!("{cluster}@{address}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn full_names_are_read_from_the_right() {
        let domain = ClusterDomain::default();
        let name = ObjectName::new("shop", "a.b.c");
        assert_eq!(&*domain.full(MeshKind::Target, &name), "a.b.c.shop.target.cluster.local");
        assert_eq!(domain.parse("a.b.c.shop.target.cluster.local"), Some((MeshKind::Target, name)));
        for wrong in ["a", "a.shop.target", "a.shop.pod.cluster.local", ".shop.target.cluster.local", "cluster.local"] {
            assert_eq!(domain.parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn references_have_three_long_forms() {
        let domain = ClusterDomain::default();
        let here = Arc::from("here");
        for (text, kind, name) in [
            ("w", None, "here/w"),
            ("w.x", None, "here/w.x"),
            ("w.x.svc.cluster.local", Some(MeshKind::Service), "x/w"),
            ("w.x.virtualservice.cluster.local", Some(MeshKind::VirtualService), "x/w"),
            ("/l7mp.io/v1/Target/x/w", Some(MeshKind::Target), "x/w"),
            ("/apis/l7mp.io/v1/namespaces/x/virtualservices/w", Some(MeshKind::VirtualService), "x/w"),
            ("/apis/l7mp.io/v1/namespaces/x/pods/w", None, "here//apis/l7mp.io/v1/namespaces/x/pods/w"),
        ] {
            let found = domain.reference(text, &here);
            assert_eq!((found.kind, found.name.to_string().as_str()), (kind, name), "{text}");
        }
    }

    #[test]
    fn ours_are_exactly_the_names_of_the_grammar() {
        let domain = ClusterDomain::default();
        for (name, ours) in [
            ("a.b.virtualservice.cluster.local", true),
            ("a.b.virtualservice.cluster.local~0123abcd", true),
            ("a.b.virtualservice.cluster.local~0123abcd-2", true),
            ("a.b.target.cluster.local@10.0.0.1", true),
            ("a.b.target.cluster.local@/var/run/x.sock", true),
            ("a.b.virtualservice.cluster.local~0123abcd-1", false),
            ("a.b.virtualservice.cluster.local~0123ABCD", false),
            ("a.b.virtualservice.cluster.local~0123abc", false),
            ("a.b.svc.cluster.local", false),
            ("controller-listener", false),
            ("a.b.virtualservice.cluster.local-RuleList-0", false),
            ("/l7mp.io/v1/Target/x/w", false),
        ] {
            assert_eq!(domain.is_ours(name, false), ours, "{name}");
        }
        assert!(domain.is_ours("/l7mp.io/v1/Target/x/w", true));
        assert!(!domain.is_ours("/l7mp.io/v1/Pod/x/w", true));
    }

    #[test]
    fn equal_contents_in_one_owner_are_counted() {
        let mut inline = InlineNames::default();
        let names = [json!(1), json!(2), json!(1)].map(|content| inline.name("o", &content));
        assert_eq!(&*names[2], format!("{}-2", names[0]));
        assert_ne!(names[0], names[1]);
        // recorded once: another value would rename every object on upgrade
        assert_eq!(&*names[0], "o~84cfeb11");
    }
}
