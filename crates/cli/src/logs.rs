//! Logs on stderr: text on a terminal, JSON elsewhere.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// Starts logging; `RUST_LOG` sets the filter, this level by default.
pub(crate) fn start(level: tracing::Level) {
    let filter = EnvFilter::builder().with_default_directive(level.into()).from_env_lossy();
    let logs = tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter);
    if std::io::stderr().is_terminal() {
        logs.init();
    } else {
        logs.json().init();
    }
}
