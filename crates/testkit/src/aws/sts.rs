//! STS: AssumeRoleWithWebIdentity.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt as _;
use http::request::Parts;
use parking_lot::Mutex;

use super::keys::KeyRing;
use super::server::{Answer, Cut, Server, text};

/// A running STS; ends when dropped.
pub struct FakeSts {
    server: Server,
    state: Arc<Mutex<State>>,
}

struct State {
    keys: KeyRing,
    role: String,
    token: String,
    lifetime: Duration,
    failing: Option<u16>,
    exchanges: u32,
}

impl FakeSts {
    /// Starts an STS that gives keys of a role for a token. They live for an hour.
    pub async fn start(keys: KeyRing, role: &str, token: &str) -> anyhow::Result<Self> {
        let state = Arc::new(Mutex::new(State {
            keys,
            role: role.to_owned(),
            token: token.to_owned(),
            lifetime: Duration::from_hours(1),
            failing: None,
            exchanges: 0,
        }));
        let shared = state.clone();
        let handler = move |head: Parts, body: Bytes| {
            let answer = shared.lock().answer(&head, &body);
            async move { Ok::<_, Cut>(answer) }.boxed()
        };
        Ok(Self { server: Server::start(Arc::new(handler)).await?, state })
    }

    /// Where it is.
    pub fn endpoint(&self) -> String {
        self.server.url()
    }

    /// The token that is valid from now on.
    pub fn set_token(&self, token: &str) {
        token.clone_into(&mut self.state.lock().token);
    }

    /// How long keys live from now on.
    pub fn set_lifetime(&self, lifetime: Duration) {
        self.state.lock().lifetime = lifetime;
    }

    /// Answers everything with this status; none for properly.
    pub fn set_failing(&self, status: Option<u16>) {
        self.state.lock().failing = status;
    }

    /// How many tokens were exchanged.
    pub fn exchanges(&self) -> u32 {
        self.state.lock().exchanges
    }
}

impl State {
    fn answer(&mut self, head: &Parts, body: &[u8]) -> Answer {
        if let Some(status) = self.failing {
            return text(status, "text/html", "<html>sorry".to_owned());
        }
        let form: BTreeMap<String, String> = form_urlencoded::parse(body).into_owned().collect();
        let field = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
        if head.headers.contains_key("authorization") {
            return refused(400, "InvalidParameterValue", "this call is not signed");
        }
        if field("Action") != "AssumeRoleWithWebIdentity" || field("Version") != "2011-06-15" {
            return refused(400, "InvalidAction", "no such action or version");
        }
        let name = field("RoleSessionName");
        if name.len() < 2 || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || "=,.@-_".contains(letter)) {
            return refused(400, "ValidationError", "RoleSessionName is not valid");
        }
        if field("RoleArn") != self.role {
            return refused(403, "AccessDenied", "Not authorized to perform sts:AssumeRoleWithWebIdentity");
        }
        if field("WebIdentityToken") != self.token {
            return refused(400, "InvalidIdentityToken", "The web identity token is not valid");
        }
        self.exchanges += 1;
        let key = self.keys.issue(Some(self.lifetime));
        let body = format!(
            "<AssumeRoleWithWebIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
             <AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>{}</AccessKeyId>\
             <SecretAccessKey>{}</SecretAccessKey><SessionToken>{}</SessionToken><Expiration>{}</Expiration>\
             </Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>",
            key.id,
            key.secret,
            key.token.clone().unwrap_or_default(),
            key.expiration()
        );
        text(200, "text/xml", body)
    }
}

fn refused(status: u16, code: &str, message: &str) -> Answer {
    let body = format!(
        "<ErrorResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender</Type>\
         <Code>{code}</Code><Message>{message}</Message></Error><RequestId>1</RequestId></ErrorResponse>"
    );
    text(status, "text/xml", body)
}
