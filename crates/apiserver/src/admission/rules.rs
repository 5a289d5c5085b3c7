//! Rules: which operations on which resources a webhook wants to see.

use serde_json::Value;

use super::Attributes;

/// One compiled rule.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    /// Plural and subresource.
    resources: Vec<(String, String)>,
    scope: Scope,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    Namespaced,
    Cluster,
    /// A word that nobody knows.
    None,
}

impl Rule {
    pub(super) fn new(rule: &Value) -> Self {
        let resources = words(&rule["resources"]).into_iter().map(|word| match word.split_once('/') {
            Some((resource, subresource)) => (resource.to_owned(), subresource.to_owned()),
            None => (word, String::new()),
        });
        Self {
            operations: words(&rule["operations"]),
            groups: words(&rule["apiGroups"]),
            versions: words(&rule["apiVersions"]),
            resources: resources.collect(),
            scope: match rule["scope"].as_str() {
                None | Some("*") => Scope::All,
                Some("Namespaced") => Scope::Namespaced,
                Some("Cluster") => Scope::Cluster,
                Some(_) => Scope::None,
            },
        }
    }

    /// Whether a request is meant, were its resource asked for in `version`.
    pub(super) fn matches(&self, attributes: &Attributes<'_>, version: &str) -> bool {
        self.scope(attributes)
            && any(&self.operations, attributes.operation.as_str())
            && any(&self.groups, attributes.group)
            && any(&self.versions, version)
            && self.resources.iter().any(|(resource, subresource)| {
                (resource == "*" || resource == attributes.resource)
                    && (subresource == "*" || subresource == attributes.subresource)
            })
    }

    /// Requests about a Namespace carry its name as namespace, and are cluster-wide all the same.
    fn scope(&self, attributes: &Attributes<'_>) -> bool {
        let cluster =
            attributes.namespace.is_empty() || (attributes.group.is_empty() && attributes.resource == "namespaces");
        match self.scope {
            Scope::All => true,
            Scope::Namespaced => !cluster,
            Scope::Cluster => cluster,
            Scope::None => false,
        }
    }
}

fn words(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn any(words: &[String], wanted: &str) -> bool {
    words.iter().any(|word| word == "*" || word == wanted)
}
