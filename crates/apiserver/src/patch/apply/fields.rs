//! Sets of field paths, and their JSON form `FieldsV1`.
//!
//! A set is a tree: a node is a member, or leads to members, or both (then `.` marks it in JSON).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::element::Element;

/// A set of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Set {
    nodes: BTreeMap<Element, Branch>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Branch {
    member: bool,
    below: Set,
}

impl Branch {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl Set {
    /// A set of paths of named fields.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<Element> = path.iter().map(|name| Element::Field((*name).to_owned())).collect();
            set.insert(&path);
        }
        set
    }

    /// Adds a path; those above it are not added. The empty path is nobody's.
    pub fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => self.branch(last).member = true,
            [first, rest @ ..] => self.branch(first).below.insert(rest),
        }
    }

    fn branch(&mut self, element: &Element) -> &mut Branch {
        self.nodes.entry(element.clone()).or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.nodes.values().all(Branch::is_empty)
    }

    /// Whether this one step is a member.
    pub(super) fn has(&self, element: &Element) -> bool {
        self.nodes.get(element).is_some_and(|branch| branch.member)
    }

    /// The paths that begin with a step, without it.
    pub(super) fn below(&self, element: &Element) -> Option<&Self> {
        self.nodes.get(element).map(|branch| &branch.below).filter(|below| !below.is_empty())
    }

    /// Whether the path is a member.
    pub fn contains(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.has(last),
            [first, rest @ ..] => self.nodes.get(first).is_some_and(|branch| branch.below.contains(rest)),
        }
    }

    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut nodes = self.nodes.clone();
        for (element, branch) in &other.nodes {
            match nodes.get_mut(element) {
                Some(held) => {
                    held.member |= branch.member;
                    held.below = held.below.union(&branch.below);
                }
                None => {
                    nodes.insert(element.clone(), branch.clone());
                }
            }
        }
        Self { nodes }
    }

    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.kept(|element, branch| {
            let there = other.nodes.get(element)?;
            Some(Branch { member: branch.member && there.member, below: branch.below.intersection(&there.below) })
        })
    }

    /// The members that the other set lacks, each path for itself: a parent does not take its children along.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.kept(|element, branch| match other.nodes.get(element) {
            None => Some(branch.clone()),
            Some(there) => {
                Some(Branch { member: branch.member && !there.member, below: branch.below.difference(&there.below) })
            }
        })
    }

    /// The members that the other set lacks; a path in the other set takes all below it along.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        self.kept(|element, branch| match other.nodes.get(element) {
            None => Some(branch.clone()),
            Some(there) if there.member => None,
            Some(there) => Some(Branch { member: branch.member, below: branch.below.without(&there.below) }),
        })
    }

    /// The members that have no member below them.
    #[must_use]
    pub fn leaves(&self) -> Self {
        self.kept(|_, branch| {
            Some(Branch { member: branch.member && branch.below.is_empty(), below: branch.below.leaves() })
        })
    }

    /// The set with some steps made members too; `choose` is told the steps that lead on, and hands down a guide.
    pub(super) fn with_members<G: Copy>(&self, guide: G, choose: &impl Fn(G, &Element) -> (bool, G)) -> Self {
        self.kept(|element, branch| {
            let (also, next) = choose(guide, element);
            let member = branch.member || (also && !branch.below.is_empty());
            Some(Branch { member, below: branch.below.with_members(next, choose) })
        })
    }

    fn kept(&self, keep: impl Fn(&Element, &Branch) -> Option<Branch>) -> Self {
        let kept = self.nodes.iter().filter_map(|(element, branch)| {
            keep(element, branch).filter(|branch| !branch.is_empty()).map(|branch| (element.clone(), branch))
        });
        Self { nodes: kept.collect() }
    }

    /// All paths; at each level the members come before what lies below any of them.
    pub fn paths(&self) -> Vec<Vec<Element>> {
        let mut paths = Vec::new();
        self.walk(&mut Vec::new(), &mut paths);
        paths
    }

    fn walk(&self, prefix: &mut Vec<Element>, paths: &mut Vec<Vec<Element>>) {
        for element in self.nodes.iter().filter(|(_, branch)| branch.member).map(|(element, _)| element) {
            paths.push(prefix.iter().chain([element]).cloned().collect());
        }
        for (element, branch) in &self.nodes {
            prefix.push(element.clone());
            branch.below.walk(prefix, paths);
            prefix.pop();
        }
    }

    /// The `FieldsV1` object.
    pub fn to_json(&self) -> Value {
        let nodes = self.nodes.iter().filter(|(_, branch)| !branch.is_empty()).map(|(element, branch)| {
            let mut below = branch.below.to_json();
            if let (true, Value::Object(fields)) = (branch.member && !branch.below.is_empty(), &mut below) {
                fields.insert(".".to_owned(), Value::Object(Map::new()));
            }
            (element.encode(), below)
        });
        Value::Object(nodes.collect())
    }

    /// Reads a `FieldsV1` object; steps of unknown kinds are skipped.
    pub fn from_json(value: &Value) -> Result<Self, String> {
        let mut set = Self::default();
        let Value::Object(fields) = value else { return Err("not an object".to_owned()) };
        for (key, value) in fields.iter().filter(|(key, _)| *key != ".") {
            let Some(element) = Element::decode(key)? else { continue };
            let below = Self::from_json(value)?;
            let member = below.nodes.is_empty() || value.get(".").is_some();
            set.nodes.insert(element, Branch { member, below });
        }
        Ok(set)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(value: &Value) -> Set {
        Set::from_json(value).unwrap()
    }

    #[test]
    fn fields_v1_is_read_and_written_unchanged() {
        for fields in [
            json!({}),
            json!({ "f:data": {} }),
            json!({ "f:data": { ".": {}, "f:a": {} }, "f:metadata": { "f:finalizers": { "v:\"a/b\"": {} } } }),
            json!({ "f:ports": { "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": { ".": {}, "f:name": {} } } }),
            json!({ "f:list": { "i:0": {}, "v:\"\\u003c\"": {}, "v:1.5": {}, "v:true": {} } }),
        ] {
            assert_eq!(set(&fields).to_json(), fields);
        }
    }

    #[test]
    fn keys_are_written_in_the_order_of_their_names() {
        let keys = vec![("b".to_owned(), json!("x")), ("a".to_owned(), json!(1))];
        let mut set = Set::default();
        set.insert(&[Element::Field("l".to_owned()), Element::Key(keys)]);
        assert_eq!(set.to_json(), json!({ "f:l": { "k:{\"a\":1,\"b\":\"x\"}": {} } }));
    }

    #[test]
    fn unknown_steps_are_skipped_and_malformed_ones_refused() {
        assert_eq!(set(&json!({ "x:new": {}, "f:a": {} })), set(&json!({ "f:a": {} })));
        for bad in [json!({ "a": {} }), json!({ "abc": {} }), json!({ "k:1": {} }), json!({ "i:x": {} }), json!([])] {
            assert!(Set::from_json(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn sets_obey_the_rules_of_paths() {
        let a = set(&json!({ "f:a": { ".": {}, "f:b": {}, "f:c": {} }, "f:d": {} }));
        let b = set(&json!({ "f:a": { "f:b": {} }, "f:d": { "f:e": {} } }));
        assert_eq!(
            a.union(&b).to_json(),
            json!({
                "f:a": { ".": {}, "f:b": {}, "f:c": {} }, "f:d": { ".": {}, "f:e": {} },
            })
        );
        assert_eq!(a.intersection(&b).to_json(), json!({ "f:a": { "f:b": {} } }));
        assert_eq!(a.difference(&b).to_json(), json!({ "f:a": { ".": {}, "f:c": {} }, "f:d": {} }));
        assert_eq!(
            a.difference(&set(&json!({ "f:a": {} }))).to_json(),
            json!({ "f:a": { "f:b": {}, "f:c": {} }, "f:d": {} })
        );
        assert_eq!(a.without(&set(&json!({ "f:a": {} }))).to_json(), json!({ "f:d": {} }));
        assert_eq!(a.leaves().to_json(), json!({ "f:a": { "f:b": {}, "f:c": {} }, "f:d": {} }));
        assert!(a.difference(&a).is_empty());
    }

    #[test]
    fn paths_print_as_conflicts_show_them() {
        let set = set(
            &json!({ "f:spec": { "f:c": { "k:{\"n\":\"x\",\"p\":80}": { "f:image": {} } }, "f:t": { "v:\"a\"": {} } } }),
        );
        let shown: Vec<String> =
            set.paths().iter().map(|path| path.iter().map(ToString::to_string).collect()).collect();
        assert_eq!(shown, [".spec.c[n=\"x\",p=80].image", ".spec.t[=\"a\"]"]);
    }
}
