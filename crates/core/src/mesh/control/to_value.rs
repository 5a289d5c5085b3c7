//! The normal form as JSON: for `portolan why -o yaml`, and for the names of inline objects.

use serde_json::{Map, Value, json};

use super::types::{EndpointSource, Extensions, Hop, Route, RouteRef, Rule, RuleObject, Rules, Target, VirtualService};

impl VirtualService {
    /// The spec in the normal form.
    pub fn to_value(&self) -> Value {
        let mut spec = Map::new();
        spec.insert("selector".to_owned(), self.selector.to_value());
        spec.insert("listener".to_owned(), self.listener.to_value());
        match &self.rules {
            Rules::Stub => {}
            Rules::List(rules) => {
                spec.insert("rules".to_owned(), rules.iter().map(Rule::to_value).collect());
            }
            Rules::Named(name) => {
                spec.insert("rulesRef".to_owned(), name.as_str().into());
            }
        }
        if !self.options.is_empty() {
            spec.insert("options".to_owned(), Value::Object(self.options.clone()));
        }
        if self.update_owners {
            spec.insert("updateOwners".to_owned(), true.into());
        }
        self.extensions.show(&mut spec);
        Value::Object(spec)
    }
}

impl Extensions {
    fn show(&self, spec: &mut Map<String, Value>) {
        if let Some(tls) = &self.tls {
            spec.insert("tls".to_owned(), tls.clone());
        }
        if !self.options.is_empty() {
            spec.insert("proxyOptions".to_owned(), Value::Object(self.options.clone()));
        }
    }
}

impl Rule {
    /// The rule in the normal form.
    pub fn to_value(&self) -> Value {
        let mut action = Map::new();
        if !self.rewrite.is_empty() {
            let steps = self.rewrite.iter().map(|(path, value)| json!({"path": path, "value": value}));
            action.insert("rewrite".to_owned(), steps.collect());
        }
        match &self.route {
            Some(RouteRef::Name(name)) => drop(action.insert("route".to_owned(), name.as_str().into())),
            Some(RouteRef::Inline(route)) => drop(action.insert("route".to_owned(), route.to_value())),
            None => {}
        }
        if let Some(apply) = &self.apply {
            action.insert("apply".to_owned(), apply.as_str().into());
        }
        match &self.matching {
            Some(matching) => json!({"match": matching, "action": action}),
            None => json!({"action": action}),
        }
    }
}

impl RuleObject {
    /// The spec in the normal form.
    pub fn to_value(&self) -> Value {
        json!({
            "selector": self.selector.to_value(),
            "rulelist": self.rulelist,
            "position": self.position,
            "rule": self.rule.to_value(),
        })
    }
}

impl Route {
    /// The spec in the normal form.
    pub fn to_value(&self) -> Value {
        let chain = |hops: &[Hop]| hops.iter().map(Hop::to_value).collect::<Value>();
        let mut spec = Map::new();
        spec.insert("destination".to_owned(), self.destination.to_value());
        for (key, hops) in [("ingress", &self.ingress), ("egress", &self.egress)] {
            if !hops.is_empty() {
                spec.insert(key.to_owned(), chain(hops));
            }
        }
        spec.insert("retry".to_owned(), self.retry.to_value());
        Value::Object(spec)
    }
}

impl Hop {
    /// A name, or the Target in the normal form.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Name(name) => name.as_str().into(),
            Self::Inline(target) => target.cluster_value(),
        }
    }
}

impl Target {
    /// The spec in the normal form.
    pub fn to_value(&self) -> Value {
        let mut spec = Map::new();
        if let Some(selector) = &self.selector {
            spec.insert("selector".to_owned(), selector.to_value());
        }
        spec.insert("cluster".to_owned(), self.cluster_value());
        Value::Object(spec)
    }

    fn cluster_value(&self) -> Value {
        let mut cluster = Map::new();
        if let Some(spec) = &self.spec {
            cluster.insert("spec".to_owned(), spec.to_value());
        }
        if let Some(linked) = &self.linked {
            cluster.insert("linkedVirtualService".to_owned(), linked.as_str().into());
        }
        if !self.endpoints.is_empty() {
            cluster.insert("endpoints".to_owned(), self.endpoints.iter().map(EndpointSource::to_value).collect());
        }
        if let Some(balancer) = &self.balancer {
            cluster.insert("loadbalancer".to_owned(), balancer.to_value());
        }
        self.extensions.show(&mut cluster);
        Value::Object(cluster)
    }
}

impl EndpointSource {
    fn to_value(&self) -> Value {
        match self {
            Self::Static { spec, weight: Some(weight) } => json!({"spec": spec, "weight": weight}),
            Self::Static { spec, weight: None } => json!({"spec": spec}),
            Self::Dynamic(selector) => json!({"selector": selector.to_value()}),
        }
    }
}
