//! The tables under `cases/`: stories of requests with the answers they must get, told in lax and in strict mode.
//!
//! A story is told to a fresh proxy. A step has a `call`, what it sends, the status it must get (`is`, or `lax` and
//! `strict`), and what the answer must hold: `content` of an error, `has` a fragment, `exact` the very bytes. With
//! `each`, a story is told once for every row, words that begin with `$` replaced by the row's values.

use portolan_proxy::config::document::{Language, parse};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::client::{Call, Connection, Proxy};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Story {
    about: String,
    #[serde(default)]
    config: Value,
    /// `lax` or `strict`; both if absent.
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    each: Vec<Map<String, Value>>,
    steps: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    call: String,
    #[serde(default)]
    send: Option<Value>,
    #[serde(default)]
    raw: Option<String>,
    #[serde(default, rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    headers: Map<String, Value>,
    #[serde(default)]
    is: Option<u16>,
    #[serde(default)]
    lax: Option<u16>,
    #[serde(default)]
    strict: Option<u16>,
    #[serde(default)]
    content: Option<Value>,
    #[serde(default)]
    has: Option<Value>,
    #[serde(default)]
    exact: Option<String>,
    /// Names of the objects in a list, in order.
    #[serde(default)]
    names: Option<Vec<String>>,
}

macro_rules! tables {
    ($($name:ident: $file:literal,)*) => {
        $(#[test]
        fn $name() {
            tell($file, include_str!(concat!("../cases/", $file)));
        })*
    };
}

tables! {
    listeners_answer_as_the_table_says: "rest-listeners.yaml",
    clusters_answer_as_the_table_says: "rest-clusters.yaml",
    endpoints_answer_as_the_table_says: "rest-endpoints.yaml",
    rules_answer_as_the_table_says: "rest-rules.yaml",
    rulelists_answer_as_the_table_says: "rest-rulelists.yaml",
    routes_answer_as_the_table_says: "rest-routes.yaml",
    whole_configurations_answer_as_the_table_says: "rest-config.yaml",
    strict_mode_answers_as_the_table_says: "rest-strict.yaml",
    version_2_answers_as_the_table_says: "rest-v2.yaml",
}

fn tell(file: &str, text: &str) {
    let stories = parse(text, Language::Yaml).unwrap_or_else(|error| panic!("{file}: {error}")).to_value();
    let stories: Vec<Story> = serde_json::from_value(stories).unwrap_or_else(|error| panic!("{file}: {error}"));
    let (mut told, mut wrong) = (0, Vec::new());
    for story in &stories {
        for row in rows(story) {
            for strict in [false, true].into_iter().filter(|strict| fits(story.mode.as_deref(), *strict)) {
                told += 1;
                if let Err(what) = tell_once(story, &row, strict) {
                    let mode = if strict { "strict" } else { "lax" };
                    wrong.push(format!("{file}: {} ({mode}) {}\n  {what}", story.about, Value::Object(row.clone())));
                }
            }
        }
    }
    assert!(told > 0, "{file} has no story");
    assert!(wrong.is_empty(), "{} of {told} stories went wrong\n{}", wrong.len(), wrong.join("\n"));
}

fn rows(story: &Story) -> Vec<Map<String, Value>> {
    if story.each.is_empty() { vec![Map::new()] } else { story.each.clone() }
}

fn fits(mode: Option<&str>, strict: bool) -> bool {
    match mode {
        Some("lax") => !strict,
        Some("strict") => strict,
        _ => true,
    }
}

fn tell_once(story: &Story, row: &Map<String, Value>, strict: bool) -> Result<(), String> {
    let mut config = if story.config.is_null() { Value::Object(Map::new()) } else { story.config.clone() };
    if strict {
        config["admin"]["strict"] = true.into();
    }
    let proxy = Proxy::start(&config.to_string(), false);
    let mut connection = proxy.connect();
    for (index, step) in story.steps.iter().enumerate() {
        let step: Step =
            serde_json::from_value(replaced(step, row)).map_err(|error| format!("step {index}: {error}"))?;
        take(&mut connection, &step, strict).map_err(|what| format!("step {index}, {}: {what}", step.call))?;
    }
    Ok(())
}

/// Puts the row's values where its words stand: a whole string becomes the value, a part of one its text.
fn replaced(value: &Value, row: &Map<String, Value>) -> Value {
    match value {
        Value::String(text) => {
            if let Some(whole) = text.strip_prefix('$').and_then(|key| row.get(key)) {
                return whole.clone();
            }
            let text = row.iter().fold(text.clone(), |text, (key, value)| {
                let plain = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                text.replace(&format!("${key}"), &plain)
            });
            Value::String(text)
        }
        Value::Array(items) => Value::Array(items.iter().map(|item| replaced(item, row)).collect()),
        Value::Object(map) => Value::Object(map.iter().map(|(key, item)| (key.clone(), replaced(item, row))).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn take(connection: &mut Connection, step: &Step, strict: bool) -> Result<(), String> {
    let body = match (&step.raw, &step.send) {
        (Some(raw), _) => Some(raw.clone()),
        (None, Some(send)) => Some(send.to_string()),
        (None, None) => None,
    };
    let kind = step.kind.clone().or_else(|| body.as_ref().map(|_| "application/json".to_owned()));
    let mut headers: Vec<(&str, String)> = kind.into_iter().map(|kind| ("Content-Type", kind)).collect();
    headers.extend(step.headers.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap_or("").to_owned())));
    let (verb, path) = step.call.split_once(' ').ok_or("a call is a method and a path")?;
    let path =
        if path.starts_with("/api/") || path.starts_with("/-") { path.to_owned() } else { format!("/api/v1{path}") };
    let line = format!("{verb} {}", path.strip_prefix("/-").unwrap_or(&path));
    let answer = connection.send(&Call { line: &line, headers, body: body.unwrap_or_default().into_bytes() });

    let wanted = if strict { step.strict } else { step.lax }.or(step.is).unwrap_or(200);
    if answer.status != wanted {
        return Err(format!("status {} instead of {wanted}: {}", answer.status, answer.body));
    }
    if let Some(exact) = &step.exact
        && answer.body != *exact
    {
        return Err(format!("\n  wanted {exact}\n     got {}", answer.body));
    }
    if let Some(content) = step.content.as_ref().filter(|_| answer.status != 422 && answer.status != 200) {
        contains(&answer.content(), content, "content")?;
    }
    if let Some(fragment) = &step.has {
        contains(&answer.json(), fragment, "")?;
    }
    if let Some(names) = &step.names {
        let json = answer.json();
        let got: Vec<&str> = json.as_array().ok_or("not a list")?.iter().filter_map(|it| it["name"].as_str()).collect();
        if got != *names {
            return Err(format!("names {got:?} instead of {names:?}"));
        }
    }
    Ok(())
}

/// Objects hold at least the keys of the fragment; everything else is equal.
fn contains(whole: &Value, fragment: &Value, at: &str) -> Result<(), String> {
    match (whole, fragment) {
        (Value::Object(whole), Value::Object(fragment)) => fragment.iter().try_for_each(|(key, part)| {
            let at = format!("{at}/{key}");
            let absent = part.as_str() == Some("<ABSENT>");
            match whole.get(key) {
                None if absent => Ok(()),
                None => Err(format!("{at} is missing in {}", Value::Object(whole.clone()))),
                Some(found) if absent => Err(format!("{at} is {found}")),
                Some(found) => contains(found, part, &at),
            }
        }),
        (Value::Array(whole), Value::Array(fragment)) if whole.len() == fragment.len() => whole
            .iter()
            .zip(fragment)
            .enumerate()
            .try_for_each(|(index, (whole, part))| contains(whole, part, &format!("{at}/{index}"))),
        (whole, fragment) if whole == fragment => Ok(()),
        (whole, fragment) => Err(format!("{at}: {whole} instead of {fragment}")),
    }
}
