//! Services and endpoints: made, shown, changed, deleted.

use anyhow::{Context as _, ensure};
use http::Method;
use kube::api::{ListParams, Patch, PatchParams};
use portolan_api::gateway::{Endpoint, LoadBalancer, ServiceGroup};
use serde_json::json;

use super::harness::{Site, basic, endpoint, port, service};
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    a_change_does_not_fail_because_others_write_too,
    bad_json_is_400_everywhere,
    body_cannot_choose_address_key_namespace,
    delete_twice_is_200,
    duplicate_returns_stored_endpoint,
    endpoint_of_other_service_is_404,
    errors_are_typed,
    group_view_hides_creds,
    links_ignore_query_string,
    lists_come_in_pages,
    missing_is_404_at_once,
    parallel_duplicates_one_winner,
    restart_of_client_leaks_no_endpoint,
    the_same_service_again_is_a_conflict_or_a_retry,
    update_is_validated,
);

async fn missing_is_404_at_once(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.0/24").await?;
    let account = site.account("acme").await?;
    for path in [
        "/groups/none",
        "/services/none",
        "/services/none/endpoints",
        "/services/none/endpoints/none",
        "/services/none/watch",
        "/nowhere",
    ] {
        let answer = site.get(&format!("/accounts/{account}{path}")).await?.is(404)?;
        ensure!(answer.reason() == "NotFound" && answer.body["error"].is_string(), "{answer:?}");
    }
    let base = format!("/accounts/{account}");
    site.post(&format!("{base}/groups/none/services"), service("a")).await?.is(404)?;
    site.post(&format!("{base}/services/none/endpoints"), endpoint("10.1.1.1", "10.0.0.1")).await?.is(404)?;
    site.put(&format!("{base}/services/none"), service("none")).await?.is(404)?;
    site.stop().await
}

async fn bad_json_is_400_everywhere(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.0/24").await?;
    let account = site.account("acme").await?;
    let path = site.service(&account, "lb").await?;
    let made = site.endpoint(&path, "10.1.1.1", "10.0.0.1").await?;
    let requests = [
        (Method::POST, format!("/accounts/{account}/groups/sample/services")),
        (Method::PUT, path.clone()),
        (Method::POST, format!("{path}/endpoints")),
        (Method::PUT, made),
        (Method::PUT, format!("{path}/nodes/10.0.0.1/endpoints")),
    ];
    let bodies = [
        "{",
        "[]",
        "null",
        "\"text\"",
        "{\"a\":1,\"a\":1}",
        "{\"service\":{},\"Service\":{},\"endpoint\":{},\"ENDPOINT\":{},\"endpoints\":[],\"Endpoints\":[]}",
        "{\"service\":[],\"endpoint\":[],\"endpoints\":{}}",
    ];
    for (method, path) in requests {
        for body in bodies {
            let answer = site.send(method.clone(), &path, body).await?;
            ensure!(answer.code == 400 && answer.reason() == "BadRequest", "{method} {path} {body}: {answer:?}");
        }
        let deep = format!("{{\"service\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        site.send(method, &path, deep).await?.is(400)?;
    }
    site.stop().await
}

async fn links_ignore_query_string(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.0/24").await?;
    let account = site.account("acme").await?;
    let path = site.service(&account, "lb").await?;
    let made = site.endpoint(&path, "10.1.1.1", "10.0.0.1").await?;
    let base = format!("/api/egw/accounts/{account}");
    for of in [&base, &format!("{base}/groups/sample"), &path, &made, &format!("{base}/services")] {
        let plain = site.get(of).await?.is(200)?;
        let asked = site.get(&format!("{of}?a=/../../b&limit=7")).await?.is(200)?;
        ensure!(plain.body["link"]["self"] == **of && asked.body["link"] == plain.body["link"], "{asked:?}");
    }
    let shown = site.get(&path).await?.body;
    ensure!(shown["link"]["group"] == format!("{base}/groups/sample"), "{shown}");
    ensure!(shown["link"]["create-endpoint"] == format!("{path}/endpoints"), "{shown}");
    let key = shown["service"]["spec"]["gue-key"].as_u64().context("it has a key")?;
    ensure!(
        shown["service"]["spec"]["group-id"] == key >> 16 && shown["service"]["spec"]["service-id"] == key & 0xffff
    );
    let of_account = site.get(&base).await?.body;
    ensure!(of_account["account"]["spec"]["group-id"] == key >> 16, "{of_account}");
    site.stop().await
}

async fn endpoint_of_other_service_is_404(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.0/24").await?;
    let account = site.account("acme").await?;
    let (one, other) = (site.service(&account, "one").await?, site.service(&account, "other").await?);
    let made = site.endpoint(&one, "10.1.1.1", "10.0.0.1").await?;
    let name = made.rsplit('/').next().context("a path")?;
    site.get(&made).await?.is(200)?;
    site.get(&format!("{other}/endpoints/{name}")).await?.is(404)?;
    site.delete(&format!("{other}/endpoints/{name}")).await?.is(404)?;
    site.put(&format!("{other}/endpoints/{name}"), endpoint("10.1.1.1", "10.0.0.1")).await?.is(409)?;
    site.get(&made).await?.is(200)?;
    site.stop().await
}

async fn duplicate_returns_stored_endpoint(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.0/24").await?;
    let account = site.account("acme").await?;
    let path = site.service(&account, "lb").await?;
    let made = site.endpoint(&path, "10.1.1.1", "10.0.0.1").await?;
    let mut again = endpoint("10.1.1.1", "10.0.0.1");
    again["endpoint"]["spec"]["port"]["name"] = "other".into();
    again["endpoint"]["metadata"] = json!({ "name": "mine" });
    let answer = site.post(&format!("{path}/endpoints"), again).await?.is(409)?;
    let name = made.rsplit('/').next().context("a path")?;
    ensure!(answer.reason() == "DuplicateEndpoint" && answer.location()? == made, "{answer:?}");
    let message = answer.body["message"].as_str().unwrap_or_default();
    ensure!(message.contains(&format!("duplicate endpoint: {name}")), "{answer:?}");
    ensure!(answer.body["link"]["self"] == *made && answer.body["endpoint"]["metadata"]["name"] == name, "{answer:?}");
    ensure!(answer.body["endpoint"]["spec"]["port"].get("name").is_none(), "not an echo: {answer:?}");
    // one that kubectl made, with a name of its own
    let by_hand =
        json!({ "load-balancer": "lb", "address": "10.1.1.2", "node-address": "10.0.0.1", "port": { "port": 8080 } });
    site.world.create::<Endpoint>(&format!("egw-{account}"), "by-hand", by_hand).await?;
    site.seen(&format!("{path}/endpoints/by-hand")).await?;
    let answer = site.post(&format!("{path}/endpoints"), endpoint("10.1.1.2", "10.0.0.1")).await?.is(409)?;
    ensure!(answer.body["link"]["self"] == format!("{path}/endpoints/by-hand"), "{answer:?}");
    site.stop().await
}

async fn parallel_duplicates_one_winner(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.0/24").await?;
    let account = site.account("acme").await?;
    let path = format!("{}/endpoints", site.service(&account, "lb").await?);
    let all = (0..20).map(|_| site.post(&path, endpoint("10.1.1.1", "10.0.0.1")));
    let answers = futures::future::try_join_all(all).await?;
    let codes: Vec<u16> = answers.iter().map(|answer| answer.code).collect();
    ensure!(codes.iter().filter(|code| **code == 302).count() == 1, "{codes:?}");
    ensure!(codes.iter().filter(|code| **code == 409).count() == 19, "{codes:?}");
    let locations: Vec<&str> = answers.iter().map(super::harness::Answer::location).collect::<Result<_, _>>()?;
    ensure!(locations.iter().all(|location| *location == locations[0]), "{locations:?}");
    let objects = site.world.of::<Endpoint>(&format!("egw-{account}")).list(&ListParams::default()).await?;
    ensure!(objects.items.len() == 1);
    site.stop().await
}

async fn delete_twice_is_200(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.0/24").await?;
    let account = site.account("acme").await?;
    let path = site.service(&account, "lb").await?;
    let made = site.endpoint(&path, "10.1.1.1", "10.0.0.1").await?;
    for _ in 0..2 {
        let answer = site.delete(&made).await?.is(200)?;
        ensure!(answer.body == json!({ "message": "endpoint deleted" }), "{answer:?}");
        site.get(&made).await?.is(404)?;
    }
    for _ in 0..2 {
        let answer = site.delete(&path).await?.is(200)?;
        ensure!(answer.body == json!({ "message": "delete successful" }), "{answer:?}");
    }
    site.world.gone::<LoadBalancer>(&format!("egw-{account}"), "lb").await?;
    eventually("reads show that it is gone", async || Ok(site.get(&path).await?.code == 404)).await?;
    site.delete(&path).await?.is(200)?;
    site.delete(&made).await?.is(200)?;
    site.stop().await
}

async fn errors_are_typed(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.8/31").await?;
    let account = site.account("acme").await?;
    let create = format!("/accounts/{account}/groups/sample/services");
    let first = site.service(&account, "one").await?;
    site.service(&account, "two").await?;
    let full = site.post(&create, service("three")).await?.is(503)?;
    ensure!(full.reason() == "PoolExhausted" && full.headers["retry-after"] == "60", "{full:?}");
    ensure!(full.body["details"].is_object() && full.body["error"].as_str().is_some_and(|text| text.contains("pool")));
    site.world.gone::<LoadBalancer>(&format!("egw-{account}"), "three").await?;
    // the limit of the account
    let limits = Patch::Merge(json!({ "spec": { "limits": { "load-balancers": 2 } } }));
    let accounts = site.world.of::<portolan_api::gateway::Account>("egw");
    accounts.patch(&account, &PatchParams::default(), &limits).await?;
    eventually("the limit holds", async || {
        let over = site.post(&create, service("four")).await?;
        Ok(over.code == 403 && over.reason() == "QuotaExceeded")
    })
    .await?;
    let wrong = site.send(Method::PATCH, &first, "").await?.is(405)?;
    ensure!(wrong.reason() == "MethodNotAllowed" && wrong.headers["allow"] == "GET, PUT, DELETE", "{wrong:?}");
    let login = basic("bob", "secret");
    let form = [("authorization", login.as_str()), ("content-type", "text/plain")];
    let media = site.send_as(&form, Method::POST, &create, "").await?.is(415)?;
    ensure!(media.reason() == "UnsupportedMediaType", "{media:?}");
    let bad =
        json!({ "service": { "metadata": { "name": "Not A Name" }, "spec": { "public-ports": [{ "port": 1 }] } } });
    let bad = site.post(&create, bad).await?.is(422)?;
    ensure!(bad.body["details"]["fields"][0]["field"] == "service.metadata.name", "{bad:?}");
    let sctp = json!({ "service": { "metadata": { "name": "a" }, "spec": { "public-ports": [{ "port": 1, "protocol": "SCTP" }] } } });
    ensure!(site.post(&create, sctp).await?.is(422)?.reason() == "Invalid");
    site.stop().await
}

async fn body_cannot_choose_address_key_namespace(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.0/24").await?;
    let account = site.account("acme").await?;
    let victim = site.account("victim").await?;
    let greedy = json!({ "service": {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "lb", "namespace": format!("egw-{victim}"), "labels": { "a": "b" }, "annotations": { "a": "b" },
            "finalizers": ["mine/forever"], "uid": "0", "ownerReferences": [
                { "apiVersion": "v1", "kind": "Namespace", "name": "egw", "uid": "00000000-0000-0000-0000-000000000000" }],
        },
        "spec": {
            "public-address": "192.0.2.77", "gue-key": 4_294_967_295_u32, "service-group": "other",
            "public-ports": [{ "port": 80 }],
        },
        "status": { "gue-tunnel-endpoints": { "10.0.0.1": { "egw-address": "1.2.3.4" } } },
    } });
    let made = site.post(&format!("/accounts/{account}/groups/sample/services"), greedy).await?.is(302)?;
    ensure!(made.location()? == format!("/api/egw/accounts/{account}/services/lb"), "{made:?}");
    let object = site.world.get(&account, "lb").await?;
    ensure!(object.spec.public_address != "192.0.2.77" && object.spec.gue_key != u32::MAX, "{object:?}");
    ensure!(object.spec.service_group == "sample" && object.metadata.labels.is_none(), "{object:?}");
    ensure!(object.metadata.annotations.is_none() && object.metadata.owner_references.is_none(), "{object:?}");
    ensure!(object.metadata.finalizers.iter().flatten().all(|one| one != "mine/forever"), "{object:?}");
    ensure!(object.status.unwrap_or_default().gue_tunnel_endpoints.is_empty());
    ensure!(
        site.world.of::<LoadBalancer>(&format!("egw-{victim}")).list(&ListParams::default()).await?.items.is_empty()
    );
    // a group may allow it
    let groups = site.world.of::<ServiceGroup>(&format!("egw-{account}"));
    let allow = Patch::Merge(json!({ "metadata": { "annotations": { "portolan.dev/allow-pinned": "true" } } }));
    groups.patch("sample", &PatchParams::default(), &allow).await?;
    eventually("a pinned address is given", async || {
        let pinned = json!({ "service": { "metadata": { "name": "pinned" }, "spec": {
            "public-address": "192.0.2.99", "public-ports": [{ "port": 80 }] } } });
        site.post(&format!("/accounts/{account}/groups/sample/services"), pinned).await?;
        let object = site.world.get(&account, "pinned").await?;
        if object.spec.public_address != "192.0.2.99" {
            site.delete(&format!("/accounts/{account}/services/pinned")).await?;
        }
        Ok(object.spec.public_address == "192.0.2.99")
    })
    .await?;
    site.stop().await
}

async fn group_view_hides_creds(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    let account = site.account("acme").await?;
    let groups = site.world.of::<ServiceGroup>(&format!("egw-{account}"));
    let applied = "{\"spec\":{\"auth-creds\":\"fredfredfredfred\"}}";
    let note = Patch::Merge(json!({ "metadata": { "annotations": {
        "kubectl.kubernetes.io/last-applied-configuration": applied } } }));
    let noted = groups.patch("sample", &PatchParams::default(), &note).await?;
    let path = format!("/accounts/{account}/groups/sample");
    eventually("the new version is shown", async || {
        Ok(site.get(&path).await?.body["group"]["metadata"]["resourceVersion"]
            == noted.metadata.resource_version.clone().unwrap_or_default())
    })
    .await?;
    for path in [path, format!("/accounts/{account}/groups"), format!("/accounts/{account}")] {
        let answer = site.get(&path).await?.is(200)?;
        ensure!(!answer.body.to_string().contains("fred"), "{answer:?}");
    }
    site.stop().await
}

async fn restart_of_client_leaks_no_endpoint(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.0/24").await?;
    let account = site.account("acme").await?;
    let path = site.service(&account, "lb").await?;
    let here = format!("{path}/nodes/10.0.0.1/endpoints");
    let number = port();
    let set = |addresses: &[&str]| {
        let one = |address: &&str| json!({ "spec": { "address": address, "port": { "port": number } } });
        json!({ "endpoints": addresses.iter().map(one).collect::<Vec<_>>() })
    };
    site.endpoint(&path, "10.1.9.9", "10.0.0.2").await?;
    let answer = site.put(&here, set(&["10.1.1.1", "10.1.1.2", "10.1.1.3"])).await?.is(200)?;
    ensure!(answer.body["created"] == 3 && answer.body["deleted"] == 0, "{answer:?}");
    // the client restarts, has forgotten everything, and one pod is another
    let answer = site.put(&here, set(&["10.1.1.1", "10.1.1.4"])).await?.is(200)?;
    let counts = ["created", "updated", "deleted", "unchanged"].map(|name| answer.body[name].as_u64());
    ensure!(counts == [Some(1), Some(0), Some(2), Some(1)], "{answer:?}");
    let answer = site.put(&here, set(&["10.1.1.1", "10.1.1.4"])).await?.is(200)?;
    ensure!(answer.body["unchanged"] == 2 && answer.body["created"] == 0, "{answer:?}");
    let left = site.get(&format!("{path}/endpoints")).await?.is(200)?;
    let left = left.body["endpoints"].as_array().context("a list")?.clone();
    let mut addresses: Vec<_> = left.iter().map(|one| one["endpoint"]["spec"]["address"].clone()).collect();
    addresses.sort_by_key(ToString::to_string);
    ensure!(addresses == ["10.1.1.1", "10.1.1.4", "10.1.9.9"], "{addresses:?}");
    for (node, body, code) in [
        (
            "10.0.0.1",
            json!({ "endpoints": [{ "spec": { "address": "10.1.1.1", "node-address": "10.0.0.9", "port": { "port": 1 } } }] }),
            422,
        ),
        ("nowhere", set(&[]), 422),
        ("10.0.0.1", set(&["10.1.1.1", "10.1.1.1"]), 422),
        ("10.0.0.1", json!({ "endpoints": vec![json!({}); 5001] }), 422),
        ("10.0.0.1", set(&[]), 200),
    ] {
        site.put(&format!("{path}/nodes/{node}/endpoints"), body).await?.is(code)?;
    }
    let objects = site.world.of::<Endpoint>(&format!("egw-{account}")).list(&ListParams::default()).await?;
    ensure!(objects.items.len() == 1 && objects.items[0].spec.address == "10.1.9.9");
    site.stop().await
}

async fn update_is_validated(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.0/24").await?;
    let account = site.account("acme").await?;
    let path = site.service(&account, "lb").await?;
    let shown = site.get(&path).await?.is(200)?;
    let spec = |change: serde_json::Value| {
        let mut spec = json!({ "public-ports": [{ "port": 9999, "protocol": "udp" }] });
        json_patch::merge(&mut spec, &change);
        json!({ "service": { "spec": spec } })
    };
    for bad in [
        json!({ "public-ports": [] }),
        json!({ "public-ports": [{ "port": 0 }] }),
        json!({ "public-ports": [{ "port": 80 }, { "port": 80, "protocol": "tcp" }] }),
        json!({ "public-ports": [{ "port": 80, "protocol": "SCTP" }] }),
        json!({ "sharing-key": "No Label" }),
        json!({ "service-group": "other" }),
        json!({ "public-address": "192.0.2.200" }),
        json!({ "gue-key": 65_537 * 3 }),
    ] {
        let answer = site.put(&path, spec(bad.clone())).await?;
        ensure!(answer.code == 422 && answer.reason() == "Invalid", "{bad}: {answer:?}");
        ensure!(answer.body["details"]["fields"][0]["field"].is_string(), "{bad}: {answer:?}");
    }
    let login = basic("bob", "secret");
    let stale = [("authorization", login.as_str()), ("if-match", "\"1\"")];
    let answer = site.send_as(&stale, Method::PUT, &path, spec(json!({})).to_string()).await?.is(412)?;
    ensure!(answer.reason() == "PreconditionFailed", "{answer:?}");
    let ports = &shown.body["service"]["spec"]["public-ports"];
    ensure!(site.get(&path).await?.body["service"]["spec"]["public-ports"] == *ports, "nothing was changed");
    // a status may have been written since
    eventually("the version that is there is accepted", async || {
        let tag = site.get(&path).await?.headers["etag"].to_str()?.to_owned();
        let headers = [("authorization", login.as_str()), ("if-match", tag.as_str())];
        let answer = site.send_as(&headers, Method::PUT, &path, spec(json!({})).to_string()).await?;
        Ok(answer.code == 200)
    })
    .await?;
    let shown = site.get(&path).await?.body;
    ensure!(shown["service"]["spec"]["public-ports"] == json!([{ "port": 9999, "protocol": "udp" }]), "{shown}");
    // endpoints: what cannot change, and what can
    let of = format!("{path}/endpoints/mine");
    site.put(&of, endpoint("10.1.1.1", "10.0.0.1")).await?.is(201)?;
    site.put(&of, endpoint("10.1.1.1", "10.0.0.1")).await?.is(200)?;
    site.put(&of, endpoint("10.1.1.2", "10.0.0.1")).await?.is(422)?;
    site.put(&of, endpoint("10.1.1.1", "10.0.0.2")).await?.is(422)?;
    let mut named = endpoint("10.1.1.1", "10.0.0.1");
    named["endpoint"]["spec"]["port"]["name"] = "web".into();
    let answer = site.put(&of, named).await?.is(200)?;
    ensure!(answer.body["endpoint"]["spec"]["port"]["name"] == "web", "{answer:?}");
    site.put(&format!("{path}/endpoints/Bad_Name"), endpoint("10.1.1.3", "10.0.0.1")).await?.is(422)?;
    site.put(&format!("{path}/endpoints/again"), endpoint("10.1.1.1", "10.0.0.1")).await?.is(409)?;
    site.stop().await
}

async fn a_change_does_not_fail_because_others_write_too(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.0/24").await?;
    let account = site.account("acme").await?;
    let path = site.service(&account, "lb").await?;
    let of = format!("{path}/endpoints/mine");
    let all = format!("{path}/nodes/10.0.0.1/endpoints");
    let mut object = endpoint("10.1.1.1", "10.0.0.1");
    object["endpoint"]["spec"]["port"]["port"] = port().into();
    site.put(&of, object.clone()).await?.is(201)?;
    let endpoints = site.world.of::<Endpoint>(&format!("egw-{account}"));
    for round in 0..20 {
        // as the operator does with the status
        let other = Patch::Merge(json!({ "metadata": { "annotations": { "round": round.to_string() } } }));
        object["endpoint"]["spec"]["port"]["name"] = format!("one-{round}").into();
        let params = PatchParams::default();
        let (patched, put) = tokio::join!(endpoints.patch("mine", &params, &other), site.put(&of, object.clone()));
        patched?;
        put?.is(200)?;
        object["endpoint"]["spec"]["port"]["name"] = format!("all-{round}").into();
        let bulk = json!({ "endpoints": [object["endpoint"]] });
        let other = Patch::Merge(json!({ "metadata": { "annotations": { "again": round.to_string() } } }));
        let (patched, put) = tokio::join!(endpoints.patch("mine", &params, &other), site.put(&all, bulk));
        patched?;
        put?.is(200)?;
    }
    let stored = endpoints.get("mine").await?;
    ensure!(stored.spec.port.name.as_deref() == Some("all-19"), "{stored:?}");
    site.stop().await
}

async fn the_same_service_again_is_a_conflict_or_a_retry(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.0/24").await?;
    let account = site.account("acme").await?;
    let create = format!("/accounts/{account}/groups/sample/services");
    let path = site.service(&account, "lb").await?;
    // the answer was lost: the same body leads to the same service
    ensure!(site.post(&create, service("lb")).await?.is(302)?.location()? == path);
    let mut other = service("lb");
    other["service"]["spec"]["public-ports"][0]["port"] = 8889.into();
    let answer = site.post(&create, other.clone()).await?.is(409)?;
    ensure!(answer.reason() == "AlreadyExists" && answer.location()? == path, "{answer:?}");
    ensure!(answer.body["link"]["self"] == *path, "{answer:?}");
    ensure!(answer.body["service"]["spec"]["public-ports"][0]["port"] == 8888, "the stored one: {answer:?}");
    site.endpoint(&path, "10.1.1.1", "10.0.0.1").await?;
    site.post(&create, service("lb")).await?.is(409)?;
    // a key of the client's own says that it is the same request
    let login = basic("bob", "secret");
    let keyed = |key| [("authorization", login.as_str()), ("idempotency-key", key)];
    for (key, code) in [("k1", 302), ("k1", 302), ("k2", 409)] {
        let mut body = service("keyed");
        body["service"]["spec"]["public-ports"][0]["name"] = key.into();
        site.send_as(&keyed(key), Method::POST, &create, body.to_string()).await?.is(code)?;
    }
    let objects = site.world.of::<LoadBalancer>(&format!("egw-{account}")).list(&ListParams::default()).await?;
    ensure!(objects.items.len() == 2);
    site.stop().await
}

async fn lists_come_in_pages(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.0/24").await?;
    let account = site.account("acme").await?;
    for name in ["a", "b", "c"] {
        site.service(&account, name).await?;
    }
    let mut next = format!("/accounts/{account}/services?limit=2");
    let mut names = Vec::new();
    loop {
        let page = site.get(&next).await?.is(200)?.body;
        let services = page["services"].as_array().context("a list")?;
        ensure!(services.len() <= 2);
        names.extend(
            services.iter().map(|one| one["service"]["metadata"]["name"].as_str().unwrap_or_default().to_owned()),
        );
        let Some(more) = page["link"]["next"].as_str() else { break };
        more.clone_into(&mut next);
    }
    ensure!(names == ["a", "b", "c"], "{names:?}");
    site.get(&format!("/accounts/{account}/services?limit=x")).await?.is(400)?;
    let groups = site.get(&format!("/accounts/{account}/groups")).await?.is(200)?.body;
    ensure!(groups["groups"][0]["group"]["metadata"]["name"] == "sample", "{groups}");
    site.stop().await
}
