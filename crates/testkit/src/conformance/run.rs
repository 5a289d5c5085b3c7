//! What a run of any suite needs: an end, a date and a page.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};

use crate::Program;

const TICK: Duration = Duration::from_millis(200);

/// Waits for the end of a suite, which ends itself after `limit`; `check` fails once what is tested has ended.
pub(super) async fn finish(
    suite: &mut Program,
    limit: Duration,
    check: impl Fn() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + limit + limit / 10;
    while suite.ended()?.is_none() {
        check()?;
        if Instant::now() > deadline {
            bail!("the suite did not end within {} minutes:\n{}", limit.as_secs() / 60, suite.log_tail());
        }
        tokio::time::sleep(TICK).await;
    }
    Ok(())
}

pub(super) fn today() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d").to_string()
}

pub(super) fn write_page(path: &Path, page: &str) -> anyhow::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    fs::write(path, page).with_context(|| format!("writing {} failed", path.display()))
}
