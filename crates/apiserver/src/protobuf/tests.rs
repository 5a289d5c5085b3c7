//! Objects there and back, and bytes that are none.

use serde_json::{Value, json};

use super::wire::Fault;
use super::{decode, encode, watch_event};

const NONE: (&str, &str) = ("", "");

fn back(object: &Value) -> Value {
    decode(&encode(object).unwrap(), NONE).unwrap()
}

#[test]
fn what_is_encoded_decodes_to_the_same() {
    let metadata = json!({
        "name": "one", "labels": { "a": "b" }, "generation": 3, "creationTimestamp": "2026-11-19T04:00:00Z",
        "managedFields": [{ "manager": "m", "fieldsType": "FieldsV1", "fieldsV1": { "f:data": { ".": {} } } }],
    });
    let schema = json!({
        "type": "object", "maximum": 1.5, "default": { "x": [1, null] }, "enum": [null, "a"], "$ref": "#",
        "x-kubernetes-preserve-unknown-fields": true, "items": { "type": "string" },
        "additionalProperties": false, "additionalItems": { "type": "integer" },
        "properties": { "list": { "items": [{ "type": "string" }] } },
        "dependencies": { "a": ["b"], "c": { "type": "string" } },
    });
    for object in [
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": { "a": "1", "": "" },
                "binaryData": { "b": "AAEC" }, "immutable": false }),
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {
            "containers": [{ "name": "c", "resources": { "limits": { "cpu": "100m" } },
                "livenessProbe": { "httpGet": { "port": "web" }, "periodSeconds": 3 },
                "readinessProbe": { "tcpSocket": { "port": 80 } },
                "env": [{ "name": "E", "valueFrom": { "configMapKeyRef": { "name": "m", "key": "k" } } }] }],
            "volumes": [{ "name": "v", "emptyDir": {} }, { "name": "s", "secret": { "secretName": "x" } }],
            "securityContext": { "runAsUser": 0 } } }),
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {},
                "spec": { "renewTime": "1969-12-31T23:59:59.000005Z", "leaseTransitions": -1 } }),
        json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {},
                "spec": { "versions": [{ "name": "v1", "schema": { "openAPIV3Schema": schema } }] } }),
        json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
                "spec": { "extra": { "scopes": ["a", "b"] } } }),
        json!({ "apiVersion": "v1", "kind": "PodList", "metadata": { "resourceVersion": "7" },
                "items": [{ "metadata": { "name": "p" } }] }),
        json!({ "apiVersion": "v1", "kind": "Status", "metadata": {}, "code": 404, "details": { "causes": [] } }),
    ] {
        let mut expected = object.clone();
        if let Some(details) = expected.get_mut("details") {
            // An empty list is not on the wire.
            details.as_object_mut().unwrap().remove("causes");
        }
        assert_eq!(back(&object), expected);
    }
}

#[test]
fn the_bytes_are_those_of_kubernetes() {
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x" }, "data": { "k": "v" } });
    let types = b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap";
    let raw = b"\x12\x0d\x0a\x03\x0a\x01x\x12\x06\x0a\x01k\x12\x01v";
    assert_eq!(encode(&object).unwrap(), [b"k8s\0", types.as_slice(), raw, b"\x1a\0\x22\0"].concat());
    assert_eq!(watch_event("ADDED", b"x"), b"\0\0\0\x0c\x0a\x05ADDED\x12\x03\x0a\x01x");
}

#[test]
fn what_names_no_type_is_of_the_type_of_the_path() {
    let bytes = b"k8s\0\x12\x05\x0a\x03\x0a\x01x";
    let expected = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "x" } });
    assert_eq!(decode(bytes, ("v1", "ConfigMap")), Ok(expected));
    assert!(matches!(decode(bytes, NONE), Err(Fault::UnknownKind { .. })));
    assert_eq!(encode(&json!({ "apiVersion": "example.com/v1", "kind": "ConfigMapp" })), None);
}

#[test]
fn bytes_that_are_no_object_are_refused() {
    for (bytes, fault) in [
        (b"".as_slice(), Fault::NoMagic),
        (b"{\"kind\":\"ConfigMap\"}", Fault::NoMagic),
        (b"k8s\0\x12", Fault::Short),
        (b"k8s\0\x12\x05x", Fault::Short),
        (b"k8s\0\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", Fault::Number),
        (b"k8s\0\x13", Fault::Tag),
        (b"k8s\0\x00\x00", Fault::Tag),
        (b"k8s\0\x12\x02\x0a\xff", Fault::Short),
        (b"k8s\0\x12\x02\x08\x01", Fault::Type(1)),
        // the seconds of a time that no calendar has
        (b"k8s\0\x12\x0f\x0a\x0d\x42\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f", Fault::Short),
        (b"k8s\0\x12\x0e\x0a\x0c\x42\x0a\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f", Fault::Time),
    ] {
        assert_eq!(decode(bytes, ("v1", "ConfigMap")), Err(fault), "{bytes:?}");
    }
}

/// Whatever is read can be written, and then reads and writes the same.
#[test]
fn changed_bytes_are_refused_or_read_for_good() {
    let schema = json!({ "enum": [null, "a"], "items": { "type": "string" }, "additionalProperties": false });
    let samples = [
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "creationTimestamp": "2026-11-19T04:00:00Z" },
            "spec": { "containers": [{ "name": "c", "resources": { "limits": { "cpu": "1" } },
                "livenessProbe": { "httpGet": { "port": "web" } } }], "volumes": [{ "name": "v", "emptyDir": {} }] } }),
        json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {},
            "spec": { "versions": [{ "name": "v1", "schema": { "openAPIV3Schema": schema } }] } }),
        json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "labels": { "a": "b" } }, "data": { "k": "AAEC" } }),
    ];
    let mut random = fastrand::Rng::with_seed(7);
    let (mut read, mut refused) = (0, 0);
    for sample in samples.iter().cycle().take(6000) {
        let mut bytes = encode(sample).unwrap();
        for _ in 0..random.usize(1..4) {
            let place = random.usize(4..bytes.len());
            match random.u8(..3) {
                0 => bytes[place] = random.u8(..),
                1 => bytes.insert(place, random.u8(..)),
                _ => drop(bytes.remove(place)),
            }
        }
        let Ok(object) = decode(&bytes, NONE) else {
            refused += 1;
            continue;
        };
        let again = encode(&object).unwrap();
        assert_eq!(encode(&decode(&again, NONE).unwrap()).unwrap(), again, "{bytes:?}");
        read += 1;
    }
    assert!(read > 100 && refused > 100, "{read} {refused}");
}

#[test]
fn nesting_has_a_bound() {
    let mut schema = json!({ "type": "string" });
    for _ in 0..200 {
        schema = json!({ "not": schema });
    }
    let object = json!({ "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {},
        "spec": { "versions": [{ "name": "v1", "schema": { "openAPIV3Schema": schema } }] } });
    assert_eq!(decode(&encode(&object).unwrap(), NONE), Err(Fault::Deep));
}
