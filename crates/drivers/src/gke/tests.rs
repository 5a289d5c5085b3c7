//! From a key file to a cluster, against a stand-in that enforces Google's rules.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use portolan_testkit::gke::{Call, FakeGke, GkeFault};
use serde_json::{Value, json};

use super::*;

const NAME: &str = "projects/example/locations/europe-west1-c/clusters/shop";

fn name() -> ClusterName {
    ClusterName::new("example", "europe-west1-c", "shop").unwrap()
}

fn record() -> Value {
    let ca = base64::engine::general_purpose::STANDARD.encode("-----BEGIN CERTIFICATE-----");
    json!({
        "name": "shop",
        "location": "europe-west1-c",
        "status": "RUNNING",
        "endpoint": "203.0.113.7",
        "currentMasterVersion": "1.36.4-gke.1",
        "masterAuth": { "clusterCaCertificate": ca },
        "privateClusterConfig": { "privateEndpoint": "10.0.0.2", "publicEndpoint": "203.0.113.7" },
        "controlPlaneEndpointsConfig": {
            "ipEndpointsConfig": { "enabled": true, "privateEndpoint": "10.0.0.3" },
            "dnsEndpointConfig": { "endpoint": "gke-1.europe-west1-c.gke.goog", "allowExternalTraffic": true },
        },
    })
}

async fn google() -> anyhow::Result<(FakeGke, Gke)> {
    let google = FakeGke::start().await?;
    google.set_cluster(NAME, record());
    let options =
        Options { container_endpoint: google.container_endpoint(), allow_loopback: true, ..Options::default() };
    Ok((google, Gke::new(options)))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

#[tokio::test]
async fn every_kind_of_credentials_leads_to_the_cluster() -> anyhow::Result<()> {
    let (google, gke) = google().await?;
    let key = Credentials::parse(google.key_file().as_bytes())?;
    let user = Credentials::parse(google.user_file().as_bytes())?;
    let metadata = Credentials::Metadata { host: google.metadata_host() };
    for credentials in [key, user, metadata] {
        let token = gke.token(&credentials, now()).await?;
        assert_eq!(token.lifetime(), Duration::from_hours(1));
        let found = gke.cluster(&name(), EndpointKind::Auto, &token).await?;
        assert_eq!((found.server.as_str(), found.version.as_str()), ("https://203.0.113.7", "1.36.4-gke.1"));
        assert_eq!(found.ca.as_deref(), Some(&b"-----BEGIN CERTIFICATE-----"[..]));
    }
    Ok(())
}

#[tokio::test]
async fn each_kind_of_endpoint_is_found_and_trusts_what_it_should() -> anyhow::Result<()> {
    let (google, gke) = google().await?;
    let token = gke.token(&Credentials::parse(google.key_file().as_bytes())?, now()).await?;
    for (kind, server, has_ca) in [
        (EndpointKind::Public, "https://203.0.113.7", true),
        (EndpointKind::Private, "https://10.0.0.3", true),
        (EndpointKind::Dns, "https://gke-1.europe-west1-c.gke.goog", false),
    ] {
        let found = gke.cluster(&name(), kind, &token).await?;
        assert_eq!((found.server.as_str(), found.ca.is_some()), (server, has_ca), "{kind:?}");
    }
    google.set_cluster(NAME, json!({ "status": "RUNNING" }));
    let missing = gke.cluster(&name(), EndpointKind::Dns, &token).await;
    assert!(matches!(missing, Err(GkeError::NoEndpoint { kind: "DNS", .. })), "{missing:?}");
    Ok(())
}

#[tokio::test]
async fn what_google_refuses_is_named() -> anyhow::Result<()> {
    let (google, gke) = google().await?;
    let wrong = gke.token(&Credentials::parse(google.wrong_key_file().as_bytes())?, now()).await;
    let message = "invalid_grant: Invalid JWT Signature.".to_owned();
    assert_eq!(wrong, Err(GkeError::CredentialsRefused { message }));
    let key = Credentials::parse(google.key_file().as_bytes())?;
    let old = gke.token(&key, now() - 7200).await.map_err(|error| error.reason());
    assert_eq!(old, Err("CredentialsRefused"), "a clock that is two hours behind");
    let token = gke.token(&key, now()).await?;
    let reason = async |token: &Token| {
        gke.cluster(&name(), EndpointKind::Auto, token).await.map_err(|error| error.reason()).err()
    };
    google.forbid(true);
    assert_eq!(reason(&token).await, Some("PermissionDenied"));
    google.forbid(false);
    google.revoke_tokens();
    assert_eq!(reason(&token).await, Some("CredentialsRefused"));
    let token = gke.token(&key, now()).await?;
    let elsewhere = ClusterName::new("example", "europe-west1-c", "other")?;
    let missing = gke.cluster(&elsewhere, EndpointKind::Auto, &token).await.map_err(|error| error.reason());
    assert_eq!(missing, Err("ClusterNotFound"));
    google.set_cluster(NAME, json!({ "status": "STOPPING" }));
    assert_eq!(reason(&token).await, Some("ClusterNotRunning"));
    Ok(())
}

#[tokio::test]
async fn what_may_go_by_itself_is_transient_and_redirects_are_not_followed() -> anyhow::Result<()> {
    let (google, gke) = google().await?;
    let key = Credentials::parse(google.key_file().as_bytes())?;
    let token = gke.token(&key, now()).await?;
    let header = |name, value: &str| vec![(name, value.to_owned())];
    for (fault, retry_after) in [
        (GkeFault::Status(429, header("Retry-After", "7")), Some(Duration::from_secs(7))),
        (GkeFault::Status(503, Vec::new()), None),
        (GkeFault::Status(302, header("Location", "http://169.254.169.254/")), None),
    ] {
        google.set_fault(Call::Cluster, Some(fault.clone()));
        let answer = gke.cluster(&name(), EndpointKind::Auto, &token).await;
        let found = match &answer {
            Err(GkeError::Transient { retry_after, .. }) => Some(*retry_after),
            _ => None,
        };
        assert_eq!(found, Some(retry_after), "{fault:?} gave {answer:?}");
    }
    google.set_fault(Call::Cluster, Some(GkeFault::Garbage));
    assert_eq!(
        gke.cluster(&name(), EndpointKind::Auto, &token).await.map_err(|error| error.reason()),
        Err("ClusterNotRunning")
    );
    google.set_fault(Call::Token, Some(GkeFault::Garbage));
    assert!(gke.token(&key, now()).await.is_err_and(|error| error.is_transient()));
    let tries = google.requests().iter().filter(|request| request.line == format!("GET /v1/{NAME}")).count();
    assert_eq!(tries, 4);
    Ok(())
}

#[tokio::test]
async fn a_key_file_sends_nobody_where_it_likes() -> anyhow::Result<()> {
    let (google, _) = google().await?;
    let strict = Gke::new(Options::default());
    let reached = |uri: &str| {
        let mut file: Value = serde_json::from_str(&google.key_file()).unwrap();
        file["token_uri"] = uri.into();
        Credentials::parse(file.to_string().as_bytes())
    };
    for uri in [
        "http://oauth2.googleapis.com/token",
        "https://attacker.example/token",
        "http://169.254.169.254/token",
        "https://oauth2.googleapis.com@attacker.example/token",
        "file:///etc/passwd",
        "nothing",
        &format!("{}/token", google.container_endpoint()),
    ] {
        let refused = strict.token(&reached(uri)?, now()).await;
        assert!(matches!(refused, Err(GkeError::InvalidCredentials { .. })), "{uri}: {refused:?}");
    }
    assert!(google.requests().is_empty());
    Ok(())
}

#[test]
fn credentials_that_cannot_be_used_are_refused_with_the_field() {
    for (file, expected) in [
        ("{", "not JSON"),
        ("{}", "field `type` is missing"),
        (r#"{ "type": "service_account" }"#, "field `private_key` is missing"),
        (r#"{ "type": "service_account", "private_key": "x" }"#, "private_key is not a PKCS #8 key"),
        (r#"{ "type": "authorized_user", "client_id": "x" }"#, "field `client_secret` is missing"),
        (r#"{ "type": "external_account" }"#, "type `external_account` are not supported"),
    ] {
        let error = Credentials::parse(file.as_bytes()).expect_err(file).to_string();
        assert!(error.contains(expected), "{file}: {error}");
    }
    for parts in [["", "l", "c"], ["p", "../l", "c"], ["p", "l", "c/d"], ["p?x", "l", "c"], ["p", "..", "c"]] {
        assert!(ClusterName::new(parts[0], parts[1], parts[2]).is_err(), "{parts:?}");
    }
}

#[tokio::test]
async fn no_secret_is_printed() -> anyhow::Result<()> {
    let (google, gke) = google().await?;
    let key = Credentials::parse(google.key_file().as_bytes())?;
    let user = Credentials::parse(google.user_file().as_bytes())?;
    let token = gke.token(&user, now()).await?;
    let printed = format!("{key:?} {user:?} {token:?}");
    assert!(!printed.contains("secret") && !printed.contains("refresh") && !printed.contains("ya29"), "{printed}");
    Ok(())
}

#[test]
fn a_token_is_renewed_before_it_ends() {
    let token = |seconds| Token::for_test(Duration::from_secs(seconds));
    assert_eq!(token(3600).use_for(), Duration::from_mins(55));
    assert_eq!(token(60).use_for(), Duration::from_secs(30));
}
