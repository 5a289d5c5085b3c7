//! Selectors of pods: labels, fields, namespace and Service, all of which must match.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::select::{self, Labels, Operator};

/// Which pods. Everything asked for must hold; nothing asked for is every pod of the object's own namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    /// Labels and expressions over them.
    pub labels: select::Selector,
    /// Fields of the pod.
    pub fields: Vec<FieldTest>,
    /// Another namespace than the object's own.
    pub namespace: Option<Arc<str>>,
    /// A Service of the object's namespace, or a full name.
    pub service: Option<Arc<str>>,
    /// Alternatives, one of which must hold as well.
    pub any_of: Vec<Selector>,
}

/// A test of a pod's field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldTest {
    /// Which field.
    pub field: Field,
    /// What must hold.
    pub operator: FieldOperator,
}

/// Fields that can be selected by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Field {
    /// The pod's name.
    Name,
    /// Its namespace.
    Namespace,
    /// Its node.
    NodeName,
    /// Its service account.
    ServiceAccountName,
    /// Its address.
    PodIp,
    /// Its node's address.
    HostIp,
}

/// What must hold for a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldOperator {
    /// As for labels.
    Label(Operator),
    /// A number above this one.
    Gt(i64),
    /// A number below this one.
    Lt(i64),
}

impl Field {
    /// All, with their names.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Name, "metadata.name"),
        (Self::Namespace, "metadata.namespace"),
        (Self::NodeName, "spec.nodeName"),
        (Self::ServiceAccountName, "spec.serviceAccountName"),
        (Self::PodIp, "status.podIP"),
        (Self::HostIp, "status.hostIP"),
    ];

    /// The name in an object.
    pub fn as_str(self) -> &'static str {
        Self::ALL.into_iter().find(|(field, _)| *field == self).map_or("", |(_, name)| name)
    }
}

impl FieldTest {
    /// Whether it holds for a value; an empty one is not there.
    pub fn holds(&self, value: &str) -> bool {
        let number = || value.parse::<i64>().ok();
        match &self.operator {
            FieldOperator::Gt(limit) => number().is_some_and(|number| number.cmp(limit) == Ordering::Greater),
            FieldOperator::Lt(limit) => number().is_some_and(|number| number.cmp(limit) == Ordering::Less),
            FieldOperator::Label(operator) => match operator {
                Operator::In(values) => values.contains(value),
                Operator::NotIn(values) => !values.contains(value),
                Operator::Exists => !value.is_empty(),
                Operator::DoesNotExist => value.is_empty(),
            },
        }
    }
}

impl Selector {
    /// The pods of a Service.
    pub fn service(name: impl Into<Arc<str>>) -> Self {
        Self { service: Some(name.into()), ..Self::default() }
    }

    /// The pods with these labels.
    pub fn labels<K: Into<Arc<str>>, V: Into<Arc<str>>>(labels: impl IntoIterator<Item = (K, V)>) -> Self {
        let labels: Labels = labels.into_iter().collect();
        Self { labels: select::Selector { labels, expressions: Vec::new() }, ..Self::default() }
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Namespaces that the fields allow, if they name any; used to find out whether a selector leaves its own.
    pub fn namespaces(&self) -> Option<BTreeSet<Arc<str>>> {
        if let Some(namespace) = &self.namespace {
            return Some(BTreeSet::from([Arc::clone(namespace)]));
        }
        let named = self.fields.iter().find_map(|test| match &test.operator {
            FieldOperator::Label(Operator::In(values)) if test.field == Field::Namespace => Some(values.clone()),
            FieldOperator::Label(_) | FieldOperator::Gt(_) | FieldOperator::Lt(_) => None,
        });
        let all = self.fields.iter().any(|test| test.field == Field::Namespace);
        named.or_else(|| all.then(BTreeSet::new))
    }

    /// The selector in the normal form, with sorted keys: equal selectors give equal texts.
    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        if !self.labels.labels.is_empty() {
            let labels = self.labels.labels.iter().map(|(key, value)| (key.to_owned(), value.into()));
            map.insert("matchLabels".to_owned(), Value::Object(labels.collect()));
        }
        if !self.labels.expressions.is_empty() {
            let tests = self.labels.expressions.iter();
            let tests = tests.map(|test| label_test(&test.key, &test.operator)).collect();
            map.insert("matchExpressions".to_owned(), Value::Array(tests));
        }
        if !self.fields.is_empty() {
            let tests = self.fields.iter().map(|test| match &test.operator {
                FieldOperator::Label(operator) => label_test(test.field.as_str(), operator),
                FieldOperator::Gt(limit) => {
                    json!({"key": test.field.as_str(), "operator": "Gt", "values": [limit.to_string()]})
                }
                FieldOperator::Lt(limit) => {
                    json!({"key": test.field.as_str(), "operator": "Lt", "values": [limit.to_string()]})
                }
            });
            map.insert("matchFields".to_owned(), Value::Array(tests.collect()));
        }
        if let Some(namespace) = &self.namespace {
            map.insert("matchNamespace".to_owned(), (&**namespace).into());
        }
        if let Some(service) = &self.service {
            map.insert("matchService".to_owned(), (&**service).into());
        }
        if !self.any_of.is_empty() {
            map.insert("anyOf".to_owned(), self.any_of.iter().map(Self::to_value).collect());
        }
        Value::Object(map)
    }

    /// A text that equal selectors have in common, and no others.
    pub fn key(&self) -> String {
        self.to_value().to_string()
    }
}

fn label_test(key: &str, operator: &Operator) -> Value {
    let values = |values: &BTreeSet<Arc<str>>| values.iter().map(|value| Value::from(&**value)).collect::<Vec<_>>();
    match operator {
        Operator::In(of) => json!({"key": key, "operator": "In", "values": values(of)}),
        Operator::NotIn(of) => json!({"key": key, "operator": "NotIn", "values": values(of)}),
        Operator::Exists => json!({"key": key, "operator": "Exists"}),
        Operator::DoesNotExist => json!({"key": key, "operator": "DoesNotExist"}),
    }
}
