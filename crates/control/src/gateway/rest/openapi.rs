//! The description of the API, made from its routes.

use http::Method;
use serde_json::{Map, Value, json};

use super::links::PREFIX;
use super::routes::{Action, ROUTES};

/// What one operation is about.
struct Operation {
    id: &'static str,
    summary: &'static str,
    /// Schema of the request's body.
    takes: Option<&'static str>,
    /// Schema of a good answer's body, by status code.
    gives: &'static [(u16, &'static str)],
    /// Status codes of errors, besides those of all operations with a login.
    errors: &'static [u16],
    query: &'static [&'static str],
    headers: &'static [&'static str],
}

const PLAIN: Operation =
    Operation { id: "", summary: "", takes: None, gives: &[], errors: &[404], query: &[], headers: &[] };
const PAGED: &[&str] = &["limit", "continue"];
const WATCH: Operation = Operation { gives: &[(200, "Events")], headers: &["Last-Event-ID"], ..PLAIN };

const fn operation(action: Action) -> Operation {
    match action {
        Action::OpenApi => {
            Operation { id: "describe", summary: "This document", gives: &[(200, "Any")], errors: &[], ..PLAIN }
        }
        Action::Health => {
            Operation { id: "health", summary: "The server is there", gives: &[(200, "Message")], errors: &[], ..PLAIN }
        }
        Action::ShowAccount => {
            Operation { id: "showAccount", summary: "An account", gives: &[(200, "Account")], ..PLAIN }
        }
        Action::ListGroups => Operation {
            id: "listGroups",
            summary: "Groups of an account",
            gives: &[(200, "Groups")],
            errors: &[400, 404],
            query: PAGED,
            ..PLAIN
        },
        Action::ShowGroup => Operation { id: "showGroup", summary: "A group", gives: &[(200, "Group")], ..PLAIN },
        Action::CreateService => Operation {
            id: "createService",
            summary: "Makes a service, and waits until it has an address",
            takes: Some("ServiceRequest"),
            gives: &[(302, "Empty")],
            errors: &[400, 404, 409, 413, 415, 422],
            headers: &["Idempotency-Key"],
            ..PLAIN
        },
        Action::ListServices => Operation {
            id: "listServices",
            summary: "Services of an account",
            gives: &[(200, "Services")],
            errors: &[400, 404],
            query: PAGED,
            ..PLAIN
        },
        Action::ShowService => {
            Operation { id: "showService", summary: "A service", gives: &[(200, "Service")], ..PLAIN }
        }
        Action::ReplaceService => Operation {
            id: "replaceService",
            summary: "Replaces ports and sharing key of a service",
            takes: Some("ServiceRequest"),
            gives: &[(200, "Service")],
            errors: &[400, 404, 409, 412, 413, 415, 422],
            headers: &["If-Match"],
            ..PLAIN
        },
        Action::DeleteService => Operation {
            id: "deleteService",
            summary: "Deletes a service; one that is gone already is as good",
            gives: &[(200, "Message")],
            ..PLAIN
        },
        Action::ListEndpoints => Operation {
            id: "listEndpoints",
            summary: "Endpoints of a service",
            gives: &[(200, "Endpoints")],
            errors: &[400, 404],
            query: PAGED,
            ..PLAIN
        },
        Action::CreateEndpoint => Operation {
            id: "createEndpoint",
            summary: "Makes an endpoint; the server names it",
            takes: Some("EndpointRequest"),
            gives: &[(302, "Empty")],
            errors: &[400, 404, 409, 413, 415, 422],
            ..PLAIN
        },
        Action::ShowEndpoint => {
            Operation { id: "showEndpoint", summary: "An endpoint", gives: &[(200, "Endpoint")], ..PLAIN }
        }
        Action::PutEndpoint => Operation {
            id: "putEndpoint",
            summary: "Makes an endpoint of that name, or renames the port of the one that is there",
            takes: Some("EndpointRequest"),
            gives: &[(200, "Endpoint"), (201, "Endpoint")],
            errors: &[400, 404, 409, 413, 415, 422],
            ..PLAIN
        },
        Action::DeleteEndpoint => Operation {
            id: "deleteEndpoint",
            summary: "Deletes an endpoint; one that is gone already is as good",
            gives: &[(200, "Message")],
            ..PLAIN
        },
        Action::ReplaceNode => Operation {
            id: "replaceNodeEndpoints",
            summary: "Makes the endpoints of a node exactly these, at most 5000",
            takes: Some("EndpointsRequest"),
            gives: &[(200, "Counts")],
            errors: &[400, 404, 413, 415, 422],
            ..PLAIN
        },
        Action::WatchAccount => Operation {
            id: "watchAccount",
            summary: "Changes of services and endpoints of an account, as they happen",
            ..WATCH
        },
        Action::WatchService => {
            Operation { id: "watchService", summary: "Changes of a service and its endpoints", ..WATCH }
        }
    }
}

/// The whole document.
pub fn openapi() -> Value {
    let mut paths = Map::new();
    for route in ROUTES {
        let mut item = Map::new();
        for (method, action) in route.actions {
            item.insert(method.as_str().to_ascii_lowercase(), described(route.path, method, *action));
        }
        paths.insert(format!("{PREFIX}{}", route.path), item.into());
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Portolan gateway",
            "version": "1",
            "description": "Tenants announce services and their endpoints. Keys of bodies match without regard to case; unknown ones are ignored.",
        },
        "paths": paths,
        "security": [{ "basic": [] }, { "token": [] }, { "certificate": [] }],
        "components": {
            "securitySchemes": {
                "basic": { "type": "http", "scheme": "basic", "description": "A line of key `auth` in Secret `api-users` of namespace egw-ACCOUNT" },
                "token": { "type": "http", "scheme": "bearer", "description": "A token of a ServiceAccount of namespace egw-ACCOUNT, for audience portolan-gateway" },
                "certificate": { "type": "mutualTLS", "description": "A client certificate with the URI egw://account/ACCOUNT" },
            },
            "schemas": schemas(),
        },
    })
}

fn described(path: &str, method: &Method, action: Action) -> Value {
    let Operation { id, summary, takes, gives, errors, query, headers } = operation(action);
    let is_open = matches!(action, Action::OpenApi | Action::Health);
    let in_path = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let text = json!({ "type": "string" });
    let parameter =
        |name: &str, place: &str| json!({ "name": name, "in": place, "required": place == "path", "schema": text });
    let parameters: Vec<Value> = in_path
        .map(|name| parameter(name, "path"))
        .chain(query.iter().map(|name| parameter(name, "query")))
        .chain(headers.iter().map(|name| parameter(name, "header")))
        .collect();
    let mut responses = Map::new();
    for (code, schema) in gives {
        responses.insert(code.to_string(), good(*code, schema));
    }
    let of_all: &[u16] = if is_open { &[] } else { &[401, 403, 429, 503] };
    for code in errors.iter().chain(of_all) {
        let content = json!({ "application/json": { "schema": schema("Error") } });
        responses.insert(code.to_string(), json!({ "description": "Refused", "content": content }));
    }
    let mut described =
        json!({ "operationId": id, "summary": summary, "parameters": parameters, "responses": responses });
    if let Some(takes) = takes {
        let content = json!({ "application/json": { "schema": schema(takes) } });
        described["requestBody"] = json!({ "required": true, "content": content });
    }
    if is_open {
        described["security"] = json!([]);
    }
    debug_assert!(takes.is_none() == (*method == Method::GET || *method == Method::DELETE));
    described
}

fn good(code: u16, name: &str) -> Value {
    match name {
        "Empty" => json!({ "description": "Made", "headers": { "Location": { "schema": { "type": "string" } } } }),
        "Events" => json!({
            "description": "Events added, modified, deleted and reset; the id is a resource version, the data the body of a GET",
            "content": { "text/event-stream": { "schema": { "type": "string" } } },
        }),
        _ => {
            let description = if code == 201 { "Made" } else { "Done" };
            json!({ "description": description, "content": { "application/json": { "schema": schema(name) } } })
        }
    }
}

fn schema(name: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{name}") })
}

fn schemas() -> Value {
    let text = json!({ "type": "string" });
    let count = json!({ "type": "integer", "minimum": 0 });
    let link = json!({ "type": "object", "additionalProperties": text });
    let object = |name: &str| json!({ "type": "object", "description": format!("{name} of egw.acnodal.io/v1") });
    let view = |name: &str, kind: &str| json!({ "type": "object", "properties": { "link": link, name: object(kind) }, "required": ["link", name] });
    let list = |name: &str, of: &str| {
        let properties = json!({ "link": link, name: { "type": "array", "items": schema(of) } });
        json!({ "type": "object", "properties": properties, "required": ["link", name] })
    };
    let port = json!({
        "type": "object",
        "properties": {
            "name": text, "protocol": { "type": "string", "description": "TCP or UDP in any case; TCP when absent" },
            "appProtocol": text, "port": { "type": "integer", "minimum": 1, "maximum": 65535 },
        },
        "required": ["port"],
    });
    let mut public_port = port.clone();
    public_port["properties"]["targetPort"] = json!({ "type": ["integer", "string"] });
    public_port["properties"]["nodePort"] = json!({ "type": "integer", "minimum": 0, "maximum": 65535 });
    let endpoint = json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": { "address": text, "node-address": text, "port": port },
                "required": ["address", "port"],
            },
        },
        "required": ["spec"],
    });
    json!({
        "Any": { "type": "object" },
        "Message": { "type": "object", "properties": { "message": text }, "required": ["message"] },
        "Error": {
            "type": "object",
            "properties": { "error": text, "reason": text, "details": { "type": "object" } },
            "required": ["error", "reason", "details"],
        },
        "Account": view("account", "Account"),
        "Group": view("group", "ServiceGroup"),
        "Service": view("service", "LoadBalancer"),
        "Endpoint": view("endpoint", "Endpoint"),
        "Groups": list("groups", "Group"),
        "Services": list("services", "Service"),
        "Endpoints": list("endpoints", "Endpoint"),
        "ServiceRequest": {
            "type": "object",
            "properties": { "service": {
                "type": "object",
                "properties": {
                    "metadata": { "type": "object", "properties": { "name": text } },
                    "spec": {
                        "type": "object",
                        "properties": {
                            "public-ports": { "type": "array", "items": public_port, "minItems": 1, "maxItems": 100 },
                            "sharing-key": text,
                            "public-address": { "type": "string", "description": "Taken where the group allows it" },
                        },
                        "required": ["public-ports"],
                    },
                },
                "required": ["spec"],
            } },
            "required": ["service"],
        },
        "EndpointRequest": { "type": "object", "properties": { "endpoint": endpoint }, "required": ["endpoint"] },
        "EndpointsRequest": {
            "type": "object",
            "properties": { "endpoints": { "type": "array", "items": endpoint, "maxItems": 5000 } },
            "required": ["endpoints"],
        },
        "Counts": {
            "type": "object",
            "properties": { "link": link, "created": count, "updated": count, "deleted": count, "unchanged": count },
        },
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_route_is_described_and_nothing_else() {
        let document = openapi();
        let paths = document["paths"].as_object().unwrap();
        let described: BTreeSet<(String, String)> = paths
            .iter()
            .flat_map(|(path, item)| item.as_object().unwrap().keys().map(|method| (path.clone(), method.clone())))
            .collect();
        let served: BTreeSet<(String, String)> = ROUTES
            .iter()
            .flat_map(|route| {
                let method =
                    |method: &Method| (format!("{PREFIX}{}", route.path), method.as_str().to_ascii_lowercase());
                route.actions.iter().map(move |(of, _)| method(of))
            })
            .collect();
        assert_eq!(described, served);
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = openapi();
        let mut open = vec![&document];
        let mut ids = BTreeSet::new();
        while let Some(value) = open.pop() {
            if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
                assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
            }
            if let Some(id) = value.get("operationId").and_then(Value::as_str) {
                assert!(ids.insert(id.to_owned()), "{id} is there twice");
            }
            match value {
                Value::Object(members) => open.extend(members.values()),
                Value::Array(items) => open.extend(items),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        assert_eq!(ids.len(), ROUTES.iter().map(|route| route.actions.len()).sum::<usize>());
    }
}
