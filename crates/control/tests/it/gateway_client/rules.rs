//! What a gateway stores, and the rules of its REST API.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use http::{HeaderMap, Method, StatusCode};
use serde_json::{Value, json};

pub(super) const PREFIX: &str = "/api/egw";
pub(super) const ACCOUNT: &str = "acme";
pub(super) const GROUP: &str = "default";
pub(super) const PASSWORD: &str = "s3cret";

/// An answer: its status, a header, its body.
pub(super) struct Reply {
    pub(super) status: StatusCode,
    pub(super) header: Option<(&'static str, String)>,
    pub(super) body: Value,
}

/// What it stores, and how it is set up.
#[derive(Default)]
pub(super) struct Store {
    pub(super) services: BTreeMap<String, Stored>,
    /// Addresses that it has; none of them are free any more when they are all given.
    pub(super) addresses: BTreeSet<u8>,
    pub(super) allows_pinned: bool,
    /// Items on a page, whatever is asked for.
    pub(super) page: usize,
    pub(super) quota: usize,
    pub(super) version: u64,
    pub(super) made: u32,
}

/// A load balancer.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) uid: String,
    version: u64,
    key: String,
    pub(super) ports: Vec<Value>,
    pub(super) address: String,
    /// Being deleted.
    pub(super) is_leaving: bool,
    /// Specs by address, number and protocol.
    pub(super) endpoints: BTreeMap<(String, u64, String), Value>,
}

impl Reply {
    fn ok(body: Value) -> Self {
        Self { status: StatusCode::OK, header: None, body }
    }

    pub(super) fn error(status: StatusCode, reason: &str, text: &str) -> Self {
        Self { status, header: None, body: json!({ "error": text, "reason": reason, "details": {} }) }
    }

    pub(super) fn with(self, name: &'static str, value: impl Into<String>) -> Self {
        Self { header: Some((name, value.into())), ..self }
    }
}

impl Store {
    /// Answers a request as the API says.
    pub(super) fn answer(
        &mut self,
        method: &Method,
        path: &str,
        query: &str,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Reply {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let login = base64::engine::general_purpose::STANDARD.encode(format!("tenant:{PASSWORD}"));
        if text("authorization") != format!("Basic {login}") {
            return Reply::error(StatusCode::UNAUTHORIZED, "Unauthorized", "who are you");
        }
        if body.len() > 256 << 10 {
            return Reply::error(StatusCode::PAYLOAD_TOO_LARGE, "TooLarge", "the body has more than 256 KiB");
        }
        let not_found = || Reply::error(StatusCode::NOT_FOUND, "NotFound", "no such object");
        let Some(path) = path.strip_prefix(PREFIX) else { return not_found() };
        let parts: Vec<&str> = path.split('/').skip(1).collect();
        if parts.get(1) != Some(&ACCOUNT) {
            return Reply::error(StatusCode::FORBIDDEN, "Forbidden", "another account's");
        }
        let sent: Option<Value> = serde_json::from_slice(body).ok();
        if matches!(*method, Method::POST | Method::PUT) && sent.is_none() {
            return Reply::error(StatusCode::BAD_REQUEST, "BadRequest", "no JSON");
        }
        let sent = sent.unwrap_or_default();
        match (method.as_str(), &parts[2..]) {
            ("POST", ["groups", GROUP, "services"]) => self.create(&sent, text("idempotency-key")),
            ("GET", ["services"]) => {
                let items: Vec<Value> = self.services.iter().map(|(name, stored)| view(name, stored)).collect();
                paged(&format!("{PREFIX}{path}"), "services", items, self.page, query)
            }
            (verb, ["services", name, rest @ ..]) => {
                if verb == "DELETE" && rest.is_empty() {
                    self.services.remove(*name);
                    return Reply::ok(json!({ "message": "delete successful" }));
                }
                let (page, version) = (self.page, self.version + 1);
                let Some(stored) = self.services.get_mut(*name) else { return not_found() };
                match (verb, rest) {
                    ("GET", []) => {
                        let tag = format!("\"{}\"", stored.version);
                        Reply::ok(json!({ "link": {}, "service": view(name, stored) })).with("etag", tag)
                    }
                    ("PUT", []) => {
                        let changed = stored.update(&sent["service"]["spec"], text("if-match"), version);
                        self.version = version;
                        changed.unwrap_or_else(|| Reply::ok(json!({ "service": view(name, &self.services[*name]) })))
                    }
                    ("GET", ["endpoints"]) => {
                        let items = stored.endpoints.values().map(|spec| json!({ "metadata": {}, "spec": spec }));
                        paged(&format!("{PREFIX}{path}"), "endpoints", items.collect(), page, query)
                    }
                    ("PUT", ["nodes", node, "endpoints"]) => stored.replace(node, &sent["endpoints"]),
                    _ => not_found(),
                }
            }
            _ => not_found(),
        }
    }

    fn create(&mut self, sent: &Value, key: &str) -> Reply {
        let invalid = |text: &str| Reply::error(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text);
        let (service, spec) = (&sent["service"], &sent["service"]["spec"]);
        let name = service["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
        if name.is_empty() || name.len() > 63 || !name.chars().all(is_letter) || name.ends_with('-') {
            return invalid("metadata.name is no DNS label");
        }
        let location = format!("{PREFIX}/accounts/{ACCOUNT}/services/{name}");
        if let Some(stored) = self.services.get(&name) {
            if stored.key == key && !key.is_empty() && !stored.is_leaving {
                return Reply { status: StatusCode::FOUND, header: None, body: Value::Null }.with("location", location);
            }
            let conflict = Reply::error(StatusCode::CONFLICT, "AlreadyExists", "there is one of that name");
            return conflict.with("location", location);
        }
        let ports = match ports(spec) {
            Ok(ports) => ports,
            Err(text) => return invalid(text),
        };
        if self.services.len() >= self.quota {
            return Reply::error(StatusCode::FORBIDDEN, "QuotaExceeded", "the account has enough load balancers");
        }
        let given: BTreeSet<String> = self.services.values().map(|stored| stored.address.clone()).collect();
        let mut free = self.addresses.iter().map(|last| format!("192.0.2.{last}")).filter(|one| !given.contains(one));
        let pinned = spec["public-address"].as_str().filter(|_| self.allows_pinned).map(str::to_owned);
        let Some(address) = pinned.or_else(|| free.next()) else {
            let exhausted = Reply::error(StatusCode::SERVICE_UNAVAILABLE, "PoolExhausted", "no free address");
            return exhausted.with("retry-after", "1");
        };
        drop(free);
        (self.made, self.version) = (self.made + 1, self.version + 1);
        let (uid, version, key) = (format!("uid-{}", self.made), self.version, key.to_owned());
        let endpoints = BTreeMap::new();
        let stored = Stored { uid, version, key, ports, address, is_leaving: false, endpoints };
        self.services.insert(name, stored);
        Reply { status: StatusCode::FOUND, header: None, body: Value::Null }.with("location", location)
    }
}

impl Stored {
    /// What is wrong, if anything is.
    fn update(&mut self, spec: &Value, tag: &str, version: u64) -> Option<Reply> {
        if tag != format!("\"{}\"", self.version) {
            return Some(Reply::error(StatusCode::PRECONDITION_FAILED, "PreconditionFailed", "it has changed"));
        }
        let invalid = |text: &str| Some(Reply::error(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text));
        if spec["public-address"].as_str().is_some_and(|address| address != self.address) {
            return invalid("public-address cannot be changed");
        }
        match ports(spec) {
            Ok(ports) => (self.ports, self.version) = (ports, version),
            Err(text) => return invalid(text),
        }
        None
    }

    /// Exactly these endpoints for a node.
    fn replace(&mut self, node: &str, sent: &Value) -> Reply {
        let invalid = |text: String| Reply::error(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", &text);
        let Some(sent) = sent.as_array() else { return invalid("endpoints is no list".to_owned()) };
        if sent.len() > 5_000 {
            return invalid("more than 5,000 endpoints".to_owned());
        }
        let mut endpoints = self.endpoints.clone();
        endpoints.retain(|_, spec| spec["node-address"] != node);
        for spec in sent.iter().map(|endpoint| &endpoint["spec"]) {
            if spec["node-address"] != node
                || spec["address"].as_str().is_none_or(|one| one.parse::<std::net::IpAddr>().is_err())
            {
                return invalid(format!("an address is wrong: {spec}"));
            }
            if self.fed_by(&spec["port"]) != 1 {
                return Reply::error(StatusCode::UNPROCESSABLE_ENTITY, "NoMatchingPort", &spec.to_string());
            }
            let text = |value: &Value| value.as_str().unwrap_or_default().to_uppercase();
            let number = spec["port"]["port"].as_u64().unwrap_or_default();
            let identity = (text(&spec["address"]), number, text(&spec["port"]["protocol"]));
            if endpoints.insert(identity, spec.clone()).is_some() {
                return Reply::error(StatusCode::CONFLICT, "DuplicateEndpoint", &format!("duplicate endpoint: {spec}"));
            }
        }
        self.endpoints = endpoints;
        Reply::ok(json!({ "count": sent.len() }))
    }

    /// How many ports the first rule that selects any selects.
    fn fed_by(&self, port: &Value) -> usize {
        let of_protocol: Vec<&Value> = self.ports.iter().filter(|one| one["protocol"] == port["protocol"]).collect();
        let named = of_protocol.iter().filter(|one| one["name"].is_string() && one["name"] == port["name"]).count();
        let target =
            |one: &Value| if one["targetPort"].is_null() { one["port"].clone() } else { one["targetPort"].clone() };
        let numbered = of_protocol.iter().filter(|one| target(one) == port["port"]).count();
        [named, numbered, of_protocol.len()].into_iter().find(|count| *count == 1).unwrap_or_default()
    }
}

fn ports(spec: &Value) -> Result<Vec<Value>, &'static str> {
    let ports = spec["public-ports"].as_array().cloned().unwrap_or_default();
    if ports.is_empty() || ports.len() > 100 {
        return Err("public-ports has 1 to 100 ports");
    }
    let unique: BTreeSet<String> = ports.iter().map(|port| format!("{}/{}", port["port"], port["protocol"])).collect();
    let is_served = |port: &Value| matches!(port["protocol"].as_str(), Some("TCP" | "UDP"));
    if unique.len() != ports.len() || !ports.iter().all(is_served) {
        return Err("public-ports are TCP or UDP, each once");
    }
    Ok(ports)
}

fn view(name: &str, stored: &Stored) -> Value {
    let mut view = json!({
        "metadata": { "name": name, "uid": stored.uid, "resourceVersion": stored.version.to_string() },
        "spec": { "service-group": GROUP, "public-address": stored.address, "public-ports": stored.ports },
        "status": {},
    });
    if stored.is_leaving {
        view["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    view
}

fn paged(path: &str, key: &str, items: Vec<Value>, page: usize, query: &str) -> Reply {
    let asked = |name: &str| query.split('&').find_map(|one| one.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
    let from: usize = asked("continue").unwrap_or_default();
    let limit = page.min(asked("limit").unwrap_or(100));
    let rest = items.len().saturating_sub(from + limit);
    let items: Vec<Value> = items.into_iter().skip(from).take(limit).collect();
    let mut body = json!({ "link": { "self": path }, key: items });
    if rest > 0 {
        body["link"]["next"] = format!("{path}?limit={limit}&continue={}", from + limit).into();
    }
    Reply::ok(body)
}
