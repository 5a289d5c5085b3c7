//! The REST API that programs the proxy: l7mp's under `/api/v1`, ours under `/api/v2`, health and metrics.
//!
//! ```text
//!   server (own thread) --+
//!                         +--> Api::handle --> registry --> engine
//!   engine's listeners ---+    access, body,
//!   (through the queue)        v1 | v2 | health
//! ```
//!
//! [`Api`] knows no sockets: it maps a [`Request`] to a [`Response`]. [`server`] serves it over HTTP.

mod access;
mod body;
pub mod exchange;
mod format;
mod metrics;
pub mod options;
pub(crate) mod response;
pub mod server;
mod sessions;
mod target;
mod term;
mod tls;
mod v1;
mod v2;
mod v2_apply;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::config::Registry;
use crate::config::document::{self, FILE_OWNER, Replace};
use crate::config::engine::Engine;
use crate::config::json::{Json, Object, object};
use crate::config::refusal::Refusal;
use crate::config::types::{Admin, Limits};
pub use access::{Access, Denied, Role};
use exchange::{Request, Response};
pub use metrics::exposition;
pub use response::Version;
use target::Target;

/// The version that l7mp's clients expect to read.
const L7MP_VERSION: &str = "0.5.7";

/// The API of one process.
pub struct Api {
    registry: Mutex<Registry>,
    engine: Arc<dyn Engine>,
    access: Access,
    settings: Settings,
    ready: AtomicBool,
    programmed: AtomicBool,
    draining: AtomicBool,
    refused: Mutex<BTreeMap<&'static str, u64>>,
}

/// Settings from the command line.
pub struct Settings {
    /// `-s`: strict checks, regardless of the file.
    pub strict: bool,
    /// False with `--no-api`: only health and metrics are served.
    pub enabled: bool,
    /// Not ready before somebody has changed the configuration over the API.
    pub ready_when_programmed: bool,
    /// A name for this process, for clients that manage several.
    pub instance: String,
    pub workers: usize,
    /// Called with each new `admin` section, for example to set the log level.
    pub on_admin: Box<dyn Fn(&Admin) + Send + Sync>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            strict: false,
            enabled: true,
            ready_when_programmed: false,
            instance: String::new(),
            workers: 1,
            on_admin: Box::new(|_| ()),
        }
    }
}

impl Api {
    pub fn new(engine: Arc<dyn Engine>, access: Access, settings: Settings) -> Self {
        let registry = Registry::new(Arc::clone(&engine), access.is_loopback_only());
        Self {
            registry: Mutex::new(registry),
            engine,
            access,
            settings,
            ready: AtomicBool::new(false),
            programmed: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            refused: Mutex::default(),
        }
    }

    /// Applies a config file, at start and on SIGHUP: objects of the previous file that are missing in this one are
    /// deleted, objects added over the API stay, unchanged objects are left alone.
    pub fn load(&self, config: &Json) -> Result<(), Refusal> {
        let admin = document::admin(config)?;
        let how = Replace { owner: Some(FILE_OWNER), strict: admin.strict || self.settings.strict, force: true };
        let mut registry = self.registry.lock();
        registry.change(|change| {
            // the engine also gets its first configuration if it is empty
            change.state.changed |= change.state.snapshot.generation == 0;
            document::put_admin(change, Admin { strict: how.strict, ..admin });
            document::replace(change, config, how)
        })?;
        (self.settings.on_admin)(&registry.state().snapshot.admin);
        self.ready.store(true, Ordering::Release);
        Ok(())
    }

    /// Validates a config file without opening sockets.
    pub fn check(&self, config: &Json) -> Result<(), Refusal> {
        let admin = document::admin(config)?;
        let how = Replace { owner: Some(FILE_OWNER), strict: admin.strict || self.settings.strict, force: true };
        let rehearsed = self.registry.lock().dry_run(|change| {
            document::put_admin(change, admin);
            document::replace(change, config, how)
        });
        rehearsed.map(drop)
    }

    /// Marks the process as draining; returns how long to wait for existing sessions.
    pub fn begin_drain(&self) -> Duration {
        self.draining.store(true, Ordering::Release);
        Duration::from_secs_f64(self.registry.lock().state().snapshot.admin.drain_timeout)
    }

    /// Sets the address of the API's own server, to which sessions are never routed.
    pub fn set_own(&self, address: SocketAddr) -> Result<(), Refusal> {
        self.registry.lock().set_own(vec![address])
    }

    /// Handles one request. It returns quickly and never panics on any input.
    pub fn handle(&self, request: &Request) -> Response {
        let Some(target) = Target::parse(&request.target) else { return response::unknown() };
        let segments: Vec<&str> = target.segments.iter().map(String::as_str).collect();
        let health = matches!(segments[..], ["livez" | "readyz"]);
        let needs = if request.method == "GET" { Role::Read } else { Role::Write };
        if !health && let Err(denied) = self.access.check(request, needs) {
            return deny(denied);
        }
        let is_first_change = needs == Role::Write && !self.programmed.load(Ordering::Acquire);
        let before = is_first_change.then(|| self.generation());
        let response = match segments[..] {
            ["livez"] if request.method == "GET" => response::text(200, TEXT, "ok\n".to_owned()),
            ["readyz"] if request.method == "GET" => self.readyz(),
            ["metrics"] if request.method == "GET" => self.metrics_answer(),
            ["api", "v1", ref path @ ..] if self.settings.enabled => self.respond_v1(request, &target, path),
            ["api", "v2", ref path @ ..] if self.settings.enabled => self.respond_v2(request, &target, path),
            _ => response::unknown(),
        };
        if before.is_some_and(|before| self.generation() != before) {
            self.programmed.store(true, Ordering::Release);
        }
        if response.status == 413 {
            self.count("body");
        }
        response
    }

    fn generation(&self) -> u64 {
        self.registry.lock().state().snapshot.generation
    }

    /// Removes objects that were waiting for their last session to end; called periodically.
    pub fn sweep(&self) {
        self.registry.lock().sweep();
    }

    /// The current limits.
    pub fn limits(&self) -> Limits {
        self.registry.lock().state().snapshot.admin.limits.clone()
    }

    /// The metrics of this process, as Prometheus reads them; clusters of protocol Prometheus answer with it too.
    pub fn metrics(&self) -> String {
        let (generation, counts) = {
            let registry = self.registry.lock();
            let state = registry.state();
            (state.snapshot.generation, crate::config::kind::Kind::ALL.map(|kind| (kind.plural(), state.count(kind))))
        };
        exposition(&self.engine.stats(), generation, &counts, &self.refused.lock())
    }

    pub(crate) fn metrics_answer(&self) -> Response {
        response::text(200, metrics::TYPE, self.metrics())
    }

    /// Counts a refusal by a limit.
    pub fn count(&self, limit: &'static str) {
        *self.refused.lock().entry(limit).or_default() += 1;
    }

    /// The registry, locked for a change by a caller of this term.
    fn registry_to_change(&self, term: Option<u64>) -> Result<MutexGuard<'_, Registry>, Refusal> {
        let mut registry = self.registry.lock();
        registry.admit_term(term)?;
        Ok(registry)
    }

    fn respond_v1(&self, request: &Request, target: &Target, path: &[&str]) -> Response {
        let answered = self.v1(request, target, path);
        answered.unwrap_or_else(|failed| self.failed(failed, Version::V1))
    }

    fn respond_v2(&self, request: &Request, target: &Target, path: &[&str]) -> Response {
        let answered = self.v2(request, target, path);
        answered.unwrap_or_else(|failed| self.failed(failed, Version::V2))
    }

    fn failed(&self, failed: Failed, version: Version) -> Response {
        match failed {
            Failed::Answer(response) => response,
            Failed::Refused(refusal) => {
                if let Some(limit) = refusal.limit {
                    self.count(limit);
                }
                response::refused(&refusal, version)
            }
        }
    }

    fn readyz(&self) -> Response {
        let mut missing = Vec::new();
        if !self.ready.load(Ordering::Acquire) {
            missing.push("the static configuration is not loaded");
        }
        if self.settings.ready_when_programmed && !self.programmed.load(Ordering::Acquire) {
            missing.push("nobody has programmed it over the API");
        }
        if !self.engine.stats().bound {
            missing.push("some listeners are not bound");
        }
        if self.draining.load(Ordering::Acquire) {
            missing.push("the process is draining");
        }
        if missing.is_empty() {
            return response::text(200, TEXT, "ok\n".to_owned());
        }
        response::text(503, TEXT, format!("{}\n", missing.join("\n")))
    }

    fn admin_view(&self) -> Json {
        let registry = self.registry.lock();
        let snapshot = &registry.state().snapshot;
        let admin = &snapshot.admin;
        let mut view = Object::default();
        view.set("log_level", admin.log_level.word());
        view.set("strict", admin.strict);
        view.set("offload", false);
        view.set("version", L7MP_VERSION);
        if let Some(file) = &admin.log_file {
            view.set("log_file", file.as_str());
        }
        if let Some(path) = &admin.access_log_path {
            view.set("access_log_path", path.to_string_lossy().into_owned());
        }
        let ours = object([
            ("version", env!("CARGO_PKG_VERSION").into()),
            ("instance", self.settings.instance.as_str().into()),
            ("generation", snapshot.generation.into()),
            ("workers", self.settings.workers.into()),
            ("term", registry.term().into()),
        ]);
        view.set("portolan", ours);
        Json::Object(view)
    }
}

const TEXT: &str = "text/plain; charset=utf-8";

/// A failed request: a refusal, or an early response.
enum Failed {
    Refused(Refusal),
    Answer(Response),
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Response> for Failed {
    fn from(response: Response) -> Self {
        Self::Answer(response)
    }
}

fn deny(denied: Denied) -> Response {
    match denied {
        Denied::Unknown => {
            let mut response =
                response::error(401, "Unauthorized", "A bearer token or a client certificate is required".into());
            response.headers.push(("WWW-Authenticate", "Bearer realm=\"portolan\"".to_owned()));
            response
        }
        Denied::ReadOnly => response::error(403, "Forbidden", "This token is read-only".into()),
        Denied::Remote => {
            let content = "This API has no authentication, so only clients on this machine are allowed: start the proxy with \
                           --api-token-file or --api-client-ca";
            response::error(403, "Forbidden", content.into())
        }
    }
}
