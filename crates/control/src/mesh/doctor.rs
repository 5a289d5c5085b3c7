//! What is wrong with the mesh: objects that are not programmed.

use kube::Client;

use super::query::status;
use crate::runtime::doctor::{Check, Examination, of_status};
use crate::runtime::query::{QueryError, Row};

/// Checks what the status shows.
pub(super) async fn examine(client: Client, examination: Examination) -> Result<Vec<Check>, QueryError> {
    let status = status(client).await?;
    examination.require(status.rows.iter().map(object), "list the objects: portolan status mesh")?;
    Ok(of_status(OBJECTS, status, &examination, judge))
}

const OBJECTS: &str = "objects";

fn object(row: &Row) -> String {
    format!("{}/{}/{}", text(row, "kind"), text(row, "namespace"), text(row, "name"))
}

fn judge(row: &Row) -> Option<Check> {
    let text = |key| text(row, key);
    let problem = match (text("problem"), text("programmed")) {
        ("", "True") => return None,
        ("", _) => "not programmed",
        (problem, _) => problem,
    };
    let (kind, namespace, name) = (text("kind"), text("namespace"), text("name"));
    let advice = format!("see each step: portolan why {} {namespace}/{name}", kind.to_lowercase());
    Some(Check::fail(OBJECTS, object(row), problem, advice))
}

fn text<'a>(row: &'a Row, key: &str) -> &'a str {
    row.get(key).and_then(|value| value.as_str()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::runtime::query::row;

    #[test]
    fn an_object_that_is_not_programmed_fails_with_the_reason_of_its_condition() {
        let of = |programmed: &str, problem: Option<&str>| {
            judge(&row([
                ("kind", json!("Route")),
                ("namespace", json!("shop")),
                ("name", json!("r")),
                ("programmed", json!(programmed)),
                ("problem", json!(problem)),
            ]))
        };
        assert!(of("True", None).is_none());
        let found = of("False", Some("RefNotFound: target `t`")).unwrap();
        assert_eq!((&*found.object, &*found.seen), ("Route/shop/r", "RefNotFound: target `t`"));
        assert_eq!(found.advice, "see each step: portolan why route shop/r");
    }
}
