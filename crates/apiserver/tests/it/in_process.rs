//! A kube client in process.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Service};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use portolan_apiserver::{ApiServer, Clock};
use portolan_testkit::ticket::{Ticket, TicketSpec};
use serde_json::json;

#[tokio::test]
async fn objects_and_custom_objects_live_and_go() -> anyhow::Result<()> {
    let server = ApiServer::memory().await;
    let client = server.client();
    let namespaces: Api<Namespace> = Api::all(client.clone());
    assert_eq!(namespaces.list(&ListParams::default()).await?.items.len(), 4);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": "a" }, "data": { "k": "v" } }))?;
    let made = maps.create(&PostParams::default(), &map).await?;
    assert!(made.uid().is_some());
    let patched = maps.patch("a", &PatchParams::default(), &Patch::Merge(json!({ "data": { "k": "w" } }))).await?;
    assert_eq!(patched.data.unwrap()["k"], "w");
    let applied = maps
        .patch(
            "a",
            &PatchParams::apply("me").force(),
            &Patch::Apply(
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }, "data": { "k": "x" } }),
            ),
        )
        .await?;
    assert_eq!(applied.data.unwrap()["k"], "x");
    maps.delete("a", &DeleteParams::default()).await?;
    assert!(maps.get_opt("a").await?.is_none());

    let services: Api<Service> = Api::namespaced(client.clone(), "default");
    let service: Service =
        serde_json::from_value(json!({ "metadata": { "name": "s" }, "spec": { "ports": [{ "port": 80 }] } }))?;
    let service = services.create(&PostParams::default(), &service).await?;
    assert!(service.spec.unwrap().cluster_ip.unwrap().starts_with("10."));

    portolan_testkit::install::<Ticket>(client.clone()).await?;
    let tickets: Api<Ticket> = Api::namespaced(client.clone(), "default");
    let ticket = Ticket::new("t", TicketSpec { text: "hello".into(), desk: None });
    tickets.create(&PostParams::default(), &ticket).await?;
    let bad =
        tickets.create(&PostParams::default(), &Ticket::new("u", TicketSpec { text: String::new(), desk: None })).await;
    assert!(bad.unwrap_err().to_string().contains("say what the ticket is for"));
    Ok(())
}

#[tokio::test]
async fn documents_that_clients_keep_are_not_sent_twice() -> anyhow::Result<()> {
    let client = ApiServer::memory().await.client();
    let get = async |path: &str, known: &str| {
        let request = http::Request::get(path).header("if-none-match", known);
        anyhow::Ok(client.send(request.body(kube::client::Body::empty())?).await?)
    };
    for path in ["/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1"] {
        let first = get(path, "").await?;
        let tag = first.headers()["etag"].to_str()?.to_owned();
        assert_eq!((first.status().as_u16(), tag.starts_with('"')), (200, true), "{path}");
        let again = get(path, &tag).await?;
        assert_eq!((again.status().as_u16(), again.headers()["etag"].to_str()?), (304, tag.as_str()), "{path}");
    }
    let before = get("/openapi/v2", "").await?.headers()["etag"].to_str()?.to_owned();
    portolan_testkit::install::<Ticket>(client.clone()).await?;
    assert_eq!(get("/openapi/v2", &before).await?.status(), 200);
    Ok(())
}

#[tokio::test]
async fn a_paused_clock_is_the_time_of_every_object() -> anyhow::Result<()> {
    let clock = Clock::paused("2030-01-02T03:04:05Z".parse()?);
    let server = ApiServer::memory_with(clock.clone()).await;
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    let mut times = Vec::new();
    for (name, pause) in [("a", 0), ("b", 0), ("c", 90)] {
        clock.advance(Duration::from_secs(pause));
        let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": name }, "data": { "k": "v" } }))?;
        let made = maps.create(&PostParams::default(), &map).await?;
        let (created, books) = (made.metadata.creation_timestamp, made.metadata.managed_fields);
        assert_eq!(created, books.unwrap()[0].time, "who wrote it, wrote it then");
        times.push(created.unwrap().0.to_string());
    }
    assert_eq!(times, ["2030-01-02T03:04:05Z", "2030-01-02T03:04:05Z", "2030-01-02T03:05:35Z"]);
    Ok(())
}

#[tokio::test]
async fn a_list_that_is_read_too_slowly_goes_on_at_the_present_state() -> anyhow::Result<()> {
    let clock = Clock::paused("2030-01-02T03:04:05Z".parse()?);
    let server = ApiServer::memory_with(clock.clone()).await;
    let maps: Api<ConfigMap> = Api::namespaced(server.client(), "default");
    for name in ["a", "b", "c"] {
        let map: ConfigMap = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
        maps.create(&PostParams::default(), &map).await?;
    }
    let page = |token: &str| ListParams::default().limit(1).continue_token(token);
    let names = |list: &[ConfigMap]| list.iter().map(ResourceExt::name_any).collect::<Vec<_>>();
    let first = maps.list(&ListParams::default().limit(1)).await?;
    let token = first.metadata.continue_.unwrap_or_default();
    clock.advance(Duration::from_secs(299));
    assert_eq!(names(&maps.list(&page(&token)).await?.items), ["b"]);

    clock.advance(Duration::from_secs(2));
    let Err(kube::Error::Api(expired)) = maps.list(&page(&token)).await else { panic!("the token is too old") };
    assert_eq!(expired.code, 410);
    let next = expired.metadata.and_then(|metadata| metadata.continue_).unwrap_or_default();
    maps.delete("c", &DeleteParams::default()).await?;
    let rest = maps.list(&page(&next)).await?;
    assert_eq!(
        (names(&rest.items), rest.metadata.continue_.unwrap_or_default()),
        (vec!["b".to_owned()], String::new())
    );
    Ok(())
}
