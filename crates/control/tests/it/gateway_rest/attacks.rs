//! Acting for another account.

use std::collections::BTreeSet;

use anyhow::ensure;
use http::Method;
use kube::api::{ListParams, Patch, PatchParams};
use portolan_api::gateway::{Account, LoadBalancer};
use serde_json::json;

use super::harness::{HASH, Site, basic, service};
use crate::chart::metrics;
use crate::gateway::harness::World;
use crate::harness::{Backend, eventually, on_both_servers};

on_both_servers!(
    a_foreign_account_is_403_whether_it_exists_or_not,
    a_quota_holds_exactly_against_fifty_clients,
    account_names_cannot_leave_their_place,
    failed_logins_are_429_after_ten,
    without_a_login_only_two_paths_answer,
);

async fn a_foreign_account_is_403_whether_it_exists_or_not(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.0/24").await?;
    let own = site.account("own").await?;
    let other = World::name("other");
    site.world.account(&other).await?;
    site.login(&other, &format!("alice:{HASH}\nbob:{}\n", HASH.replace("2r9", "3r9"))).await?;
    let (bare, missing) = (World::name("bare"), World::name("missing"));
    site.world.account(&bare).await?;
    let mut answers = Vec::new();
    for account in [&other, &bare, &missing] {
        for path in ["", "/services/lb"] {
            let answer = site.get(&format!("/accounts/{account}{path}")).await?.is(403)?;
            answers.push((answer.body, answer.headers.get("retry-after").cloned()));
        }
        let made = site.post(&format!("/accounts/{account}/groups/sample/services"), service("lb")).await?.is(403)?;
        answers.push((made.body, made.headers.get("retry-after").cloned()));
    }
    ensure!(answers.iter().all(|answer| *answer == answers[0]), "{answers:#?}");
    ensure!(answers[0].0["reason"] == "Forbidden");
    ensure!(!answers[0].0.to_string().contains(&own));
    let text = metrics(site.process.admin_at()).await?;
    ensure!(text.contains("portolan_gateway_rest_login_failures_total 9"), "{text}");
    ensure!(
        text.contains("portolan_gateway_rest_requests_total{route=\"/accounts/{account}\",code=\"403\"} 3"),
        "{text}"
    );
    ensure!(!text.contains(&own) && !text.contains(&missing), "no name of a tenant is a label");
    site.stop().await
}

async fn account_names_cannot_leave_their_place(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    let own = site.account("own").await?;
    let upper = own.to_ascii_uppercase();
    for account in ["..", "%2e%2e", ".", "x%2Fservices", "%00", &upper, &format!("{own}.")] {
        let answer = site.get(&format!("/accounts/{account}/services")).await?;
        ensure!(answer.code == 403 && answer.reason() == "Forbidden", "{account}: {answer:?}");
    }
    let beside = site.get(&format!("/accounts/{own}%2F..%2F{own}/services")).await?;
    ensure!(beside.code == 403, "{beside:?}");
    site.get("/accounts//services").await?.is(403)?;
    for path in ["/accounts/", "//accounts/a", "/accounts", "", "/../accounts"] {
        let answer = site.get(path).await?;
        ensure!(answer.code == 403 || answer.code == 404, "{path}: {answer:?}");
    }
    // own names inside of an account do not lead outside either
    for name in ["..%2f..%2fother", "a%2Fb", "..", "%ff"] {
        site.get(&format!("/accounts/{own}/services/{name}")).await?;
    }
    site.stop().await
}

async fn failed_logins_are_429_after_ten(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    let account = site.account("acme").await?;
    let path = format!("/accounts/{account}");
    let all = (0..30).map(|number| {
        let (site, path) = (&site, &path);
        async move {
            let login = basic("bob", &format!("guess {number}"));
            site.send_as(&[("authorization", &login)], Method::GET, path, "").await
        }
    });
    let answers = futures::future::try_join_all(all).await?;
    let count = |code: u16| answers.iter().filter(|answer| answer.code == code).count();
    ensure!((count(403), count(429)) == (10, 20), "{:?}", answers.iter().map(|one| one.code).collect::<Vec<_>>());
    let blocked = answers.iter().find(|answer| answer.code == 429);
    ensure!(
        blocked.is_some_and(|answer| answer.reason() == "TooManyLogins" && answer.headers.contains_key("retry-after"))
    );
    // the right password is not confirmed either
    site.get(&path).await?.is(429)?;
    site.stop().await
}

async fn without_a_login_only_two_paths_answer(backend: Backend) -> anyhow::Result<()> {
    let site = Site::new(backend).await?;
    let account = site.account("acme").await?;
    let document = site.send_as(&[], Method::GET, "/openapi.json", "").await?.is(200)?;
    ensure!(document.body == portolan_control::gateway::rest::openapi());
    site.send_as(&[], Method::GET, "/healthz", "").await?.is(200)?;
    for (path, methods) in document.body["paths"].as_object().into_iter().flatten() {
        if path.ends_with("/healthz") || path.ends_with("/openapi.json") {
            continue;
        }
        for existing in [account.as_str(), "missing"] {
            let path = path.replace("{account}", existing).replace(['{', '}'], "");
            for method in methods.as_object().into_iter().flat_map(|methods| methods.keys()) {
                let method = Method::from_bytes(method.to_ascii_uppercase().as_bytes())?;
                for headers in [&[][..], &[("authorization", "Basic !!!")], &[("authorization", "Negotiate abc")]] {
                    let answer = site.send_as(headers, method.clone(), &path, "").await?.is(401)?;
                    ensure!(answer.headers.contains_key("www-authenticate"), "{answer:?}");
                    ensure!(answer.body["details"] == json!({}), "{answer:?}");
                }
            }
        }
    }
    site.stop().await
}

async fn a_quota_holds_exactly_against_fifty_clients(backend: Backend) -> anyhow::Result<()> {
    const LIMIT: usize = 20;
    let site = Site::new(backend).await?;
    site.world.pool("192.0.2.0/24").await?;
    let account = site.account("acme").await?;
    let limits = Patch::Merge(json!({ "spec": { "limits": { "load-balancers": LIMIT, "addresses": LIMIT } } }));
    site.world.of::<Account>("egw").patch(&account, &PatchParams::default(), &limits).await?;
    let path = format!("/accounts/{account}/groups/sample/services");
    let clients = (0..50).map(|client| {
        let (site, path) = (&site, &path);
        async move {
            let mut codes = Vec::new();
            for number in 0..4 {
                codes.push(site.post(path, service(&format!("lb-{client}-{number}"))).await?.code);
            }
            anyhow::Ok(codes)
        }
    });
    let codes: Vec<u16> = futures::future::try_join_all(clients).await?.concat();
    let made = codes.iter().filter(|code| **code == 302).count();
    ensure!(codes.iter().all(|code| [302, 403, 503].contains(code)), "{codes:?}");
    ensure!(made <= LIMIT, "{made} of {LIMIT}");
    // what was refused is gone, so that those who ask again get what is left
    for number in made..LIMIT {
        let again = format!("again-{number}");
        eventually("what is left of the quota is given", async || {
            Ok(site.post(&path, service(&again)).await?.code == 302)
        })
        .await?;
    }
    let refused = site.post(&path, service("more")).await?.is(403)?;
    ensure!(refused.reason() == "QuotaExceeded", "{refused:?}");
    let all = site.world.of::<LoadBalancer>(&format!("egw-{account}")).list(&ListParams::default()).await?.items;
    let keys: BTreeSet<u32> = all.iter().map(|object| object.spec.gue_key).collect();
    let addresses: BTreeSet<&str> = all.iter().map(|object| object.spec.public_address.as_str()).collect();
    ensure!((all.len(), keys.len(), addresses.len()) == (LIMIT, LIMIT, LIMIT), "{all:?}");
    site.stop().await
}
