//! The configuration of a proxy as its REST API shows it, with all defaults set.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::types::Protocol;

/// Kinds of configuration objects, in the order in which they are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigKind {
    /// A cluster.
    Cluster,
    /// A route.
    Route,
    /// A rule.
    Rule,
    /// An ordered list of rules.
    RuleList,
    /// A listener.
    Listener,
}

/// A cluster and its endpoints.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// Its name.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// The spec.
    pub spec: Value,
    /// In the order in which balancers see them; none on virtual clusters.
    pub endpoints: Vec<Endpoint>,
    /// The load balancer; none is the default of the proxy.
    pub loadbalancer: Option<Value>,
    /// Options that only a Portolan proxy supports.
    pub options: Map<String, Value>,
    /// TLS settings, which only a Portolan proxy supports.
    pub tls: Option<Value>,
}

/// One address of a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    /// Its name, which is global on a proxy.
    pub name: Arc<str>,
    /// The address and further fields.
    pub spec: Value,
    /// Its weight.
    pub weight: u64,
    /// It takes no new sessions.
    pub draining: bool,
}

/// A route through clusters, by their names.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// Its name.
    pub name: Arc<str>,
    /// The cluster where it ends.
    pub destination: Arc<str>,
    /// Clusters on the way to the destination.
    pub ingress: Vec<Arc<str>>,
    /// Clusters on the way back.
    pub egress: Vec<Arc<str>>,
    /// All three fields.
    pub retry: Value,
}

/// A rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Its name.
    pub name: Arc<str>,
    /// The predicate; absent matches always.
    pub matching: Option<Value>,
    /// Path and value of each rewrite, in order.
    pub rewrite: Vec<(String, Value)>,
    /// The route to take.
    pub route: Option<Arc<str>>,
    /// The rulelist to continue with.
    pub apply: Option<Arc<str>>,
    /// A hop of its route is a WebSocket client.
    pub reaches_websocket: bool,
}

/// A listener.
#[derive(Debug, Clone, PartialEq)]
pub struct Listener {
    /// Its name.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// The spec.
    pub spec: Value,
    /// The rulelist that selects the route.
    pub rules: Arc<str>,
    /// Options that every proxy supports.
    pub options: Map<String, Value>,
    /// Options that only a Portolan proxy supports.
    pub extension_options: Map<String, Value>,
    /// TLS settings, which only a Portolan proxy supports.
    pub tls: Option<Value>,
}

/// A rule that is inserted into a rulelist of the proxy's configuration file.
#[derive(Debug, Clone, PartialEq)]
pub struct Insertion {
    /// The rulelist.
    pub rulelist: Arc<str>,
    /// The position.
    pub position: u64,
    /// Creation time in seconds; newer rules come first.
    pub created: i64,
    /// The rule's name.
    pub rule: Arc<str>,
}

/// The configuration that a proxy should hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProxyConfig {
    /// Clusters.
    pub clusters: BTreeMap<Arc<str>, Arc<Cluster>>,
    /// Routes.
    pub routes: BTreeMap<Arc<str>, Arc<Route>>,
    /// Rules.
    pub rules: BTreeMap<Arc<str>, Arc<Rule>>,
    /// Ordered lists of rules.
    pub rulelists: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    /// Listeners.
    pub listeners: BTreeMap<Arc<str>, Arc<Listener>>,
    /// Rules in foreign rulelists, by rule.
    pub insertions: BTreeMap<Arc<str>, Insertion>,
}

impl ProxyConfig {
    /// Whether it has no objects.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Cluster {
    /// The request body that adds it.
    pub fn to_value(&self) -> Value {
        let mut cluster = Map::new();
        cluster.insert("name".to_owned(), (&*self.name).into());
        cluster.insert("spec".to_owned(), with_tls(&self.spec, self.tls.as_ref()));
        if !self.protocol.is_virtual() {
            cluster.insert("endpoints".to_owned(), self.endpoints.iter().map(Endpoint::to_value).collect());
            if let Some(balancer) = &self.loadbalancer {
                cluster.insert("loadbalancer".to_owned(), balancer.clone());
            }
        }
        if !self.options.is_empty() {
            cluster.insert("options".to_owned(), Value::Object(self.options.clone()));
        }
        Value::Object(cluster)
    }
}

impl Endpoint {
    /// The request body that adds it.
    pub fn to_value(&self) -> Value {
        json!({"name": &*self.name, "spec": self.spec, "weight": self.weight})
    }
}

impl Route {
    /// The request body that adds it.
    pub fn to_value(&self) -> Value {
        let chain = |names: &[Arc<str>]| names.iter().map(|name| Value::from(&**name)).collect::<Value>();
        json!({
            "name": &*self.name,
            "destination": &*self.destination,
            "ingress": chain(&self.ingress),
            "egress": chain(&self.egress),
            "retry": self.retry,
        })
    }
}

impl Rule {
    /// The request body that adds it.
    pub fn to_value(&self) -> Value {
        let mut rule = self.content();
        if let Value::Object(rule) = &mut rule {
            rule.insert("name".to_owned(), (&*self.name).into());
        }
        rule
    }

    /// The rule without its name, which is a hash of this.
    pub(super) fn content(&self) -> Value {
        let mut action = Map::new();
        if !self.rewrite.is_empty() {
            let steps = self.rewrite.iter().map(|(path, value)| json!({"path": path, "value": value}));
            action.insert("rewrite".to_owned(), steps.collect());
        }
        for (key, name) in [("route", &self.route), ("apply", &self.apply)] {
            if let Some(name) = name {
                action.insert(key.to_owned(), (&**name).into());
            }
        }
        match &self.matching {
            Some(matching) => json!({"match": matching, "action": action}),
            None => json!({"action": action}),
        }
    }
}

impl Listener {
    /// The request body that adds it.
    pub fn to_value(&self) -> Value {
        let mut options = self.options.clone();
        options.extend(self.extension_options.clone());
        options.entry("track").or_insert(0.into());
        json!({
            "name": &*self.name,
            "spec": with_tls(&self.spec, self.tls.as_ref()),
            "rules": &*self.rules,
            "options": options,
        })
    }

    /// Whether sessions end when the listener is deleted.
    pub fn removes_orphan_sessions(&self) -> bool {
        self.options.get("removeOrphanSessions") == Some(&Value::Bool(true))
    }
}

fn with_tls(spec: &Value, tls: Option<&Value>) -> Value {
    let mut spec = spec.clone();
    if let (Value::Object(spec), Some(tls)) = (&mut spec, tls) {
        spec.insert("tls".to_owned(), tls.clone());
    }
    spec
}
