//! Answers of Google's APIs: whatever they say, we connect by https to a host, and use a token for a day at most.

use std::time::Duration;

use portolan_drivers::gke::{ApiEndpoint, ClusterName, EndpointKind, Token};
use serde_json::Value;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(answer) = serde_json::from_slice::<Value>(bytes) else { return };
    let name = ClusterName::new("example", "europe-west1", "shop").expect("the name is good");
    for kind in [EndpointKind::Auto, EndpointKind::Public, EndpointKind::Private, EndpointKind::Dns] {
        match ApiEndpoint::read(&name, kind, &answer) {
            Ok(endpoint) => {
                let host = endpoint.server.strip_prefix("https://").unwrap_or_default();
                assert!(!host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']), "{}", endpoint.server);
                assert!(!host.chars().any(char::is_control) && endpoint.version.len() <= 1024);
                assert_ne!(endpoint.ca, Some(Vec::new()));
            }
            Err(refused) => assert!(refused.to_string().len() < 4096, "{refused}"),
        }
    }
    if let Ok(token) = Token::read(&answer) {
        assert!(!token.secret().is_empty() && token.use_for() <= token.lifetime());
        assert!(token.lifetime() <= Duration::from_hours(24));
        assert!(!format!("{token:?}").contains(token.secret()) || token.secret().len() < 8);
    }
}
