//! What a proxy holds, as the REST API shows it, with every default filled in.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::types::Protocol;

/// Kinds of objects on a proxy, in the order in which they are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConfigKind {
    /// A stage.
    Cluster,
    /// A way.
    Route,
    /// A decision.
    Rule,
    /// Decisions in order.
    RuleList,
    /// A server socket.
    Listener,
}

/// A stage and its endpoints.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// Its name.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// The spec.
    pub spec: Value,
    /// In the order of balancers; none on virtual clusters.
    pub endpoints: Vec<Endpoint>,
    /// The balancer; none is the proxy's default.
    pub loadbalancer: Option<Value>,
    /// What only our proxy does.
    pub options: Map<String, Value>,
    /// What only our proxy does, in its spec.
    pub tls: Option<Value>,
}

/// One address of a cluster.
#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    /// Its name, which is global on a proxy.
    pub name: Arc<str>,
    /// The address and what stands beside it.
    pub spec: Value,
    /// Its share.
    pub weight: u64,
    /// It takes no further sessions.
    pub draining: bool,
}

/// A way through clusters, by their names.
#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    /// Its name.
    pub name: Arc<str>,
    /// The sink.
    pub destination: Arc<str>,
    /// The way there.
    pub ingress: Vec<Arc<str>>,
    /// The way back.
    pub egress: Vec<Arc<str>>,
    /// All three fields.
    pub retry: Value,
}

/// A decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Its name.
    pub name: Arc<str>,
    /// When; absent is always.
    pub matching: Option<Value>,
    /// Path and value, in order.
    pub rewrite: Vec<(String, Value)>,
    /// Where to.
    pub route: Option<Arc<str>>,
    /// Goes on in this rulelist.
    pub apply: Option<Arc<str>>,
    /// Some hop of its route is a WebSocket client.
    pub meets_websocket: bool,
}

/// A server socket.
#[derive(Debug, Clone, PartialEq)]
pub struct Listener {
    /// Its name.
    pub name: Arc<str>,
    /// Its protocol.
    pub protocol: Protocol,
    /// The spec.
    pub spec: Value,
    /// The rulelist that decides.
    pub rules: Arc<str>,
    /// What every proxy keeps.
    pub options: Map<String, Value>,
    /// What only our proxy does.
    pub extension_options: Map<String, Value>,
    /// What only our proxy does, in its spec.
    pub tls: Option<Value>,
}

/// A rule of ours in a rulelist of the proxy's own.
#[derive(Debug, Clone, PartialEq)]
pub struct Insertion {
    /// The rulelist.
    pub rulelist: Arc<str>,
    /// Where.
    pub position: u64,
    /// Newer ones come first, in seconds.
    pub created: i64,
    /// The rule's name.
    pub rule: Arc<str>,
}

/// Everything of ours that a proxy should hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ProxyConfig {
    /// Stages.
    pub clusters: BTreeMap<Arc<str>, Arc<Cluster>>,
    /// Ways.
    pub routes: BTreeMap<Arc<str>, Arc<Route>>,
    /// Decisions.
    pub rules: BTreeMap<Arc<str>, Arc<Rule>>,
    /// Decisions in order.
    pub rulelists: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    /// Server sockets.
    pub listeners: BTreeMap<Arc<str>, Arc<Listener>>,
    /// Rules in rulelists that are not ours, by rule.
    pub insertions: BTreeMap<Arc<str>, Insertion>,
}

impl ProxyConfig {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Cluster {
    /// The body of the call that adds it.
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
    /// The body of the call that adds it.
    pub fn to_value(&self) -> Value {
        json!({"name": &*self.name, "spec": self.spec, "weight": self.weight})
    }
}

impl Route {
    /// The body of the call that adds it.
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
    /// The body of the call that adds it.
    pub fn to_value(&self) -> Value {
        let mut rule = self.content();
        if let Value::Object(rule) = &mut rule {
            rule.insert("name".to_owned(), (&*self.name).into());
        }
        rule
    }

    /// The rule without its name, which is made of it.
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
    /// The body of the call that adds it.
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

    /// Sessions end when the object is deleted.
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
