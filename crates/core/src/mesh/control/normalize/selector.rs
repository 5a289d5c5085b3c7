//! Selectors of all dialects.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::fields::{Fields, invalid, text};
use crate::mesh::control::selector::{Field, FieldOperator, FieldTest, Selector};
use crate::mesh::control::{Diagnostic, Reason};
use crate::select::{self, Expression, Labels, Operator};

/// Reads a selector.
pub(super) fn selector(at: &str, value: &Value, notes: &mut Vec<Diagnostic>) -> Result<Selector, Diagnostic> {
    let mut fields = Fields::of(at, value)?;
    let service = fields.one_of(&["matchService", "serviceName"])?;
    let service = service.map(|(at, value)| text(&at, value)).transpose()?.map(Arc::from);
    let namespace = fields.text("matchNamespace")?.map(Arc::from);
    let labels = labels(&mut fields)?;
    let mut expressions = Vec::new();
    for (place, item) in fields.list("matchExpressions")?.iter().enumerate() {
        let at = format!("{at}.matchExpressions[{place}]");
        let (key, operator) = expression(&at, item, notes)?;
        let FieldOperator::Label(operator) = operator else {
            return Err(invalid(&at, item, "Gt and Lt are for matchFields: use In, NotIn, Exists or DoesNotExist"));
        };
        expressions.push(Expression { key, operator });
    }
    let mut tests = Vec::new();
    for (place, item) in fields.list("matchFields")?.iter().enumerate() {
        let at = format!("{at}.matchFields[{place}]");
        let (key, operator) = expression(&at, item, notes)?;
        let known = Field::ALL.into_iter().find(|(_, name)| *name == &*key);
        let names = || Field::ALL.map(|(_, name)| name).join(", ");
        let (field, _) = known.ok_or_else(|| invalid(&at, item, &format!("key must be one of {}", names())))?;
        tests.push(FieldTest { field, operator });
    }
    let mut any_of = Vec::new();
    for (place, item) in fields.list("anyOf")?.iter().enumerate() {
        let one = selector(&format!("{at}.anyOf[{place}]"), item, notes)?;
        if !one.any_of.is_empty() {
            return Err(invalid(&format!("{at}.anyOf[{place}]"), item, "anyOf cannot be nested in another anyOf"));
        }
        any_of.push(one);
    }
    fields.finish(notes);
    Ok(Selector { labels: select::Selector { labels, expressions }, fields: tests, namespace, service, any_of })
}

fn labels(fields: &mut Fields<'_>) -> Result<Labels, Diagnostic> {
    let at = fields.path("matchLabels");
    let Some(value) = fields.get("matchLabels") else { return Ok(Labels::default()) };
    let map = value.as_object().ok_or_else(|| invalid(&at, value, "labels like {app: worker} are expected"))?;
    let pair = |(key, value): (&String, &Value)| {
        let bad = || invalid(&format!("{at}.{key}"), value, "a label's value is a text: put it in quotes");
        value.as_str().map(|value| (key.clone(), value.to_owned())).ok_or_else(bad)
    };
    map.iter().map(pair).collect()
}

fn expression(at: &str, value: &Value, notes: &mut Vec<Diagnostic>) -> Result<(Arc<str>, FieldOperator), Diagnostic> {
    let mut fields = Fields::of(at, value)?;
    let key_at = fields.path("key");
    let key = Arc::from(text(&key_at, fields.require("key")?)?);
    let word_at = fields.path("operator");
    let word = text(&word_at, fields.require("operator")?)?;
    let mut values = BTreeSet::<Arc<str>>::new();
    for (place, value) in fields.list("values")?.iter().enumerate() {
        let value_at = format!("{at}.values[{place}]");
        let text = value.as_str().ok_or_else(|| invalid(&value_at, value, "a text is expected: put it in quotes"))?;
        values.insert(Arc::from(text));
    }
    fields.finish(notes);
    let number = |values: &BTreeSet<Arc<str>>| {
        let mut all = values.iter();
        let only = all.next().filter(|_| all.next().is_none()).and_then(|text| text.parse::<i64>().ok());
        only.ok_or_else(|| invalid(&word_at, value, "Gt and Lt need one value, a whole number in quotes"))
    };
    let some = |values: BTreeSet<Arc<str>>| {
        let missing =
            || Diagnostic::new(Reason::MissingField, format!("{at}.values is missing: In and NotIn need values"));
        (!values.is_empty()).then_some(values).ok_or_else(missing)
    };
    let operator = match word {
        "In" => FieldOperator::Label(Operator::In(some(values)?)),
        "NotIn" => FieldOperator::Label(Operator::NotIn(some(values)?)),
        "Exists" => FieldOperator::Label(Operator::Exists),
        "DoesNotExist" => FieldOperator::Label(Operator::DoesNotExist),
        "DoesNotexist" => {
            let message = format!("{word_at}: read `DoesNotexist` as `DoesNotExist`: correct it");
            notes.push(Diagnostic::new(Reason::Misspelt, message));
            FieldOperator::Label(Operator::DoesNotExist)
        }
        "Gt" => FieldOperator::Gt(number(&values)?),
        "Lt" => FieldOperator::Lt(number(&values)?),
        _ => return Err(invalid(&word_at, value, "use In, NotIn, Exists or DoesNotExist")),
    };
    Ok((key, operator))
}
