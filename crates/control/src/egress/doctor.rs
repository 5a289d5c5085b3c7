//! What is wrong with egress: gateways that serve nobody, and policies that wait for an address.

use kube::Client;

use super::query::status;
use crate::runtime::doctor::{Check, Examination, of_status};
use crate::runtime::query::{QueryError, Row};

/// Checks what the status shows.
pub(super) async fn examine(client: Client, examination: Examination) -> Result<Vec<Check>, QueryError> {
    let status = status(client).await?;
    examination.require(status.rows.iter().map(object), "list the gateways: kubectl get egw")?;
    Ok(of_status(GATEWAYS, status, &examination, judge))
}

const GATEWAYS: &str = "gateways";

fn object(row: &Row) -> String {
    format!("EgressGateway/{}", row["gateway"].as_str().unwrap_or_default())
}

fn judge(row: &Row) -> Option<Check> {
    let text = |key: &str| row.get(key).and_then(|value| value.as_str()).unwrap_or_default();
    let waiting = row["waiting"].as_u64().unwrap_or_default();
    let (seen, advice) = match (text("problem"), row["ready"] == true, waiting) {
        ("", true, 0) => return None,
        ("", true, waiting) => (
            format!("{waiting} policies wait for an address"),
            "add addresses to its pool; for one of them: portolan why policy NAMESPACE/NAME".to_owned(),
        ),
        ("", false, _) => (
            format!("none of its nodes is ready ({} ready)", text("nodes")),
            "check its nodeSelector, and that the agents on these nodes run: kubectl get egresstunnels".to_owned(),
        ),
        (problem, _, _) => (problem.to_owned(), "edit its spec".to_owned()),
    };
    Some(Check::fail(GATEWAYS, object(row), seen, advice))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::runtime::query::row;

    #[test]
    fn a_gateway_fails_for_its_first_problem() {
        let seen = |ready: bool, waiting: u64, problem: Value| {
            let row = row([
                ("gateway", json!("eg1")),
                ("ready", json!(ready)),
                ("nodes", json!("0/2")),
                ("waiting", json!(waiting)),
                ("problem", problem),
            ]);
            judge(&row).map(|check| (check.object, check.seen))
        };
        let fails = |seen: &str| Some(("EgressGateway/eg1".to_owned(), seen.to_owned()));
        assert_eq!(seen(true, 0, Value::Null), None);
        assert_eq!(seen(true, 2, Value::Null), fails("2 policies wait for an address"));
        assert_eq!(seen(false, 2, Value::Null), fails("none of its nodes is ready (0/2 ready)"));
        assert_eq!(seen(false, 2, json!("the pool is empty")), fails("the pool is empty"));
    }
}
