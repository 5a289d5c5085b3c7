//! What AWS's own variables say.

use portolan_drivers::cloud::aws::AwsSettings;

/// Reads them from the environment. They are no flags, as secrets are among them.
#[expect(
    clippy::disallowed_methods,
    reason = "every program of that cloud reads these variables, and no flag is one of them"
)]
pub(crate) fn settings() -> AwsSettings {
    AwsSettings::read(|name| std::env::var(name).ok())
}
