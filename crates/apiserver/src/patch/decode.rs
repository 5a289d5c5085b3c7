//! Reads the JSON of a patch: errors in the words of the real server, and fields named twice are told.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A document and the paths of its fields that are named more than once; the last one counts.
pub(super) struct Document {
    pub value: Value,
    pub duplicates: Vec<String>,
}

/// Parses one document. The error is the sentence that the real server puts into its answer.
pub(super) fn document(bytes: &[u8]) -> Result<Document, String> {
    let mut duplicates = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let seed = Seed { path: String::new(), duplicates: &mut duplicates };
    let value = seed
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(|e| sentence(bytes, &e))?;
    Ok(Document { value, duplicates })
}

/// What a value is called when it is not what was expected.
pub(super) fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Numbers without a fraction are integers, however they are written: the real server shows `2.0` as `2`.
pub(super) fn whole(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(whole).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, whole(value))).collect(),
        Value::Number(number) => {
            let integer = number.as_f64().filter(|n| n.fract() == 0.0 && n.abs() < 1e15 && number.is_f64());
            integer.and_then(|n| format!("{n:.0}").parse::<i64>().ok()).map_or(Value::Number(number), Value::from)
        }
        other @ (Value::Null | Value::Bool(_) | Value::String(_)) => other,
    }
}

fn sentence(bytes: &[u8], error: &serde_json::Error) -> String {
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let text = error.to_string();
    let (at, letter) = letter_at(bytes, error.line(), error.column());
    let shown = match letter {
        b'\'' => "'\\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        0x20..0x7f => format!("'{}'", char::from(letter)),
        other => format!("'\\x{other:02x}'"),
    };
    let place = match text.split(" at line ").next().unwrap_or_default() {
        "trailing characters" => "after top-level value",
        "expected `,` or `}`" | "invalid number" => "after object key:value pair",
        "expected `,` or `]`" => "after array element",
        "expected `:`" => "after object key",
        "key must be a string" => "looking for beginning of object key string",
        "trailing comma" if letter == b'}' => "looking for beginning of object key string",
        "invalid escape" => "in string escape code",
        "control character (\\u0000-\\u001F) found while parsing a string" => "in string literal",
        "recursion limit exceeded" => return "exceeded max depth".to_owned(),
        "expected ident" => return literal(bytes, at, &shown),
        _ => "looking for beginning of value",
    };
    format!("invalid character {shown} {place}")
}

/// The byte an error points at. serde_json counts columns from 1 and names the last byte it took.
fn letter_at(bytes: &[u8], line: usize, column: usize) -> (usize, u8) {
    let start: usize = bytes.split_inclusive(|b| *b == b'\n').take(line.saturating_sub(1)).map(<[u8]>::len).sum();
    let at = start + column.saturating_sub(1);
    (at, bytes.get(at).copied().unwrap_or(b' '))
}

/// A misspelt `true`, `false` or `null`: tells the letter that was due.
fn literal(bytes: &[u8], at: usize, shown: &str) -> String {
    for word in ["true", "false", "null"] {
        for length in (1..word.len()).rev() {
            if at >= length && bytes.get(at - length..at) == Some(&word.as_bytes()[..length]) {
                return format!("invalid character {shown} in literal {word} (expecting '{}')", &word[length..=length]);
            }
        }
    }
    format!("invalid character {shown} looking for beginning of value")
}

struct Seed<'a> {
    path: String,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(|number| whole(Value::Number(number))).ok_or_else(|| E::custom("not a number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let seed = Seed { path: format!("{}[{}]", self.path, list.len()), duplicates: &mut *self.duplicates };
            match items.next_element_seed(seed)? {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            if map.contains_key(&key) {
                self.duplicates.push(path.clone());
            }
            let value = fields.next_value_seed(Seed { path, duplicates: &mut *self.duplicates })?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_json_is_told_as_the_real_server_tells_it() {
        for (text, told) in [
            ("", "unexpected end of JSON input"),
            ("{", "unexpected end of JSON input"),
            ("[1] x", "invalid character 'x' after top-level value"),
            ("{\"a\":1}}", "invalid character '}' after top-level value"),
            ("{\"a\":1,}", "invalid character '}' looking for beginning of object key string"),
            ("{'a':1}", "invalid character '\\'' looking for beginning of object key string"),
            ("[1,]", "invalid character ']' looking for beginning of value"),
            ("{\"a\" 1}", "invalid character '1' after object key"),
            ("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair"),
            ("[1 2]", "invalid character '2' after array element"),
            ("\u{1}", "invalid character '\\x01' looking for beginning of value"),
            ("{\"a\":\"\\x\"}", "invalid character 'x' in string escape code"),
            ("{\"a\":01}", "invalid character '1' after object key:value pair"),
            ("{\"a\":tru}", "invalid character '}' in literal true (expecting 'e')"),
        ] {
            assert_eq!(document(text.as_bytes()).err().as_deref(), Some(told), "{text}");
        }
    }

    #[test]
    fn a_field_named_twice_is_told_and_the_last_counts() {
        let document = document(br#"{"a":{"b":1,"b":2},"c":[{"d":1,"d":1}]}"#).ok().unwrap();
        assert_eq!(document.value["a"]["b"], 2);
        assert_eq!(document.duplicates, ["a.b", "c[0].d"]);
    }

    #[test]
    fn numbers_without_a_fraction_are_integers() {
        let document = document(b"[2.0, 1.5, 1e3, -0.0, 1e300]").ok().unwrap();
        assert_eq!(document.value.to_string(), "[2,1.5,1000,0,1e+300]");
    }

    #[test]
    fn a_very_deep_document_is_refused() {
        assert_eq!(document("[".repeat(100_000).as_bytes()).err().as_deref(), Some("exceeded max depth"));
    }
}
