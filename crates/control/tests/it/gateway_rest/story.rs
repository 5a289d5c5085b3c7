//! An original client from beginning to end, with curl as the HTTP client.

use std::process::Output;

use anyhow::{Context as _, ensure};
use http::Method;
use portolan_api::gateway::{Endpoint, LoadBalancer, NodeConfig};
use serde_json::{Value, json};

use super::harness::Site;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(a_client_of_2020_announces_a_service, purelb_2020_bytes_accepted);

/// As PureLB's structs are written by Go.
const SERVICE: &str = r#"{"service":{"metadata":{"name":"lb","namespace":""},"spec":{"public-ports":[{"name":"web","protocol":"TCP","port":80,"targetPort":8080,"nodePort":31234}],"service-id":0},"status":{"gue-tunnel-endpoints":null}}}"#;
const ENDPOINT: &str = r#"{"Endpoint":{"metadata":{"name":"","namespace":""},"spec":{"address":"10.1.1.1","Port":{"name":"web","port":8080,"protocol":"TCP"},"node-address":"10.0.0.1"}}}"#;

async fn purelb_2020_bytes_accepted(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.0/24").await?;
    let account = site.account("acme").await?;
    let create = format!("/accounts/{account}/groups/sample/services");
    let made = site.send(Method::POST, &create, SERVICE).await?.is(302)?;
    ensure!(made.body == Value::Null, "the body is empty");
    let path = made.location()?.to_owned();
    let shown = site.get(&path).await?.is(200)?;
    ensure!(shown.body["service"]["spec"]["public-address"].as_str().is_some_and(|address| !address.is_empty()));
    let endpoint = site.send(Method::POST, &format!("{path}/endpoints"), ENDPOINT).await?.is(302)?;
    let shown = site.get(endpoint.location()?).await?.is(200)?;
    let spec = &shown.body["endpoint"]["spec"];
    ensure!(spec["address"] == "10.1.1.1" && spec["node-address"] == "10.0.0.1", "{shown:?}");
    ensure!(spec["port"] == json!({ "name": "web", "port": 8080, "protocol": "TCP" }), "{shown:?}");
    let again = site.send(Method::POST, &format!("{path}/endpoints"), ENDPOINT).await?.is(409)?;
    ensure!(again.body["message"].as_str().is_some_and(|message| message.contains("duplicate endpoint")), "{again:?}");
    site.stop().await
}

async fn a_client_of_2020_announces_a_service(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.0/24").await?;
    let base = json!({ "base": { "gue-endpoint": { "egw-address": "198.51.100.1" } } });
    site.world.create::<NodeConfig>("egw", "default", base).await?;
    let account = site.account("acme").await?;
    // the login is part of the group's URL
    let url = |path: &str| format!("http://bob:secret@{}{path}", site.at);
    let group = curl(&[&url(&format!("/api/egw/accounts/{account}/groups/sample"))]).await?;
    let create = group["link"]["create-service"].as_str().context("a link")?.to_owned();
    let of_account = curl(&[&url(group["link"]["account"].as_str().context("a link")?)]).await?;
    ensure!(of_account["account"]["spec"]["group-id"].as_u64().is_some_and(|id| id > 0), "{of_account}");
    let service = follow(&url(&create), SERVICE).await?;
    ensure!(
        service["service"]["spec"]["public-address"].as_str().is_some_and(|address| !address.is_empty()),
        "{service}"
    );
    let path = service["link"]["self"].as_str().context("a link")?.to_owned();
    let endpoints = service["link"]["create-endpoint"].as_str().context("a link")?.to_owned();
    let endpoint = follow(&url(&endpoints), ENDPOINT).await?;
    let made = endpoint["link"]["self"].as_str().context("a link")?.to_owned();
    eventually("the client's node has a tunnel", async || {
        let shown = curl(&[&url(&path)]).await?;
        let tunnel = &shown["service"]["status"]["gue-tunnel-endpoints"]["10.0.0.1"];
        Ok(tunnel["egw-address"] == "198.51.100.1" && tunnel["tunnel-id"].as_u64().is_some_and(|id| id > 0))
    })
    .await?;
    ensure!(curl(&["-X", "DELETE", &url(&made)]).await? == json!({ "message": "endpoint deleted" }));
    ensure!(curl(&["-X", "DELETE", &url(&path)]).await? == json!({ "message": "delete successful" }));
    let namespace = format!("egw-{account}");
    site.world.gone::<LoadBalancer>(&namespace, "lb").await?;
    ensure!(site.world.of::<Endpoint>(&namespace).list(&kube::api::ListParams::default()).await?.items.is_empty());
    site.stop().await
}

/// Posts, and reads what the answer leads to, as a client does that follows redirects.
async fn follow(url: &str, body: &str) -> anyhow::Result<Value> {
    curl(&["--location", "--max-redirs", "2", "-H", "Content-Type: application/json", "-d", body, url]).await
}

async fn curl(arguments: &[&str]) -> anyhow::Result<Value> {
    let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
    let run = tokio::process::Command::new("curl")
        .args(["--silent", "--show-error", "--fail-with-body"])
        .args(&arguments)
        .output();
    let Output { status, stdout, stderr } = run.await.context("curl starts")?;
    let stdout = String::from_utf8(stdout)?;
    ensure!(status.success(), "{arguments:?}: {stdout} {}", String::from_utf8_lossy(&stderr));
    Ok(serde_json::from_str(&stdout)?)
}
