//! Installing custom kinds.

use std::time::Duration;

use anyhow::Context;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, CustomResourceExt, Error,
    api::{DynamicObject, ListParams, Patch, PatchParams},
    runtime::wait::{await_condition, conditions},
};

const LIMIT: Duration = Duration::from_mins(2);

/// Applies the definition of `K` and waits until the API server serves it. Safe to call again and from many
/// tests at once.
pub async fn install<K: CustomResourceExt>(client: Client) -> anyhow::Result<()> {
    install_definition(client, K::crd()).await
}

/// [`install`] for a definition that is not a Rust type.
pub async fn install_definition(client: Client, definition: CustomResourceDefinition) -> anyhow::Result<()> {
    let name = definition.metadata.name.clone().context("the definition has a name")?;
    let ready = async {
        apply(&client, &name, &definition).await?;
        await_condition(Api::all(client.clone()), &name, conditions::is_crd_established()).await?;
        until_served(&client, &definition).await
    };
    tokio::time::timeout(LIMIT, ready)
        .await
        .with_context(|| format!("{name} was not served within {} s", LIMIT.as_secs()))?
        .with_context(|| format!("installing {name} failed"))
}

async fn apply(client: &Client, name: &str, definition: &CustomResourceDefinition) -> anyhow::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let manager = PatchParams::apply("portolan-testkit").force();
    loop {
        match definitions.patch(name, &manager, &Patch::Apply(definition)).await {
            // Another test installs the same kind at this moment.
            Err(Error::Api(status)) if status.code == 409 => tokio::task::yield_now().await,
            done => return done.map(drop).map_err(Into::into),
        }
    }
}

/// Established comes a moment before every version answers.
async fn until_served(client: &Client, definition: &CustomResourceDefinition) -> anyhow::Result<()> {
    let spec = &definition.spec;
    for version in spec.versions.iter().filter(|version| version.served) {
        let resource = kube::core::ApiResource {
            group: spec.group.clone(),
            version: version.name.clone(),
            api_version: format!("{}/{}", spec.group, version.name),
            kind: spec.names.kind.clone(),
            plural: spec.names.plural.clone(),
        };
        let objects: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
        loop {
            match objects.list_metadata(&ListParams::default().limit(1)).await {
                Err(Error::Api(status)) if [404, 429, 503].contains(&status.code) => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                done => break done.map(drop)?,
            }
        }
    }
    Ok(())
}
