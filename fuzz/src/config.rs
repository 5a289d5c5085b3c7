//! Configuration files, as YAML and as JSON.

use std::sync::Arc;

use portolan_proxy::config::document::{Language, parse};
use portolan_proxy::config::engine::NullEngine;
use portolan_proxy::config::json::Json;
use portolan_proxy::rest::{Access, Api, Settings};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for language in [Language::Yaml, Language::Json] {
        match parse(text, language) {
            Ok(config) => file(&config),
            Err(why) => assert!(!why.is_empty() && !why.contains('\n'), "{why:?} is one line of words"),
        }
    }
}

fn file(config: &Json) {
    let written = serde_json::to_string(config).expect("JSON can be written");
    let read = parse(&written, Language::Json);
    assert!(read.as_ref() == Ok(config) || crate::has_double(&config.to_value()), "{written} reads as {read:?}");
    let api = Api::new(Arc::new(NullEngine), Access::default(), Settings::default());
    let checked = api.check(config);
    let loaded = api.load(config);
    assert_eq!(checked, loaded, "--check says what the start would say");
    let Err(refusal) = loaded else { return again(&api, config) };
    assert!(!refusal.to_string().is_empty() || !refusal.violations.is_empty(), "a refusal has words");
}

/// A file that did not change changes nothing.
fn again(api: &Api, config: &Json) {
    let before = crate::rest::get(api, "/api/v2/config");
    api.load(config).expect("it was taken before");
    assert_eq!(crate::rest::get(api, "/api/v2/config"), before, "the same file again changes nothing");
}
