//! What the API server itself takes and refuses.

use kube::api::PostParams;
use portolan_api::mesh::VirtualService;
use serde_json::json;

use super::harness::World;
use crate::harness::{Backend, on_both_servers};

on_both_servers!(every_dialect_is_stored_as_it_was_written, a_port_with_a_comma_is_refused_with_what_to_do);

async fn every_dialect_is_stored_as_it_was_written(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let listeners = [
        json!({ "protocol": "UDP", "port": 1, "options": { "mode": "singleton" } }),
        json!({ "spec": { "UDP": { "port": 1 } }, "rules": [{ "action": { "routeRef": "r" } }] }),
        json!({ "protocol": "JSONSocket", "transport": { "protocol": "UDP", "port": "8001" }, "something": ["else"] }),
    ];
    for (number, listener) in listeners.into_iter().enumerate() {
        let spec = json!({ "selector": { "serviceName": "s" }, "listener": listener, "rules": { "action": {} } });
        let object = json!({ "metadata": { "name": format!("v{number}") }, "spec": spec });
        let made: VirtualService = world.api().create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        assert_eq!(json!(made.spec), spec);
    }
    Ok(())
}

async fn a_port_with_a_comma_is_refused_with_what_to_do(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    for port in [json!("8001,"), json!(0), json!(70000), json!("http"), json!("99999")] {
        let spec = json!({ "selector": {}, "listener": { "protocol": "UDP", "port": port } });
        let object: VirtualService = serde_json::from_value(json!({ "metadata": { "name": "v" }, "spec": spec }))?;
        let refused = world.api().create(&PostParams::default(), &object).await.expect_err("it is no port");
        let text = refused.to_string();
        assert!(text.contains("write a number from 1 to 65535, and nothing after it (no comma)"), "{text}");
    }
    for port in [json!(8001), json!("8001")] {
        let spec = json!({ "selector": {}, "listener": { "protocol": "UDP", "port": port } });
        let name = format!("v{}", port.is_string());
        let object: VirtualService = serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec }))?;
        world.api().create(&PostParams::default(), &object).await?;
    }
    Ok(())
}
