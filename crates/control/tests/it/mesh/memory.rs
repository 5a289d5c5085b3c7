//! Generated objects that the operator may not write: names resolve all the same.

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use portolan_api::mesh::VirtualService;
use portolan_control::mesh;
use portolan_control::runtime::app::Process;
use serde_json::json;

use super::harness::{Caller, ECHO, SIDECAR, World};
use crate::egress::harness::options;
use crate::harness::{Backend, eventually};

/// A client that may create no VirtualServices and Targets.
fn forbidden(client: &Client) -> Client {
    let inner = client.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let inner = inner.clone();
        async move {
            let path = request.uri().path();
            if request.method() == Method::POST && (path.ends_with("/virtualservices") || path.ends_with("/targets")) {
                let status = json!({
                    "apiVersion": "v1", "kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden",
                    "message": "no role allows it",
                });
                let answer = Response::builder().status(403).header("content-type", "application/json");
                return answer.body(Body::from(status.to_string().into_bytes())).map_err(kube::Error::HttpError);
            }
            inner.send(request).await
        }
    });
    Client::new(service, "default")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_write_them_generated_objects_live_in_memory_and_packets_pass() -> anyhow::Result<()> {
    let mut world = World::new(Backend::Embedded).await?;
    let at = world.pod("gateway", &[("app", "gateway")], SIDECAR).await?;
    world.pod("worker", &[("app", "worker")], ECHO).await?;
    let operator = Process::start(forbidden(&world.client), options(), |ctx, registry| {
        drop(mesh::start(ctx, registry, world.options()));
    })?;
    world
        .apply("{apiVersion: v1, kind: Service, metadata: {name: worker-svc}, spec: {selector: {app: worker}, ports: [{protocol: UDP, port: 9999}]}}")
        .await?;
    world
        .apply("{apiVersion: l7mp.io/v1, kind: VirtualService, metadata: {name: gateway}, spec: {selector: {matchLabels: {app: gateway}}, listener: {protocol: UDP, port: 9001}, rules: [{action: {route: {destination: worker-svc}}}]}}")
        .await?;
    let caller = Caller::new(at, 9001)?;
    eventually("packets pass", async || {
        Ok(caller.call("hello", std::time::Duration::from_millis(200))?.as_deref() == Some("hello"))
    })
    .await?;
    eventually("the status says so", async || {
        let status = world.api::<VirtualService>().get("gateway").await?.status.unwrap_or_default();
        let accepted = status.conditions.iter().find(|condition| condition.type_ == "Accepted");
        Ok(accepted.is_some_and(|condition| condition.message.contains("keeps them in memory")))
    })
    .await?;
    world.until("gateway", "Programmed", "True", "Programmed").await?;
    assert_eq!(world.targets().await?, Vec::<String>::new());
    operator.stop().await?;
    Ok(())
}
