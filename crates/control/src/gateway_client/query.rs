//! What `portolan status` says about Services that a gateway is to serve. There is nothing to plan: what the gateway
//! would answer is not known.

use k8s_openapi::api::core::v1::Service;
use kube::{Client, ResourceExt as _};
use portolan_api::well_known::gateway_client::{ANNOUNCED, HONOURED};
use serde_json::json;

use super::{doctor, validate};
use crate::runtime::capability::Queries;
use crate::runtime::conditions::find;
use crate::runtime::overlay::list_all;
use crate::runtime::query::{Column, QueryError, QueryResult, Row, column, row};

/// What users can ask.
pub(super) const QUERIES: Queries = Queries {
    plan: |_, _| Box::pin(async { Ok(QueryResult::of_changes(Vec::new())) }),
    why: &[],
    status: |client| Box::pin(status(client)),
    node_loss: None,
    doctor: |client, examination| Box::pin(doctor::examine(client, examination)),
};

const COLUMNS: &[Column] = &[
    column("namespace", "NAMESPACE"),
    column("name", "NAME"),
    column("address", "ADDRESS"),
    column("announced", "ANNOUNCED"),
    column("problem", "PROBLEM"),
];

/// The state of all Services of the class, and of those that are not let go yet.
pub(super) async fn status(client: Client) -> Result<QueryResult, QueryError> {
    let services: Vec<Service> = list_all(&client, "services").await?;
    let rows: Vec<Row> = services.iter().filter(|service| validate::service(service).is_some()).map(of).collect();
    let announced = rows.iter().filter(|row| row["announced"] == "True").count();
    let summary = format!("{announced} of {} Services announced to a gateway", rows.len());
    let yes = rows.iter().all(|row| row["problem"].is_null());
    Ok(QueryResult { columns: COLUMNS, rows, summary, yes, warnings: Vec::new() })
}

fn of(service: &Service) -> Row {
    let status = service.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let ingress = status.and_then(|status| status.load_balancer.as_ref()?.ingress.as_ref()?.first()?.ip.clone());
    let announced = find(conditions, ANNOUNCED);
    let unmet = [announced, find(conditions, HONOURED)].into_iter().flatten().find(|one| one.status != "True");
    let problem = match (announced, unmet) {
        (_, Some(unmet)) => Some(format!("{}: {}", unmet.reason, unmet.message)),
        (None, None) => Some(
            "NotAnnounced: no operator with capability gateway-client and --gateway-client-url has announced it yet"
                .to_owned(),
        ),
        (Some(_), None) => None,
    };
    row([
        ("namespace", json!(service.namespace())),
        ("name", json!(service.name_any())),
        ("address", json!(ingress)),
        ("announced", json!(announced.map_or("Unknown", |condition| condition.status.as_str()))),
        ("problem", json!(problem)),
    ])
}

#[cfg(test)]
mod tests {
    use portolan_api::well_known::gateway_client::CLASS;

    use super::*;

    #[test]
    fn a_service_that_nobody_announces_says_what_is_missing() {
        let service = json!({
            "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "type": "LoadBalancer", "loadBalancerClass": CLASS },
        });
        let row = of(&serde_json::from_value(service).unwrap());
        assert!(row["problem"].as_str().is_some_and(|text| text.contains("--gateway-client-url")), "{row:?}");
    }
}
