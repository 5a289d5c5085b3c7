//! What kube-apiserver 1.36.4 answered, replayed: each case is an object that it was sent, with what it stored or why it
//! refused. Causes of one answer are compared without order where Kubernetes has none.

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::Value;

use super::cel::Rules;
use super::{Schema, default, prune, validate};

#[test]
fn no_schema_and_no_object_brings_it_down() {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z(*\\\\\\[é]{0,6}".prop_map(Value::from),
        prop::sample::select(vec!["object", "array", "string", "integer", "#/$defs/type", "self.all(x, x > 1)"])
            .prop_map(Value::from),
    ];
    let name = prop::sample::select(vec![
        "type",
        "properties",
        "items",
        "additionalProperties",
        "allOf",
        "not",
        "anyOf",
        "enum",
        "required",
        "pattern",
        "minimum",
        "multipleOf",
        "maxLength",
        "format",
        "default",
        "nullable",
        "$ref",
        "x-kubernetes-list-type",
        "x-kubernetes-list-map-keys",
        "x-kubernetes-validations",
        "rule",
        "fieldPath",
        "x-kubernetes-embedded-resource",
        "metadata",
        "spec",
        "versions",
        "schema",
        "openAPIV3Schema",
        "names",
        "status",
        "storedVersions",
    ]);
    let json = leaf.prop_recursive(6, 64, 6, move |inner| {
        let fields = prop::collection::btree_map(name.clone().prop_map(str::to_owned), inner.clone(), 0..6);
        prop_oneof![
            prop::collection::vec(inner, 0..4).prop_map(Value::from),
            fields.prop_map(|fields| fields.into_iter().collect()),
        ]
    });
    proptest!(ProptestConfig::with_cases(300), |(schema in json.clone(), object in json)| {
        let custom = Schema::parse(&schema);
        let rules = Rules::compile(&custom);
        let mut pruned = object.clone();
        prune::prune(&custom, &mut pruned);
        default::default(&custom, &mut pruned);
        validate::validate_with_rules(&custom, &rules, &object, Some(&pruned), Vec::new());
        super::strict::faults(Some(&custom), object.to_string().as_bytes());
        let mut crd = serde_json::json!({ "spec": { "versions": [{ "schema": { "openAPIV3Schema": schema } }, object] } });
        crate::crd::defaulted(&mut crd);
        crate::crd::prepare(&mut crd, Some(&object));
        crate::crd::validate_definition(&crd, Some(&object));
        crate::crd::validate_definition(&object, None);
    });
}

#[test]
fn objects_are_pruned_defaulted_and_judged_as_the_real_server_does() {
    let suites: Vec<Value> = serde_json::from_str(include_str!("recorded.json")).unwrap();
    let mut wrong = Vec::new();
    for suite in &suites {
        let schema = Schema::parse(&suite["schema"]);
        let rules = Rules::compile(&schema);
        let cases = suite["cases"].as_array().unwrap();
        wrong.extend(cases.iter().filter_map(|case| difference(&schema, &rules, case)));
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn difference(schema: &Schema, rules: &Rules, case: &Value) -> Option<String> {
    let mut object = case["new"].clone();
    let unknown = prune::prune(schema, &mut object);
    default::default(schema, &mut object);
    // the server does so for kinds with a status subresource
    object.as_object_mut().map(|object| object.remove("status"));
    let found = validate::validate_with_rules(schema, rules, &object, case.get("old"), Vec::new());
    let causes = types(found.iter().map(crate::status::Cause::to_json));
    let expected = types(case.get("causes").and_then(Value::as_array).into_iter().flatten().cloned());
    let stored = case.get("stored").is_none_or(|stored| *stored == object);
    let warnings: BTreeSet<String> = super::strict::unknown_fields(&unknown).collect();
    let told: BTreeSet<String> = case
        .get("warnings")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let equal = causes == expected && stored && warnings == told;
    (!equal).then(|| {
        let wanted = case.get("stored").unwrap_or(&Value::Null);
        format!("{}\n  got  {causes:?} {object} {warnings:?}\n  want {expected:?} {wanted} {told:?}", case["name"])
    })
}

/// The types and fields of causes; their words are ours.
fn types(causes: impl Iterator<Item = Value>) -> Vec<String> {
    let mut types: Vec<String> = causes.map(|cause| format!("{} {}", cause["reason"], cause["field"])).collect();
    types.sort();
    types
}
