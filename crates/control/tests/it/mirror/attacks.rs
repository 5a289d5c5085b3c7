//! A remote may be hostile: whatever it says, nothing changes here that its RemoteCluster does not allow.

use anyhow::ensure;
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use portolan_control::mirror;
use portolan_testkit::{Exchange, FaultProxy, Faults, Interference};
use serde_json::{Value, json};

use super::harness::{World, make_namespace, merge, status};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers! {
    remote_cannot_reach_protected_namespace,
    remote_cannot_create_namespace_when_off,
    created_namespaces_are_bounded,
    remote_label_cannot_claim_ownership,
    special_addresses_are_dropped,
    mapped_ipv6_does_not_bypass,
    address_outside_cidr_is_dropped,
    local_service_cidr_is_refused,
    port_outside_range_is_dropped,
    kubeconfig_exec_is_refused,
    metadata_server_is_not_reachable,
    redirect_is_refused,
    secret_elsewhere_is_not_read,
    token_never_logged,
    swapped_remote_deletes_nothing,
    swapped_remote_is_not_read_before_its_cluster_is_known,
    flood_is_bounded,
    flood_of_one_remote_does_not_delay_another,
}

async fn source_in(world: &World, namespace: &str, name: &str, extra: Value) -> anyhow::Result<()> {
    world.remote_namespace(namespace).await?;
    let mut source = json!({ "metadata": { "name": name }, "spec": { "type": "NodePort", "ports": [{ "port": 80 }] } });
    merge(&mut source, extra);
    let sources = Api::<Service>::namespaced(world.remote.clone(), namespace);
    sources.create(&PostParams::default(), &serde_json::from_value(source)?).await?;
    Ok(())
}

async fn remote_cannot_reach_protected_namespace(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    let protected = ["kube-system", "kube-public", "openshift-ingress", &world.home];
    for namespace in protected {
        source_in(&world, namespace, "evil", json!({})).await?;
    }
    let mut allow = protected.to_vec();
    allow.push(&world.namespace);
    world.east(json!({ "namespaces": { "allow": allow } })).await?;
    let operator = world.operator().await?;
    world.caught_up().await?;
    for namespace in protected {
        let here = Api::<Service>::namespaced(world.local.clone(), namespace);
        ensure!(here.get_opt("evil").await?.is_none(), "{namespace} was entered");
    }
    eventually("the remote says why", async || {
        let unmet = world.remote_status("east").await?.unmet;
        Ok(unmet.iter().filter(|one| one.reason == "NamespaceProtected").count() == protected.len())
    })
    .await?;
    operator.stop().await
}

async fn remote_cannot_create_namespace_when_off(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    let other = format!("{}-other", world.namespace);
    source_in(&world, &other, "web", json!({})).await?;
    world.east(json!({ "namespaces": { "create": false } })).await?;
    let operator = world.operator().await?;
    eventually("the remote says why", async || {
        let unmet = world.remote_status("east").await?.unmet;
        Ok(unmet.iter().any(|one| one.namespace == other && one.reason == "NamespaceMissing"))
    })
    .await?;
    ensure!(Api::<Namespace>::all(world.local.clone()).get_opt(&other).await?.is_none());
    // Made by a user, it is served at once.
    make_namespace(&world.local, &other).await?;
    let here = Api::<Service>::namespaced(world.local.clone(), &other);
    eventually("it is mirrored", async || Ok(here.get_opt("web").await?.is_some())).await?;
    operator.stop().await
}

async fn created_namespaces_are_bounded(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    for number in 0..5 {
        source_in(&world, &format!("{}-{number}", world.namespace), "web", json!({})).await?;
    }
    let allow = json!([format!("{}*", world.namespace)]);
    world.east(json!({ "namespaces": { "allow": allow, "maxCreated": 2 } })).await?;
    let operator = world.operator().await?;
    world.caught_up().await?;
    eventually("two were made and three refused", async || {
        let unmet = world.remote_status("east").await?.unmet;
        let made = world.made_namespaces().await?;
        let made = made.iter().filter(|name| name.starts_with(&world.namespace)).count();
        Ok(made == 2 && unmet.iter().filter(|one| one.reason == "LimitExceeded").count() == 3)
    })
    .await?;
    operator.stop().await
}

async fn remote_label_cannot_claim_ownership(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    let labels = json!({ "app": "web", "mirror.portolan.dev/created": "true", "team": "red" });
    let annotations = json!({ "note": "x", "mirror.portolan.dev/source-uid": "forged" });
    source_in(&world, &world.namespace, "web", json!({ "metadata": { "labels": labels, "annotations": annotations } }))
        .await?;
    world.east(json!({ "copy": { "labels": ["app"], "annotations": ["note"] } })).await?;
    let operator = world.operator().await?;
    let mirror = world.mirror("web").await?;
    let labels: Vec<&str> = mirror.labels().keys().map(String::as_str).collect();
    assert_eq!(labels, ["app", "mirror.portolan.dev/remote", "tfw.io/barrelman"]);
    assert_eq!(mirror.annotations()["note"], "x");
    assert_ne!(mirror.annotations()["mirror.portolan.dev/source-uid"], "forged");
    operator.stop().await
}

/// The endpoints that remain of a remote whose nodes have these addresses.
async fn remaining(backend: Backend, addresses: &[&str], spec: Value) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("good", "10.1.0.1").await?;
    for (number, address) in addresses.iter().enumerate() {
        world.node_with(&format!("bad{number}"), json!({}), status(true, &[address])).await?;
    }
    world.source("web", 30080).await?;
    world.east(spec).await?;
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    eventually("the remote says which were refused", async || {
        let unmet = world.remote_status("east").await?.unmet;
        Ok(unmet.iter().any(|one| one.reason == "AddressNotAllowed"))
    })
    .await?;
    operator.stop().await
}

fn any_address() -> Value {
    json!({ "addresses": { "allowedCIDRs": ["0.0.0.0/0", "::/0"] } })
}

async fn special_addresses_are_dropped(backend: Backend) -> anyhow::Result<()> {
    let special = [
        "127.0.0.1",
        "0.0.0.0",
        "169.254.169.254",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "::1",
        "fe80::1",
        "ff02::1",
        "fd00:ec2::254",
    ];
    remaining(backend, &special, any_address()).await
}

async fn mapped_ipv6_does_not_bypass(backend: Backend) -> anyhow::Result<()> {
    let embedded = ["::ffff:10.1.0.9", "64:ff9b::a01:9", "2002:a01:9::1", "::10.1.0.9"];
    remaining(backend, &embedded, any_address()).await
}

async fn address_outside_cidr_is_dropped(backend: Backend) -> anyhow::Result<()> {
    remaining(backend, &["192.0.2.1", "10.2.0.1"], json!({ "addresses": { "allowedCIDRs": ["10.1.0.0/16"] } })).await
}

async fn local_service_cidr_is_refused(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let services = Api::<Service>::namespaced(world.local.clone(), "default");
    let api_server = services.get_opt("kubernetes").await?.and_then(|service| service.spec?.cluster_ip);
    // Where the API server has no Service, any other has an address of the range.
    let own =
        world.local_service(json!({ "metadata": { "name": "own" }, "spec": { "ports": [{ "port": 1 }] } })).await?;
    let address = api_server.or(own.spec.and_then(|spec| spec.cluster_ip)).unwrap_or_default();
    world.node("good", "10.1.0.1").await?;
    world.node_with("bad", json!({}), status(true, &[&address])).await?;
    world.source("web", 30080).await?;
    world.east(any_address()).await?;
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    operator.stop().await
}

async fn port_outside_range_is_dropped(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    let ports = json!([
        { "name": "low", "port": 80, "nodePort": 30080 },
        { "name": "high", "port": 81, "nodePort": 30999 },
    ]);
    world.source_with("web", json!({ "type": "NodePort", "ports": ports })).await?;
    world.east(json!({ "addresses": { "ports": "30000-30100" } })).await?;
    let operator = world.operator().await?;
    world.endpoints_are("web", &["10.1.0.1:30080/TCP"]).await?;
    eventually("the remote says why", async || {
        let unmet = world.remote_status("east").await?.unmet;
        Ok(unmet.iter().any(|one| one.reason == "PortNotAllowed"))
    })
    .await?;
    operator.stop().await
}

/// A change to a kubeconfig, and what the refusal says of it.
type Case = (fn(&mut Value), &'static str);

/// RemoteClusters with a kubeconfig that would work, each changed in another way: each says what is refused.
async fn refused(world: &World, cases: Vec<Case>) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(&world.remote_server.kubeconfig)?;
    for (number, (change, _)) in cases.iter().enumerate() {
        let mut config: Value = serde_saphyr::from_str(&text)?;
        change(&mut config);
        let name = format!("east-{number}");
        world.secret(&name, "kubeconfig", &config.to_string()).await?;
        world.remote_cluster(&name, json!({})).await?;
    }
    for (number, (_, part)) in cases.iter().enumerate() {
        let name = format!("east-{number}");
        let message = world.condition(&name, "Accepted", "False", "KubeconfigRefused").await?;
        ensure!(message.contains(part), "{name}: {message} lacks `{part}`");
    }
    Ok(())
}

fn user(config: &mut Value) -> &mut Value {
    &mut config["users"][0]["user"]
}

fn cluster(config: &mut Value) -> &mut Value {
    &mut config["clusters"][0]["cluster"]
}

async fn kubeconfig_exec_is_refused(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    world.source("web", 30080).await?;
    let operator = world.operator().await?;
    let cases: Vec<Case> = vec![
        (|config| user(config)["exec"] = json!({ "command": "/bin/sh" }), "user.exec"),
        (|config| user(config)["auth-provider"] = json!({ "name": "gcp" }), "user.auth-provider"),
        (|config| user(config)["tokenFile"] = json!("/etc/passwd"), "user.tokenFile"),
        (|config| user(config)["client-certificate"] = json!("/etc/passwd"), "user.client-certificate"),
        (|config| user(config)["client-key"] = json!("/etc/passwd"), "user.client-key"),
        (|config| user(config)["username"] = json!("root"), "user.username"),
        (|config| user(config)["as"] = json!("system:admin"), "user.as"),
        (|config| cluster(config)["certificate-authority"] = json!("/etc/passwd"), "cluster.certificate-authority"),
        (|config| cluster(config)["insecure-skip-tls-verify"] = json!(true), "cluster.insecure-skip-tls-verify"),
        (|config| cluster(config)["proxy-url"] = json!("http://10.0.0.1"), "cluster.proxy-url"),
        (|config| cluster(config)["server"] = json!("http://10.0.0.1"), "cluster.server"),
    ];
    refused(&world, cases).await?;
    assert_eq!(operator.writes(), 0);
    operator.stop().await
}

async fn metadata_server_is_not_reachable(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let strict = portolan_control::mirror::Options { allow_loopback: false, ..world.options() };
    let operator = world.operator_with(strict).await?;
    let cases: Vec<Case> = vec![
        (|config| cluster(config)["server"] = json!("https://169.254.169.254"), "link-local"),
        (|config| cluster(config)["server"] = json!("https://127.0.0.1:6443"), "this machine"),
        (|config| cluster(config)["server"] = json!("https://[::ffff:169.254.169.254]"), "link-local"),
        (|config| cluster(config)["server"] = json!("https://localhost:6443"), "this machine"),
    ];
    refused(&world, cases).await?;
    operator.stop().await
}

async fn redirect_is_refused(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.source("web", 30080).await?;
    world.remote_cluster("east", json!({})).await?;
    let view = world.remote_view().await?;
    view.proxy.interfere(|_| Some(portolan_testkit::Interference::Status(307)));
    let operator = world.operator().await?;
    world.condition("east", "Connected", "False", "Unreachable").await?;
    assert_eq!(operator.writes(), 0);
    operator.stop().await
}

async fn secret_elsewhere_is_not_read(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let kubeconfig = std::fs::read_to_string(&world.remote_server.kubeconfig)?;
    let elsewhere = Api::<k8s_openapi::api::core::v1::Secret>::namespaced(world.local.clone(), &world.namespace);
    let secret = json!({ "metadata": { "name": "east" }, "stringData": { "kubeconfig": kubeconfig } });
    elsewhere.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    world.remote_cluster("east", json!({})).await?;
    let operator = world.operator().await?;
    world.condition("east", "Accepted", "False", "SecretMissing").await?;
    let read = operator.seen.trace();
    let elsewhere = format!("/namespaces/{}/secrets", world.namespace);
    ensure!(read.iter().all(|one| !one.path.contains(&elsewhere) && one.path != "/api/v1/secrets"));
    operator.stop().await
}

async fn token_never_logged(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.remote_cluster("east", json!({})).await?;
    let view = world.remote_view().await?;
    let token = "very-secret-token-of-the-remote";
    view.proxy.interfere(|_| Some(portolan_testkit::Interference::Status(401)));
    world.secret("east", "kubeconfig", &view.front.kubeconfig(token).to_string()).await?;
    let operator = world.operator().await?;
    world.condition("east", "Connected", "False", "CredentialsRefused").await?;
    let shown = serde_json::to_string(&world.remotes().list(&ListParams::default()).await?.items)?;
    let events = Api::<k8s_openapi::api::events::v1::Event>::all(world.local.clone());
    let events = serde_json::to_string(&events.list(&ListParams::default()).await?.items)?;
    ensure!(!shown.contains(token) && !events.contains(token));
    operator.stop().await
}

async fn swapped_remote_deletes_nothing(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    world.source("web", 30080).await?;
    world.east(json!({})).await?;
    let operator = world.operator().await?;
    world.mirror("web").await?;
    world.ready("east").await?;
    let other = World::new(Backend::Embedded).await?;
    let kubeconfig = std::fs::read_to_string(&other.remote_server.kubeconfig)?;
    world.secret("east", "kubeconfig", &kubeconfig).await?;
    let message = world.condition("east", "Synced", "False", "IdentityChanged").await?;
    ensure!(message.contains("another cluster"), "{message}");
    world.condition("east", "Programmed", "False", "DeletionBudgetExceeded").await?;
    ensure!(world.services().get_opt("web").await?.is_some());
    operator.stop().await
}

async fn swapped_remote_is_not_read_before_its_cluster_is_known(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    world.source("web", 30080).await?;
    world.east(json!({})).await?;
    let before = world.remote_view().await?;
    let operator = world.operator().await?;
    world.mirror("web").await?;
    world.ready("east").await?;
    let other = World::new(Backend::Embedded).await?;
    let after = FaultProxy::start(other.remote.clone(), Faults::default()).await?;
    let asks_who_it_is = |exchange: &Exchange| exchange.path == "/api/v1/namespaces/kube-system";
    after.interfere(move |exchange| asks_who_it_is(exchange).then_some(Interference::Drop));
    let front = after.with_tls().await?;
    world.secret("east", "kubeconfig", &front.kubeconfig("any").to_string()).await?;
    eventually("the other cluster is asked who it is", async || Ok(!after.trace().is_empty())).await?;
    let asked = before.proxy.trace().len();
    before.proxy.cut_watches();
    eventually("the watches are back where they were", async || {
        Ok(before.proxy.trace()[asked..].iter().filter(|exchange| exchange.is_watch()).count() >= 2)
    })
    .await?;
    let read = after.trace();
    ensure!(read.iter().all(asks_who_it_is), "read from a cluster that is not known: {read:?}");
    after.interfere(|_| None);
    world.condition("east", "Synced", "False", "IdentityChanged").await?;
    ensure!(world.services().get_opt("web").await?.is_some());
    operator.stop().await
}

async fn flood_is_bounded(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    for number in 0..12_u16 {
        world.source(&format!("s{number:02}"), 30100 + number).await?;
    }
    world.east(json!({ "limits": { "services": 5 } })).await?;
    let operator = world.operator().await?;
    eventually("five are mirrored, the others are not", async || {
        let status = world.remote_status("east").await?;
        let limited = status.unmet.iter().filter(|one| one.reason == "LimitExceeded").count();
        Ok(status.services.is_some_and(|services| services.mirrored == 5) && limited == 7)
    })
    .await?;
    operator.stop().await
}

async fn flood_of_one_remote_does_not_delay_another(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    world.node("n1", "10.1.0.1").await?;
    for number in 0..60_u16 {
        world.source(&format!("flood-{number:02}"), 30100 + number).await?;
    }
    let west = World::new(Backend::Embedded).await?;
    west.node("w1", "10.1.0.2").await?;
    source_in(&west, &world.namespace, "web", json!({ "spec": { "ports": [{ "port": 80, "nodePort": 30080 }] } }))
        .await?;
    world.secret("west", "kubeconfig", &std::fs::read_to_string(&west.remote_server.kubeconfig)?).await?;
    world.east(json!({})).await?;
    let operator = world.operator_with(mirror::Options { write_qps: 10, ..world.options() }).await?;
    let flooded = async || {
        let services = world.services().list(&ListParams::default()).await?;
        anyhow::Ok(services.iter().filter(|service| service.name_any().starts_with("flood")).count())
    };
    eventually("the flood has begun", async || Ok(flooded().await? > 0)).await?;
    world.remote_cluster("west", json!({})).await?;
    world.endpoints_are("web", &["10.1.0.2:30080/TCP"]).await?;
    let mirrored = flooded().await?;
    ensure!(mirrored < 50, "{mirrored} of the other remote's 60 Services were mirrored before");
    operator.stop().await
}
