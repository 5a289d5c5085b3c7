//! kubectl: the newest, and the oldest that the README promises. What they print is the same.

use portolan_testkit::old_kubectl;

use crate::guides::{Document, newest_kubectl};

const SESSION: Document =
    Document { server: Some("portolan up"), ..Document::at("crates/cli/tests/it/clients/kubectl.md") };

#[test]
fn the_newest_kubectl_creates_applies_compares_and_explains() -> anyhow::Result<()> {
    SESSION.follow(&newest_kubectl()?)
}

#[test]
fn the_oldest_promised_kubectl_creates_applies_compares_and_explains() -> anyhow::Result<()> {
    SESSION.follow(&old_kubectl::program()?)
}

#[test]
fn the_oldest_promised_kubectl_runs_the_commands_of_the_readme() -> anyhow::Result<()> {
    Document::README.follow(&old_kubectl::program()?)
}

#[test]
fn the_oldest_promised_kubectl_runs_the_first_guide() -> anyhow::Result<()> {
    Document::EGRESS.follow(&old_kubectl::program()?)
}
