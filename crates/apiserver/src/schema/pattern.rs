//! Regular expressions in Go's dialect.
//!
//! The engine is the one of CEL's `matches`: no other is among the dependencies. It compiles per match.

use std::sync::{Arc, LazyLock};

use kube_cel::cel::{Context, ExecutionError, Program, Value};

static MATCHES: LazyLock<Option<Program>> = LazyLock::new(|| Program::compile("text.matches(pattern)").ok());

/// Whether `text` has a match of `pattern`; the error says why the pattern is none.
pub(crate) fn matches(pattern: &str, text: &str) -> Result<bool, String> {
    let Some(program) = &*MATCHES else { return Ok(true) };
    if let Some(part) = doubled(pattern) {
        return Err(format!("error parsing regexp: invalid nested repetition operator: `{part}`"));
    }
    thread_local! {
        static CONTEXT: Context<'static> = Context::default();
    }
    let result = CONTEXT.with(|context| {
        let mut scope = context.new_inner_scope();
        scope.add_variable_from_value("text", Value::String(Arc::new(text.to_owned())));
        scope.add_variable_from_value("pattern", Value::String(Arc::new(translated(pattern))));
        program.execute(&scope)
    });
    match result {
        Ok(value) => Ok(value == Value::Bool(true)),
        Err(ExecutionError::FunctionError { .. }) => Err(explained(pattern)),
        Err(_) => Ok(false),
    }
}

/// Classes such as `\d` are ASCII in Go.
fn translated(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    let mut in_class = false;
    while let Some(ch) = chars.next() {
        let escaped = match ch {
            '\\' => chars.next(),
            '[' => {
                in_class = true;
                out.push(ch);
                continue;
            }
            _ => {
                in_class &= ch != ']';
                out.push(ch);
                continue;
            }
        };
        match (escaped, in_class) {
            (Some('d'), true) => out.push_str("0-9"),
            (Some('d'), false) => out.push_str("[0-9]"),
            (Some('D'), false) => out.push_str("[^0-9]"),
            (Some('w'), true) => out.push_str("0-9A-Za-z_"),
            (Some('w'), false) => out.push_str("[0-9A-Za-z_]"),
            (Some('W'), false) => out.push_str("[^0-9A-Za-z_]"),
            (Some('s'), true) => out.push_str(r"\t\n\f\r\x20"),
            (Some('s'), false) => out.push_str(r"[\t\n\f\r\x20]"),
            (Some('S'), false) => out.push_str(r"[^\t\n\f\r\x20]"),
            (Some(other), _) => out.extend(['\\', other]),
            (None, _) => out.push('\\'),
        }
    }
    out
}

/// A repetition of a repetition, which Go refuses; a `?` after one only makes it lazy.
fn doubled(pattern: &str) -> Option<&str> {
    let bytes = pattern.as_bytes();
    let (mut at, mut in_class) = (0, false);
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'[' => in_class = true,
            b']' => in_class = false,
            b'*' | b'+' | b'?' if !in_class && at > 0 && bytes[at - 1] != b'(' => {
                let lazy = usize::from(bytes.get(at + 1) == Some(&b'?'));
                if matches!(bytes.get(at + 1 + lazy), Some(b'*' | b'+' | b'?')) {
                    return pattern.get(at..at + 2 + lazy);
                }
                at += lazy;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Go's words for the common faults of a pattern.
fn explained(pattern: &str) -> String {
    let unescaped = pattern.replace("\\\\", "").replace("\\(", "").replace("\\)", "").replace("\\[", "");
    let count = |ch: char| unescaped.matches(ch).count();
    let (fault, part) = if pattern.starts_with(['*', '+', '?']) {
        ("missing argument to repetition operator", &pattern[..1])
    } else if count('[') > 0 && !unescaped.contains(']') {
        ("missing closing ]", &pattern[pattern.rfind('[').unwrap_or(0)..])
    } else if count('(') > count(')') {
        ("missing closing )", pattern)
    } else if count(')') > count('(') {
        ("unexpected )", pattern)
    } else if pattern.contains("(?=") || pattern.contains("(?!") || pattern.contains("(?<") {
        let start = pattern.find("(?").unwrap_or(0);
        ("invalid or unsupported Perl syntax", pattern.get(start..start + 3).unwrap_or(pattern))
    } else {
        ("invalid syntax", pattern)
    };
    format!("error parsing regexp: {fault}: `{part}`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_ascii_as_in_go() {
        assert_eq!(matches(r"^\d+$", "12"), Ok(true));
        assert_eq!(matches(r"^\d+$", "١٢"), Ok(false));
        assert_eq!(matches(r"^[\w-]+$", "a-b"), Ok(true));
        assert_eq!(matches("a+", "xaay"), Ok(true));
    }

    #[test]
    fn bad_patterns_are_explained_in_the_real_servers_words() {
        assert_eq!(matches("(", "x"), Err("error parsing regexp: missing closing ): `(`".to_owned()));
        assert_eq!(
            matches("a**", "x"),
            Err("error parsing regexp: invalid nested repetition operator: `**`".to_owned())
        );
    }
}
