//! What these tests share: a tenant's cluster, a gateway, and operators.

use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{Secret, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use portolan_api::well_known::gateway_client::{ANNOUNCED, CLASS, FINALIZER};
use portolan_control::gateway_client::{GroupUrl, Options, start};
use portolan_control::runtime::app::Process;
use portolan_testkit::{Exchange, FaultProxy, Faults, builders};
use serde_json::{Value, json};

use super::rules::PASSWORD;
use super::stand_in::Gateway;
use crate::egress::harness::{self as cluster, options};
use crate::harness::{Backend, eventually};

/// A cluster with three nodes and a login, and a gateway.
pub(super) struct World {
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) gateway: Gateway,
    _cluster: cluster::World,
}

/// An operator, behind a recorder of its writes.
pub(super) struct Operator {
    pub(super) process: Process,
    pub(super) seen: FaultProxy,
}

impl Operator {
    /// Writes to the API server, besides events.
    pub(super) fn writes(&self) -> Vec<Exchange> {
        let writes = self.seen.writes_but_leases();
        writes.into_iter().filter(|write| write.resource() != Some("events")).collect()
    }
}

impl World {
    pub(super) async fn new(backend: Backend) -> anyhow::Result<Self> {
        let cluster = cluster::World::new(backend).await?;
        let (client, namespace) = (cluster.client.clone(), cluster.namespace.clone());
        wipe(&client).await?;
        for number in 1..=3 {
            let node = builders::node(&format!("n{number}")).address(&format!("10.0.0.{number}")).build();
            builders::create(&Api::all(client.clone()), &node).await?;
        }
        let world = Self { client, namespace, gateway: Gateway::start().await?, _cluster: cluster };
        world.login(&json!({ "username": "tenant", "password": PASSWORD })).await?;
        Ok(world)
    }

    /// Sets the login.
    pub(super) async fn login(&self, keys: &Value) -> anyhow::Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        let data = keys.as_object().into_iter().flatten();
        let data: serde_json::Map<String, Value> = data.map(|(key, value)| (key.clone(), value.clone())).collect();
        if secrets.get_opt(SECRET).await?.is_some() {
            secrets.delete(SECRET, &DeleteParams::default()).await?;
        }
        let secret = json!({ "metadata": { "name": SECRET }, "stringData": data });
        // the embedded server keeps stringData as it is
        let mut secret: Secret = serde_json::from_value(secret)?;
        let text = secret.string_data.take().unwrap_or_default();
        secret.data =
            Some(text.into_iter().map(|(key, value)| (key, k8s_openapi::ByteString(value.into_bytes()))).collect());
        secrets.create(&PostParams::default(), &secret).await?;
        Ok(())
    }

    /// Settings with short times.
    pub(super) fn options(&self) -> anyhow::Result<Options> {
        Ok(Options {
            operator_namespace: self.namespace.clone(),
            cluster_id: Some("cluster-1".to_owned()),
            verify_interval: Duration::from_millis(500),
            ..Options::of(GroupUrl::parse(&self.gateway.url())?)
        })
    }

    pub(super) async fn operator(&self) -> anyhow::Result<Operator> {
        self.operator_with(self.options()?).await
    }

    pub(super) async fn operator_with(&self, client: Options) -> anyhow::Result<Operator> {
        let seen = FaultProxy::start(self.client.clone(), Faults::default()).await?;
        let process = Process::start(seen.client(), options(), |ctx, registry| drop(start(ctx, registry, client)))?;
        Ok(Operator { process, seen })
    }

    pub(super) fn services(&self) -> Api<Service> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(super) fn slices(&self) -> Api<EndpointSlice> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// A Service of the class with port 80 to 8080.
    pub(super) async fn service(&self, name: &str) -> anyhow::Result<()> {
        self.service_with(name, &json!({})).await
    }

    pub(super) async fn service_with(&self, name: &str, change: &Value) -> anyhow::Result<()> {
        let mut spec = json!({
            "type": "LoadBalancer", "loadBalancerClass": CLASS, "allocateLoadBalancerNodePorts": false,
            "ports": [{ "port": 80, "targetPort": 8080, "protocol": "TCP" }],
        });
        json_patch::merge(&mut spec, change);
        let object = json!({ "metadata": { "name": name }, "spec": spec });
        self.services().create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    pub(super) async fn change(&self, name: &str, change: &Value) -> anyhow::Result<()> {
        self.services().patch(name, &PatchParams::default(), &Patch::Merge(change)).await?;
        Ok(())
    }

    /// Makes these the endpoints of a Service: address and node of each.
    pub(super) async fn pods(&self, service: &str, pods: &[(&str, &str)]) -> anyhow::Result<()> {
        let endpoint = |(address, node): &(&str, &str)| json!({ "addresses": [address], "nodeName": node });
        let endpoints = pods.iter().map(endpoint).collect::<Vec<_>>();
        self.slice(&format!("{service}-1"), service, &json!([{ "port": 8080, "protocol": "TCP" }]), &json!(endpoints))
            .await
    }

    pub(super) async fn slice(
        &self,
        name: &str,
        service: &str,
        ports: &Value,
        endpoints: &Value,
    ) -> anyhow::Result<()> {
        let object = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": { "name": name, "labels": { "kubernetes.io/service-name": service } },
            "addressType": "IPv4", "ports": ports, "endpoints": endpoints,
        });
        let params = PatchParams::apply("test").force();
        self.slices().patch(name, &params, &Patch::Apply(object)).await?;
        Ok(())
    }

    pub(super) async fn get(&self, name: &str) -> anyhow::Result<Service> {
        Ok(self.services().get(name).await?)
    }

    /// The address in the status of a Service.
    pub(super) async fn address(&self, name: &str) -> anyhow::Result<Option<String>> {
        Ok(address_of(&self.get(name).await?))
    }

    /// Waits until a Service is announced as it is now; gives its address.
    pub(super) async fn announced(&self, name: &str) -> anyhow::Result<String> {
        self.shows(name, ANNOUNCED, "Announced").await?;
        self.address(name).await?.with_context(|| format!("{name} has an address"))
    }

    /// Waits until a condition of a Service has a reason; gives the condition.
    pub(super) async fn shows(&self, name: &str, kind: &str, reason: &str) -> anyhow::Result<Condition> {
        let what = format!("Service {name} shows {kind} {reason}");
        let waited = eventually(&what, async || {
            let object = self.get(name).await?;
            Ok(condition_of(&object, kind).is_some_and(|condition| condition.reason == reason))
        })
        .await;
        let object = self.get(name).await?;
        waited.with_context(|| format!("{:#?}; the gateway was asked {:#?}", object.status, self.gateway.asked()))?;
        condition_of(&object, kind).context("it was there")
    }

    /// Waits until the gateway has these endpoints.
    pub(super) async fn endpoints_are(&self, service: &str, want: &[&str]) -> anyhow::Result<()> {
        let what = format!("the endpoints of {service} are {want:?}");
        let waited = eventually(&what, async || Ok(self.gateway.endpoints(service) == want)).await;
        waited.with_context(|| format!("they are {:?}: {:#?}", self.gateway.endpoints(service), self.gateway.asked()))
    }

    pub(super) async fn delete(&self, name: &str) -> anyhow::Result<()> {
        self.services().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until a Service is gone.
    pub(super) async fn gone(&self, name: &str) -> anyhow::Result<()> {
        let waited =
            eventually(&format!("{name} is gone"), async || Ok(self.services().get_opt(name).await?.is_none())).await;
        waited.with_context(|| format!("the gateway was asked {:#?}", self.gateway.asked()))
    }

    /// Waits until nothing but three lists was asked; gives how much was asked until then.
    pub(super) async fn at_rest(&self) -> anyhow::Result<usize> {
        let lists = |count: usize| {
            let asked = self.gateway.asked();
            let rest = &asked[count..];
            rest.iter().all(|one| one.path.ends_with("/services")).then_some(rest.len())
        };
        let mut since = self.gateway.asked().len();
        eventually("nothing but lists is asked", async || {
            match lists(since) {
                Some(count) if count >= 3 => return Ok(true),
                Some(_) => {}
                None => since = self.gateway.asked().len(),
            }
            Ok(false)
        })
        .await?;
        Ok(self.gateway.asked().len())
    }

    /// Waits until an event with this reason is there for a Service.
    pub(super) async fn event(&self, reason: &str, name: &str) -> anyhow::Result<()> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        eventually(&format!("event {reason} of {name}"), async || {
            let all = events.list(&ListParams::default()).await?;
            let is_it = |event: &Event| {
                let about = event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref());
                event.reason.as_deref() == Some(reason) && about == Some(name)
            };
            Ok(all.items.iter().any(is_it))
        })
        .await
    }
}

pub(super) const SECRET: &str = "portolan-gateway-client";

pub(super) fn address_of(service: &Service) -> Option<String> {
    service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?.first()?.ip.clone()
}

pub(super) fn condition_of(service: &Service, kind: &str) -> Option<Condition> {
    service.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == kind).cloned()
}

pub(super) fn is_held(service: &Service) -> bool {
    service.finalizers().iter().any(|one| one == FINALIZER)
}

/// A test that failed may have left Services behind.
async fn wipe(client: &Client) -> anyhow::Result<()> {
    for left in Api::<Service>::all(client.clone()).list(&ListParams::default()).await? {
        let class = left.spec.as_ref().and_then(|spec| spec.load_balancer_class.as_deref());
        if class != Some(CLASS) && !is_held(&left) {
            continue;
        }
        let services: Api<Service> = Api::namespaced(client.clone(), &left.namespace().unwrap_or_default());
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
        cluster::gone_is_fine(services.patch(&left.name_any(), &PatchParams::default(), &patch).await)?;
        cluster::gone_is_fine(services.delete(&left.name_any(), &DeleteParams::default()).await)?;
    }
    Ok(())
}
