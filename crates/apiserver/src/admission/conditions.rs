//! matchConditions: CEL expressions over `object`, `oldObject` and `request` that spare a webhook calls.
//!
//! `authorizer` is not offered: there is no role-based access control here, and such an expression is refused
//! when the configuration is written.

use kube_cel::KubeCelExt;
use kube_cel::cel::{Context, ExecutionError, Program, Value as Cel};
use serde_json::Value;

use super::hook::Target;
use super::{Attributes, review};
use crate::status::Cause;

/// The names an expression may use.
const VARIABLES: [&str; 3] = ["object", "oldObject", "request"];

/// The compiled conditions of one webhook; it is called if all hold.
#[derive(Default)]
pub(super) struct Conditions {
    conditions: Vec<(String, Result<Program, String>)>,
}

impl Conditions {
    pub(super) fn new(conditions: &Value) -> Self {
        let expressions = conditions.as_array().into_iter().flatten();
        let compile = |condition: &Value| {
            let expression = condition["expression"].as_str().unwrap_or_default();
            (expression.to_owned(), compile(expression))
        };
        Self { conditions: expressions.map(compile).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.conditions.is_empty()
    }

    /// Whether all hold. One that is false outweighs those that fail.
    pub(super) fn hold(&self, attributes: &Attributes<'_>, target: &Target, object: &Value) -> Result<bool, String> {
        let request = review::facts(target, attributes);
        let old = attributes.old.map_or(Value::Null, |old| target.convert(attributes, old));
        let mut context = Context::default().with_all();
        for (name, value) in VARIABLES.iter().zip([target.convert(attributes, object), old, request]) {
            context.add_variable_from_value(*name, to_cel(&value));
        }
        let mut faults = Vec::new();
        for (expression, program) in &self.conditions {
            let result = match program {
                Ok(program) => program.execute(&context).map_err(|error| go_text(&error.to_string())),
                Err(why) => Err(why.clone()),
            };
            match result {
                Ok(Cel::Bool(true)) => {}
                Ok(Cel::Bool(false)) => return Ok(false),
                Ok(_) => faults.push(format!("expression '{expression}' resulted in error: no boolean")),
                Err(why) => faults.push(format!("expression '{expression}' resulted in error: {why}")),
            }
        }
        match faults.as_slice() {
            [] => Ok(true),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }
}

/// What is wrong with the matchConditions of a webhook configuration that someone wants to write.
pub fn faults(configuration: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (index, hook) in configuration["webhooks"].as_array().into_iter().flatten().enumerate() {
        for (nth, condition) in hook["matchConditions"].as_array().into_iter().flatten().enumerate() {
            let expression = condition["expression"].as_str().unwrap_or_default();
            if let Err(why) = compile(expression) {
                causes.push(Cause {
                    reason: "FieldValueInvalid",
                    message: format!("Invalid value: {expression:?}: {why}"),
                    field: format!("webhooks[{index}].matchConditions[{nth}].expression"),
                });
            }
        }
    }
    causes
}

/// Compiles an expression, and tries it on nothing: that brings names nobody knows to light.
fn compile(expression: &str) -> Result<Program, String> {
    let program = Program::compile(expression).map_err(|error| format!("compilation failed: ERROR: {error}"))?;
    let mut context = Context::default().with_all();
    for name in VARIABLES {
        context.add_variable_from_value(name, Cel::Null);
    }
    match program.execute(&context) {
        Err(ExecutionError::UndeclaredReference(name)) => {
            Err(format!("compilation failed: ERROR: undeclared reference to '{name}' (in container '')"))
        }
        Ok(value) if !matches!(value, Cel::Bool(_) | Cel::Null) => {
            Err(format!("must evaluate to bool but got {}", value.type_of()))
        }
        Ok(_) | Err(_) => Ok(program),
    }
}

/// The words of Kubernetes' CEL for what users meet most.
fn go_text(error: &str) -> String {
    match error.strip_prefix("No such key: ") {
        Some(key) => format!("no such key: {key}"),
        None => error.to_owned(),
    }
}

/// JSON as CEL sees it: whole numbers are `int`.
fn to_cel(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(bool) => Cel::Bool(*bool),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(int), _) => Cel::Int(int),
            (None, Some(uint)) => Cel::UInt(uint),
            (None, None) => Cel::Float(number.as_f64().unwrap_or_default()),
        },
        Value::String(text) => Cel::String(std::sync::Arc::new(text.clone())),
        Value::Array(items) => Cel::List(std::sync::Arc::new(items.iter().map(to_cel).collect())),
        Value::Object(map) => {
            let map: std::collections::HashMap<String, Cel> =
                map.iter().map(|(key, value)| (key.clone(), to_cel(value))).collect();
            map.into()
        }
    }
}
