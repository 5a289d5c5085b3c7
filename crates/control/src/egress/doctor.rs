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
    format!("EgressGateway/{}", text(row, "gateway").unwrap_or("-"))
}

fn judge(row: &Row) -> Option<Check> {
    let problem = text(row, "problem")?;
    let advice = if text(row, "ready") == Some("True") {
        "see which policies: kubectl get egp,egcp -A; and of one of them: portolan why policy NAMESPACE/NAME"
    } else {
        "see its conditions: kubectl describe egw; and that the agents on its nodes run: kubectl get egt"
    };
    Some(Check::fail(GATEWAYS, object(row), problem, advice))
}

fn text<'a>(row: &'a Row, key: &str) -> Option<&'a str> {
    row.get(key)?.as_str()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::runtime::query::row;

    #[test]
    fn a_gateway_fails_for_its_first_problem_and_only_then() {
        let check = |gateway: Value, ready: &str, problem: Value| {
            judge(&row([("gateway", gateway), ("ready", json!(ready)), ("problem", problem)]))
        };
        assert!(check(json!("eg1"), "True", Value::Null).is_none());
        let waiting = check(json!("eg1"), "True", json!("NoFreeAddress: the pool is empty")).unwrap();
        assert_eq!(waiting.object, "EgressGateway/eg1");
        assert_eq!(waiting.seen, "NoFreeAddress: the pool is empty");
        let lost = check(json!("eg1"), "False", json!("NoReadyNode: 0 of 2 nodes")).unwrap();
        assert_ne!(waiting.advice, lost.advice);
        assert_eq!(check(Value::Null, "False", json!("no default gateway")).unwrap().object, "EgressGateway/-");
    }
}
