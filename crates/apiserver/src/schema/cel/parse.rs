//! Texts of rules into programs that are safe to run.

use std::panic::catch_unwind;

use kube_cel::cel::common::ast::{EntryExpr, Expr};
use kube_cel::cel::{IdedExpr, Program};

/// Levels of an expression: each takes some kilobytes of stack to evaluate.
const MAX_DEPTH: usize = 48;

pub(super) fn parse(source: &str) -> Result<Program, String> {
    let too_deep = || "compilation failed: the expression is nested too deep".to_owned();
    if is_too_deep(source) {
        return Err(too_deep());
    }
    // odd input makes the parser panic
    let parsed = catch_unwind(|| Program::compile(source));
    let parsed = parsed.map_err(|_| "compilation failed: the expression cannot be read".to_owned())?;
    let program = parsed.map_err(|errors| format!("compilation failed: {errors}"))?;
    if depth(program.expression()) > MAX_DEPTH { Err(too_deep()) } else { Ok(program) }
}

/// Whether the text nests or chains so deep that reading it could exhaust the stack. No rule for people does.
pub(super) fn is_too_deep(source: &str) -> bool {
    const MAX_NESTING: i32 = 64;
    const MAX_OPERATORS: usize = 1000;
    let nesting = source.chars().scan(0, |nesting, ch| {
        *nesting += i32::from("([{".contains(ch)) - i32::from(")]}".contains(ch));
        Some(*nesting)
    });
    let operators = source.chars().filter(|ch| "?!-.+*/%&|=<>".contains(*ch)).count();
    nesting.max().unwrap_or(0) > MAX_NESTING || operators > MAX_OPERATORS
}

/// The levels of an expression.
fn depth(expression: &IdedExpr) -> usize {
    let parts: Vec<&IdedExpr> = match &expression.expr {
        Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => Vec::new(),
        Expr::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
        Expr::Comprehension(it) => vec![&it.iter_range, &it.accu_init, &it.loop_cond, &it.loop_step, &it.result],
        Expr::List(list) => list.elements.iter().collect(),
        Expr::Map(map) => map.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Struct(value) => value.entries.iter().flat_map(|entry| entry_parts(&entry.expr)).collect(),
        Expr::Select(select) => vec![&select.operand],
    };
    1 + parts.into_iter().map(depth).max().unwrap_or(0)
}

fn entry_parts(entry: &EntryExpr) -> Vec<&IdedExpr> {
    match entry {
        EntryExpr::StructField(field) => vec![&field.value],
        EntryExpr::MapEntry(entry) => vec![&entry.key, &entry.value],
    }
}
