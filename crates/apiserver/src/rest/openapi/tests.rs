use super::super::fixtures::{builtin_kind, planet, widget};
use super::*;

fn custom_document() -> Value {
    document(&[&widget(), &planet()])
}

#[test]
fn paths_and_schemas_are_named_as_the_real_server_names_them() {
    let document = custom_document();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let base = "/apis/d.portolan.dev/v1";
    assert_eq!(
        keys(&document["paths"]),
        [
            format!("{base}/namespaces/{{namespace}}/widgets"),
            format!("{base}/namespaces/{{namespace}}/widgets/{{name}}"),
            format!("{base}/namespaces/{{namespace}}/widgets/{{name}}/scale"),
            format!("{base}/namespaces/{{namespace}}/widgets/{{name}}/status"),
            format!("{base}/planets"),
            format!("{base}/planets/{{name}}"),
            format!("{base}/widgets"),
        ]
    );
    let schemas = keys(&document["components"]["schemas"]);
    for name in ["dev.portolan.d.v1.Widget", "dev.portolan.d.v1.WidgetList", OBJECT_META, SCALE] {
        assert!(schemas.iter().any(|known| known == name), "{name} is not in {schemas:?}");
    }
    let pod = builtin_kind("", "pods", "Pod", true);
    assert_eq!(schema_name(&pod, "Pod"), "io.k8s.api.core.v1.Pod");
    assert_eq!(
        schema_name(&builtin_kind("rbac.authorization.k8s.io", "roles", "Role", true), "Role"),
        "io.k8s.api.rbac.v1.Role"
    );
}

#[test]
fn kubectl_finds_the_kind_and_the_field_validation_of_patches() {
    let document = custom_document();
    let patch = &document["paths"]["/apis/d.portolan.dev/v1/namespaces/{namespace}/widgets/{name}"]["patch"];
    let gvk = json!({ "group": "d.portolan.dev", "version": "v1", "kind": "Widget" });
    assert_eq!(patch["x-kubernetes-group-version-kind"], gvk);
    let names: Vec<&str> =
        patch["parameters"].as_array().unwrap().iter().filter_map(|one| one["name"].as_str()).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    assert_eq!(patch["operationId"], "patchDPortolanDevV1Widget");
    let widget = &document["components"]["schemas"]["dev.portolan.d.v1.Widget"];
    assert_eq!(widget["x-kubernetes-group-version-kind"], json!([gvk]));
    assert_eq!(widget["x-kubernetes-selectable-fields"], json!([{ "fieldPath": "spec.desk" }]));
}

#[test]
fn schemas_keep_their_documentation() {
    let document = custom_document();
    let schemas = &document["components"]["schemas"];
    let widget = &schemas["dev.portolan.d.v1.Widget"];
    assert_eq!(widget["description"], "A widget.");
    assert_eq!(
        widget["properties"]["spec"],
        json!({ "type": "object", "required": ["desk"], "properties": {
            "desk": { "type": "string", "description": "Where it stands." },
            "tags": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set" } } })
    );
    assert!(widget["properties"]["kind"]["description"].as_str().unwrap().starts_with("Kind is a string value"));
    let meta = &schemas[OBJECT_META];
    assert_eq!(meta["properties"]["ownerReferences"]["items"]["properties"]["uid"]["type"], "string");
    assert_eq!(meta["properties"]["creationTimestamp"]["format"], "date-time");
    let text = document.to_string();
    for (at, _) in text.match_indices("\"$ref\":\"") {
        let name = text[at + 8..].split('"').next().unwrap().strip_prefix("#/components/schemas/").unwrap();
        assert!(schemas.get(name).is_some(), "{name} leads nowhere");
    }
}

#[test]
fn the_index_sends_clients_to_the_current_document() {
    let hash = hash(&custom_document());
    let path = document_path("d.portolan.dev", "v1");
    let index = index([(path.as_str(), hash.as_str()), ("api/v1", "X")]);
    assert_eq!(
        index["paths"]["apis/d.portolan.dev/v1"]["serverRelativeURL"],
        format!("/openapi/v3/apis/d.portolan.dev/v1?hash={hash}")
    );
    assert_eq!(index["paths"]["api/v1"]["serverRelativeURL"], "/openapi/v3/api/v1?hash=X");
}
