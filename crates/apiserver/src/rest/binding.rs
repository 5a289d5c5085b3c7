//! The `binding` subresource of pods: a scheduler gives a pod its node, once. A uid or a revision in the binding must be
//! the pod's, and its labels and annotations become the pod's.

use http::{StatusCode, header};
use serde_json::{Value, json};

use super::body::decode;
use super::negotiate;
use super::pipeline::{FieldManagement, WriteRequest};
use super::response::Reply;
use crate::json::{entries, fill, list, put, remove};
use crate::object::{is_deleting, meta, time};
use crate::status::{About, Cause, Failure};

/// `POST` of a Binding.
pub(super) async fn bind(write: &WriteRequest<'_, '_>, bytes: &[u8]) -> Result<Reply, Failure> {
    let call = write.call;
    let form = negotiate::content(call.header(header::CONTENT_TYPE))?;
    let asked = decode(form, bytes, ("v1", "Binding"))?;
    if meta(&asked, "name") != call.name {
        return Err(Failure::bad_request("name in URL does not match name in Binding object"));
    }
    let text = |field: &str| asked["target"][field].as_str().unwrap_or_default();
    let cause = match (text("kind"), text("name")) {
        ("" | "Node", "") => Some(("FieldValueRequired", "Required value", "target.name")),
        ("" | "Node", _) => None,
        _ => Some(("FieldValueNotSupported", "Unsupported value: a pod is bound to a Node", "target.kind")),
    };
    if let Some((reason, message, field)) = cause {
        let cause = Cause { reason, message: message.to_owned(), field: field.to_owned() };
        return Err(Failure::invalid(About { group: "", resource: "Binding", name: &call.name }, &[cause]));
    }
    let bound = |old: &Value| {
        let refused = |why: &str| Err(Failure::conflict(About { resource: "pods/binding", ..call.about() }, why));
        for field in ["uid", "resourceVersion"] {
            let (wanted, own) = (meta(&asked, field), meta(old, field));
            if !wanted.is_empty() && wanted != own {
                let why = format!("the binding is for {field} {wanted:?}, and the pod has {own:?}");
                return Err(Failure::conflict(call.about(), &why));
            }
        }
        if is_deleting(old) {
            return refused(&format!("pod {} is being deleted, cannot be assigned to a host", call.name));
        }
        if let Some(node) = old["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
            return refused(&format!("pod {} is already assigned to node {node:?}", call.name));
        }
        if !list(old, "/spec/schedulingGates").is_empty() {
            return refused(&format!("pod {} has non-empty .spec.schedulingGates", call.name));
        }
        let mut new = old.clone();
        new["spec"]["nodeName"] = text("name").into();
        remove(&mut new["status"], "nominatedNodeName");
        for field in ["annotations", "labels"] {
            for (key, value) in entries(&asked, &format!("/metadata/{field}")) {
                fill(&mut new["metadata"], field, json!({}));
                put(&mut new["metadata"][field], key, value.clone());
            }
        }
        let scheduled = json!({
            "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": time(call.now),
        });
        if !new["status"]["conditions"].is_array() {
            new["status"]["conditions"] = json!([]);
        }
        if let Some(conditions) = new["status"]["conditions"].as_array_mut() {
            conditions.retain(|condition| condition["type"] != "PodScheduled");
            conditions.push(scheduled);
        }
        Ok(new)
    };
    write.change(FieldManagement::Done, bound).await?;
    let status = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
    Ok(Reply::Object { code: StatusCode::CREATED, object: status })
}
