use std::fmt::Write as _;

use serde_json::json;

use super::super::fixtures::{builtin_kind, widget};
use super::*;

fn text(kind: &Kind, body: &str) -> String {
    object(Form::Json, body.as_bytes(), kind).unwrap_err().message
}

fn config_map() -> Kind {
    builtin_kind("", "configmaps", "ConfigMap", true)
}

#[test]
fn faults_of_bodies_are_those_of_the_real_server() {
    for (body, tail) in [
        ("", "couldn't get version/kind; json parse error: unexpected end of JSON input (<empty>)"),
        ("x", "couldn't get version/kind; json parse error: invalid character 'x' looking for beginning of value (78)"),
        (
            r#"{"kind":1}"#,
            r#"couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct field .kind of type string ({"kind":1})"#,
        ),
        (
            r#"{"kind":"ConfigMap","apiVersion":"a/b/c"}"#,
            r#"unexpected GroupVersion string: a/b/c ({"kind":"ConfigMap","apiVersio ...)"#,
        ),
        (
            "[]",
            r#"couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" } (5b5d)"#,
        ),
    ] {
        let head = |kind: &str| format!("the object provided is unrecognized (must be of type {kind}): ");
        assert_eq!(text(&config_map(), body), head("ConfigMap") + tail);
        assert_eq!(text(&widget(), body), head("Widget") + tail);
    }
}

#[test]
fn other_kinds_are_refused() {
    assert_eq!(
        text(&config_map(), r#"{"kind":"Foo","apiVersion":"v1"}"#),
        r#"Foo in version "v1" cannot be handled as a ConfigMap: no kind "Foo" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111""#
    );
    assert_eq!(
        text(&config_map(), r#"{"kind":"ConfigMap","apiVersion":"apps/v1"}"#),
        r#"ConfigMap in version "v1" cannot be handled as a ConfigMap: no kind "ConfigMap" is registered for version "apps/v1" in scheme "pkg/runtime/scheme.go:111""#
    );
    assert_eq!(
        text(&widget(), r#"{"kind":"Widget"}"#),
        "the API version in the data () does not match the expected API version (d.portolan.dev/v1)"
    );
    assert_eq!(
        text(&widget(), "{}"),
        "the object provided is unrecognized (must be of type Widget): Object 'Kind' is missing in '{}' ({})"
    );
    assert_eq!(
        text(&widget(), r#"{"kind":"Foo","apiVersion":"d.portolan.dev/v1"}"#),
        r#"Foo.d.portolan.dev "" is invalid: kind: Invalid value: "Foo": must be Widget"#
    );
    assert_eq!(
        text(&widget(), r#"{"kind":"Widget","apiVersion":"d.portolan.dev/v1","metadata":1}"#),
        r#"Widget in version "v1" cannot be handled as a Widget: json: cannot unmarshal number into Go value of type v1.ObjectMeta"#
    );
}

#[test]
fn built_in_kinds_get_their_type_filled_in() {
    let expected = json!({ "kind": "ConfigMap", "apiVersion": "v1" });
    for body in ["{}", "null", r#"{"kind":"ConfigMap"}"#, r#"{"apiVersion":"/v1"}"#] {
        assert_eq!(object(Form::Json, body.as_bytes(), &config_map()).unwrap().value, expected, "{body}");
    }
    assert_eq!(object(Form::Yaml, b"", &config_map()).unwrap().value, expected);
}

#[test]
fn duplicates_are_named_and_the_last_counts() {
    let decoded = decode_json(br#"{"data":{"a":"1","a":"2"},"x":[{"y":{"z":1,"z":2}}],"data":{}}"#).unwrap();
    assert_eq!(decoded.duplicates, ["data.a", "x[0].y.z", "data"]);
    assert_eq!(decoded.value, json!({ "data": {}, "x": [{ "y": { "z": 2 } }] }));
}

#[test]
fn yaml_becomes_the_same_value() {
    let yaml = b"kind: ConfigMap\napiVersion: v1\ndata: &d\n  a: 'true'\n  n: 1.50\nmore: {x: *d, t: true, f: 1.5, i: -3}\nnone:\n";
    let data = json!({ "a": "true", "n": 1.5 });
    assert_eq!(
        decode_yaml(yaml).unwrap().value,
        json!({ "kind": "ConfigMap", "apiVersion": "v1", "data": data, "none": null,
                "more": { "x": data, "t": true, "f": 1.5, "i": -3 } })
    );
    for bad in ["a: [", "a: b: c", "kind: *x"] {
        let fault = decode(Form::Yaml, bad.as_bytes()).unwrap_err();
        assert!(fault.starts_with("yaml: ") && !fault.contains('\n'), "{bad}: {fault}");
    }
}

#[test]
fn hostile_bodies_are_errors_not_crashes() {
    let deep = "{\"a\":".repeat(100_000);
    assert!(decode_json(deep.as_bytes()).unwrap_err().contains("exceeded max depth"));
    let deep_yaml = "[".repeat(100_000);
    assert!(decode_yaml(deep_yaml.as_bytes()).is_err());
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
    for level in 1..12 {
        let before = format!("*a{}", level - 1);
        writeln!(bomb, "a{level}: &a{level} [{}]", vec![before; 9].join(", ")).unwrap();
    }
    assert!(decode_yaml(bomb.as_bytes()).is_err());
    assert_eq!(too_large().message, "Request entity too large: limit is 3145728");
}
