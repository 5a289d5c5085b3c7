//! API objects -> checked types of the planner. A bad object steps aside with its reason; what was granted to it stays.
//!
//! The same functions judge in the webhook, in the controller and in `portolan plan`, so a missing webhook changes
//! nothing.

mod gateway;
mod policy;
mod words;

pub(super) use crate::runtime::selector::{labels, selector};
pub(super) use gateway::{CheckedGateway, Gateways, gateways};
pub(super) use policy::{PolicyView, policy, resolve};
pub(super) use words::{node_mode_warning, policy_warnings};

use std::collections::BTreeSet;

use portolan_core::select::{Expression, Labels, Operator, Selector};

/// Why an object is not accepted: a reason from the vocabulary, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub reason: &'static str,
    pub message: String,
}

impl Problem {
    pub(super) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

/// Which families are in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Families {
    pub ipv4: bool,
    pub ipv6: bool,
}

impl Default for Families {
    fn default() -> Self {
        Self { ipv4: true, ipv6: true }
    }
}

/// A selector that matches nothing, unlike an empty one.
pub(super) fn nothing() -> Selector {
    let never = Expression { key: "".into(), operator: Operator::In(BTreeSet::new()) };
    Selector { labels: Labels::default(), expressions: vec![never] }
}

/// A selector as kubectl takes it: `tier=web,env in (prod,test),!legacy`.
pub(super) fn selector_text(text: &str) -> Result<Selector, String> {
    let mut expressions = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        // A comma inside parentheses separates values, not terms.
        let end = match (rest.find(','), rest.find('(')) {
            (Some(comma), Some(open)) if open < comma => rest.find(')').map_or(rest.len(), |close| close + 1),
            (comma, _) => comma.unwrap_or(rest.len()),
        };
        let (term, tail) = rest.split_at(end);
        expressions.push(term_of(term.trim())?);
        rest = tail.trim_start().trim_start_matches(',').trim_start();
    }
    Ok(Selector { labels: Labels::default(), expressions })
}

fn term_of(term: &str) -> Result<Expression, String> {
    let wrong =
        || format!("`{term}` is not a term of a label selector: write it like env=prod, env in (prod,test) or !legacy");
    let expression = |key: &str, operator| {
        let key = key.trim();
        if key.is_empty() || key.contains(char::is_whitespace) {
            Err(wrong())
        } else {
            Ok(Expression { key: key.into(), operator })
        }
    };
    let values = |text: &str| -> Result<BTreeSet<_>, String> {
        let inner = text.trim().strip_prefix('(').and_then(|text| text.strip_suffix(')')).ok_or_else(wrong)?;
        Ok(inner.split(',').map(|value| value.trim().into()).collect())
    };
    let one = |value: &str| BTreeSet::from([value.trim().into()]);
    if let Some((key, list)) = term.split_once(" notin ") {
        expression(key, Operator::NotIn(values(list)?))
    } else if let Some((key, list)) = term.split_once(" in ") {
        expression(key, Operator::In(values(list)?))
    } else if let Some((key, value)) = term.split_once("!=") {
        expression(key, Operator::NotIn(one(value)))
    } else if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        expression(key, Operator::In(one(value)))
    } else if let Some(key) = term.strip_prefix('!') {
        expression(key, Operator::DoesNotExist)
    } else {
        expression(term, Operator::Exists)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_in_words_selects_as_kubectl_would() {
        let labels: Labels = [("env", "prod"), ("tier", "web")].into_iter().collect();
        for (text, matches) in [
            ("env=prod", true),
            ("env==prod,tier!=db", true),
            ("env in (prod, test),tier", true),
            ("env notin (prod)", false),
            ("!legacy", true),
            ("!env", false),
            ("env in (test),tier=web", false),
        ] {
            assert_eq!(selector_text(text).unwrap().matches(&labels), matches, "{text}");
        }
        for text in ["env in prod", "a b", "=x"] {
            assert!(selector_text(text).is_err(), "{text}");
        }
        assert!(!nothing().matches(&labels));
    }
}
