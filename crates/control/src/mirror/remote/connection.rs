//! Keeps the connection to a remote: finds its API server, renews credentials, and asks for signs of life.

use std::sync::Arc;
use std::time::Duration;

use http::Request;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Namespace, Node, Service};
use kube::api::ListParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use portolan_drivers::kubeconfig::Access;
use serde::Deserialize;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::client::client;
use super::target::{Google, Resolved, Target};
use crate::mirror::validate::Problem;
use crate::runtime::backoff::{Backoff, Delays};
use crate::runtime::problem::{Failure, RequestProblem, cleaned};
use crate::runtime::switch::ClientSwitch;

/// What is known of a connection.
#[derive(Debug, Clone, Default, PartialEq)]
pub(in crate::mirror) struct ConnectionState {
    /// Where the API server is.
    pub(in crate::mirror) server: Option<String>,
    /// Which cluster it is; none while that is not known.
    pub(in crate::mirror) identity: Option<ClusterIdentity>,
    /// Version of its API server.
    pub(in crate::mirror) version: Option<String>,
    /// When the credentials expire.
    pub(in crate::mirror) expires: Option<Timestamp>,
    /// Why there is no connection.
    pub(in crate::mirror) problem: Option<Problem>,
    /// When Services and nodes could last be listed.
    pub(in crate::mirror) listed: Option<Instant>,
    /// How often the server or what to trust there has changed, and what changed last.
    pub(in crate::mirror) moved: (u32, Option<Moved>),
}

/// Which cluster a remote is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mirror) enum ClusterIdentity {
    /// UID of its namespace `kube-system`.
    Uid(Arc<str>),
    /// We may not read that.
    Unreadable,
}

/// What changed about a server that is still the same cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mirror) enum Moved {
    Authority,
    Endpoint,
}

/// The connection to a remote.
pub(super) struct Connection {
    state: Arc<Mutex<ConnectionState>>,
    target: watch::Sender<Option<Target>>,
    check: Arc<Notify>,
}

impl Connection {
    /// A connection, and what keeps it.
    pub(super) fn new(google: Google, allow_loopback: bool, switch: ClientSwitch, wake: Arc<Notify>) -> (Self, Keeper) {
        let (sender, target) = watch::channel(None);
        let (state, check) = (Arc::<Mutex<ConnectionState>>::default(), Arc::<Notify>::default());
        let keeper = Keeper {
            google,
            allow_loopback,
            switch,
            wake,
            state: state.clone(),
            target,
            check: check.clone(),
            access: None,
        };
        (Self { state, target: sender, check }, keeper)
    }

    /// Connects there from now on.
    pub(super) fn set_target(&self, target: Option<Target>) {
        self.target.send_if_modified(|before| {
            let differs = *before != target;
            *before = target;
            differs
        });
    }

    pub(super) fn state(&self) -> ConnectionState {
        self.state.lock().clone()
    }

    /// Looks at the connection now: a watch has failed.
    pub(super) fn check(&self) {
        self.check.notify_one();
    }
}

/// Keeps a connection.
pub(super) struct Keeper {
    google: Google,
    allow_loopback: bool,
    switch: ClientSwitch,
    wake: Arc<Notify>,
    state: Arc<Mutex<ConnectionState>>,
    target: watch::Receiver<Option<Target>>,
    check: Arc<Notify>,
    /// What requests are sent to.
    access: Option<Access>,
}

/// Why a connection is made anew.
enum Again {
    /// The target changed.
    Target,
    /// The credentials have to be renewed, or what is known of the server is old.
    Due,
    /// The server could not be found.
    Refused(Problem),
    /// Requests to it fail.
    Failed(RequestProblem),
}

impl Keeper {
    pub(super) async fn run(mut self, stop: CancellationToken) {
        tokio::select! { () = stop.cancelled() => {} () = self.keep() => {} }
    }

    async fn keep(&mut self) {
        let (mut finding, mut requests) = (FINDING.delays(), Backoff::REQUESTS.delays());
        loop {
            let Some(target) = self.target.borrow_and_update().clone() else {
                self.switch.set(None);
                self.access = None;
                // The sender lives as long as the remote, and this task no longer.
                if self.target.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let again = match target.resolve(&self.google, self.allow_loopback).await {
                Ok(resolved) => match self.connect(&resolved) {
                    Ok(client) => {
                        finding.reset();
                        self.hold(&client, &target, &resolved, &mut requests).await
                    }
                    Err(problem) => Again::Refused(problem),
                },
                Err(problem) => Again::Refused(problem),
            };
            match again {
                Again::Target | Again::Due => {}
                Again::Refused(problem) => {
                    self.fail(problem);
                    self.pause(finding.pause()).await;
                }
                Again::Failed(problem) => {
                    self.fail(problem_of(problem));
                    let is_looked_up = matches!(target, Target::Gke { .. });
                    let least = if is_looked_up { self.google.lookup_interval } else { Duration::ZERO };
                    self.pause(requests.pause().max(least)).await;
                }
            }
        }
    }

    /// A client of the server. Requests of others go there once it has said which cluster it is: see [`Self::hold`].
    fn connect(&mut self, resolved: &Resolved) -> Result<Client, Problem> {
        let access = &resolved.access;
        let client =
            client(access, self.allow_loopback).map_err(|message| Problem::new("KubeconfigRefused", message))?;
        let moved = self.access.as_ref().and_then(|before| {
            if before.server == access.server {
                (before.ca != access.ca).then_some(Moved::Authority)
            } else {
                Some(Moved::Endpoint)
            }
        });
        self.access = Some(access.clone());
        let expires = resolved.lifetime.and_then(|(lifetime, _)| Timestamp::now().checked_add(lifetime).ok());
        self.publish(|state| {
            state.server = Some(access.server.clone());
            state.expires = expires;
            if let Some(moved) = moved {
                state.moved = (state.moved.0 + 1, Some(moved));
            }
            if let Some(version) = &resolved.version {
                state.version = Some(version.clone());
            }
        });
        Ok(client)
    }

    /// Watches over a connection until it has to be made anew. The watches move to it only when its cluster is known: the
    /// objects of another cluster would look like deletions.
    async fn hold(&mut self, client: &Client, target: &Target, resolved: &Resolved, delays: &mut Delays) -> Again {
        let known_for = if matches!(target, Target::Server(_)) { NEVER } else { LOOK_UP_AGAIN };
        let use_for = resolved.lifetime.map_or(known_for, |(_, use_for)| use_for.min(known_for));
        let due = Instant::now() + use_for.mul_f64(0.9 + 0.1 * fastrand::f64());
        let mut is_used = false;
        loop {
            match self.look(client).await {
                Ok(()) => delays.reset(),
                Err(problem) => return Again::Failed(problem),
            }
            if !is_used {
                self.switch.set(Some(client.clone()));
                is_used = true;
            }
            tokio::select! {
                changed = self.target.changed() => {
                    if changed.is_err() {
                        std::future::pending::<()>().await;
                    }
                    return Again::Target;
                }
                () = tokio::time::sleep_until(due) => return Again::Due,
                () = self.check.notified() => tokio::time::sleep(GATHER).await,
                () = tokio::time::sleep(LOOK) => {}
            }
        }
    }

    /// Asks who the server is, and whether we may list there.
    async fn look(&self, client: &Client) -> Result<(), RequestProblem> {
        let looked = tokio::time::timeout(ANSWER, async {
            let identity = match Api::<Namespace>::all(client.clone()).get("kube-system").await {
                Ok(namespace) => ClusterIdentity::Uid(namespace.metadata.uid.as_deref().unwrap_or_default().into()),
                Err(kube::Error::Api(status)) if status.code == 403 => ClusterIdentity::Unreadable,
                Err(error) => return Err(RequestProblem::of(&error)),
            };
            let one = ListParams::default().limit(1);
            let failed = |error: kube::Error| RequestProblem::of(&error);
            Api::<Service>::all(client.clone()).list_metadata(&one).await.map_err(failed)?;
            Api::<Node>::all(client.clone()).list_metadata(&one).await.map_err(failed)?;
            Ok((identity, version(client).await))
        });
        let no_answer = |_| RequestProblem {
            failure: Failure::Unreachable,
            message: format!("the API server did not answer within {ANSWER:?}"),
        };
        let (identity, version) = looked.await.map_err(no_answer)??;
        self.publish(|state| {
            state.identity = Some(identity);
            state.listed = Some(Instant::now());
            state.problem = None;
            if version.is_some() {
                state.version = version;
            }
        });
        Ok(())
    }

    fn fail(&self, problem: Problem) {
        let before = self.state.lock().problem.clone();
        if before.as_ref() != Some(&problem) {
            warn!(reason = problem.reason, message = problem.message, "no connection");
        }
        self.publish(|state| state.problem = Some(problem));
    }

    /// Waits, but not once there is another target.
    async fn pause(&self, at_most: Duration) {
        let mut target = self.target.clone();
        tokio::select! { () = tokio::time::sleep(at_most) => {} _ = target.changed() => {} }
    }

    fn publish(&self, change: impl FnOnce(&mut ConnectionState)) {
        let mut state = self.state.lock();
        let before = state.clone();
        change(&mut state);
        if state.problem.is_none() && before.problem.is_some() {
            info!("connected");
        }
        // When it was last listed is read, but wakes nobody.
        if (ConnectionState { listed: None, ..before }) != (ConnectionState { listed: None, ..state.clone() }) {
            self.wake.notify_one();
        }
    }
}

async fn version(client: &Client) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        git_version: String,
    }
    let request = Request::get("/version").body(Vec::new()).ok()?;
    let version: Version = client.request(request).await.ok()?;
    Some(cleaned(&version.git_version))
}

/// Why requests fail, in the words of the condition.
pub(super) fn problem_of(problem: RequestProblem) -> Problem {
    let RequestProblem { failure, message } = problem;
    match failure {
        Failure::NotConnected => Problem::new("Connecting", "not connected yet"),
        Failure::Unauthorized => Problem::new(
            "CredentialsRefused",
            format!("the remote does not accept the credentials ({message}): renew them"),
        ),
        Failure::Forbidden => Problem::new(
            "RemoteForbidden",
            format!("{message}: grant the account list and watch on services and nodes in the remote"),
        ),
        Failure::Tls => {
            Problem::new("TLSFailed", format!("{message}: check the certificates of the remote and its credentials"))
        }
        Failure::Unreachable => Problem::new("Unreachable", message),
    }
}

/// How often a connection that works is looked at.
const LOOK: Duration = Duration::from_secs(30);
/// How often a cluster or a file is looked up again.
const LOOK_UP_AGAIN: Duration = Duration::from_mins(10);
/// Longer than any process runs.
const NEVER: Duration = Duration::from_hours(24 * 365 * 10);
/// How long the requests of one look may take.
const ANSWER: Duration = Duration::from_secs(20);
/// Watches that fail together are one reason to look.
const GATHER: Duration = Duration::from_secs(1);
/// Pauses between attempts to find the server.
const FINDING: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_mins(5) };
