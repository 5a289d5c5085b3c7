//! Runs a story on one server and records its responses.

use std::{collections::BTreeMap, time::Duration};

use http::{Request, header};
use http_body_util::BodyExt as _;
use kube::client::Body;
use portolan_apiserver::protobuf;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use super::{
    normal::{Normal, at},
    server::Server,
    story::{self, Step, Story},
};

/// How long a step may take before its response counts as missing.
const LIMIT: Duration = Duration::from_mins(3);
/// How long after the last expected event of a watch an unexpected one is waited for.
const QUIET: Duration = Duration::from_millis(150);
/// What Go's clients prefer for built-in kinds.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// How often `until` asks.
const TICK: Duration = Duration::from_millis(100);

/// Runs stories on one server.
pub(crate) struct StoryRunner {
    /// Distinguishes the two sides where they are one server.
    side: &'static str,
    server: Server,
    /// Distinguishes this run from earlier ones on the same server.
    run: String,
}

/// How a story speaks of built-in kinds, where its steps do not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Protobuf,
}

/// The state of a running story.
struct StoryRun<'a> {
    server: &'a Server,
    encoding: Encoding,
    names: BTreeMap<String, String>,
    watches: BTreeMap<String, Watch>,
    normal: Normal,
}

/// An open watch, and the bytes after its last complete event.
struct Watch {
    body: Body,
    rest: Vec<u8>,
    ended: bool,
    encoding: Encoding,
}

impl StoryRunner {
    /// Installs the kinds that stories share.
    pub(crate) async fn new(side: &'static str, server: Server) -> Self {
        let run = std::iter::repeat_with(|| fastrand::char('a'..='z')).take(5).collect();
        let runner = Self { side, server, run };
        for kind in story::shared_kinds() {
            runner.install(&kind).await;
        }
        runner
    }

    /// The answers of one story, step by step, with common names for what must differ.
    pub(crate) async fn run(&self, story: &Story, number: usize, encoding: Encoding) -> Vec<Value> {
        let pass = if encoding == Encoding::Protobuf { "p" } else { "" };
        let id = format!("{}{}{number:03}{pass}", self.side, self.run);
        let namespace = format!("story-{id}");
        let made = self.send("POST", "/api/v1/namespaces", json!({ "metadata": { "name": namespace } })).await;
        assert_eq!(made, 201, "the namespace {namespace} was not made");
        let mut run = StoryRun {
            server: &self.server,
            encoding,
            normal: Normal::new(&namespace, &id),
            names: [("{ns}".to_owned(), namespace), ("{id}".to_owned(), id)].into(),
            watches: BTreeMap::new(),
        };
        let mut answers = Vec::new();
        for step in &story.steps {
            let answer = timeout(LIMIT, run.step(step)).await;
            answers.push(answer.unwrap_or_else(|_| json!({ "error": "no answer in time" })));
        }
        answers
    }

    /// Makes a custom kind and waits until it is served.
    async fn install(&self, kind: &Value) {
        let made = self.send("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", kind.clone()).await;
        assert!(made == 201 || made == 409, "{} was not made: {made}", kind["metadata"]["name"]);
        let (group, plural) =
            (kind["spec"]["group"].as_str().unwrap(), kind["spec"]["names"]["plural"].as_str().unwrap());
        for version in kind["spec"]["versions"].as_array().unwrap().iter().filter(|version| version["served"] == true) {
            let path = format!("/apis/{group}/{}/{plural}", version["name"].as_str().unwrap());
            let deadline = Instant::now() + LIMIT;
            while self.send("GET", &path, Value::Null).await != 200 {
                assert!(Instant::now() < deadline, "{path} is not served");
                tokio::time::sleep(TICK).await;
            }
        }
    }

    async fn send(&self, method: &str, path: &str, body: Value) -> u16 {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
        let answer = self.server.client.send(request.body(Body::from(body)).unwrap()).await.unwrap();
        answer.status().as_u16()
    }
}

impl StoryRun<'_> {
    async fn step(&mut self, step: &Step) -> Value {
        let mut answer = match &step.events {
            Some(watch) => self.events(watch, step).await,
            None => self.ask(step).await,
        };
        for (name, path) in &step.save {
            let value = at(&answer["body"], path).and_then(Value::as_str).unwrap_or("missing").to_owned();
            self.names.insert(format!("${{{name}}}"), value);
        }
        for (path, by) in &step.pick {
            let list = if path.is_empty() { Some(&mut answer["body"]) } else { at_mut(&mut answer["body"], path) };
            if let Some(Value::Array(list)) = list {
                list.retain(|item| {
                    by.iter().all(|(field, among)| at(item, field).is_some_and(|it| among.contains(it)))
                });
            }
        }
        for path in &step.volatile {
            let (parent, last) = path.rsplit_once('.').unwrap_or(("", path));
            let parent =
                if parent.is_empty() { Some(&mut answer["body"]) } else { at_mut(&mut answer["body"], parent) };
            if let Some(Value::Object(parent)) = parent {
                parent.remove(last);
            }
        }
        self.normal.apply(&mut answer);
        answer
    }

    /// Sends the request, again and again if the step waits for something.
    async fn ask(&mut self, step: &Step) -> Value {
        let deadline = Instant::now() + LIMIT / 2;
        loop {
            let mut answer = self.once(step).await.unwrap_or_else(|error| json!({ "error": format!("{error:#}") }));
            let holds = |(path, value): (&String, &Value)| match path.as_str() {
                "code" => answer["code"] == *value,
                path => at(&answer["body"], path).unwrap_or(&Value::Null) == value,
            };
            if step.until.iter().all(holds) {
                return answer;
            }
            if Instant::now() > deadline {
                answer["error"] = "what the step waits for did not happen".into();
                return answer;
            }
            tokio::time::sleep(TICK).await;
        }
    }

    async fn once(&mut self, step: &Step) -> anyhow::Result<Value> {
        let request = self.request(step)?;
        let client = if step.anonymous { &self.server.anonymous } else { &self.server.client };
        let response = client.send(request).await?;
        let code = response.status().as_u16();
        let header =
            |name| response.headers().get_all(name).iter().map(|value| String::from_utf8_lossy(value.as_bytes()));
        let content_type: Vec<_> = header(header::CONTENT_TYPE).collect();
        let mut answer = json!({ "code": code, "type": content_type });
        let warnings: Vec<_> = header(header::WARNING).collect();
        if !warnings.is_empty() {
            answer["warnings"] = json!(warnings);
        }
        if let (Some(name), 200) = (&step.watch, code) {
            let encoding = encoding_of(&answer);
            let watch = Watch { body: response.into_body(), rest: Vec::new(), ended: false, encoding };
            self.watches.insert(name.clone(), watch);
            return Ok(answer);
        }
        let is_yaml = content_type.iter().any(|kind| kind.contains("yaml"));
        let bytes = response.into_body().collect().await?.to_bytes();
        answer["body"] = match encoding_of(&answer) {
            Encoding::Protobuf => decoded(&bytes),
            Encoding::Json => parsed(&bytes, is_yaml),
        };
        Ok(answer)
    }

    fn request(&self, step: &Step) -> anyhow::Result<Request<Body>> {
        let mut request = Request::builder().method(step.method()).uri(escaped(&self.filled(step.target())));
        let accept = step.accept.as_deref().unwrap_or("application/json");
        // Go's clients, too, name JSON as well, for what has no messages. They read what is served in JSON.
        let segments = step.path().split('/').filter(|segment| !segment.is_empty()).count();
        let is_of_objects = segments > if step.path().starts_with("/api/") { 2 } else { 3 };
        let is_binary = self.encoding == Encoding::Protobuf && is_of_objects && !accept.contains("Table");
        let binary = is_binary.then(|| format!("{},{accept}", accept.replace("application/json", PROTOBUF)));
        request = request.header(header::ACCEPT, binary.as_deref().unwrap_or(accept));
        request = request.header(header::USER_AGENT, step.agent.as_deref().unwrap_or("stories/1.0"));
        for (name, value) in &step.headers {
            request = request.header(name, self.filled(value));
        }
        let body = match (&step.body, &step.raw) {
            (Some(body), _) => Some(self.filled_value(body).to_string().into_bytes()),
            (None, Some(raw)) => Some(self.filled(raw).into_bytes()),
            (None, None) => None,
        };
        let binary = step.body.as_ref().filter(|_| self.encoding == Encoding::Protobuf && step.content_type.is_none());
        let binary = binary.and_then(|body| protobuf::encode(&self.filled_value(body)));
        let unnamed = if binary.is_some() { PROTOBUF } else { "application/json" };
        let body = binary.or(body);
        match step.content_type.as_deref().or(body.is_some().then_some(unnamed)) {
            Some("none") | None => {}
            Some(kind) => request = request.header(header::CONTENT_TYPE, kind),
        }
        Ok(request.body(Body::from(body.unwrap_or_default()))?)
    }

    async fn events(&mut self, name: &str, step: &Step) -> Value {
        let Some(watch) = self.watches.get_mut(name) else { return json!({ "error": "the watch is not open" }) };
        let mut answer = json!({});
        let mut events = Vec::new();
        let deadline = Instant::now() + LIMIT / 3;
        while step.end || events.len() < step.count {
            match tokio::time::timeout_at(deadline, watch.next()).await {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(_) => {
                    answer["error"] = "nothing more came in time".into();
                    break;
                }
            }
        }
        while let Ok(Some(event)) = timeout(QUIET, watch.next()).await {
            events.push(event);
        }
        answer["body"] = events.into();
        answer["ended"] = (watch.ended && step.end).into();
        answer
    }

    /// Puts in the names of this run.
    fn filled(&self, text: &str) -> String {
        let named = self.names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value));
        repeated(&named)
    }

    fn filled_value(&self, value: &Value) -> Value {
        if let Some(text) = value.as_str() {
            return self.filled(text).into();
        }
        if let Some(list) = value.as_array() {
            return list.iter().map(|item| self.filled_value(item)).collect();
        }
        let Some(map) = value.as_object() else { return value.clone() };
        map.iter().map(|(key, value)| (self.filled(key), self.filled_value(value))).collect()
    }
}

impl Watch {
    /// The next event, or none when the server has ended the watch.
    async fn next(&mut self) -> Option<Value> {
        loop {
            let end = match (self.encoding, self.rest.split_first_chunk()) {
                (Encoding::Json, _) => self.rest.iter().position(|byte| *byte == b'\n').map(|end| end + 1),
                (Encoding::Protobuf, length) => length.map(|(length, _)| 4 + u32::from_be_bytes(*length) as usize),
            };
            if let Some(end) = end.filter(|end| *end <= self.rest.len()) {
                let line: Vec<u8> = self.rest.drain(..end).collect();
                let event = if self.encoding == Encoding::Json { parsed(&line, false) } else { event(&line[4..]) };
                if is_plain_bookmark(&event) {
                    continue;
                }
                return Some(event);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => self.rest.extend(frame.data_ref().into_iter().flatten()),
                Some(Err(error)) => return Some(format!("the watch broke: {error}").into()),
                None => {
                    self.ended = true;
                    return None;
                }
            }
        }
    }
}

/// Whether this is a bookmark that a server sends when it likes; the one at the end of initial events has its place.
fn is_plain_bookmark(event: &Value) -> bool {
    let annotations = &event["object"]["metadata"]["annotations"];
    event["type"] == "BOOKMARK" && annotations.get("k8s.io/initial-events-end").is_none()
}

/// The body as a value; a text when it is neither JSON nor YAML.
fn parsed(bytes: &[u8], is_yaml: bool) -> Value {
    let text = String::from_utf8_lossy(bytes);
    let read = if is_yaml { serde_saphyr::from_str(&text).ok() } else { serde_json::from_str(&text).ok() };
    read.unwrap_or_else(|| text.into_owned().into())
}

/// What a body is encoded in, by the answer's content type.
fn encoding_of(answer: &Value) -> Encoding {
    let is_binary = answer["type"][0].as_str().is_some_and(|kind| kind.starts_with(PROTOBUF));
    if is_binary { Encoding::Protobuf } else { Encoding::Json }
}

/// An object in protobuf, without its empty values: Go writes them where it cannot tell them from none.
fn decoded(bytes: &[u8]) -> Value {
    let mut object = protobuf::decode(bytes, ("", "")).unwrap_or_else(|fault| fault.to_string().into());
    drop_empty(&mut object);
    object
}

/// An event of a watch in protobuf: its type, and the object within two messages.
fn event(frame: &[u8]) -> Value {
    let fields = |bytes: &[u8]| -> BTreeMap<u8, Vec<u8>> {
        let (mut fields, mut rest) = (BTreeMap::new(), bytes);
        while let Some((tag, after)) = rest.split_first() {
            let (mut length, mut shift, mut after) = (0_usize, 0, after);
            while let Some((byte, more)) = after.split_first() {
                length |= usize::from(byte & 0x7f) << shift;
                (shift, after) = (shift + 7, more);
                if byte < &0x80 {
                    break;
                }
            }
            let (value, more) = after.split_at(length);
            fields.insert(tag >> 3, value.to_vec());
            rest = more;
        }
        fields
    };
    let event = fields(frame);
    let object = fields(&event[&2]);
    json!({ "type": String::from_utf8_lossy(&event[&1]), "object": decoded(&object[&1]) })
}

fn drop_empty(value: &mut Value) {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Bool(yes) => !yes,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    };
    match value {
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        Value::Object(fields) => {
            fields.values_mut().for_each(drop_empty);
            fields.retain(|_, value| !is_empty(value));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Writes out every `@(text*count)`.
fn repeated(text: &str) -> String {
    let Some((before, rest)) = text.split_once("@(") else { return text.to_owned() };
    let (inner, after) = rest.split_once(')').expect("a repetition is closed");
    let (what, count) = inner.rsplit_once('*').expect("a repetition has a count");
    before.to_owned() + &what.repeat(count.parse().expect("a count is a number")) + &repeated(after)
}

/// Escapes what a URI cannot hold, and leaves alone what is escaped already.
fn escaped(target: &str) -> String {
    let escape = |byte: u8| match byte {
        b' ' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 0..=31 | 127.. => format!("%{byte:02X}"),
        byte => char::from(byte).to_string(),
    };
    target.bytes().map(escape).collect()
}

fn at_mut<'a>(value: &'a mut Value, path: &str) -> Option<&'a mut Value> {
    path.split('.').try_fold(value, |value, key| match key.parse::<usize>() {
        Ok(index) if value.is_array() => value.get_mut(index),
        _ => value.get_mut(key),
    })
}
