use super::*;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn shape(header: &str) -> (Form, Shape) {
    let accepted = accept(Some(header), Endpoint::Builtin { list: true }).unwrap();
    (accepted.form, accepted.shape)
}

fn text(header: &str, endpoint: Endpoint) -> String {
    let failure = accept(Some(header), endpoint).unwrap_err();
    assert_eq!((failure.code.as_u16(), failure.reason.as_ref()), (406, "NotAcceptable"));
    failure.message
}

#[test]
fn forms_are_chosen_as_the_real_server_does() {
    for (header, expected) in [
        ("*/*", (Form::Json, Shape::Plain)),
        ("application/yaml", (Form::Yaml, Shape::Plain)),
        ("text/html,*/*;q=0.1", (Form::Json, Shape::Plain)),
        (TABLE, (Form::Json, Shape::Table("v1"))),
        ("application/json; as=Table; v=v1; g=meta.k8s.io", (Form::Json, Shape::Table("v1"))),
        ("application/json;as=Table;v=v1beta1;g=meta.k8s.io", (Form::Json, Shape::Table("v1beta1"))),
        ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", (Form::Json, Shape::Plain)),
        ("application/yaml;as=Table;v=v1;g=meta.k8s.io", (Form::Yaml, Shape::Table("v1"))),
        ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", (Form::Json, Shape::Partial("v1"))),
        ("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io", (Form::Json, Shape::PartialList("v1"))),
        (
            "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io,application/json",
            (Form::Json, Shape::Plain),
        ),
        ("application/vnd.kubernetes.protobuf,application/json", (Form::Json, Shape::Plain)),
        ("application/json;q=0.5,application/yaml", (Form::Yaml, Shape::Plain)),
        ("application/json;q=0", (Form::Json, Shape::Plain)),
        ("application/json;foo=bar", (Form::Json, Shape::Plain)),
        ("application/json;stream=watch", (Form::Json, Shape::Plain)),
    ] {
        assert_eq!(shape(header), expected, "{header}");
    }
    assert_eq!(accept(None, Endpoint::Custom).unwrap().form, Form::Json);
    assert!(accept(Some("application/json;pretty=1"), Endpoint::Custom).unwrap().pretty);
    assert_eq!(accept(Some("application/*"), Endpoint::Custom).unwrap().form, Form::Json);
}

#[test]
fn unknown_forms_get_the_words_of_who_would_have_answered() {
    let media = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let router = format!("406: Not Acceptable\n\nAvailable representations: {media}");
    let handler = format!("only the following media types are accepted: {media}");
    for header in ["text/plain", "garbage", ",", "application/*", "APPLICATION/JSON", "application/cbor"] {
        assert_eq!(text(header, Endpoint::Builtin { list: false }), router, "{header}");
    }
    let streams = ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    assert_eq!(text("text/plain", Endpoint::Builtin { list: true }), router.clone() + streams);
    assert_eq!(text("text/plain", Endpoint::Resources), router);
    assert_eq!(text("text/plain", Endpoint::CoreVersions), router);
    for endpoint in [Endpoint::Custom, Endpoint::Groups, Endpoint::CustomResources] {
        assert_eq!(text("text/plain", endpoint), handler);
    }
    for header in
        ["application/json;as=Table", "application/json;as=Foo;v=v1;g=meta.k8s.io", "application/json;stream=x"]
    {
        assert_eq!(text(header, Endpoint::Builtin { list: false }), handler, "{header}");
    }
    assert_eq!(
        text("application/yaml", Endpoint::Version),
        "406: Not Acceptable\n\nAvailable representations: application/json"
    );
    assert_eq!(text(TABLE, Endpoint::Groups), handler);
}

#[test]
fn protobuf_alone_is_refused_and_not_recommended() {
    let expected = "only the following media types are accepted: application/json, application/yaml";
    assert_eq!(text("application/vnd.kubernetes.protobuf", Endpoint::Builtin { list: false }), expected);
    assert_eq!(content(Some("application/vnd.kubernetes.protobuf")).unwrap_err().code, 415);
}

#[test]
fn watches_speak_json_only() {
    let accepted = accept(Some("application/yaml"), Endpoint::Custom).unwrap();
    assert_eq!(
        accept_watch(accepted, Some("application/yaml")).unwrap_err().message,
        "only the following media types are accepted: application/json;stream=watch, \
         application/vnd.kubernetes.protobuf;stream=watch"
    );
}

#[test]
fn aggregated_discovery_is_for_the_two_roots() {
    let header = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    for endpoint in [Endpoint::Groups, Endpoint::CoreVersions] {
        let accepted = accept(Some(header), endpoint).unwrap();
        assert_eq!(accepted.shape, Shape::Discovery);
        assert_eq!(content_type(accepted), header);
    }
    let kubectl =
        format!("{header},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json");
    assert_eq!(accept(Some(&kubectl), Endpoint::Groups).unwrap().shape, Shape::Discovery);
    assert_eq!(accept(Some(&header.replace("v=v2", "v=v2beta1")), Endpoint::Groups).unwrap_err().code, 406);
    assert_eq!(accept(Some(header), Endpoint::CustomResources).unwrap_err().code, 406);
}

#[test]
fn bodies_are_json_or_yaml() {
    assert_eq!(content(None), Ok(Form::Json));
    assert_eq!(content(Some("APPLICATION/JSON")), Ok(Form::Json));
    assert_eq!(content(Some("application/json;charset=utf-8")), Ok(Form::Json));
    assert_eq!(content(Some("application/yaml")), Ok(Form::Yaml));
    for bad in ["text/plain", "garbage", "application/merge-patch+json", "application/json; a"] {
        assert_eq!(
            content(Some(bad)).unwrap_err().message,
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml, application/vnd.kubernetes.protobuf"
        );
    }
}

#[test]
fn patches_have_their_own_forms() {
    assert_eq!(patch_content(Some("application/merge-patch+json; charset=utf-8"), true), Ok(PatchForm::Merge));
    assert_eq!(patch_content(Some("application/strategic-merge-patch+json"), false), Ok(PatchForm::Strategic));
    assert_eq!(patch_content(Some("text/plain"), false).unwrap_err().to_json()["details"], serde_json::json!({}));
    assert_eq!(patch_content(None, false).unwrap_err().message, "415: Unsupported Media Type");
    assert_eq!(
        patch_content(Some("application/strategic-merge-patch+json"), true).unwrap_err().message,
        "the body of the request was in an unknown format - accepted media types include: \
         application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    );
}

#[test]
fn answers_are_indented_for_people() {
    let accepted = accept(None, Endpoint::Custom).unwrap();
    assert!(pretty(accepted, None, Some("curl/8")));
    assert!(!pretty(accepted, Some("false"), Some("curl/8")));
    assert!(!pretty(accepted, None, Some("kubectl/v1.36")));
    let value = serde_json::json!({ "a": ["x"] });
    assert_eq!(encode(&value, Form::Json, false).unwrap(), b"{\"a\":[\"x\"]}\n");
    let yaml = String::from_utf8(encode(&value, Form::Yaml, false).unwrap()).unwrap();
    assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), value);
}
