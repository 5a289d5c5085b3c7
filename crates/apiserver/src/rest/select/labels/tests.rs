use proptest::prelude::*;
use serde_json::json;

use super::*;

fn fault(text: &str) -> String {
    let failure = LabelSelector::parse(text).unwrap_err();
    assert_eq!((failure.code.as_u16(), failure.reason.as_ref()), (400, "BadRequest"));
    failure.message
}

fn selects(selector: &str, labels: &[(&str, &str)]) -> bool {
    let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
    LabelSelector::parse(selector).unwrap().matches(|key| labels.get(key).copied())
}

#[test]
fn conditions_select_as_written() {
    let labels = [("app", "shop"), ("tier", "5"), ("in", "x")];
    for (selector, expected) in [
        ("", true),
        ("app", true),
        ("!app", false),
        ("! nope", true),
        ("app=shop", true),
        (" app\t==\nshop ", true),
        ("app!=shop", false),
        ("nope!=x", true),
        ("nope=x", false),
        ("app in (shop,till)", true),
        ("app in (till)", false),
        ("app notin (till)", true),
        ("nope notin (x)", true),
        ("app in ()", false),
        ("app in (,shop)", true),
        ("nope in (,)", false),
        ("tier>4", true),
        ("tier > 5", false),
        ("tier<6,app", true),
        ("app>1", false),
        ("in=x", true),
        ("in in (in,x)", true),
        ("notin", false),
        ("app=,tier", false),
        ("app=shop,app!=shop", false),
    ] {
        assert_eq!(selects(selector, &labels), expected, "{selector}");
    }
}

#[test]
fn what_cannot_be_read_gets_the_words_of_the_real_server() {
    for (selector, expected) in [
        ("a in x", "unable to parse requirement: found 'x' expected: '('"),
        ("a in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (x y)", "unable to parse requirement: found 'y', expected: ',' or ')'"),
        ("a in (=)", "unable to parse requirement: found '=', expected: ',', ')' or identifier"),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        ("==", "found '==', expected: !, identifier, or 'end of string'"),
        (")", "found ')', expected: !, identifier, or 'end of string'"),
        ("a)", "unable to parse requirement: found ')', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in", "unable to parse requirement: found '' expected: '('"),
        ("a b c", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("!!a", "unable to parse requirement: found '!', expected: identifier"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a=!b", "unable to parse requirement: found '!', expected: identifier"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        ("a=>b", "unable to parse requirement: found '>', expected: identifier"),
        ("a!==b", "unable to parse requirement: found '=', expected: identifier"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("!a in (b)", "found 'in', expected: ',' or 'end of string'"),
        ("a!b", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in (b),", "found '', expected: identifier after ','"),
        ("/a", "unable to parse requirement: <nil>: Invalid value: \"/a\": prefix part must be non-empty"),
    ] {
        assert_eq!(fault(selector), expected, "{selector}");
    }
}

#[test]
fn keys_and_values_are_checked() {
    let name = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let key = |key: &str, rule: &str| format!("unable to parse requirement: <nil>: Invalid value: {key:?}: {rule}");
    assert_eq!(fault("-a"), key("-a", &format!("name part {name}")));
    assert_eq!(fault("é"), key("é", &format!("name part {name}")));
    assert_eq!(fault("a/"), key("a/", &format!("name part must be non-empty; name part {name}")));
    assert_eq!(
        fault("a/b/c"),
        key(
            "a/b/c",
            &format!(
                "a valid label key {name} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )
        )
    );
    assert_eq!(
        fault("A.B/c"),
        key(
            "A.B/c",
            r"prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
        )
    );
    let long = "a".repeat(64);
    assert_eq!(fault(&long), key(&long, "name part must be no more than 63 bytes"));
    let value = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    assert_eq!(fault("a=-b"), format!("unable to parse requirement: values[0][a]: Invalid value: \"-b\": {value}"));
    assert_eq!(
        fault("a=\"b\""),
        format!(r#"unable to parse requirement: values[0][a]: Invalid value: "\"b\"": {value}"#)
    );
    assert_eq!(
        fault("a in (-,+)"),
        format!(
            "unable to parse requirement: [values[0][a]: Invalid value: \"+\": {value}, values[1][a]: Invalid value: \"-\": {value}]"
        )
    );
    assert_eq!(
        fault(&format!("a={long}")),
        format!("unable to parse requirement: values[0][a]: Invalid value: \"{long}\": must be no more than 63 bytes")
    );
}

#[test]
fn labels_are_read_from_bytes_without_the_rest() {
    let object = json!({ "spec": { "deep": [1, { "labels": { "no": "no" } }] },
                         "metadata": { "name": "x", "labels": { "app": "sh\"op", "a.b/c": "d" } } });
    let bytes = serde_json::to_vec(&object).unwrap();
    let labels = labels_of(&bytes);
    assert_eq!(labels.get("app").map(AsRef::as_ref), Some("sh\"op"));
    assert_eq!(labels.len(), 2);
    let selector = LabelSelector::parse("a.b/c=d").unwrap();
    assert!(selector.matches_bytes(&bytes) && selector.matches_object(&object));
    for odd in [&b"{}"[..], b"", b"null", br#"{"metadata":{"labels":null}}"#, b"\xff"] {
        assert!(labels_of(odd).is_empty());
        assert!(!selector.matches_bytes(odd));
    }
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "[ab=!(),<> in\\-/\\PC]{0,20}") {
        if let Ok(selector) = LabelSelector::parse(&text) {
            selector.matches(|_| Some("a"));
        }
    }
}
