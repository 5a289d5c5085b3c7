//! Paths into a session's metadata: `/`-separated keys without escapes.
//!
//! Any text is a path; what it cannot reach is simply not there. Rewrites, queries, hash keys and headers read
//! with [`Path::new`], predicates with [`Path::predicate`], which takes its first segment differently.

use std::fmt;

use serde_json::{Map, Value};

use super::value::is_falsy;

/// Arrays grow to this length by a write, at most: metadata is small, an index in a rule may not be, and a rule may
/// write very often.
const LONGEST_ARRAY: usize = 64;

/// Objects are made to this depth by a write, at most: deeper ones could not be taken down again without running
/// out of stack.
const DEEPEST: usize = 64;

/// A path, taken apart once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    text: Box<str>,
    /// The keys up to the first empty segment.
    keys: Box<[Key]>,
    /// Whether the path without keys means everything, or nothing.
    whole: bool,
    /// Whether an empty segment stands between others, so that nothing can be written.
    broken: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    text: Box<str>,
    /// The same as an array index, if it is all digits.
    index: Option<usize>,
}

impl Path {
    /// The path of a rewrite, query, hash key or header: `/a/b` = `a/b` = `/a/b/`, `/` is everything, the empty
    /// text nothing.
    pub fn new(text: &str) -> Self {
        let inner = text.strip_prefix('/').unwrap_or(text);
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        let broken = !inner.is_empty() && inner.split('/').any(str::is_empty);
        Self { text: text.into(), keys: keys(inner), whole: !text.is_empty(), broken }
    }

    /// The path of a predicate: what stands before the first `/` is dropped, and `/` finds nothing.
    pub fn predicate(text: &str) -> Self {
        let inner = text.split_once('/').map_or("", |(_, rest)| rest);
        Self { text: text.into(), keys: keys(inner), whole: false, broken: true }
    }

    /// The path as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What is at the path: a 0, false, empty string or null on the way ends the walk and is the result.
    pub fn read<'a>(&self, root: &'a Value) -> Option<&'a Value> {
        if self.keys.is_empty() {
            return self.whole.then_some(root);
        }
        if !self.whole && is_falsy(root) {
            return None;
        }
        let mut at = root;
        for key in &self.keys {
            if is_falsy(at) {
                return Some(at);
            }
            at = key.read(at)?;
        }
        Some(at)
    }

    /// Puts a value at the path and makes the objects on the way; says whether there was a place for it.
    ///
    /// The root and the empty path replace everything. A number, string, flag or null on the way becomes an
    /// object. There is no place behind an empty segment, under a word in an array, far behind its end, or very deep.
    pub fn write(&self, root: &mut Value, value: Value) -> bool {
        if self.broken || self.keys.len() > DEEPEST {
            return false;
        }
        let mut at = root;
        for key in &self.keys {
            let Some(place) = key.place(at) else { return false };
            at = place;
        }
        *at = value;
        true
    }
}

impl Key {
    fn read<'a>(&self, at: &'a Value) -> Option<&'a Value> {
        match at {
            Value::Object(map) => map.get(&*self.text),
            Value::Array(items) => items.get(self.index?),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
        }
    }

    fn place<'a>(&self, at: &'a mut Value) -> Option<&'a mut Value> {
        if let Value::Array(items) = at {
            let index = self.index?;
            if index >= items.len() {
                let longer = (index < LONGEST_ARRAY).then_some(index + 1)?;
                items.resize(longer, Value::Null);
            }
            return items.get_mut(index);
        }
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        Some(at.as_object_mut()?.entry(&*self.text).or_insert(Value::Null))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn keys(text: &str) -> Box<[Key]> {
    text.split('/').take_while(|segment| !segment.is_empty()).map(key).collect()
}

fn key(text: &str) -> Key {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    Key { text: text.into(), index: digits.then(|| text.parse().ok()).flatten() }
}
