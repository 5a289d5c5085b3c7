//! What is wrong with Services that a gateway is to serve.

use kube::Client;

use super::query::status;
use crate::runtime::doctor::{Check, Examination, of_status};
use crate::runtime::query::{QueryError, Row};

/// Checks what the status shows.
pub(super) async fn examine(client: Client, examination: Examination) -> Result<Vec<Check>, QueryError> {
    let status = status(client).await?;
    examination.require(status.rows.iter().map(object), "list the Services: portolan status gateway-client")?;
    Ok(of_status(SERVICES, status, &examination, judge))
}

const SERVICES: &str = "services";

fn object(row: &Row) -> String {
    let text = |key: &str| row.get(key).and_then(|value| value.as_str()).unwrap_or_default();
    format!("Service/{}/{}", text("namespace"), text("name"))
}

fn judge(row: &Row) -> Option<Check> {
    let problem = row["problem"].as_str()?;
    let advice = "see its conditions and events: kubectl describe service; and the log of the operator";
    if row["announced"] == "True" {
        return Some(Check::warn(SERVICES, object(row), problem, advice));
    }
    Some(Check::fail(SERVICES, object(row), problem, advice))
}
