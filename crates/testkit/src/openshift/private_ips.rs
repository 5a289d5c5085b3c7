//! CloudPrivateIPConfigs, as the stand-ins read and write them.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::Context as _;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Api, Client, Error, ResourceExt as _};
use serde_json::{Value, json};

pub(crate) const FINALIZER: &str = "cloudprivateipconfig.cloud.network.openshift.io/finalizer";

#[derive(Clone)]
pub(crate) struct PrivateIps {
    api: Api<DynamicObject>,
}

impl PrivateIps {
    pub(crate) fn of(client: &Client) -> Self {
        let kind = GroupVersionKind::gvk("cloud.network.openshift.io", "v1", "CloudPrivateIPConfig");
        let resource = ApiResource::from_gvk_with_plural(&kind, "cloudprivateipconfigs");
        Self { api: Api::all_with(client.clone(), &resource) }
    }

    pub(crate) async fn list(&self) -> anyhow::Result<BTreeMap<Ipv4Addr, DynamicObject>> {
        let objects = self.api.list(&ListParams::default()).await?;
        objects.into_iter().map(|object| Ok((object.name_any().parse()?, object))).collect()
    }

    /// Asks for an address on a node.
    pub(crate) async fn ask(&self, address: Ipv4Addr, node: &str, annotations: Value) -> anyhow::Result<()> {
        let object = json!({
            "apiVersion": "cloud.network.openshift.io/v1", "kind": "CloudPrivateIPConfig",
            "metadata": { "name": address.to_string(), "annotations": annotations }, "spec": { "node": node },
        });
        self.api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    pub(crate) async fn merge(&self, address: Ipv4Addr, patch: Value) -> anyhow::Result<()> {
        self.api.patch(&address.to_string(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    pub(crate) async fn merge_status(&self, address: Ipv4Addr, status: Value) -> anyhow::Result<()> {
        let patch = Patch::Merge(json!({ "status": status }));
        self.api.patch_status(&address.to_string(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(crate) async fn delete(&self, address: Ipv4Addr) -> anyhow::Result<()> {
        self.api.delete(&address.to_string(), &DeleteParams::default()).await?;
        Ok(())
    }

    /// Deletes all of them, with nobody to detach the addresses.
    pub(crate) async fn wipe(&self) -> anyhow::Result<()> {
        match self.api.list(&ListParams::default()).await {
            Ok(left) => {
                for object in left {
                    let address = object.name_any().parse().context("the name is an address")?;
                    self.merge(address, json!({ "metadata": { "finalizers": null } })).await?;
                    if object.metadata.deletion_timestamp.is_none() {
                        self.delete(address).await?;
                    }
                }
                Ok(())
            }
            Err(Error::Api(status)) if status.code == 404 => Ok(()),
            Err(problem) => Err(problem.into()),
        }
    }
}

/// The node that an object asks for, and the one that has the address, if it is assigned.
pub(crate) fn nodes(object: &DynamicObject) -> (&str, Option<&str>) {
    let status = &object.data["status"];
    let is_assigned = status["conditions"][0]["status"] == "True";
    (object.data["spec"]["node"].as_str().unwrap_or_default(), status["node"].as_str().filter(|_| is_assigned))
}
