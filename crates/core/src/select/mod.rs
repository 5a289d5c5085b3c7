//! Labels and label selectors, as Kubernetes defines them.

use std::collections::BTreeSet;
use std::sync::Arc;

/// The labels of an object: a boxed, sorted slice, as clusters have many objects with few labels each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(Box<[(Arc<str>, Arc<str>)]>);

impl Labels {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let place = self.0.binary_search_by(|(own, _)| (**own).cmp(key)).ok()?;
        Some(&self.0[place].1)
    }

    /// Keys and values in order of key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// The same, to be kept.
    pub fn shared(&self) -> impl Iterator<Item = &(Arc<str>, Arc<str>)> {
        self.0.iter()
    }

    /// True without any label.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<K: Into<Arc<str>>, V: Into<Arc<str>>> FromIterator<(K, V)> for Labels {
    /// A key given twice keeps its last value.
    fn from_iter<T: IntoIterator<Item = (K, V)>>(labels: T) -> Self {
        let map: std::collections::BTreeMap<Arc<str>, Arc<str>> =
            labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        Self(map.into_iter().collect())
    }
}

/// Which objects: all labels and all expressions must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    /// Labels that must be there with these values.
    pub labels: Labels,
    /// Expressions that must hold.
    pub expressions: Vec<Expression>,
}

/// One expression of a selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expression {
    /// The label's key.
    pub key: Arc<str>,
    /// What must hold for it.
    pub operator: Operator,
}

/// What must hold for a label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operator {
    /// It is there and has one of these values.
    In(BTreeSet<Arc<str>>),
    /// It is missing or has none of these values.
    NotIn(BTreeSet<Arc<str>>),
    /// It is there.
    Exists,
    /// It is missing.
    DoesNotExist,
}

impl Selector {
    /// True without labels and expressions. What that means is the caller's to say; [`Selector::matches`] follows
    /// Kubernetes, where it selects everything.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.expressions.is_empty()
    }

    /// True if everything asked for holds.
    pub fn matches(&self, labels: &Labels) -> bool {
        self.labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.expressions.iter().all(|expression| expression.holds(labels))
    }
}

impl Expression {
    fn holds(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| values.contains(value)),
            Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_match_as_in_kubernetes() {
        let node: Labels = [("egress", "true"), ("zone", "a")].into_iter().collect();
        let values = |words: &[&str]| words.iter().map(|word| Arc::from(*word)).collect::<BTreeSet<Arc<str>>>();
        for (key, operator, holds) in [
            ("zone", Operator::In(values(&["a", "b"])), true),
            ("zone", Operator::In(values(&["b"])), false),
            ("rack", Operator::In(values(&["a"])), false),
            ("zone", Operator::NotIn(values(&["a"])), false),
            ("zone", Operator::NotIn(values(&["b"])), true),
            ("rack", Operator::NotIn(values(&["a"])), true),
            ("zone", Operator::Exists, true),
            ("rack", Operator::Exists, false),
            ("zone", Operator::DoesNotExist, false),
            ("rack", Operator::DoesNotExist, true),
        ] {
            let selector = Selector {
                labels: [("egress", "true")].into_iter().collect(),
                expressions: vec![Expression { key: key.into(), operator }],
            };
            assert_eq!(selector.matches(&node), holds, "{selector:?}");
            assert!(!selector.matches(&Labels::default()), "the label is missing");
        }
    }

    #[test]
    fn an_empty_selector_says_so_and_matches_everything() {
        assert!(Selector::default().is_empty());
        assert!(Selector::default().matches(&Labels::default()));
    }

    #[test]
    fn labels_are_sorted_and_the_last_value_of_a_key_counts() {
        let labels: Labels = [("b", "1"), ("a", "2"), ("b", "3")].into_iter().collect();
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("a", "2"), ("b", "3")]);
    }
}
