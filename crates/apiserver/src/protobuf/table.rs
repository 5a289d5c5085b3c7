//! The table of messages, read once.

use std::collections::HashMap;
use std::sync::LazyLock;

/// API groups and their packages.
const GROUPS: [(&str, &str); 21] = [
    ("", "core"),
    ("admissionregistration.k8s.io", "admissionregistration"),
    ("apiextensions.k8s.io", "apiextensions"),
    ("apiregistration.k8s.io", "apiregistration"),
    ("apps", "apps"),
    ("authentication.k8s.io", "authentication"),
    ("authorization.k8s.io", "authorization"),
    ("autoscaling", "autoscaling"),
    ("batch", "batch"),
    ("certificates.k8s.io", "certificates"),
    ("coordination.k8s.io", "coordination"),
    ("discovery.k8s.io", "discovery"),
    ("events.k8s.io", "events"),
    ("flowcontrol.apiserver.k8s.io", "flowcontrol"),
    ("meta.k8s.io", "meta"),
    ("networking.k8s.io", "networking"),
    ("node.k8s.io", "node"),
    ("policy", "policy"),
    ("rbac.authorization.k8s.io", "rbac"),
    ("scheduling.k8s.io", "scheduling"),
    ("storage.k8s.io", "storage"),
];

/// A type of messages.
#[derive(Debug, Default)]
pub(super) struct Message {
    pub(super) fields: Vec<Field>,
    pub(super) form: Form,
}

#[derive(Debug)]
pub(super) struct Field {
    /// Its name in JSON; `+` means that its fields stand in the object around it, `.` that it is all that the message
    /// is in JSON, and `x-` that it has all fields whose names begin so.
    pub(super) name: &'static str,
    pub(super) number: u32,
    pub(super) shape: Shape,
    pub(super) type_: Type,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    List,
    /// Keys are strings.
    Map,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    Text,
    Bytes,
    Bool,
    Int32,
    Int64,
    Double,
    /// The message at this place of the table.
    Message(usize),
}

/// What a message is in JSON.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    #[default]
    Object,
    /// A string, empty or not.
    Quantity,
    Time,
    MicroTime,
    IntOrString,
    /// Any JSON, which the message holds as text.
    Json,
    /// Any JSON, as text in the only field.
    Text,
    /// What its only field is.
    Field,
    /// A schema or a list of schemas.
    SchemaOrList,
    /// A schema or a boolean.
    SchemaOrBool,
    /// A schema or a list of strings.
    SchemaOrStrings,
}

/// The message at a place of the table.
pub(super) fn at(place: usize) -> &'static Message {
    &TABLE.messages[place]
}

/// The message of a kind; `apiVersion` may be that of any group for what all groups share, such as DeleteOptions.
pub(super) fn of_kind(api_version: &str, kind: &str) -> Option<&'static Message> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let package = GROUPS.iter().find(|(known, _)| *known == group).map(|(_, package)| package);
    let own = package.and_then(|package| TABLE.places.get(&*format!("{package}.{version}.{kind}")));
    let place = own.or_else(|| TABLE.places.get(&*format!("meta.v1.{kind}")))?;
    Some(at(*place))
}

struct Table {
    messages: Vec<Message>,
    places: HashMap<&'static str, usize>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| read([include_str!("messages.txt"), include_str!("openapi.txt")]));

/// The message of a name.
pub(super) fn named(name: &str) -> Option<&'static Message> {
    TABLE.places.get(name).map(|place| at(*place))
}

fn read(texts: [&'static str; 2]) -> Table {
    let lines = || texts.into_iter().flat_map(str::lines);
    let names = lines().map(|line| line.split(' ').next().unwrap_or_default());
    let places: HashMap<&str, usize> = names.enumerate().map(|(place, name)| (name, place)).collect();
    let messages = lines().map(|line| {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        let package = name.rsplit_once('.').map_or("", |(package, _)| package);
        Message { fields: words.filter_map(|word| field(word, package, &places)).collect(), form: form(name) }
    });
    Table { messages: messages.collect(), places }
}

/// Reads `name=number:type`.
fn field(word: &'static str, package: &str, places: &HashMap<&str, usize>) -> Option<Field> {
    let (name, declared) = word.split_once('=')?;
    let (number, declared) = declared.split_once(':')?;
    let (shape, type_) = match (declared.strip_prefix('*'), declared.strip_prefix('%')) {
        (Some(type_), _) => (Shape::List, type_),
        (_, Some(type_)) => (Shape::Map, type_),
        (None, None) => (Shape::One, declared),
    };
    let type_ = match type_ {
        "string" => Type::Text,
        "bytes" => Type::Bytes,
        "bool" => Type::Bool,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "double" => Type::Double,
        message => Type::Message(*places.get(&*format!("{package}.{message}")).or_else(|| places.get(message))?),
    };
    Some(Field { name, number: number.parse().ok()?, shape, type_ })
}

fn form(name: &str) -> Form {
    match name {
        "api.resource.Quantity" => Form::Quantity,
        "meta.v1.Time" => Form::Time,
        "meta.v1.MicroTime" => Form::MicroTime,
        "util.intstr.IntOrString" => Form::IntOrString,
        "runtime.RawExtension" | "meta.v1.FieldsV1" | "apiextensions.v1.JSON" => Form::Json,
        "openapi.v2.Any" => Form::Text,
        "authentication.v1.ExtraValue"
        | "authorization.v1.ExtraValue"
        | "certificates.v1.ExtraValue"
        | "openapi.v2.Paths"
        | "openapi.v2.ParametersItem"
        | "openapi.v2.Parameter"
        | "openapi.v2.NonBodyParameter"
        | "openapi.v2.Responses"
        | "openapi.v2.ResponseValue"
        | "openapi.v2.Definitions"
        | "openapi.v2.Type"
        | "openapi.v2.Items"
        | "openapi.v2.Properties" => Form::Field,
        "apiextensions.v1.JSONSchemaPropsOrArray" => Form::SchemaOrList,
        "apiextensions.v1.JSONSchemaPropsOrBool" | "openapi.v2.AdditionalProperties" => Form::SchemaOrBool,
        "apiextensions.v1.JSONSchemaPropsOrStringArray" => Form::SchemaOrStrings,
        _ => Form::Object,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::kinds::builtin;
    use crate::schema::Schema;

    #[test]
    fn every_word_of_the_table_is_a_field() {
        for (line, message) in
            include_str!("messages.txt").lines().chain(include_str!("openapi.txt").lines()).zip(&TABLE.messages)
        {
            assert_eq!(message.fields.len(), line.split(' ').count() - 1, "{line}");
        }
    }

    #[test]
    fn every_built_in_kind_and_its_list_have_the_fields_of_its_schema() {
        for kind in builtin::all() {
            let message = of_kind(&kind.api_version(), &kind.kind).unwrap_or_else(|| panic!("no {}", kind.kind));
            let mut wrong = Vec::new();
            compare(&kind.schema, message, &kind.kind, &mut wrong);
            assert!(wrong.is_empty(), "{wrong:#?}");
            assert!(of_kind(&kind.api_version(), &kind.list_kind).is_some(), "no {}", kind.list_kind);
        }
    }

    #[test]
    fn a_group_that_only_looks_like_a_built_in_one_has_no_messages() {
        assert!(of_kind("apps.example.com/v1", "Deployment").is_none());
        assert!(of_kind("apps/v1", "DeleteOptions").is_some());
    }

    /// Compares the names of fields at every level.
    fn compare(schema: &Schema, message: &Message, path: &str, wrong: &mut Vec<String>) {
        if message.form != Form::Object || schema.preserve_unknown_fields {
            return;
        }
        let fields = flat(message);
        let theirs: BTreeSet<&str> = fields.iter().map(|field| field.name).filter(|name| *name != "selfLink").collect();
        // Protobuf says what an object is outside of it, and nothing of objects within others.
        let is_object = !path.contains('.') || path.ends_with(".volumeClaimTemplates");
        let own = |name: &&str| *name != "selfLink" && !(is_object && ["apiVersion", "kind"].contains(name));
        let ours: BTreeSet<&str> = schema.properties.keys().map(String::as_str).filter(own).collect();
        if ours != theirs {
            wrong.push(format!("{path}: {:?}", ours.symmetric_difference(&theirs).collect::<Vec<_>>()));
        }
        for field in fields {
            let Some(property) = schema.properties.get(field.name) else { continue };
            let inner = match field.shape {
                Shape::One => Some(property),
                Shape::List => property.items.as_deref(),
                Shape::Map => property.additional.as_deref(),
            };
            if let (Some(inner), Type::Message(place)) = (inner, field.type_) {
                compare(inner, at(place), &format!("{path}.{}", field.name), wrong);
            }
        }
    }

    fn flat(message: &Message) -> Vec<&Field> {
        let mut fields = Vec::new();
        for field in &message.fields {
            if let (Type::Message(place), "+") = (&field.type_, field.name) {
                fields.extend(flat(at(*place)));
            } else {
                fields.push(field);
            }
        }
        fields
    }
}
