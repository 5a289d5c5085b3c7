//! Random requests, from a seed: whatever they are, the configuration stays of one piece and nothing leaks.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::client::Proxy;

/// Requests of one history.
const LENGTH: usize = 150;
/// Histories.
const SEEDS: u64 = 4;
const KINDS: [&str; 5] = ["listeners", "clusters", "rulelists", "rules", "routes"];

/// A small generator of numbers; the same seed gives the same ones.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).expect("31 bits") % bound
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    fn name(&mut self) -> String {
        (*self.pick(&["a", "b", "c", "d"])).to_owned()
    }

    /// A name, or an object in its place, with or without a name of its own.
    fn inline(&mut self, make: fn(&mut Self) -> Value) -> Value {
        if self.below(2) == 0 {
            return self.name().into();
        }
        let mut object = make(self);
        if self.below(3) == 0 {
            object["name"] = self.name().into();
        }
        object
    }

    fn cluster(&mut self) -> Value {
        let endpoints: Vec<Value> =
            (0..self.below(3)).map(|_| json!({"spec": {"address": format!("10.0.0.{}", self.below(4))}})).collect();
        match self.below(3) {
            0 => json!({"spec": {"protocol": "Echo"}}),
            1 => json!({"spec": {"protocol": "L7mpController"}}),
            _ => json!({"spec": {"protocol": "UDP", "port": 1}, "endpoints": endpoints}),
        }
    }

    fn route(&mut self) -> Value {
        let chain: Vec<Value> = (0..self.below(2)).map(|_| self.inline(Self::cluster)).collect();
        json!({"destination": self.inline(Self::cluster), "ingress": chain})
    }

    fn rule(&mut self) -> Value {
        match self.below(3) {
            0 => json!({"action": {"apply": self.name()}}),
            _ => json!({"action": {"route": self.inline(Self::route)}}),
        }
    }

    fn rulelist(&mut self) -> Value {
        let rules: Vec<Value> = (0..self.below(3)).map(|_| self.inline(Self::rule)).collect();
        json!({"rules": rules})
    }

    fn listener(&mut self) -> Value {
        let rules = if self.below(2) == 0 { self.name().into() } else { self.rulelist()["rules"].clone() };
        let protocol = *self.pick(&["UDP", "TCP", "HTTP"]);
        json!({"spec": {"protocol": protocol, "port": 1 + self.below(3)}, "rules": rules})
    }

    fn object(&mut self, kind: &str) -> Value {
        match kind {
            "listeners" => self.listener(),
            "clusters" => self.cluster(),
            "rulelists" => self.rulelist(),
            "rules" => self.rule(),
            _ => self.route(),
        }
    }

    /// One request: method, target and body.
    fn request(&mut self) -> (&'static str, String, Value) {
        let kind = *self.pick(&KINDS);
        let name = self.name();
        let switch = *self.pick(&["", "?recursive=true", "?force=true", "?recursive=true&force=true"]);
        match self.below(9) {
            0..=2 => {
                let mut object = self.object(kind);
                object["name"] = name.into();
                let key = kind.trim_end_matches('s');
                ("POST", format!("/api/v1/{kind}"), json!({key: object}))
            }
            3 | 4 => ("PUT", format!("/api/v2/{kind}/{name}"), self.object(kind)),
            5 | 6 => ("DELETE", format!("/api/v1/{kind}/{name}{switch}"), Value::Null),
            7 => {
                let at = self.below(3);
                ("POST", format!("/api/v1/rulelists/{name}/rules/{at}"), json!({"rule": self.inline(Self::rule)}))
            }
            _ => ("DELETE", format!("/api/v1/rulelists/{name}/rules/{}{switch}", self.below(3)), Value::Null),
        }
    }
}

#[test]
fn random_requests_never_break_the_configuration_nor_leave_anything_behind() {
    for seed in 0..SEEDS {
        let proxy = Proxy::start("{}", false);
        let mut chance = Chance(seed);
        for step in 0..LENGTH {
            let (method, target, body) = chance.request();
            let before = proxy.engine.snapshot().generation;
            let answer = proxy.direct(method, &target, &body);
            let context = format!("seed {seed}, step {step}: {method} {target} {body}");
            assert!(answer.status < 500, "{context}");
            let refused = answer.status != 200;
            assert!(!refused || proxy.engine.snapshot().generation == before, "refused and yet changed: {context}");
            check(&proxy, &context);
        }
        for kind in KINDS {
            for name in ["a", "b", "c", "d"] {
                proxy.direct("DELETE", &format!("/api/v1/{kind}/{name}?force=true"), &Value::Null);
            }
        }
        let left = config(&proxy);
        for kind in KINDS.into_iter().chain(["endpoints"]) {
            assert_eq!(left[kind], json!([]), "seed {seed} leaves {kind} behind");
        }
    }
}

fn config(proxy: &Proxy) -> Value {
    let answer = proxy.direct("GET", "/api/v1/config", &Value::Null);
    serde_json::from_slice(&answer.body).expect("JSON")
}

/// What clients read and what the engine has are the same, and no made name is without a use.
fn check(proxy: &Proxy, context: &str) {
    let (config, snapshot) = (config(proxy), proxy.engine.snapshot());
    let names = |kind: &str| -> BTreeSet<String> {
        let all = config[kind].as_array().expect("a list").iter();
        all.map(|object| object["name"].as_str().expect("a name").to_owned()).collect()
    };
    macro_rules! same {
        ($($kind:literal: $field:ident),*) => {
            $(assert_eq!(names($kind), snapshot.$field.iter().map(|it| it.name.to_string()).collect(), "{context}");)*
        };
    }
    same!("listeners": listeners, "clusters": clusters, "rulelists": rulelists, "rules": rules, "routes": routes);
    let endpoints = snapshot.clusters.iter().flat_map(|cluster| &cluster.endpoints).map(|it| it.name.to_string());
    assert_eq!(names("endpoints"), endpoints.collect(), "{context}");

    let text = config.to_string();
    for kind in ["clusters", "rulelists", "rules", "routes"] {
        for name in names(kind).iter().filter(|name| name.contains('-')) {
            let uses = text.matches(&format!("\"{name}\"")).count();
            assert!(uses > 1, "{name} has no use: {context}");
        }
    }
    let mut ports = BTreeSet::new();
    for listener in config["listeners"].as_array().expect("a list") {
        let family = if listener["spec"]["protocol"] == "UDP" { "UDP" } else { "TCP" };
        assert!(ports.insert((family, listener["spec"]["port"].to_string())), "two on a port: {context}");
    }
}
