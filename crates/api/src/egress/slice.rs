//! EgressEndpointSlice and EgressClusterEndpointSlice: the pods that a policy selects, for other readers.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionSpec,
    CustomResourceDefinitionVersion, CustomResourceSubresourceStatus, CustomResourceSubresources,
    CustomResourceValidation, JSONSchemaProps,
};
use kube::api::ObjectMeta;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many pods one slice lists at most.
pub const ENDPOINTS_PER_SLICE: usize = 100;

/// Pods that an EgressPolicy selects. Its owner is the policy.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(default)]
pub struct EgressEndpointSlice {
    /// Standard metadata.
    pub metadata: ObjectMeta,
    /// At most 100 pods.
    pub endpoints: Vec<Endpoint>,
}

/// Pods that an EgressClusterPolicy selects. Its owner is the policy.
#[derive(Serialize, Deserialize, Debug, Default, Clone, PartialEq)]
#[serde(default)]
pub struct EgressClusterEndpointSlice {
    /// Standard metadata.
    pub metadata: ObjectMeta,
    /// At most 100 pods.
    pub endpoints: Vec<Endpoint>,
}

/// A selected pod.
#[derive(JsonSchema, Serialize, Deserialize, Debug, Default, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[serde(default)]
pub struct Endpoint {
    /// The pod's namespace.
    pub ns: String,
    /// The pod's name.
    pub pod: String,
    /// Its IPv4 addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ipv4: Vec<String>,
    /// Its IPv6 addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ipv6: Vec<String>,
    /// The node it runs on.
    pub node: String,
}

/// Both kinds have their list at the top level, which kube's derive does not know.
macro_rules! slice {
    ($kind:ident, $plural:literal, $singular:literal, $short:literal, $scope:literal, $marker:ty) => {
        crate::resource!($kind, GROUP, VERSION, stringify!($kind), $plural, $marker);

        impl $kind {
            /// The kind's definition.
            pub fn crd() -> CustomResourceDefinition {
                definition(stringify!($kind), $plural, $singular, $short, $scope)
            }
        }
    };
}

const GROUP: &str = "egressgateway.spidernet.io";
const VERSION: &str = "v1beta1";

slice!(
    EgressEndpointSlice,
    "egressendpointslices",
    "egressendpointslice",
    "egep",
    "Namespaced",
    kube::core::NamespaceResourceScope
);
slice!(
    EgressClusterEndpointSlice,
    "egressclusterendpointslices",
    "egressclusterendpointslice",
    "egcep",
    "Cluster",
    kube::core::ClusterResourceScope
);

fn definition(kind: &str, plural: &str, singular: &str, short: &str, scope: &str) -> CustomResourceDefinition {
    let item = schemars::generate::SchemaSettings::openapi3()
        .with(|settings| settings.inline_subschemas = true)
        .with_transform(kube::core::schema::StructuralSchemaRewriter)
        .into_generator()
        .into_root_schema_for::<Vec<Endpoint>>();
    let mut endpoints: JSONSchemaProps =
        serde_json::from_value(item.to_value()).expect("a structural schema is a JSON schema");
    endpoints.schema = None;
    endpoints.description = Some("The pods that the policy selects, at most 100 in a slice.".to_owned());
    endpoints.x_kubernetes_list_type = Some("atomic".to_owned());
    let text = JSONSchemaProps { type_: Some("string".to_owned()), ..JSONSchemaProps::default() };
    let schema = JSONSchemaProps {
        description: Some(
            "Pods that a policy selects, for other readers; Portolan's own agent does not need it.".to_owned(),
        ),
        type_: Some("object".to_owned()),
        properties: Some(
            [("apiVersion", text.clone()), ("kind", text), ("endpoints", endpoints)]
                .map(|(name, schema)| (name.to_owned(), schema))
                .into(),
        ),
        ..JSONSchemaProps::default()
    };
    let version = CustomResourceDefinitionVersion {
        name: VERSION.to_owned(),
        served: true,
        storage: true,
        schema: Some(CustomResourceValidation { open_api_v3_schema: Some(schema) }),
        subresources: Some(CustomResourceSubresources {
            status: Some(CustomResourceSubresourceStatus(serde_json::json!({}))),
            scale: None,
        }),
        ..CustomResourceDefinitionVersion::default()
    };
    CustomResourceDefinition {
        metadata: ObjectMeta { name: Some(format!("{plural}.{GROUP}")), ..ObjectMeta::default() },
        spec: CustomResourceDefinitionSpec {
            group: GROUP.to_owned(),
            names: CustomResourceDefinitionNames {
                kind: kind.to_owned(),
                plural: plural.to_owned(),
                singular: Some(singular.to_owned()),
                short_names: Some(vec![short.to_owned()]),
                categories: Some(vec![singular.to_owned()]),
                list_kind: Some(format!("{kind}List")),
            },
            scope: scope.to_owned(),
            versions: vec![version],
            ..CustomResourceDefinitionSpec::default()
        },
        status: None,
    }
}
