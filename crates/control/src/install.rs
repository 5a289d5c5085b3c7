//! Installs our custom resource definitions and example objects, for `portolan up` and tests. On a cluster the
//! administrator applies the definitions.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::discovery::{self, ApiResource};
use kube::{Client, ResourceExt};

/// Why something could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("applying {what} failed: {cause}")]
    Apply { what: String, cause: Box<kube::Error> },
    #[error("{what} was not served within {} s", LIMIT.as_secs())]
    NotServed { what: String },
    #[error("{what} has no kind or name")]
    Nameless { what: String },
}

const LIMIT: Duration = Duration::from_secs(30);
const MANAGER: &str = "portolan-install";

/// Applies all custom resource definitions and waits until they are established.
pub async fn definitions(client: &Client) -> Result<(), Error> {
    // dynamic objects: reading answers into the whole type of a definition costs more code than all the rest here
    let resource = ApiResource::erase::<CustomResourceDefinition>(&());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut definitions = portolan_api::crds();
    for definition in portolan_api::mcs_crds().into_iter().chain(portolan_api::openshift_crds()) {
        // They are not ours: if they are there, they stay as they are.
        let found = api.get_opt(&definition.name_any()).await;
        if found.is_ok_and(|found| found.is_none()) {
            definitions.push(definition);
        }
    }
    for definition in &definitions {
        let name = definition.name_any();
        let applied = api.patch(&name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(definition)).await;
        applied.map_err(|cause| Error::Apply { what: name, cause: Box::new(cause) })?;
    }
    for definition in &definitions {
        let name = definition.name_any();
        let served = tokio::time::timeout(LIMIT, established(&api, &name));
        served.await.map_err(|_elapsed| Error::NotServed { what: name })?;
    }
    Ok(())
}

/// Waits until a definition is served. One that cannot be read is asked for again.
async fn established(api: &Api<DynamicObject>, name: &str) {
    let is_established = |definition: &DynamicObject| {
        let conditions = definition.data["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|one| one["type"] == "Established" && one["status"] == "True")
    };
    while !api.get(name).await.is_ok_and(|definition| is_established(&definition)) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Applies objects in the order given.
pub async fn objects(client: &Client, objects: Vec<DynamicObject>) -> Result<(), Error> {
    for object in objects {
        let what =
            object.types.as_ref().map(|types| format!("{} {}", types.kind, object.name_any())).unwrap_or_default();
        let failed = |cause| Error::Apply { what: what.clone(), cause: Box::new(cause) };
        let types = object.types.as_ref().ok_or_else(|| Error::Nameless { what: object.name_any() })?;
        let kind = GroupVersionKind::try_from(types).map_err(|_| Error::Nameless { what: what.clone() })?;
        let (resource, _) = discovery::pinned_kind(client, &kind).await.map_err(failed)?;
        let api: Api<DynamicObject> = match object.namespace() {
            Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        let params = PatchParams::apply(MANAGER).force();
        api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await.map_err(failed)?;
    }
    Ok(())
}
