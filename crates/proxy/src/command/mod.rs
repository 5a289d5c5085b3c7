//! From flags to a running proxy and back: what `portolan proxy` and `portolan-proxy` do.
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

use crate::config::json::Json;
use crate::config::refusal::Refusal;
use crate::config::types::Admin;
use crate::config::whole;
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
    #[error("{origin} cannot be put in force: {why}")]
    Config { origin: String, why: String },
    #[error("cannot go on as user {who}: {cause}")]
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
    /// The exit code that scripts see: 2 for flags that cannot be followed, else 1.
    pub const fn exit(&self) -> u8 {
        match self {
            Self::Options(OptionsError::Nothing | OptionsError::HalfOfTls) => 2,
            Self::Options(OptionsError::Read { .. } | OptionsError::Syntax { .. })
            | Self::Config { .. }
            | Self::User { .. }
            | Self::Start { .. } => 1,
        }
    }

    /// What to do about it.
    pub const fn hint(&self) -> &'static str {
        match self {
            Self::Options(OptionsError::Nothing) => {
                "give a file with -c, a text with --inline, or an address with --api"
            }
            Self::Options(OptionsError::HalfOfTls) => "give --api-cert and --api-key, or neither",
            Self::Options(OptionsError::Read { .. }) => "see whether it is there and may be read: ls -l",
            Self::Options(OptionsError::Syntax { .. }) => "files that end in .yaml or .yml are YAML, all others JSON",
            Self::Config { .. } => "mend it, and see with --check whether it would be taken",
            Self::User { .. } => "name a user of /etc/passwd or a number, and start it as root",
            Self::Start { .. } => "see who has the port, and what this user may do: ss -lnp",
        }
    }

    fn start(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        move |cause| Self::Start { what: what.into(), cause }
    }
}

/// Runs the proxy until a signal ends it; with `--check` only says whether it would start.
pub fn run(options: Options) -> Result<(), Failure> {
    options.validate()?;
    let options = options.mounted();
    // first of all, so that whatever can be read and opened now can be when the file is read again
    if let Some(who) = &options.user {
        user::find(who).and_then(sys::become_user).map_err(|cause| Failure::User { who: who.clone(), cause })?;
    }
    let config = options.static_config()?;
    let admin = whole::admin(&config).map_err(|refusal| refused(&options, &refusal))?;
    if options.check {
        return check(&options, &config, &admin);
    }
    let logs = Logs::start(&admin, options.home()).map_err(Failure::start("the log file cannot be opened"))?;
    if sys::is_root() {
        tracing::warn!("it runs as root, which it does not need to: --user names whom it should go on as");
    }
    if options.offload.is_some() || options.interfaces.is_some() {
        tracing::warn!("offload to the kernel is not part of this version: -o and -i are without effect");
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::start("signals cannot be waited for"))?;
    // before the first listener: from here on a signal ends the proxy in order
    let mut signals = {
        let _context = runtime.enter();
        Signals::new().map_err(Failure::start("signals cannot be waited for"))?
    };
    let stdin_ends =
        stdin_ends(options.end_with_stdin).map_err(Failure::start("standard input cannot be waited for"))?;
    let ready_file = options.ready_file.clone();
    let proxy = Proxy::start(options, &config, &admin, logs)?;
    if let Some(file) = ready_file {
        let unwritten = format!("{} cannot be written", file.display());
        std::fs::write(&file, "ready\n").map_err(Failure::start(unwritten))?;
    }
    runtime.block_on(async {
        let run = async {
            while signals.next().await.is_reload() {
                proxy.reload();
            }
            proxy.drain(&mut signals).await;
        };
        tokio::select! { () = run => {} () = stdin_ends => tracing::info!("standard input has ended") }
    });
    Ok(())
}

/// Ends with standard input, if that is wanted. A read cannot be cut short, so a thread waits that nobody waits for.
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

/// Says whether a configuration would be taken. No socket is opened, so ports that others have are not seen.
fn check(options: &Options, config: &Json, admin: &Admin) -> Result<(), Failure> {
    let start = crate::io::Options { workers: 1, ..crate::io::Options::default() };
    let plane = DataPlane::start(start).map_err(Failure::start("workers cannot be started"))?;
    let settings = Settings { strict: options.strict || admin.strict, ..Settings::default() };
    let checked = Api::new(Arc::clone(&plane) as _, options.access()?, settings).check(config);
    plane.stop();
    checked.map_err(|refusal| refused(options, &refusal))
}

fn refused(options: &Options, refusal: &Refusal) -> Failure {
    let origin = options.config.as_ref().map_or_else(|| "--inline".to_owned(), |path| path.display().to_string());
    Failure::Config { origin, why: words(refusal) }
}

/// A refusal for a person: of a schema check, what is wrong where.
fn words(refusal: &Refusal) -> String {
    if refusal.violations.is_empty() {
        return refusal.content.clone();
    }
    let text = |violation: &Json, key: &str| violation.get(key).and_then(Json::as_str).unwrap_or_default().to_owned();
    let violations = refusal.violations.iter().map(|violation| {
        let place = text(violation, "dataPath");
        format!("{} {}", place.trim_start_matches(".requestBody."), text(violation, "message"))
    });
    // which object of the file it is stands in front
    format!("{}{}", refusal.content, violations.collect::<Vec<_>>().join("; "))
}

fn with_cause(error: &OptionsError) -> String {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}")).unwrap_or_default();
    format!("{error}{cause}")
}
