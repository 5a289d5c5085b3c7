//! Requests to the API, one after the other.
//!
//! An input is text, a request per paragraph: `METHOD TARGET` on the first line, the body on the others. A body that
//! begins with a bracket is sent as JSON, any other as YAML.

use std::sync::Arc;

use portolan_proxy::config::engine::NullEngine;
use portolan_proxy::config::json::Json;
use portolan_proxy::rest::exchange::{Client, Request, Response};
use portolan_proxy::rest::{Access, Api, Settings};
use serde_json::Value;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let api = start();
    for paragraph in text.split("\n\n") {
        let (head, body) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
        let (method, target) = head.split_once(' ').unwrap_or((head, ""));
        let before = generation(&api);
        let answer = ask(&api, method, target, body);
        if !target.starts_with("/api/") {
            continue;
        }
        // l7mp's word for a type that it does not read, and ours for a policy that there is not
        let known = (answer.status == 500 && answer.reason == "General Server Error") || answer.status == 501;
        assert!(answer.status < 500 || known, "{paragraph} is answered with {}", answer.status);
        assert!(answer.status < 300 || generation(&api) == before, "{paragraph} is refused and yet changed something");
        assert!(answer.body.is_empty() || is_json(&answer.body), "{paragraph} is answered with no JSON");
    }
    written_back(&api);
}

/// The configuration can be sent back as it was read, to another proxy as well, and once more without effect.
fn written_back(api: &Api) {
    let read = get(api, "/api/v2/config");
    if crate::has_double(&read) {
        return;
    }
    let sent = read.to_string();
    for proxy in [api, &start()] {
        post(proxy, &sent);
        let after = get(proxy, "/api/v2/config");
        for kind in ["listeners", "clusters", "rulelists", "rules", "routes", "endpoints"] {
            assert_eq!(objects(&after, kind), objects(&read, kind));
        }
        let before = generation(proxy);
        post(proxy, &sent);
        assert_eq!(generation(proxy), before, "what is there already changes nothing: {sent}");
    }
}

fn post(api: &Api, config: &str) {
    let answer = ask(api, "POST", "/api/v2/config?force=true", config);
    assert_eq!(answer.status, 200, "{config}: {}", String::from_utf8_lossy(&answer.body));
}

/// Objects without what depends on how they came.
fn objects(config: &Value, kind: &str) -> Vec<Value> {
    let mut all = config[kind].as_array().expect("a list").clone();
    for object in &mut all {
        let fields = object.as_object_mut().expect("an object");
        fields.retain(|key, _| !["generation", "owner"].contains(&key.as_str()));
    }
    all
}

fn start() -> Api {
    let api = Api::new(Arc::new(NullEngine), Access::default(), Settings::default());
    api.load(&Json::default()).ok();
    api
}

/// What a GET shows.
pub(crate) fn get(api: &Api, target: &str) -> Value {
    serde_json::from_slice(&ask(api, "GET", target, "").body).expect("an answer in JSON")
}

fn generation(api: &Api) -> Value {
    get(api, "/api/v1/admin")["portolan"]["generation"].clone()
}

fn ask(api: &Api, method: &str, target: &str, body: &str) -> Response {
    let kind = if body.starts_with(['{', '[']) { "application/json" } else { "application/yaml" };
    api.handle(&Request {
        method: method.to_owned(),
        target: target.to_owned(),
        headers: vec![("content-type".to_owned(), kind.to_owned())],
        body: body.as_bytes().to_vec(),
        client: Client { address: Some([127, 0, 0, 1].into()), certified: false },
    })
}

fn is_json(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body).is_ok()
}
