//! Logs: text on a terminal, JSON elsewhere; level and destination follow the configuration while the process runs.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing_subscriber::EnvFilter;

use crate::config::host_mapping::HostMapping;
use crate::config::types::{Admin, LogLevel};

/// The process's logs.
pub(super) struct Logs {
    output: Output,
    host_mapping: HostMapping,
    set_level: Box<dyn Fn(LogLevel) + Send + Sync>,
}

impl Logs {
    /// Starts logging as configured; default: INFO, to stderr.
    pub(super) fn start(admin: &Admin, host_mapping: HostMapping) -> io::Result<Self> {
        let target = Target::open(admin.log_file.as_deref(), &host_mapping)?;
        let terminal = target.is_terminal();
        let output = Output(Arc::new(Mutex::new(target)));
        let writer = output.clone();
        let logs = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(terminal)
            .with_env_filter(filter(admin.log_level));
        let set_level: Box<dyn Fn(LogLevel) + Send + Sync> = if terminal {
            let logs = logs.with_filter_reloading();
            let handle = logs.reload_handle();
            logs.init();
            Box::new(move |level| drop(handle.reload(filter(level))))
        } else {
            let logs = logs.json().with_filter_reloading();
            let handle = logs.reload_handle();
            logs.init();
            Box::new(move |level| drop(handle.reload(filter(level))))
        };
        Ok(Self { output, host_mapping, set_level })
    }

    /// Applies a new configuration. The file is reopened, so that SIGHUP works with log rotation.
    pub(super) fn follow(&self, admin: &Admin) {
        (self.set_level)(admin.log_level);
        match Target::open(admin.log_file.as_deref(), &self.host_mapping) {
            Ok(target) => *self.output.0.lock() = target,
            Err(error) => {
                tracing::warn!(%error, file = admin.log_file, "cannot open the log file: still logging to the previous one");
            }
        }
    }
}

fn filter(level: LogLevel) -> EnvFilter {
    EnvFilter::new(level.directive())
}

/// Where lines go, for all threads.
#[derive(Clone)]
struct Output(Arc<Mutex<Target>>);

enum Target {
    Stdout,
    Stderr,
    File(File),
}

impl Target {
    fn open(file: Option<&str>, host_mapping: &HostMapping) -> io::Result<Self> {
        match file {
            None | Some("stderr") => Ok(Self::Stderr),
            Some("stdout" | "-") => Ok(Self::Stdout),
            Some(path) => OpenOptions::new()
                .append(true)
                .create(true)
                .open(host_mapping.map_path(Path::new(path)))
                .map(Self::File),
        }
    }

    fn is_terminal(&self) -> bool {
        match self {
            Self::Stdout => io::stdout().is_terminal(),
            Self::Stderr => io::stderr().is_terminal(),
            Self::File(_) => false,
        }
    }
}

impl Write for Output {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match &mut *self.0.lock() {
            Target::Stdout => io::stdout().write(line),
            Target::Stderr => io::stderr().write(line),
            Target::File(file) => file.write(line),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut *self.0.lock() {
            Target::Stdout => io::stdout().flush(),
            Target::Stderr => io::stderr().flush(),
            Target::File(file) => file.flush(),
        }
    }
}
