//! What is wrong with the mirror: remotes that are not ready, Services that cannot be mirrored, and endpoints of mirrors
//! that are not ours.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::{Client, ResourceExt as _};
use portolan_api::well_known::mirror::{BARRELMAN, MANAGED_BY as MIRROR, REMOTE};
use portolan_core::mirror::Role;

use super::names::{IMPORT_NAME, MANAGED_BY, SERVICE_NAME};
use super::query::status;
use super::validate;
use crate::runtime::doctor::{Check, Examination, Verdict, of_status};
use crate::runtime::overlay::list_all;
use crate::runtime::query::{QueryError, Row};

/// Checks what the status shows, and the endpoints of mirrors.
pub(super) async fn examine(client: Client, examination: Examination) -> Result<Vec<Check>, QueryError> {
    let status = status(client.clone()).await?;
    let services: Vec<Service> = list_all(&client, "services").await?;
    let known = status.rows.iter().map(remote).chain(services.iter().map(named));
    examination.require(known, "list the remotes: kubectl get remoteclusters")?;
    let mut checks = of_status(REMOTES, status, &examination, judge);
    let slices: Vec<EndpointSlice> = list_all(&client, "endpointslices").await?;
    let mut endpoints = foreign_endpoints(&services, &slices);
    endpoints.retain(|check| check.verdict == Verdict::Ok || examination.concerns(&check.object));
    checks.extend(endpoints);
    Ok(checks)
}

const REMOTES: &str = "remotes";
const ENDPOINTS: &str = "endpoints";

fn remote(row: &Row) -> String {
    format!("RemoteCluster/{}", row["name"].as_str().unwrap_or_default())
}

fn named(service: &Service) -> String {
    format!("Service/{}/{}", service.namespace().unwrap_or_default(), service.name_any())
}

fn judge(row: &Row) -> Option<Check> {
    let object = remote(row);
    if row["ready"] != true {
        let problem = row["problem"].as_str().unwrap_or_default();
        let advice = format!("see its conditions: kubectl describe {}", object.to_lowercase());
        return Some(Check::fail(REMOTES, object, problem, advice));
    }
    let unmet = row["unmet"].as_i64().unwrap_or_default();
    let advice = "see which: kubectl describe remotecluster; and why: portolan why service NAMESPACE/NAME";
    (unmet > 0).then(|| Check::warn(REMOTES, object, format!("{unmet} Services cannot be mirrored"), advice))
}

/// Slices that others have added to Services whose endpoints we keep: they get a share of the traffic.
fn foreign_endpoints(services: &[Service], slices: &[EndpointSlice]) -> Vec<Check> {
    let handled = services.iter().filter(|service| validate::service(service).role != Role::Foreign);
    let handled: BTreeSet<(Option<String>, String)> =
        handled.map(|service| (service.namespace(), service.name_any())).collect();
    let is_foreign = |slice: &&EndpointSlice| {
        let label = |key: &str| slice.labels().get(key).map(String::as_str);
        let belongs = label(SERVICE_NAME).is_some_and(|name| handled.contains(&(slice.namespace(), name.to_owned())));
        let is_ours = label(MANAGED_BY) == Some(MIRROR) || label(REMOTE).is_some() || label(IMPORT_NAME).is_some();
        belongs && !is_ours && slice.endpoints.as_ref().is_some_and(|endpoints| !endpoints.is_empty())
    };
    let found = slices.iter().filter(is_foreign).map(|slice| {
        let service = slice.labels().get(SERVICE_NAME).map(String::as_str).unwrap_or_default();
        let object = format!("Service/{}/{service}", slice.namespace().unwrap_or_default());
        let seen = format!("ForeignEndpoints: EndpointSlice {} adds endpoints that are not ours", slice.name_any());
        Check::warn(ENDPOINTS, object, seen, format!("delete the slice, or take label {BARRELMAN} off the Service"))
    });
    let found: Vec<Check> = found.collect();
    if found.is_empty() {
        return vec![Check::ok(ENDPOINTS, format!("Services with our endpoints only: {}", handled.len()))];
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn slice(name: &str, labels: &Value) -> EndpointSlice {
        let mut metadata = json!({ "name": name, "namespace": "shop", "labels": labels });
        metadata["labels"][SERVICE_NAME] = "web".into();
        let endpoint = json!({ "addresses": ["10.0.0.1"] });
        let object = json!({ "metadata": metadata, "addressType": "IPv4", "endpoints": [endpoint] });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn endpoints_that_others_add_to_a_mirror_are_reported() {
        let service = |labels: Value| -> Service {
            let metadata = json!({ "name": "web", "namespace": "shop", "labels": labels });
            serde_json::from_value(json!({ "metadata": metadata })).unwrap()
        };
        let ours = slice("ours", &json!({ MANAGED_BY: MIRROR }));
        let copy = slice("copy", &json!({ MANAGED_BY: "endpointslicemirroring-controller.k8s.io", REMOTE: "east" }));
        let other = slice("other", &json!({}));
        let slices = [ours, copy, other];
        let found = foreign_endpoints(&[service(json!({ BARRELMAN: "managed-resource" }))], &slices);
        let objects: Vec<_> = found.iter().map(|check| (check.verdict, check.object.as_str())).collect();
        assert_eq!(objects, [(Verdict::Warn, "Service/shop/web")]);
        assert_eq!(foreign_endpoints(&[service(json!({}))], &slices)[0].verdict, Verdict::Ok);
    }
}
