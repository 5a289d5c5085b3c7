//! Content negotiation: `Accept` and `Content-Type`.

use http::StatusCode;
use serde_json::Value;

use crate::protobuf;
use crate::status::Failure;

/// Supported encodings. Protobuf is for built-in kinds, and for the metadata of any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Json,
    Yaml,
    Protobuf,
}

/// The shape of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The object or list itself.
    Plain,
    Table,
    /// Only metadata of one object.
    Partial,
    /// Only metadata of the items of a list.
    PartialList,
    /// All groups with their resources, `apidiscovery.k8s.io/v2`.
    Discovery,
}

/// The negotiated form of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    pub form: Form,
    pub shape: Shape,
}

/// The shapes of responses with objects.
pub const OBJECTS: &[Shape] = &[Shape::Plain, Shape::Table, Shape::Partial, Shape::PartialList];

const JSON: &str = "application/json";
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The `Content-Type` of a watch in protobuf.
pub const PROTOBUF_STREAM: &str = "application/vnd.kubernetes.protobuf;stream=watch";

impl Accepted {
    /// JSON as it is.
    pub const JSON: Self = Self { form: Form::Json, shape: Shape::Plain };

    /// The `Content-Type` of an answer.
    pub fn content_type(self) -> &'static str {
        match (self.form, self.shape) {
            (Form::Json, Shape::Discovery) => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            (Form::Json, _) => JSON,
            (Form::Yaml, _) => YAML,
            (Form::Protobuf, _) => PROTOBUF,
        }
    }
}

/// What a path can answer with.
#[derive(Debug, Clone, Copy)]
pub struct Offered {
    pub shapes: &'static [Shape],
    /// Whether what is shown plain has a protobuf encoding.
    pub protobuf: bool,
}

impl Offered {
    /// These shapes, in JSON and YAML.
    pub fn text(shapes: &'static [Shape]) -> Self {
        Self { shapes, protobuf: false }
    }

    fn has(self, accepted: Accepted) -> bool {
        let encoded = match accepted.shape {
            _ if accepted.form != Form::Protobuf => true,
            Shape::Plain => self.protobuf,
            Shape::Partial | Shape::PartialList => true,
            Shape::Table | Shape::Discovery => false,
        };
        encoded && self.shapes.contains(&accepted.shape)
    }
}

/// Chooses the encoding and the shape of a response, among those `offered`, from the `Accept` header.
pub fn accept(header: Option<&str>, offered: Offered) -> Result<Accepted, Failure> {
    let header = header.filter(|header| !header.is_empty()).unwrap_or("*/*");
    let mut choices: Vec<(f32, Accepted)> = header.split(',').filter_map(choice).collect();
    choices.retain(|(_, accepted)| offered.has(*accepted));
    // The sort is stable: among equals the first is meant.
    choices.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    choices.first().map(|(_, accepted)| *accepted).ok_or_else(|| {
        let forms = if offered.protobuf { "JSON, YAML and protobuf" } else { "JSON and YAML" };
        let message = format!("only {forms} are spoken here, and {header:?} asks for none of them");
        Failure::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    })
}

/// The form of a body that is an object.
pub fn content(header: Option<&str>) -> Result<Form, Failure> {
    let media = header.unwrap_or(JSON).split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media.as_str() {
        JSON => Ok(Form::Json),
        YAML => Ok(Form::Yaml),
        PROTOBUF => Ok(Form::Protobuf),
        other => {
            let message = format!("a body of {other:?} cannot be read: send {JSON}, {YAML} or {PROTOBUF}");
            Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "UnsupportedMediaType", message))
        }
    }
}

/// Writes an answer; none in protobuf if it has no such encoding.
pub fn encode(value: &Value, form: Form) -> Option<Vec<u8>> {
    match form {
        Form::Json => Some(format!("{value}\n").into_bytes()),
        // JSON is YAML, too.
        Form::Yaml => Some(serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string()).into_bytes()),
        Form::Protobuf => protobuf::encode(value),
    }
}

/// One choice of an `Accept` header with its quality; none if it is not supported.
fn choice(text: &str) -> Option<(f32, Accepted)> {
    let mut parts = text.split(';').map(str::trim);
    let form = match parts.next()? {
        "*/*" | "application/*" | JSON => Form::Json,
        YAML => Form::Yaml,
        PROTOBUF => Form::Protobuf,
        _ => return None,
    };
    let (mut quality, mut kind, mut group, mut version) = (1.0, "", "", "");
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        match name.trim() {
            "q" => quality = value.trim().parse().unwrap_or(0.0),
            "as" => kind = value.trim(),
            "g" => group = value.trim(),
            "v" => version = value.trim(),
            _ => {}
        }
    }
    let shape = match (kind, group, version) {
        ("", "", "") => Shape::Plain,
        ("Table", "meta.k8s.io", "v1") => Shape::Table,
        ("PartialObjectMetadata", "meta.k8s.io", "v1") => Shape::Partial,
        ("PartialObjectMetadataList", "meta.k8s.io", "v1") => Shape::PartialList,
        ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Shape::Discovery,
        _ => return None,
    };
    Some((quality, Accepted { form, shape }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Offered = Offered { shapes: OBJECTS, protobuf: true };

    #[test]
    fn forms_and_shapes_are_chosen_in_the_order_of_the_client() {
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
        let protobuf = "application/vnd.kubernetes.protobuf";
        for (header, form, shape) in [
            ("", Form::Json, Shape::Plain),
            ("*/*", Form::Json, Shape::Plain),
            ("application/yaml", Form::Yaml, Shape::Plain),
            ("text/html,*/*;q=0.1", Form::Json, Shape::Plain),
            (table, Form::Json, Shape::Table),
            ("application/json; as=Table; v=v1; g=meta.k8s.io", Form::Json, Shape::Table),
            ("application/json;as=Table;v=v2;g=meta.k8s.io,application/json", Form::Json, Shape::Plain),
            ("application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", Form::Json, Shape::Partial),
            (&format!("{protobuf};as=Table;v=v1;g=meta.k8s.io,{table}"), Form::Json, Shape::Table),
            (&format!("{protobuf},application/json"), Form::Protobuf, Shape::Plain),
            (&format!("application/json,{protobuf}"), Form::Json, Shape::Plain),
            (&format!("{protobuf};stream=watch"), Form::Protobuf, Shape::Plain),
            (&format!("{protobuf};as=PartialObjectMetadata;v=v1;g=meta.k8s.io"), Form::Protobuf, Shape::Partial),
            ("application/json;q=0.5,application/yaml", Form::Yaml, Shape::Plain),
            ("application/json;stream=watch", Form::Json, Shape::Plain),
        ] {
            assert_eq!(accept(Some(header), ALL), Ok(Accepted { form, shape }), "{header}");
        }
        for header in ["text/plain", "garbage", ",", "application/json;as=Poem;v=v1;g=meta.k8s.io"] {
            assert_eq!(accept(Some(header), ALL).unwrap_err().code, 406, "{header}");
        }
        assert_eq!(accept(Some(table), Offered::text(&[Shape::Plain])).unwrap_err().code, 406);
        // A custom kind has no messages, its metadata has.
        let custom = Offered::text(OBJECTS);
        assert_eq!(accept(Some(protobuf), custom).unwrap_err().code, 406);
        assert_eq!(accept(Some(&format!("{protobuf},application/json")), custom), Ok(Accepted::JSON));
        let partial = accept(Some(&format!("{protobuf};as=PartialObjectMetadata;v=v1;g=meta.k8s.io")), custom);
        assert_eq!(partial, Ok(Accepted { form: Form::Protobuf, shape: Shape::Partial }));
    }

    #[test]
    fn aggregated_discovery_says_so_in_its_content_type() {
        let header = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let offered = Offered::text(&[Shape::Plain, Shape::Discovery]);
        let accepted = accept(Some(&format!("{header},application/json")), offered).unwrap();
        assert_eq!(accepted.content_type(), header);
    }

    #[test]
    fn bodies_are_json_yaml_or_protobuf() {
        assert_eq!(content(Some("application/vnd.kubernetes.protobuf")), Ok(Form::Protobuf));
        assert_eq!(content(None), Ok(Form::Json));
        assert_eq!(content(Some("APPLICATION/JSON")), Ok(Form::Json));
        assert_eq!(content(Some("application/json;charset=utf-8")), Ok(Form::Json));
        assert_eq!(content(Some("application/yaml")), Ok(Form::Yaml));
        for bad in ["text/plain", "garbage", ""] {
            assert_eq!(content(Some(bad)).unwrap_err().code, 415, "{bad}");
        }
    }

    #[test]
    fn answers_can_be_read_back() {
        let value = serde_json::json!({ "a": ["x"] });
        assert_eq!(encode(&value, Form::Json).unwrap(), b"{\"a\":[\"x\"]}\n");
        let yaml = String::from_utf8(encode(&value, Form::Yaml).unwrap()).unwrap();
        assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), value);
    }
}
