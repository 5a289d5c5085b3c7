//! Starts and stops the proxy: what `portolan proxy` and `portolan-proxy` do.
//!
//! ```text
//!   flags, file --> Proxy::start: workers, API, listeners --> signals: SIGHUP reads the file again,
//!                                                             SIGTERM and SIGINT drain
//! ```

mod logs;
mod process;
mod signals;
mod user;

use std::io;
use std::sync::Arc;

use crate::config::document;
use crate::config::json::Json;
use crate::config::refusal::Refusal;
use crate::config::types::Admin;
use crate::io::{DataPlane, sys};
use crate::rest::options::{Options, OptionsError};
use crate::rest::{Api, Settings};
use logs::Logs;
use process::Proxy;
use signals::Signals;

/// Why the proxy does not run.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{}", with_cause(.0))]
    Options(#[from] OptionsError),
    #[error("cannot apply {origin}: {why}")]
    Config { origin: String, why: String },
    #[error("cannot switch to user {who}: {cause}")]
    User {
        who: String,
        #[source]
        cause: io::Error,
    },
    #[error("{what}: {cause}")]
    Start {
        what: String,
        #[source]
        cause: io::Error,
    },
}

impl Failure {
    /// The exit code: 2 for invalid flags, else 1.
    pub const fn exit(&self) -> u8 {
        match self {
            Self::Options(OptionsError::Nothing | OptionsError::IncompleteTls) => 2,
            Self::Options(OptionsError::Read { .. } | OptionsError::Syntax { .. })
            | Self::Config { .. }
            | Self::User { .. }
            | Self::Start { .. } => 1,
        }
    }

    /// How to fix it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Options(OptionsError::Nothing) => {
                "pass a file with -c, a configuration with --inline, or an address with --api"
            }
            Self::Options(OptionsError::IncompleteTls) => "pass both --api-cert and --api-key, or neither",
            Self::Options(OptionsError::Read { .. }) => "check that the file exists and is readable: ls -l",
            Self::Options(OptionsError::Syntax { .. }) => {
                "files ending in .yaml or .yml are read as YAML, all others as JSON"
            }
            Self::Config { .. } => "fix the configuration, then verify it with --check",
            Self::User { .. } => "pass a user from /etc/passwd or a numeric id, and start the proxy as root",
            Self::Start { .. } => "check which process holds the port, and the permissions of this user: ss -lnp",
        }
    }

    fn start(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Start { what: what.into(), cause }
    }
}

/// Runs the proxy until a signal stops it; with `--check` only validates the configuration.
pub fn run(options: Options) -> Result<(), Failure> {
    options.validate()?;
    let options = options.mounted();
    // first, so that what can be read and opened now can also be read and opened on reload
    if let Some(who) = &options.user {
        user::find(who).and_then(sys::become_user).map_err(|cause| Failure::User { who: who.clone(), cause })?;
    }
    let config = options.static_config()?;
    let admin = document::admin(&config).map_err(|refusal| refused(&options, &refusal))?;
    if options.check {
        return check(&options, &config, &admin);
    }
    let logs = Logs::start(&admin, options.host_mapping()).map_err(Failure::start("cannot open the log file"))?;
    if sys::is_root() {
        tracing::warn!("running as root, which is not required: pass --user to switch to another user");
    }
    if options.offload.is_some() || options.interfaces.is_some() {
        tracing::warn!("kernel offload is not supported: -o and -i have no effect");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::start("cannot install signal handlers"))?;
    // before the first listener: from here on a signal shuts the proxy down gracefully
    let mut signals = {
        let _context = runtime.enter();
        Signals::new().map_err(Failure::start("cannot install signal handlers"))?
    };
    let stdin_ends = stdin_ends(options.end_with_stdin).map_err(Failure::start("cannot watch standard input"))?;
    let ready_file = options.ready_file.clone();
    let proxy = Proxy::start(options, &config, &admin, logs)?;
    if let Some(file) = ready_file {
        let unwritten = format!("cannot write {}", file.display());
        std::fs::write(&file, "ready\n").map_err(Failure::start(unwritten))?;
    }
    runtime.block_on(async {
        let run = async {
            while signals.next().await.is_reload() {
                proxy.reload();
            }
            proxy.drain(&mut signals).await;
        };
        tokio::select! { () = run => {} () = stdin_ends => tracing::info!("standard input closed, exiting") }
    });
    Ok(())
}

/// Completes when standard input closes, if `wanted`. A blocking read cannot be cancelled, so a detached thread does it.
fn stdin_ends(wanted: bool) -> io::Result<impl Future<Output = ()>> {
    let (ended, end) = tokio::sync::oneshot::channel::<()>();
    if wanted {
        std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            io::copy(&mut io::stdin().lock(), &mut io::sink()).ok();
            drop(ended);
        })?;
    }
    Ok(async move {
        if wanted {
            end.await.ok();
        } else {
            std::future::pending::<()>().await;
        }
    })
}

/// Validates a configuration. No socket is opened, so ports in use are not detected.
fn check(options: &Options, config: &Json, admin: &Admin) -> Result<(), Failure> {
    let start = crate::io::Options { workers: 1, ..crate::io::Options::default() };
    let plane = DataPlane::start(start).map_err(Failure::start("cannot start workers"))?;
    let settings = Settings { strict: options.strict || admin.strict, ..Settings::default() };
    let checked = Api::new(Arc::clone(&plane) as _, options.access()?, settings).check(config);
    plane.stop();
    checked.map_err(|refusal| refused(options, &refusal))
}

fn refused(options: &Options, refusal: &Refusal) -> Failure {
    let origin = options.config.as_ref().map_or_else(|| "--inline".to_owned(), |path| path.display().to_string());
    Failure::Config { origin, why: describe(refusal) }
}

/// A refusal as text for the user; for a schema check, every violation with its path.
fn describe(refusal: &Refusal) -> String {
    if refusal.violations.is_empty() {
        return refusal.content.clone();
    }
    let text = |violation: &Json, key: &str| violation.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
    let violations = refusal.violations.iter().map(|violation| {
        let place = text(violation, "dataPath");
        format!("{} {}", place.trim_start_matches(".requestBody."), text(violation, "message"))
    });
    // the prefix names the object of the file
    format!("{}{}", refusal.content, violations.collect::<Vec<_>>().join("; "))
}

fn with_cause(error: &OptionsError) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{error}{cause}")
}
