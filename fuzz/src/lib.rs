//! Laws that hold for whatever bytes arrive, one function per target.
//!
//! A target panics when a law is broken. `cargo xtask fuzz` looks for bytes that do it, and an ordinary test replays
//! `corpus/TARGET`, where inputs that once did are kept together with good ones to start from.

mod config;
mod datagrams;
mod gke;
mod http;
mod json_socket;
mod kubeconfig;
mod predicates;
mod protobuf;
mod rest;
mod websocket;

use serde_json::Value;

/// Tries one input.
pub type Run = fn(&[u8]);

/// Every target, by the name of its corpus.
pub const TARGETS: &[(&str, Run)] = &[
    ("config", config::run),
    ("datagrams", datagrams::run),
    ("gke", gke::run),
    ("http", http::run),
    ("json_socket", json_socket::run),
    ("kubeconfig", kubeconfig::run),
    ("predicates", predicates::run),
    ("protobuf", protobuf::run),
    ("rest", rest::run),
    ("websocket", websocket::run),
];

/// The target of a name.
pub fn find(name: &str) -> Option<Run> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, run)| *run)
}

/// Whether a value has a number that is no integer: doubles are read to within their last bit, so they may change when
/// they are written and read again.
fn has_double(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64(),
        Value::Array(items) => items.iter().any(has_double),
        Value::Object(fields) => fields.values().any(has_double),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

/// Ways to cut a stream that must all read the same: whole, byte by byte, and in steps that its length chooses.
fn steps(bytes: &[u8]) -> [usize; 3] {
    [bytes.len().max(1), 1, 2 + bytes.len() % 13]
}

/// Asserts that a stream reads the same however it is cut, and gives what was read.
fn whichever_way<T: PartialEq + std::fmt::Debug>(bytes: &[u8], read: impl Fn(std::slice::Chunks<'_, u8>) -> T) -> T {
    let [first, others @ ..] = steps(bytes);
    let whole = read(bytes.chunks(first));
    for step in others {
        assert_eq!(whole, read(bytes.chunks(step)), "read whole and in steps of {step}");
    }
    whole
}
