//! Sets of field paths, and their JSON form `FieldsV1`.
//!
//! A set is a tree: a node is a member, or leads to members, or both (then `.` marks it in JSON).

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

/// One element of a path, in the form of `FieldsV1`: `f:name` is a member of a map, `k:{"name":"c"}` the list item
/// with these keys, `v:"x"` the item of a set, `i:0` the item at an index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PathElement(String);

/// A path of an object.
pub(super) type FieldPath = Vec<PathElement>;

/// A set of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FieldSet {
    nodes: BTreeMap<PathElement, Branch>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Branch {
    member: bool,
    below: FieldSet,
}

impl PathElement {
    pub(super) fn field(name: &str) -> Self {
        Self(format!("f:{name}"))
    }

    pub(super) fn key(keys: Map<String, Value>) -> Self {
        Self(format!("k:{}", Value::Object(keys)))
    }

    pub(super) fn value(value: &Value) -> Self {
        Self(format!("v:{value}"))
    }

    pub(super) fn index(at: usize) -> Self {
        Self(format!("i:{at}"))
    }

    /// The name of a field.
    pub(super) fn name(&self) -> Option<&str> {
        self.0.strip_prefix("f:")
    }

    pub(super) fn is_key(&self) -> bool {
        self.0.starts_with("k:")
    }
}

/// `.name`, `[name="c"]`, `[="x"]`, `[0]`: as conflicts show it.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_at(2) {
            ("f:", name) => write!(f, ".{name}"),
            ("k:", keys) => {
                let keys: BTreeMap<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={value}")).collect();
                write!(f, "[{}]", keys.join(","))
            }
            ("v:", value) => write!(f, "[={value}]"),
            (_, rest) => write!(f, "[{rest}]"),
        }
    }
}

/// A path as conflicts show it.
pub(super) fn display_path(path: &[PathElement]) -> String {
    path.iter().map(ToString::to_string).collect()
}

impl Branch {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl FieldSet {
    /// A set of paths of named fields, such as `metadata.name`.
    pub(super) fn of_fields(paths: &[&str]) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(&path.split('.').map(PathElement::field).collect::<FieldPath>());
        }
        set
    }

    /// Adds a path; its parents are not added. The empty path is ignored.
    pub(super) fn insert(&mut self, path: &[PathElement]) {
        let Some((first, rest)) = path.split_first() else { return };
        let branch = self.nodes.entry(first.clone()).or_default();
        if rest.is_empty() {
            branch.member = true;
        } else {
            branch.below.insert(rest);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.values().all(Branch::is_empty)
    }

    /// Whether this one element is a member.
    pub(super) fn has(&self, step: &PathElement) -> bool {
        self.nodes.get(step).is_some_and(|branch| branch.member)
    }

    /// The paths below an element, without it.
    pub(super) fn below(&self, step: &PathElement) -> Option<&Self> {
        self.nodes.get(step).map(|branch| &branch.below).filter(|below| !below.is_empty())
    }

    /// Whether the path is a member.
    pub(super) fn contains(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.has(last),
            [first, rest @ ..] => self.nodes.get(first).is_some_and(|branch| branch.below.contains(rest)),
        }
    }

    #[must_use]
    pub(super) fn union(&self, other: &Self) -> Self {
        let mut nodes = self.nodes.clone();
        for (step, branch) in &other.nodes {
            let held = nodes.entry(step.clone()).or_default();
            held.member |= branch.member;
            held.below = held.below.union(&branch.below);
        }
        Self { nodes }
    }

    #[must_use]
    pub(super) fn intersection(&self, other: &Self) -> Self {
        self.kept(|step, branch| {
            let there = other.nodes.get(step)?;
            Some(Branch { member: branch.member && there.member, below: branch.below.intersection(&there.below) })
        })
    }

    /// The members that the other set lacks; a parent in the other set does not remove its children.
    #[must_use]
    pub(super) fn difference(&self, other: &Self) -> Self {
        self.kept(|step, branch| {
            let Some(there) = other.nodes.get(step) else { return Some(branch.clone()) };
            Some(Branch { member: branch.member && !there.member, below: branch.below.difference(&there.below) })
        })
    }

    /// The members that the other set lacks; a path in the other set removes everything below it, too.
    #[must_use]
    pub(super) fn without(&self, other: &Self) -> Self {
        self.kept(|step, branch| match other.nodes.get(step) {
            None => Some(branch.clone()),
            Some(there) if there.member => None,
            Some(there) => Some(Branch { member: branch.member, below: branch.below.without(&there.below) }),
        })
    }

    /// The set with some inner elements made members, too, as `choose` decides, which passes context down.
    pub(super) fn with_members<G: Copy>(&self, guide: G, choose: &impl Fn(G, &PathElement) -> (bool, G)) -> Self {
        self.kept(|step, branch| {
            let (also, next) = choose(guide, step);
            let member = branch.member || (also && !branch.below.is_empty());
            Some(Branch { member, below: branch.below.with_members(next, choose) })
        })
    }

    fn kept(&self, keep: impl Fn(&PathElement, &Branch) -> Option<Branch>) -> Self {
        let kept = self.nodes.iter().filter_map(|(step, branch)| {
            keep(step, branch).filter(|branch| !branch.is_empty()).map(|branch| (step.clone(), branch))
        });
        Self { nodes: kept.collect() }
    }

    /// All paths; at each level the members come before what is below any of them.
    pub(super) fn paths(&self) -> Vec<FieldPath> {
        let members = self.nodes.iter().filter(|(_, branch)| branch.member).map(|(step, _)| vec![step.clone()]);
        let deeper = self.nodes.iter().flat_map(|(step, branch)| {
            let below = branch.below.paths().into_iter();
            below.map(|path| std::iter::once(step.clone()).chain(path).collect())
        });
        members.chain(deeper).collect()
    }

    /// The `FieldsV1` object.
    pub(super) fn to_json(&self) -> Value {
        let nodes = self.nodes.iter().filter(|(_, branch)| !branch.is_empty()).map(|(step, branch)| {
            let mut below = branch.below.to_json();
            if let (true, Value::Object(fields)) = (branch.member && !branch.below.is_empty(), &mut below) {
                fields.insert(".".to_owned(), Value::Object(Map::new()));
            }
            (step.0.clone(), below)
        });
        Value::Object(nodes.collect())
    }

    /// Reads a `FieldsV1` object; none if it is not one.
    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let mut set = Self::default();
        for (key, value) in value.as_object()?.iter().filter(|(key, _)| *key != ".") {
            ["f:", "k:", "v:", "i:"].iter().find(|prefix| key.starts_with(**prefix))?;
            let below = Self::from_json(value)?;
            let member = below.nodes.is_empty() || value.get(".").is_some();
            set.nodes.insert(PathElement(key.clone()), Branch { member, below });
        }
        Some(set)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(value: &Value) -> FieldSet {
        FieldSet::from_json(value).unwrap()
    }

    #[test]
    fn fields_v1_is_read_and_written_unchanged() {
        for fields in [
            json!({}),
            json!({ "f:data": {} }),
            json!({ "f:data": { ".": {}, "f:a": {} }, "f:metadata": { "f:finalizers": { "v:\"a/b\"": {} } } }),
            json!({ "f:ports": { "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": { ".": {}, "f:name": {} } } }),
            json!({ "f:list": { "i:0": {}, "v:1.5": {}, "v:true": {} } }),
        ] {
            assert_eq!(set(&fields).to_json(), fields);
        }
        for bad in [json!({ "a": {} }), json!({ "abc": {} }), json!({ "f:a": 1 }), json!([])] {
            assert_eq!(FieldSet::from_json(&bad), None, "{bad}");
        }
    }

    #[test]
    fn sets_obey_the_rules_of_paths() {
        let a = set(&json!({ "f:a": { ".": {}, "f:b": {}, "f:c": {} }, "f:d": {} }));
        let b = set(&json!({ "f:a": { "f:b": {} }, "f:d": { "f:e": {} } }));
        let both = json!({ "f:a": { ".": {}, "f:b": {}, "f:c": {} }, "f:d": { ".": {}, "f:e": {} } });
        assert_eq!(a.union(&b).to_json(), both);
        assert_eq!(a.intersection(&b).to_json(), json!({ "f:a": { "f:b": {} } }));
        assert_eq!(a.difference(&b).to_json(), json!({ "f:a": { ".": {}, "f:c": {} }, "f:d": {} }));
        let top = set(&json!({ "f:a": {} }));
        assert_eq!(a.difference(&top).to_json(), json!({ "f:a": { "f:b": {}, "f:c": {} }, "f:d": {} }));
        assert_eq!(a.without(&top).to_json(), json!({ "f:d": {} }));
        assert!(a.difference(&a).is_empty());
    }

    #[test]
    fn paths_print_as_conflicts_show_them() {
        let set = set(
            &json!({ "f:spec": { "f:c": { "k:{\"n\":\"x\",\"p\":80}": { "f:image": {} } }, "f:t": { "v:\"a\"": {} } } }),
        );
        let printed: Vec<String> = set.paths().iter().map(|path| display_path(path)).collect();
        assert_eq!(printed, [".spec.c[n=\"x\",p=80].image", ".spec.t[=\"a\"]"]);
    }
}
