//! A stand-in for a real l7mp, as far as its REST API goes: objects by kind and name, and what it says when they are not
//! there.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use kube::api::DeleteParams;
use parking_lot::Mutex;
use portolan_api::mesh::VirtualService;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::away::echo;
use super::harness::{API, World, fresh_address};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    a_real_l7mp_is_left_alone_by_an_operator_that_starts_again,
    a_real_l7mp_that_forgot_is_told_again,
    sessions_that_a_real_l7mp_cuts_are_told,
);

type Objects = BTreeMap<String, BTreeMap<String, Value>>;

#[derive(Default)]
struct Held {
    objects: Mutex<Objects>,
    /// Calls that change something.
    calls: Mutex<Vec<String>>,
}

struct L7mp {
    address: Ipv4Addr,
    held: Arc<Held>,
    _tasks: JoinSet<()>,
}

impl L7mp {
    async fn start() -> anyhow::Result<Self> {
        let address = fresh_address();
        let listener = tokio::net::TcpListener::bind(SocketAddr::from((address, API))).await?;
        let held = Arc::new(Held::default());
        let app = Router::new().fallback(answer).with_state(Arc::clone(&held));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { axum::serve(listener, app).await.unwrap_or_default() });
        Ok(Self { address, held, _tasks: tasks })
    }

    fn names(&self, kind: &str) -> Vec<String> {
        self.held.objects.lock().get(kind).into_iter().flat_map(|all| all.keys().cloned()).collect()
    }

    /// It is started again, and nobody is told.
    fn forgets(&self) {
        self.held.objects.lock().clear();
        self.held.calls.lock().clear();
    }
}

async fn answer(State(held): State<Arc<Held>>, method: Method, uri: Uri, body: String) -> (StatusCode, String) {
    let path: Vec<&str> = uri.path().trim_start_matches("/api/v1/").split('/').collect();
    let refused = |content: String| (StatusCode::BAD_REQUEST, json!({ "status": 400, "content": content }).to_string());
    if method != Method::GET {
        held.calls.lock().push(format!("{method} {}", uri.path()));
    }
    let mut objects = held.objects.lock();
    match (method, &path[..]) {
        (Method::GET, ["admin"]) => (StatusCode::OK, json!({ "version": "0.5.7", "strict": true }).to_string()),
        (Method::GET, [kind]) => {
            let all: Vec<&Value> = objects.get(*kind).into_iter().flat_map(BTreeMap::values).collect();
            (StatusCode::OK, json!(all).to_string())
        }
        (Method::POST, [kind]) => {
            let given: Value = serde_json::from_str(&body).unwrap_or_default();
            let object = given.as_object().and_then(|given| given.values().next()).cloned().unwrap_or_default();
            let name = object["name"].as_str().unwrap_or_default().to_owned();
            let all = objects.entry((*kind).to_owned()).or_default();
            if all.contains_key(&name) {
                return refused(format!("Cannot add {kind}: {kind} \"{name}\" already defined"));
            }
            all.insert(name, object);
            (StatusCode::OK, json!({ "status": 200 }).to_string())
        }
        (Method::DELETE, [kind, name]) => {
            if objects.get_mut(*kind).and_then(|all| all.remove(*name)).is_none() {
                return refused(format!("Cannot delete {kind}: Unknown {kind} \"{name}\""));
            }
            (StatusCode::OK, json!({ "status": 200 }).to_string())
        }
        _ => refused("Unknown API operation".to_owned()),
    }
}

/// A world with two VirtualServices on a real l7mp.
async fn two_services(backend: Backend) -> anyhow::Result<(World, L7mp)> {
    let world = World::new(backend).await?;
    let l7mp = L7mp::start().await?;
    world.stand_in("l7mp", &[("app", "l7mp")], l7mp.address).await?;
    world.apply(&echo("one", "l7mp", 7001)).await?;
    world.apply(&echo("two", "l7mp", 7002)).await?;
    Ok((world, l7mp))
}

async fn a_real_l7mp_is_left_alone_by_an_operator_that_starts_again(backend: Backend) -> anyhow::Result<()> {
    let (world, l7mp) = two_services(backend).await?;
    for round in 0..3 {
        l7mp.held.calls.lock().clear();
        let operator = world.operator().await?;
        world.until("one", "Programmed", "True", "Programmed").await?;
        world.until("two", "Programmed", "True", "Programmed").await?;
        // what it would do wrong, it would do at once
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        operator.process.stop().await?;
        assert_eq!(l7mp.names("listeners").len(), 2);
        let calls = l7mp.held.calls.lock().clone();
        assert!(round == 0 || calls.is_empty(), "it was told {calls:?}");
    }
    Ok(())
}

async fn a_real_l7mp_that_forgot_is_told_again(backend: Backend) -> anyhow::Result<()> {
    let (world, l7mp) = two_services(backend).await?;
    let operator = world.operator().await?;
    world.until("one", "Programmed", "True", "Programmed").await?;
    world.until("two", "Programmed", "True", "Programmed").await?;
    l7mp.forgets();
    // the next change shows that it holds nothing, and everything else is told again with it
    world.api::<VirtualService>().delete("one", &DeleteParams::default()).await?;
    let two = format!("two.{}.virtualservice.cluster.local", world.namespace);
    eventually("the other one is back", async || Ok(l7mp.names("listeners") == [two.clone()])).await?;
    assert_eq!(l7mp.names("clusters").len(), 1);
    operator.process.stop().await?;
    Ok(())
}

async fn sessions_that_a_real_l7mp_cuts_are_told(backend: Backend) -> anyhow::Result<()> {
    let world = World::new(backend).await?;
    let l7mp = L7mp::start().await?;
    world.stand_in("l7mp", &[("app", "l7mp")], l7mp.address).await?;
    let operator = world.operator().await?;
    let websocket = |port: u16| echo("v", "l7mp", port).replace("UDP", "WebSocket");
    world.apply(&websocket(7001)).await?;
    world.until("v", "Programmed", "True", "Programmed").await?;
    assert!(!world.events("VirtualService", "v").await?.contains(&"SessionsCut".to_owned()));
    world.apply(&websocket(7002)).await?;
    world.told("VirtualService", "v", "SessionsCut").await?;
    operator.process.stop().await?;
    Ok(())
}
