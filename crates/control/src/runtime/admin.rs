//! The admin port: `/livez`, `/readyz`, `/metrics` and `/debug/state`.
//!
//! It runs on a thread and a runtime of its own, so that it answers while every worker is busy: a slow process
//! is not a dead one, and restarting it would only make it slower. `/debug/state` shows names and addresses of
//! the cluster's users, so it answers callers on the same machine alone.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{ConnectInfo, RawQuery, State as Shared};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::{StatusCode, header};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::ready::Readiness;
use super::tasks::Tasks;

/// The text format that `prometheus_client` writes.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How long a caller in the middle of an answer may take once the process stops.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// What the admin port shows.
#[derive(Clone)]
pub struct Admin {
    pub readiness: Readiness,
    pub registry: Arc<Registry>,
    pub state: State,
}

/// The parts of `/debug/state`, each asked anew for every request; clones share them.
#[derive(Clone, Default)]
pub struct State {
    providers: Arc<Mutex<BTreeMap<&'static str, Provider>>>,
}

type Provider = Arc<dyn Fn() -> serde_json::Value + Send + Sync>;

/// Why the admin port is not there.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process, or another part of this one, listens there.
    #[error("admin port {listen} is in use: stop the process that holds it (`ss -ltnp`), or choose another port")]
    InUse { listen: SocketAddr },
    /// The address is not ours, the port needs a privilege, or the machine is out of something.
    #[error("cannot listen on admin address {listen}: choose an address of this machine and a port above 1023")]
    Listen {
        listen: SocketAddr,
        #[source]
        cause: io::Error,
    },
    /// The thread could not be started.
    #[error("cannot start the admin thread: the limit of threads or memory is reached")]
    Thread {
        #[source]
        cause: io::Error,
    },
}

impl Error {
    /// A word for events and metric labels.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::InUse { .. } => "AdminPortInUse",
            Self::Listen { .. } => "AdminListenFailed",
            Self::Thread { .. } => "AdminThreadFailed",
        }
    }
}

impl State {
    /// Adds a part, or replaces the one of the same name.
    pub fn register(&self, name: &'static str, show: impl Fn() -> serde_json::Value + Send + Sync + 'static) {
        self.providers.lock().insert(name, Arc::new(show));
    }

    fn show(&self) -> serde_json::Value {
        // Copied first: a provider may take its time, or register another.
        let providers = self.providers.lock().clone();
        providers.iter().map(|(name, show)| ((*name).to_owned(), show())).collect()
    }
}

/// Serves the admin port on a thread of its own until the tasks stop, and returns where it listens.
pub fn serve(listen: SocketAddr, admin: Admin, tasks: &Tasks) -> Result<SocketAddr, Error> {
    let failed = |cause: io::Error| {
        let in_use = cause.kind() == io::ErrorKind::AddrInUse;
        if in_use { Error::InUse { listen } } else { Error::Listen { listen, cause } }
    };
    let listener = TcpListener::bind(listen).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;

    let stop = tasks.stop();
    let (ended, has_ended) = tokio::sync::oneshot::channel();
    let run = move || {
        // Dropped when the thread ends, by a panic too.
        let _ended: tokio::sync::oneshot::Sender<()> = ended;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let served = runtime.and_then(|runtime| runtime.block_on(answer(listener, router(admin), stop)));
        if let Err(cause) = served {
            tracing::error!(%cause, "the admin port is gone");
        }
    };
    std::thread::Builder::new().name("admin".to_owned()).spawn(run).map_err(|cause| Error::Thread { cause })?;
    tasks.spawn("admin", async move {
        has_ended.await.ok();
    });
    Ok(bound)
}

/// The signals that ask the process to end.
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// Handles SIGTERM and SIGINT from now on.
    pub fn handle() -> Self {
        Self {
            terminate: signal(SignalKind::terminate()).expect("SIGTERM can be handled"),
            interrupt: signal(SignalKind::interrupt()).expect("SIGINT can be handled"),
        }
    }

    /// Waits for the next one.
    pub async fn next(&mut self) {
        let name = tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        };
        tracing::info!(signal = name, "stopping");
    }
}

async fn answer(listener: TcpListener, router: Router, stop: CancellationToken) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let service = router.into_make_service_with_connect_info::<SocketAddr>();
    let serving = axum::serve(listener, service).with_graceful_shutdown(stop.clone().cancelled_owned());
    tokio::select! {
        ended = async { serving.await } => ended,
        () = async { stop.cancelled().await; tokio::time::sleep(LAST_ANSWERS).await } => Ok(()),
    }
}

fn router(admin: Admin) -> Router {
    Router::new()
        .route("/livez", get(async || "OK"))
        .route("/healthz", get(async || "OK"))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .route("/debug/state", get(state))
        .with_state(admin)
}

/// Says who is missing, and why if that is known; with `?verbose` every part, in the format of Kubernetes.
async fn ready(Shared(admin): Shared<Admin>, RawQuery(query): RawQuery) -> Response {
    let parts = admin.readiness.parts();
    let is_ready = parts.iter().all(|(_, is_ready)| *is_ready);
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let is_verbose =
        query.is_some_and(|query| query.split('&').any(|word| word == "verbose" || word == "verbose=true"));
    let line = |(part, is_ready): &(String, bool)| {
        let why = admin.readiness.problem(part).map(|problem| format!(": {problem}")).unwrap_or_default();
        match (is_verbose, is_ready) {
            (true, true) => format!("[+]{part} ok\n"),
            (true, false) => format!("[-]{part} not ready{why}\n"),
            (false, true) => String::new(),
            (false, false) => format!("{part}{why}\n"),
        }
    };
    let mut text: String = parts.iter().map(line).collect();
    if is_ready {
        text += "ok";
    }
    (status, text).into_response()
}

async fn metrics(Shared(admin): Shared<Admin>) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &admin.registry) {
        Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(cause) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{cause}\n")).into_response(),
    }
}

async fn state(Shared(admin): Shared<Admin>, ConnectInfo(peer): ConnectInfo<SocketAddr>) -> Response {
    if !peer.ip().to_canonical().is_loopback() {
        let message = "state is shown to this machine alone: ask from inside, e.g. by `kubectl port-forward`\n";
        return (StatusCode::FORBIDDEN, message).into_response();
    }
    axum::Json(admin.state.show()).into_response()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use axum::body::Body;
    use prometheus_client::metrics::counter::Counter;
    use serde_json::json;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn readyz_names_who_is_missing_then_says_ok() {
        let admin = admin();
        let guards = ["watch Node", "lease"].map(|part| admin.readiness.hold(part));
        let at = serve(loopback(), admin, &Tasks::new()).unwrap();
        assert_eq!(ask(at, "/readyz"), (503, "lease\nwatch Node\n".to_owned()));
        assert_eq!(ask(at, "/readyz?verbose"), (503, "[-]lease not ready\n[-]watch Node not ready\n".to_owned()));
        drop(guards);
        assert_eq!(ask(at, "/readyz"), (200, "ok".to_owned()));
        assert_eq!(ask(at, "/readyz?verbose"), (200, "[+]lease ok\n[+]watch Node ok\nok".to_owned()));
        assert_eq!(ask(at, "/nowhere").0, 404);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn livez_answers_while_every_worker_is_busy() {
        let at = serve(loopback(), admin(), &Tasks::new()).unwrap();
        // The blocking client occupies the only worker until the answer is there.
        assert_eq!(ask(at, "/livez"), (200, "OK".to_owned()));
        assert_eq!(ask(at, "/healthz"), (200, "OK".to_owned()));
    }

    #[tokio::test]
    async fn metrics_are_open_metrics_text() {
        let mut registry = Registry::default();
        let counter: Counter = Counter::default();
        registry.register("portolan_test", "A test", counter.clone());
        counter.inc();
        let admin = Admin { registry: Arc::new(registry), ..admin() };
        let answer = call(router(admin), "/metrics", loopback()).await;
        assert_eq!(answer.headers()[header::CONTENT_TYPE], OPEN_METRICS);
        let text = text(answer).await;
        assert!(text.contains("portolan_test_total 1\n") && text.ends_with("# EOF\n"), "{text}");
    }

    #[tokio::test]
    async fn state_is_shown_to_the_same_machine_alone() {
        let admin = admin();
        admin.state.register("tickets", || json!({"open": 3}));
        admin.state.register("lease", || json!("held"));
        let router = router(admin);
        for peer in ["127.0.0.1:9", "[::1]:9", "[::ffff:127.0.0.1]:9"] {
            let answer = call(router.clone(), "/debug/state", peer.parse().unwrap()).await;
            let shown: serde_json::Value = serde_json::from_str(&text(answer).await).unwrap();
            assert_eq!(shown, json!({"lease": "held", "tickets": {"open": 3}}), "{peer}");
        }
        let answer = call(router, "/debug/state", "10.0.0.7:9".parse().unwrap()).await;
        assert_eq!(answer.status(), StatusCode::FORBIDDEN);
        assert!(text(answer).await.contains("port-forward"));
    }

    #[tokio::test]
    async fn a_port_in_use_says_what_to_do() {
        let taken = TcpListener::bind(loopback()).unwrap();
        let error = serve(taken.local_addr().unwrap(), admin(), &Tasks::new()).unwrap_err();
        assert_eq!(error.reason(), "AdminPortInUse");
        assert!(error.to_string().contains("choose another port"), "{error}");
    }

    #[tokio::test]
    async fn the_port_is_free_again_after_a_drain() {
        let tasks = Tasks::new();
        let at = serve(loopback(), admin(), &tasks).unwrap();
        assert_eq!(ask(at, "/livez").0, 200);
        assert!(tasks.drain(Duration::from_secs(10)).await.is_empty());
        TcpStream::connect(at).unwrap_err();
    }

    fn admin() -> Admin {
        Admin { readiness: Readiness::new(), registry: Arc::new(Registry::default()), state: State::default() }
    }

    fn loopback() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    async fn call(router: Router, path: &str, peer: SocketAddr) -> Response {
        let request = http::Request::get(path).extension(ConnectInfo(peer)).body(Body::empty()).unwrap();
        router.oneshot(request).await.unwrap()
    }

    async fn text(answer: Response) -> String {
        let bytes = axum::body::to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    /// Asks as a blocking client, without any runtime.
    fn ask(at: SocketAddr, path: &str) -> (u16, String) {
        let mut connection = TcpStream::connect(at).unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        write!(connection, "GET {path} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        connection.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), body.to_owned())
    }
}
