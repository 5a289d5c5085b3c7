//! Label selectors: `a=b`, `a in (b,c)`, `!a` and their kin, with the words of Kubernetes for what it cannot read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::super::text::quote;
use crate::status::Failure;

/// A selector that was read; the empty one selects everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

/// One condition on one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    pub key: String,
    pub operator: Operator,
    /// Sorted, each once.
    pub values: Vec<String>,
}

/// How a label is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Greater,
    Less,
}

impl LabelSelector {
    /// Reads a selector.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let tokens = tokens(text);
        let mut parser = Parser { tokens: &tokens, at: 0 };
        parser.selector().map(Self).map_err(Failure::bad_request)
    }

    /// Whether everything is selected.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The conditions, sorted by key.
    pub fn requirements(&self) -> &[Requirement] {
        &self.0
    }

    /// Whether an object with these labels is selected; `get` looks one up.
    pub fn matches<'l>(&self, get: impl Fn(&str) -> Option<&'l str>) -> bool {
        self.0.iter().all(|requirement| requirement.matches(get(&requirement.key)))
    }

    /// Whether an object is selected.
    pub fn matches_object(&self, object: &Value) -> bool {
        self.is_empty() || self.matches(|key| object.get("metadata")?.get("labels")?.get(key)?.as_str())
    }

    /// Whether an object is selected, given as the bytes of its JSON: only its labels are read.
    pub fn matches_bytes(&self, object: &[u8]) -> bool {
        if self.is_empty() {
            return true;
        }
        let labels = labels_of(object);
        self.matches(|key| labels.get(key).map(AsRef::as_ref))
    }
}

impl Requirement {
    fn matches(&self, label: Option<&str>) -> bool {
        let has = |value: &str| self.values.iter().any(|wanted| wanted == value);
        match (self.operator, label) {
            (Operator::In, Some(value)) => has(value),
            (Operator::NotIn, Some(value)) => !has(value),
            (Operator::Exists, label) => label.is_some(),
            (Operator::DoesNotExist, label) => label.is_none(),
            (Operator::NotIn, None) => true,
            (Operator::In | Operator::Greater | Operator::Less, None) => false,
            (Operator::Greater | Operator::Less, Some(value)) => {
                let wanted = self.values.first().and_then(|wanted| wanted.parse::<i64>().ok());
                match (value.parse::<i64>(), wanted) {
                    (Ok(value), Some(wanted)) if self.operator == Operator::Greater => value > wanted,
                    (Ok(value), Some(wanted)) => value < wanted,
                    _ => false,
                }
            }
        }
    }
}

/// The labels of an object, given as the bytes of its JSON; the rest is skipped over.
pub fn labels_of(object: &[u8]) -> BTreeMap<Cow<'_, str>, Cow<'_, str>> {
    #[derive(Deserialize)]
    struct Object<'a> {
        #[serde(borrow, default)]
        metadata: Metadata<'a>,
    }
    #[derive(Deserialize, Default)]
    struct Metadata<'a> {
        #[serde(borrow, default)]
        labels: Option<BTreeMap<Text<'a>, Text<'a>>>,
    }
    #[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

    let labels = serde_json::from_slice::<Object<'_>>(object).ok().and_then(|object| object.metadata.labels);
    labels.unwrap_or_default().into_iter().map(|(key, value)| (key.0, value.0)).collect()
}

/// A word, or one of [`SIGNS`]; a sign without text is the end.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Token<'t> {
    word: bool,
    text: &'t str,
}

const SIGNS: [&str; 9] = ["==", "!=", "=", "!", "(", ")", ",", ">", "<"];
const END: Token<'_> = Token { word: false, text: "" };

fn tokens(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    // A zero byte ends the text, as it does in Go's lexer.
    let mut rest = text.split('\0').next().unwrap_or_default();
    let blank = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    loop {
        rest = rest.trim_start_matches(blank);
        if rest.is_empty() {
            return tokens;
        }
        let sign = SIGNS.into_iter().find(|sign| rest.starts_with(sign));
        let end = match sign {
            Some(sign) => sign.len(),
            None => rest.find(|c| blank(c) || "=!(),><".contains(c)).unwrap_or(rest.len()),
        };
        tokens.push(Token { word: sign.is_none(), text: &rest[..end] });
        rest = &rest[end..];
    }
}

struct Parser<'t> {
    tokens: &'t [Token<'t>],
    at: usize,
}

impl<'t> Parser<'t> {
    fn selector(&mut self) -> Result<Vec<Requirement>, String> {
        let mut found = Vec::new();
        while self.peek() != END {
            if !self.begins_requirement() {
                return Err(format!("found '{}', expected: !, identifier, or 'end of string'", self.peek().text));
            }
            found.push(self.requirement().map_err(|fault| format!("unable to parse requirement: {fault}"))?);
            match self.next() {
                END => break,
                Token { word: false, text: "," } if self.begins_requirement() => {}
                Token { word: false, text: "," } => {
                    return Err(format!("found '{}', expected: identifier after ','", self.peek().text));
                }
                other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text)),
            }
        }
        found.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(found)
    }

    fn begins_requirement(&self) -> bool {
        self.peek().word || self.peek().text == "!"
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == Token { word: false, text: "!" };
        if absent {
            self.next();
        }
        let Token { word: true, text: key } = self.next() else {
            return Err(format!("found '{}', expected: identifier", self.last().text));
        };
        if let Some(fault) = key_fault(key) {
            return Err(format!("<nil>: Invalid value: {}: {fault}", quote(key)));
        }
        if absent || self.ends_requirement() {
            let operator = if absent { Operator::DoesNotExist } else { Operator::Exists };
            return Ok(Requirement { key: key.to_owned(), operator, values: Vec::new() });
        }
        let operator = self.next();
        let (operator, values) = match operator.text {
            "in" => (Operator::In, self.set()?),
            "notin" => (Operator::NotIn, self.set()?),
            "=" | "==" => (Operator::In, self.exact()?),
            "!=" => (Operator::NotIn, self.exact()?),
            ">" => (Operator::Greater, self.exact()?),
            "<" => (Operator::Less, self.exact()?),
            other => return Err(format!("found '{other}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        checked(Requirement { key: key.to_owned(), operator, values })
    }

    fn ends_requirement(&self) -> bool {
        !self.peek().word && matches!(self.peek().text, "" | ",")
    }

    /// Reads one value, which may be missing.
    fn exact(&mut self) -> Result<Vec<String>, String> {
        if self.ends_requirement() {
            return Ok(vec![String::new()]);
        }
        match self.next() {
            Token { word: true, text } => Ok(vec![text.to_owned()]),
            other => Err(format!("found '{}', expected: identifier", other.text)),
        }
    }

    /// Reads `(a,b)`; values may be empty.
    fn set(&mut self) -> Result<Vec<String>, String> {
        let open = self.next();
        if open.text != "(" {
            return Err(format!("found '{}' expected: '('", open.text));
        }
        let first = self.peek();
        if !first.word && !matches!(first.text, "," | ")") {
            return Err(format!("found '{}', expected: ',', ')' or identifier", first.text));
        }
        let mut values = Vec::new();
        let mut expecting = true;
        loop {
            match self.next() {
                Token { word: true, text } if expecting => {
                    values.push(text.to_owned());
                    expecting = false;
                    if self.peek().word || !matches!(self.peek().text, "," | ")") {
                        return Err(format!("found '{}', expected: ',' or ')'", self.peek().text));
                    }
                }
                Token { word: false, text: text @ ("," | ")") } => {
                    if expecting {
                        values.push(String::new());
                    }
                    expecting = true;
                    if text == ")" {
                        break;
                    }
                }
                other => return Err(format!("found '{}', expected: ',', or identifier", other.text)),
            }
        }
        values.sort();
        values.dedup();
        Ok(values)
    }

    fn peek(&self) -> Token<'t> {
        self.tokens.get(self.at).copied().unwrap_or(END)
    }

    fn last(&self) -> Token<'t> {
        self.tokens.get(self.at.wrapping_sub(1)).copied().unwrap_or(END)
    }

    fn next(&mut self) -> Token<'t> {
        let token = self.peek();
        self.at += 1;
        token
    }
}

fn checked(requirement: Requirement) -> Result<Requirement, String> {
    let mut faults = Vec::new();
    for (index, value) in requirement.values.iter().enumerate() {
        if matches!(requirement.operator, Operator::Greater | Operator::Less) && value.parse::<i64>().is_err() {
            let rule = "for 'Gt', 'Lt' operators, the value must be an integer";
            faults.push(format!("values[{index}]: Invalid value: {}: {rule}", quote(value)));
        }
        if let Some(fault) = value_fault(value) {
            faults.push(format!("values[{index}][{}]: Invalid value: {}: {fault}", requirement.key, quote(value)));
        }
    }
    match faults.as_slice() {
        [] => Ok(requirement),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

const NAME_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
     alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE_RULE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
     and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
     validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or \
     '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// What is wrong with a label's key.
pub fn key_fault(key: &str) -> Option<String> {
    let mut faults = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                faults.push("prefix part must be non-empty".to_owned());
            } else {
                if prefix.len() > 253 {
                    faults.push("prefix part must be no more than 253 bytes".to_owned());
                }
                if !is_subdomain(prefix) {
                    faults.push(format!("prefix part {SUBDOMAIN_RULE}"));
                }
            }
            *name
        }
        _ => {
            return Some(format!(
                "a valid label key {NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            ));
        }
    };
    if name.is_empty() {
        faults.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        faults.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_name(name) {
        faults.push(format!("name part {NAME_RULE}"));
    }
    (!faults.is_empty()).then(|| faults.join("; "))
}

/// What is wrong with a label's value.
pub fn value_fault(value: &str) -> Option<String> {
    let mut faults = Vec::new();
    if value.len() > 63 {
        faults.push("must be no more than 63 bytes");
    }
    if !value.is_empty() && !is_name(value) {
        faults.push(VALUE_RULE);
    }
    (!faults.is_empty()).then(|| faults.join("; "))
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = [bytes.first(), bytes.last()].into_iter().all(|end| end.is_some_and(u8::is_ascii_alphanumeric));
    ends && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn is_subdomain(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.split('.').all(|part| {
        let bytes = part.as_bytes();
        let ends = [bytes.first(), bytes.last()].into_iter().all(|end| end.is_some_and(|&byte| plain(byte)));
        ends && bytes.iter().all(|&byte| plain(byte) || byte == b'-')
    })
}

#[cfg(test)]
mod tests;
