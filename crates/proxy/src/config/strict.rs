//! The checks of strict mode. They speak as the JSON schema validator does that l7mp's clients know: keyword, where in
//! the request, where in the schema, parameters and a sentence.

use super::json::{Json, object};
use super::kind::Kind;
use crate::transport::spec::{CLUSTERS, JSON_SOCKET_TRANSPORTS, LISTENERS};

/// Words of `retry.retry_on`.
pub const RETRY_ON: [&str; 4] = ["never", "connect-failure", "disconnect", "always"];
/// Words of `match.op`.
pub const OPS: [&str; 16] = [
    "test",
    "in",
    "contains",
    "starts",
    "ends",
    "less",
    "more",
    "matches",
    "defined",
    "undefined",
    "type",
    "contained",
    "intersects",
    "and",
    "or",
    "not",
];
/// Words of `?format=`.
pub const FORMATS: [&str; 5] = ["plain", "terse", "space", "lines", "diffy"];

/// Checks a request body that holds one object under the key of its kind.
pub fn body(kind: Kind, body: &Json) -> Vec<Json> {
    let mut found = Violations::default();
    let at = Location::new("requestBody");
    if let Some(given) = found.required(&at, body, kind.key()) {
        found.object(kind, &at.key(kind.key()), given);
    }
    found.0
}

/// Checks a single object.
pub fn object_alone(kind: Kind, given: &Json) -> Vec<Json> {
    let mut found = Violations::default();
    found.object(kind, &Location::new("requestBody").key(kind.key()), given);
    found.0
}

/// Checks a rule that is inserted: a name or a rule.
pub fn rule_item(body: &Json) -> Vec<Json> {
    let mut found = Violations::default();
    let at = Location::new("requestBody");
    if let Some(rule) = found.required(&at, body, "rule").filter(|rule| rule.as_object().is_some()) {
        found.object(Kind::Rule, &at.key("rule"), rule);
    }
    found.0
}

/// Checks the keys of a query and its format.
pub fn query<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>, allowed: &[&str]) -> Vec<Json> {
    let mut found = Violations::default();
    let at = Location::new("query");
    for (key, value) in pairs {
        if !allowed.contains(&key) {
            let params = object([("additionalProperty", key.into())]);
            found.add("additionalProperties", &at, params, "should NOT have additional properties");
        } else if key == "format" {
            found.one_of(&at.key("format"), Some(&value.into()), &FORMATS);
        }
    }
    found.0
}

/// The complaint about a position that is not a number.
pub fn position() -> Vec<Json> {
    let mut found = Violations::default();
    found.wrong_type(&Location::new("path").key("position"), "integer");
    found.0
}

/// A location in the request and in the schema, formatted only for a violation.
#[derive(Clone, Copy)]
struct Location<'a> {
    parent: Option<&'a Location<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Key(&'a str),
    Item(usize),
}

impl<'a> Location<'a> {
    const fn new(part: &'a str) -> Self {
        Self { parent: None, step: Step::Key(part) }
    }

    const fn key<'b>(&'b self, key: &'b str) -> Location<'b> {
        Location { parent: Some(self), step: Step::Key(key) }
    }

    const fn item(&self, index: usize) -> Location<'_> {
        Location { parent: Some(self), step: Step::Item(index) }
    }

    fn data(&self) -> String {
        let before = self.parent.map(Self::data).unwrap_or_default();
        match self.step {
            Step::Key(key) => format!("{before}.{key}"),
            Step::Item(index) => format!("{before}[{index}]"),
        }
    }

    fn schema(&self) -> String {
        let before = self.parent.map_or_else(|| "#".to_owned(), Self::schema);
        match self.step {
            Step::Key(key) => format!("{before}/properties/{key}"),
            Step::Item(_) => format!("{before}/items"),
        }
    }
}

/// Violations so far.
#[derive(Default)]
struct Violations(Vec<Json>);

impl Violations {
    fn object(&mut self, kind: Kind, at: &Location<'_>, given: &Json) {
        if given.as_object().is_none() {
            self.wrong_type(at, "object");
            return;
        }
        match kind {
            Kind::Listener => self.listener(at, given),
            Kind::Cluster => self.cluster(at, given),
            Kind::RuleList => {
                if let Some(rules) = self.required(at, given, "rules") {
                    self.rules(&at.key("rules"), rules);
                }
            }
            Kind::Rule => self.rule(at, given),
            Kind::Route => self.route(at, given),
            Kind::Endpoint => self.endpoint(at, given),
        }
    }

    fn listener(&mut self, at: &Location<'_>, given: &Json) {
        if let Some(spec) = self.required(at, given, "spec") {
            self.spec(&at.key("spec"), spec, &LISTENERS);
        }
        if let Some(rules @ Json::Array(_)) = given.get("rules") {
            self.rules(&at.key("rules"), rules);
        }
    }

    fn cluster(&mut self, at: &Location<'_>, given: &Json) {
        if let Some(spec) = self.required(at, given, "spec") {
            self.spec(&at.key("spec"), spec, &CLUSTERS);
        }
        let endpoints = given.get("endpoints").and_then(Json::as_array).unwrap_or_default();
        for (index, endpoint) in endpoints.iter().enumerate() {
            self.object(Kind::Endpoint, &at.key("endpoints").item(index), endpoint);
        }
    }

    fn spec(&mut self, at: &Location<'_>, spec: &Json, protocols: &[&str]) {
        let Some(protocol) = self.required(at, spec, "protocol") else { return };
        if !self.one_of(&at.key("protocol"), Some(protocol), protocols) {
            return;
        }
        if let Some(port) = spec.get("port") {
            self.integer(&at.key("port"), port, 0, 65_535);
        }
        match protocol.as_str() {
            Some("JSONSocket") => {
                let transport = spec.get("transport").or_else(|| spec.get("transport_spec"));
                match transport {
                    Some(transport) => self.spec(&at.key("transport"), transport, &JSON_SOCKET_TRANSPORTS),
                    None => drop(self.required(at, spec, "transport")),
                }
            }
            Some("Sync") => drop(self.required(at, spec, "query")),
            _ => {}
        }
    }

    fn endpoint(&mut self, at: &Location<'_>, given: &Json) {
        let Some(spec) = self.required(at, given, "spec") else { return };
        if spec.as_object().is_none() {
            self.wrong_type(&at.key("spec"), "object");
        }
        if let Some(weight) = given.get("weight") {
            self.integer(&at.key("weight"), weight, 0, i64::from(u32::MAX));
        }
    }

    fn rules(&mut self, at: &Location<'_>, rules: &Json) {
        let Some(rules) = rules.as_array() else {
            self.wrong_type(at, "array");
            return;
        };
        for (index, rule) in rules.iter().enumerate().filter(|(_, rule)| rule.as_object().is_some()) {
            self.rule(&at.item(index), rule);
        }
    }

    fn rule(&mut self, at: &Location<'_>, rule: &Json) {
        if let Some(predicate @ Json::Object(_)) = rule.get("match")
            && *predicate != object([("match", "*".into())])
        {
            self.predicate(&at.key("match"), predicate);
        }
        let Some(action) = self.required(at, rule, "action") else { return };
        if let Some(route @ Json::Object(_)) = action.get("route") {
            self.route(&at.key("action").key("route"), route);
        }
    }

    fn predicate(&mut self, at: &Location<'_>, predicate: &Json) {
        let Some(op) = self.required(at, predicate, "op") else { return };
        self.one_of(&at.key("op"), Some(op), &OPS);
        let parts = predicate.get("apply").and_then(Json::as_array).unwrap_or_default();
        for (index, part) in parts.iter().enumerate() {
            self.predicate(&at.key("apply").item(index), part);
        }
    }

    fn route(&mut self, at: &Location<'_>, route: &Json) {
        if route.get("cluster").is_none() {
            self.required(at, route, "destination");
        }
        for key in ["destination", "cluster"] {
            if let Some(cluster @ Json::Object(_)) = route.get(key) {
                self.cluster(&at.key(key), cluster);
            }
        }
        for side in ["ingress", "egress"] {
            let stages = route.get(side).and_then(Json::as_array).unwrap_or_default();
            for (index, stage) in stages.iter().enumerate().filter(|(_, stage)| stage.as_object().is_some()) {
                self.cluster(&at.key(side).item(index), stage);
            }
        }
        let Some(retry) = route.get("retry") else { return };
        let at = at.key("retry");
        if let Some(on) = retry.get("retry_on") {
            self.one_of(&at.key("retry_on"), Some(on), &RETRY_ON);
        }
        for key in ["num_retries", "timeout"] {
            if let Some(number) = retry.get(key) {
                self.integer(&at.key(key), number, 0, i64::from(u32::MAX));
            }
        }
    }

    fn required<'a>(&mut self, at: &Location<'_>, given: &'a Json, key: &str) -> Option<&'a Json> {
        let value = given.get(key);
        if value.is_none() {
            let params = object([("missingProperty", key.into())]);
            self.add("required", at, params, &format!("should have required property '{key}'"));
        }
        value
    }

    fn one_of(&mut self, at: &Location<'_>, value: Option<&Json>, allowed: &[&str]) -> bool {
        let fits = value.and_then(Json::as_str).is_some_and(|word| allowed.contains(&word));
        if !fits {
            let words = Json::Array(allowed.iter().map(|word| (*word).into()).collect());
            let params = object([("allowedValues", words)]);
            self.add("enum", at, params, "should be equal to one of the allowed values");
        }
        fits
    }

    fn integer(&mut self, at: &Location<'_>, value: &Json, least: i64, most: i64) {
        let Json::Number(number) = value else { return self.wrong_type(at, "integer") };
        let Some(whole) = number.as_i64() else { return self.wrong_type(at, "integer") };
        if whole < least {
            self.bind_address(at, "minimum", ">=", least);
        } else if whole > most {
            self.bind_address(at, "maximum", "<=", most);
        }
    }

    fn bind_address(&mut self, at: &Location<'_>, keyword: &str, comparison: &str, limit: i64) {
        let params = object([
            ("comparison", comparison.into()),
            ("limit", Json::Number(limit.into())),
            ("exclusive", false.into()),
        ]);
        self.add(keyword, at, params, &format!("should be {comparison} {limit}"));
    }

    fn wrong_type(&mut self, at: &Location<'_>, wanted: &str) {
        self.add("type", at, object([("type", wanted.into())]), &format!("should be {wanted}"));
    }

    fn add(&mut self, keyword: &str, at: &Location<'_>, params: Json, message: &str) {
        self.0.push(object([
            ("keyword", keyword.into()),
            ("dataPath", at.data().into()),
            ("schemaPath", format!("{}/{keyword}", at.schema()).into()),
            ("params", params),
            ("message", message.into()),
        ]));
    }
}
