//! What a gateway cannot do is refused or reported, never silently accepted.

use anyhow::ensure;
use portolan_api::well_known::gateway_client::{ANNOUNCED, HONOURED};
use serde_json::json;

use super::harness::{World, is_held};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    fields_that_only_change_how_traffic_arrives_are_reported,
    limits_on_sources_are_refused_and_withdraw_what_was_announced,
    the_address_that_is_asked_for_is_given_or_the_difference_reported,
);

async fn limits_on_sources_are_refused_and_withdraw_what_was_announced(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let operator = world.operator().await?;
    world.service_with("open", &json!({})).await?;
    world.service_with("closed", &json!({ "loadBalancerSourceRanges": ["10.0.0.0/8"] })).await?;
    let sctp = json!([{ "port": 80, "targetPort": 8080, "protocol": "SCTP" }]);
    world.service_with("sctp", &json!({ "ports": sctp })).await?;
    world.announced("open").await?;
    let refused = world.shows("closed", ANNOUNCED, "SourceRangesNotSupported").await?;
    ensure!(
        refused.status == "False" && refused.message.contains("remove spec.loadBalancerSourceRanges"),
        "{refused:?}"
    );
    world.shows("sctp", ANNOUNCED, "UnsupportedProtocol").await?;
    world.event("UnsupportedProtocol", "sctp").await?;
    ensure!(!is_held(&world.get("closed").await?), "there is nothing to hold it for");
    ensure!(world.gateway.service("closed").is_none() && world.gateway.service("sctp").is_none());
    // One that was open gets limits: it is no longer reachable for everybody.
    world.change("open", &json!({ "spec": { "loadBalancerSourceRanges": ["10.0.0.0/8"] } })).await?;
    world.shows("open", ANNOUNCED, "SourceRangesNotSupported").await?;
    eventually("it is withdrawn", async || {
        let service = world.get("open").await?;
        Ok(world.gateway.is_empty() && !is_held(&service) && world.address("open").await?.is_none())
    })
    .await?;
    world.change("open", &json!({ "spec": { "loadBalancerSourceRanges": null } })).await?;
    world.announced("open").await?;
    operator.process.stop().await?;
    Ok(())
}

async fn fields_that_only_change_how_traffic_arrives_are_reported(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let operator = world.operator().await?;
    world.service_with("web", &json!({ "sessionAffinity": "ClientIP" })).await?;
    world.announced("web").await?;
    let reported = world.shows("web", HONOURED, "SessionAffinityNotSupported").await?;
    ensure!(reported.status == "False", "{reported:?}");
    world.event("SessionAffinityNotSupported", "web").await?;
    world.change("web", &json!({ "spec": { "sessionAffinity": "None" } })).await?;
    world.shows("web", HONOURED, "Honoured").await?;
    world.service_with("local", &json!({ "externalTrafficPolicy": "Local" })).await?;
    world.announced("local").await?;
    world.shows("local", HONOURED, "SourceAddressNotPreserved").await?;
    // Endpoints on a node that is not there cannot be reached.
    world.pods("web", &[("10.1.0.1", "n1"), ("10.1.0.2", "nowhere")]).await?;
    world.shows("web", HONOURED, "EndpointsWithoutNode").await?;
    world.endpoints_are("web", &["10.1.0.1:8080/TCP@10.0.0.1"]).await?;
    operator.process.stop().await?;
    Ok(())
}

async fn the_address_that_is_asked_for_is_given_or_the_difference_reported(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.gateway.store(|store| store.allows_pinned = true);
    let operator = world.operator().await?;
    world.service_with("pinned", &json!({ "loadBalancerIP": "192.0.2.77" })).await?;
    ensure!(world.announced("pinned").await? == "192.0.2.77");
    world.gateway.store(|store| store.allows_pinned = false);
    world.service_with("other", &json!({ "loadBalancerIP": "192.0.2.78" })).await?;
    let given = world.announced("other").await?;
    let reported = world.shows("other", HONOURED, "AddressDiffers").await?;
    ensure!(given != "192.0.2.78" && reported.message.contains(&given), "{given}: {reported:?}");
    operator.process.stop().await?;
    Ok(())
}
