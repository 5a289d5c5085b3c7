//! The styles in which answers are written: `?format=`.

use std::fmt::Write as _;

use crate::config::json::Json;

/// A style.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Style {
    /// Indented by two.
    #[default]
    Plain,
    /// Without any space.
    Terse,
    /// On one line, with spaces.
    Space,
    /// Each member of the outermost object or list on its own line.
    Lines,
    /// Each member on its own line, commas first: a change touches one line.
    Diffy,
}

impl Style {
    /// By its name; unknown names are plain.
    pub(super) fn find(word: &str) -> Self {
        match word {
            "terse" => Self::Terse,
            "space" => Self::Space,
            "lines" => Self::Lines,
            "diffy" => Self::Diffy,
            _ => Self::Plain,
        }
    }

    /// Writes a value.
    pub(super) fn write(self, value: &Json) -> String {
        let mut text = String::new();
        match self {
            Self::Plain => indented(&mut text, value, 2, 0),
            Self::Terse => terse(&mut text, value),
            Self::Space => space(&mut text, value),
            Self::Lines => lines(&mut text, value),
            Self::Diffy => diffy(&mut text, value, 0),
        }
        text
    }
}

/// Writes a value indented by four, as errors are.
pub(super) fn by_four(value: &Json) -> String {
    let mut text = String::new();
    indented(&mut text, value, 4, 0);
    text
}

/// A member of an object or a list.
type Member<'a> = (Option<&'a str>, &'a Json);

/// The members of a value that has some, with its brackets.
fn members(value: &Json) -> Option<(char, char, Vec<Member<'_>>)> {
    match value {
        Json::Array(items) if !items.is_empty() => Some(('[', ']', items.iter().map(|item| (None, item)).collect())),
        Json::Object(object) if !object.is_empty() => {
            Some(('{', '}', object.iter().map(|(key, value)| (Some(key), value)).collect()))
        }
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) | Json::Array(_) | Json::Object(_) => None,
    }
}

fn terse(text: &mut String, value: &Json) {
    text.push_str(&serde_json::to_string(value).unwrap_or_default());
}

fn key(text: &mut String, key: Option<&str>, after: &str) {
    if let Some(key) = key {
        if key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            // almost all of them, and answers may have very many
            text.extend(["\"", key, "\""]);
        } else {
            terse(text, &key.into());
        }
        text.push_str(after);
    }
}

fn indented(text: &mut String, value: &Json, step: usize, depth: usize) {
    let Some((open, close, members)) = members(value) else { return terse(text, value) };
    text.push(open);
    for (index, (name, member)) in members.into_iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        write!(text, "{comma}\n{:1$}", "", step * (depth + 1)).expect("a string takes all");
        key(text, name, ": ");
        indented(text, member, step, depth + 1);
    }
    write!(text, "\n{:1$}{close}", "", step * depth).expect("a string takes all");
}

fn space(text: &mut String, value: &Json) {
    let Some((open, close, members)) = members(value) else { return terse(text, value) };
    text.push(open);
    for (index, (name, member)) in members.into_iter().enumerate() {
        text.push_str(if index == 0 { " " } else { ", " });
        key(text, name, ": ");
        space(text, member);
    }
    text.push(' ');
    text.push(close);
}

fn lines(text: &mut String, value: &Json) {
    let Some((open, close, members)) = members(value) else { return terse(text, value) };
    for (index, (name, member)) in members.into_iter().enumerate() {
        text.push(if index == 0 { open } else { ',' });
        text.push(' ');
        key(text, name, ": ");
        space(text, member);
        text.push('\n');
    }
    text.push(close);
}

fn diffy(text: &mut String, value: &Json, depth: usize) {
    let Some((open, close, all)) = members(value) else { return terse(text, value) };
    for (index, (name, member)) in all.into_iter().enumerate() {
        if index > 0 {
            write!(text, "\n{:1$}", "", depth).expect("a string takes all");
        }
        text.push(if index == 0 { open } else { ',' });
        text.push(' ');
        if name.is_some() && members(member).is_some() {
            key(text, name, ":");
            write!(text, "\n{:1$}", "", depth + 2).expect("a string takes all");
        } else {
            key(text, name, ": ");
        }
        diffy(text, member, depth + 2);
    }
    write!(text, "\n{:1$}{close}", "", depth).expect("a string takes all");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Json {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn every_style_writes_the_small_object_as_l7mp_does() {
        let value = value(r#"{"a":1,"b":{}}"#);
        for (style, text) in [
            (Style::Plain, "{\n  \"a\": 1,\n  \"b\": {}\n}"),
            (Style::Terse, "{\"a\":1,\"b\":{}}"),
            (Style::Space, "{ \"a\": 1, \"b\": {} }"),
            (Style::Lines, "{ \"a\": 1\n, \"b\": {}\n}"),
            (Style::Diffy, "{ \"a\": 1\n, \"b\": {}\n}"),
        ] {
            assert_eq!(style.write(&value), text, "{style:?}");
        }
    }

    #[test]
    fn only_diffy_breaks_lines_inside() {
        let value = value(r#"{"test":"x","some":[{"nested":0,"things":[]},{}]}"#);
        assert_eq!(
            Style::Lines.write(&value),
            "{ \"test\": \"x\"\n, \"some\": [ { \"nested\": 0, \"things\": [] }, {} ]\n}"
        );
        assert_eq!(
            Style::Diffy.write(&value),
            "{ \"test\": \"x\"\n, \"some\":\n  [ { \"nested\": 0\n    , \"things\": []\n    }\n  , {}\n  ]\n}"
        );
    }

    #[test]
    fn errors_are_indented_by_four() {
        assert_eq!(by_four(&value(r#"{"a":[1]}"#)), "{\n    \"a\": [\n        1\n    ]\n}");
    }
}
