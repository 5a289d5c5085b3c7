//! JSON with its keys as they were written: serde's own maps would hide that a key is there twice.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

use super::refusal::{Refusal, Refused};

/// A body nests less than ten deep.
const DEEPEST: usize = 32;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Tree {
    Null,
    Bool,
    Number(Number),
    Text(String),
    List(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

/// Reads a whole body.
pub(super) fn parse(bytes: &[u8]) -> Refused<Tree> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let tree = Node { depth: 0 }.deserialize(&mut reader);
    let tree = tree.and_then(|tree| reader.end().map(|()| tree));
    tree.map_err(|problem| Refusal::malformed("", &format!("the body is not JSON that can be used: {problem}")))
}

#[derive(Clone, Copy)]
struct Node {
    depth: usize,
}

impl Node {
    fn inner<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth == DEEPEST {
            return Err(E::custom(format_args!("it nests deeper than {DEEPEST}")));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Node {
    type Value = Tree;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Tree, E> {
        Ok(Tree::Bool)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Tree, E> {
        Ok(Tree::Number(number.into()))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Tree, E> {
        Ok(Tree::Number(number.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Tree, E> {
        Number::from_f64(number).map(Tree::Number).ok_or_else(|| E::custom("a number is not finite"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Tree, E> {
        Ok(Tree::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Tree, A::Error> {
        let inner = self.inner()?;
        let mut all = Vec::new();
        while let Some(one) = list.next_element_seed(inner)? {
            all.push(one);
        }
        Ok(Tree::List(all))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tree, A::Error> {
        let inner = self.inner()?;
        let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
        while let Some(key) = map.next_key::<String>()? {
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format_args!("key `{key}` is there twice")));
            }
            all.push((key, map.next_value_seed(inner)?));
        }
        Ok(Tree::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_there_twice_is_refused_at_any_depth() {
        for body in [r#"{"a":1,"a":2}"#, r#"{"a":[{"b":{"c":1,"c":1}}]}"#, r#"{"a":1,"\u0061":2}"#] {
            let problem = parse(body.as_bytes()).unwrap_err();
            assert_eq!(problem.reason.word, "BadRequest", "{body}");
            assert!(problem.text.contains("twice"), "{}", problem.text);
        }
        assert!(parse(br#"{"a":1,"A":2}"#).is_ok(), "case is judged where keys are read");
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for body in ["", "{", "nul", "{\"a\":}", "[1,]", "{} {}", "\u{feff}{}"] {
            assert_eq!(parse(body.as_bytes()).unwrap_err().reason.word, "BadRequest", "{body}");
        }
        assert!(parse(b"{\"a\":\"\xff\"}").is_err());
    }

    #[test]
    fn it_nests_32_deep_and_no_deeper() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(32).as_bytes()).is_ok());
        assert!(parse(nested(33).as_bytes()).is_err());
        assert!(parse("[".repeat(200_000).as_bytes()).is_err());
    }
}
