//! JSON that keeps the order of keys, because clients read back what they wrote.
//!
//! `serde_json` could do that as well, but for all crates of a build or for none.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

/// Maximum depth, regardless of `admin.limits`.
pub const MAX_DEPTH: usize = 96;

/// Numbers up to here are exact in a double; an integer written as `5.0` below it reads as 5.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Keys that are looked through one by one.
const FEW: usize = 16;

/// A JSON value.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Json {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    Array(Vec<Json>),
    Object(Object),
}

/// Keys and values in the order in which they came.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Object(Vec<(String, Json)>);

impl Json {
    /// A member of an object; nothing for anything else.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.as_object()?.get(key)
    }

    pub fn as_object(&self) -> Option<&Object> {
        if let Self::Object(object) = self { Some(object) } else { None }
    }

    pub fn as_array(&self) -> Option<&[Self]> {
        if let Self::Array(items) = self { Some(items) } else { None }
    }

    pub fn as_str(&self) -> Option<&str> {
        if let Self::String(text) = self { Some(text) } else { None }
    }

    pub fn as_bool(&self) -> Option<bool> {
        if let Self::Bool(yes) = self { Some(*yes) } else { None }
    }

    /// The same without the order of keys.
    pub fn to_value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(yes) => Value::Bool(*yes),
            Self::Number(number) => Value::Number(number.clone()),
            Self::String(text) => Value::String(text.clone()),
            Self::Array(items) => Value::Array(items.iter().map(Self::to_value).collect()),
            Self::Object(object) => {
                Value::Object(object.iter().map(|(key, value)| (key.to_owned(), value.to_value())).collect())
            }
        }
    }

    /// Writes it with keys in order, whatever theirs is, so that equal values have equal texts.
    pub fn write_sorted(&self, text: &mut Vec<u8>) {
        match self {
            Self::Array(items) => write_list(text, *b"[]", items, |text, item| item.write_sorted(text)),
            Self::Object(object) => {
                let mut pairs: Vec<_> = object.iter().collect();
                pairs.sort_unstable_by_key(|(key, _)| *key);
                write_list(text, *b"{}", &pairs, |text, (key, value)| {
                    write_scalar(text, key);
                    text.push(b':');
                    value.write_sorted(text);
                });
            }
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) => write_scalar(text, self),
        }
    }

    /// Reads a typed value; the error is the path of the field that does not fit.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, String> {
        serde_path_to_error::deserialize(self.to_value()).map_err(|error| error.path().to_string())
    }

    /// How deep it is nested; a scalar is 0.
    pub fn depth(&self) -> usize {
        match self {
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::String(_) => 0,
            Self::Array(items) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
            Self::Object(object) => 1 + object.iter().map(|(_, value)| value.depth()).max().unwrap_or(0),
        }
    }

    /// JSON merge patch: null removes, objects merge, anything else replaces.
    pub fn merge(&mut self, patch: &Self) {
        let Self::Object(changes) = patch else {
            self.clone_from(patch);
            return;
        };
        let before = if let Self::Object(object) = std::mem::take(self) { object.0 } else { Vec::new() };
        let mut places: BTreeMap<String, usize> =
            before.iter().enumerate().map(|(at, (key, _))| (key.clone(), at)).collect();
        let mut slots: Vec<Option<(String, Self)>> = before.into_iter().map(Some).collect();
        for (key, change) in changes.iter() {
            let at = places.get(key).copied();
            if matches!(change, Self::Null) {
                if let Some(at) = at {
                    slots[at] = None;
                }
            } else if let Some((_, value)) = at.and_then(|at| slots[at].as_mut()) {
                value.merge(change);
            } else {
                let mut value = Self::Null;
                value.merge(change);
                places.insert(key.to_owned(), slots.len());
                slots.push(Some((key.to_owned(), value)));
            }
        }
        *self = Self::Object(Object(slots.into_iter().flatten().collect()));
    }
}

impl Object {
    pub fn get(&self, key: &str) -> Option<&Json> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Json> {
        self.0.iter_mut().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Replaces a value where it stands, or adds it at the end.
    pub fn set(&mut self, key: &str, value: impl Into<Json>) {
        let value = value.into();
        match self.0.iter_mut().find(|(name, _)| name == key) {
            Some((_, place)) => *place = value,
            None => self.0.push((key.to_owned(), value)),
        }
    }

    pub fn remove(&mut self, key: &str) -> Option<Json> {
        let at = self.0.iter().position(|(name, _)| name == key)?;
        Some(self.0.remove(at).1)
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Json)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(String, Json)> for Object {
    /// Of equal keys the last one counts, in the place of the first.
    fn from_iter<I: IntoIterator<Item = (String, Json)>>(pairs: I) -> Self {
        let mut kept: Vec<(String, Json)> = Vec::new();
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        for (key, value) in pairs {
            // most objects are small, and a map of their keys would cost more than a look at each
            let at = if kept.len() <= FEW {
                kept.iter().position(|(other, _)| *other == key)
            } else {
                if places.is_empty() {
                    places = kept.iter().enumerate().map(|(at, (key, _))| (key.clone(), at)).collect();
                }
                places.get(&key).copied()
            };
            if let Some(at) = at {
                kept[at] = (key, value);
                continue;
            }
            if kept.len() > FEW {
                places.insert(key.clone(), kept.len());
            }
            kept.push((key, value));
        }
        Self(kept)
    }
}

fn write_list<T>(text: &mut Vec<u8>, [open, close]: [u8; 2], items: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
    text.push(open);
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            text.push(b',');
        }
        write(text, item);
    }
    text.push(close);
}

fn write_scalar(text: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(text, value).expect("memory takes any scalar");
}

/// Builds an object from keys and values, in their order.
pub fn object<const N: usize>(pairs: [(&str, Json); N]) -> Json {
    Json::Object(Object(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()))
}

impl From<&str> for Json {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Json {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<bool> for Json {
    fn from(yes: bool) -> Self {
        Self::Bool(yes)
    }
}

impl From<u64> for Json {
    fn from(number: u64) -> Self {
        Self::Number(number.into())
    }
}

impl From<usize> for Json {
    fn from(number: usize) -> Self {
        Self::Number(number.into())
    }
}

impl From<Vec<Json>> for Json {
    fn from(items: Vec<Json>) -> Self {
        Self::Array(items)
    }
}

impl From<Object> for Json {
    fn from(object: Object) -> Self {
        Self::Object(object)
    }
}

impl From<&Value> for Json {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(yes) => Self::Bool(*yes),
            Value::Number(number) => Self::Number(number.clone()),
            Value::String(text) => Self::String(text.clone()),
            Value::Array(items) => Self::Array(items.iter().map(Self::from).collect()),
            Value::Object(map) => {
                Self::Object(map.iter().map(|(key, value)| (key.clone(), Self::from(value))).collect())
            }
        }
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(yes) => serializer.serialize_bool(*yes),
            Self::Number(number) => number.serialize(serializer),
            Self::String(text) => serializer.serialize_str(text),
            Self::Array(items) => serializer.collect_seq(items),
            Self::Object(object) => {
                let mut map = serializer.serialize_map(Some(object.0.len()))?;
                for (key, value) in object.iter() {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Nested(0).deserialize(deserializer)
    }
}

/// Reads a value that stands so deep.
#[derive(Clone, Copy)]
struct Nested(usize);

impl<'de> DeserializeSeed<'de> for Nested {
    type Value = Json;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        if self.0 > MAX_DEPTH {
            return Err(serde::de::Error::custom(format_args!("nested deeper than {MAX_DEPTH}")));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Nested {
    type Value = Json;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_none<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Json, D::Error> {
        self.deserialize(deserializer)
    }

    fn visit_bool<E>(self, yes: bool) -> Result<Json, E> {
        Ok(Json::Bool(yes))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Json, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Json, E> {
        Ok(Json::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Json, E> {
        if number.fract() == 0.0 && number.abs() < EXACT {
            #[expect(clippy::cast_possible_truncation, reason = "whole and exact, as the line above says")]
            let whole = number as i64;
            return Ok(Json::Number(whole.into()));
        }
        Ok(Number::from_f64(number).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Json, E> {
        Ok(Json::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Json, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Self(self.0 + 1))? {
            items.push(item);
        }
        Ok(Json::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Json, A::Error> {
        let mut pair = || {
            let Some(key) = map.next_key::<String>()? else { return Ok(None) };
            Ok(Some((key, map.next_value_seed(Self(self.0 + 1))?)))
        };
        let mut wrong = None;
        let pairs = std::iter::from_fn(|| {
            pair().unwrap_or_else(|error| {
                wrong = Some(error);
                None
            })
        });
        let object = pairs.collect();
        wrong.map_or(Ok(Json::Object(object)), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Json {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn keys_come_back_in_the_order_they_were_written() {
        let text = r#"{"b":1,"a":[{"z":null,"y":1.5}],"0":"x"}"#;
        assert_eq!(serde_json::to_string(&parse(text)).unwrap(), text);
    }

    #[test]
    fn of_equal_keys_the_last_value_stands_in_the_first_place() {
        assert_eq!(serde_json::to_string(&parse(r#"{"a":1,"b":2,"a":3}"#)).unwrap(), r#"{"a":3,"b":2}"#);
    }

    #[test]
    fn sorted_it_reads_as_serde_json_writes_a_map() {
        let value = parse(r#"{"b":[1,{"z":null,"é\n\"":1.5}],"a":{},"0":[],"B":true,"é":"\u0007"}"#);
        let mut text = Vec::new();
        value.write_sorted(&mut text);
        assert_eq!(String::from_utf8(text).unwrap(), value.to_value().to_string());
    }

    #[test]
    fn many_keys_are_told_apart_like_few() {
        for count in [FEW - 1, FEW, FEW + 1, FEW + 2, 10 * FEW] {
            let once: Vec<String> = (0..count).map(|key| format!("\"k{key}\":{key}")).collect();
            let again: Vec<String> = (0..count).map(|key| format!("\"k{key}\":{}", key + 1)).collect();
            let value = parse(&format!("{{{},{}}}", once.join(","), again.join(",")));
            assert_eq!(serde_json::to_string(&value).unwrap(), format!("{{{}}}", again.join(",")));
        }
    }

    #[test]
    fn a_patch_of_very_many_keys_takes_a_moment() {
        let keys: Vec<String> = (0..100_000).map(|key| format!("\"k{key}\":1")).collect();
        let patch = parse(&format!("{{{}}}", keys.join(",")));
        let mut value = parse("{}");
        value.merge(&patch);
        value.merge(&patch);
        assert_eq!(value, patch);
    }

    #[test]
    fn whole_numbers_lose_their_point() {
        assert_eq!(serde_json::to_string(&parse("[5.0,1e3,0.5]")).unwrap(), "[5,1000,0.5]");
    }

    #[test]
    fn depth_is_bounded() {
        let text = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(parse(&text(32)).depth(), 32);
        assert!(serde_json::from_str::<Json>(&text(MAX_DEPTH + 2)).is_err());
    }

    #[test]
    fn a_merge_patch_removes_with_null_and_keeps_places() {
        let mut value = parse(r#"{"a":{"x":1,"y":2},"b":1}"#);
        value.merge(&parse(r#"{"a":{"x":null,"z":[null]},"b":{"c":1},"d":null}"#));
        assert_eq!(serde_json::to_string(&value).unwrap(), r#"{"a":{"y":2,"z":[null]},"b":{"c":1}}"#);
    }
}
