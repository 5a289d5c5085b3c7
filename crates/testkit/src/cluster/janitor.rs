//! Removes what a cluster leaves on disk when its process is killed, or ends without dropping it.

use std::{
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::Context;

/// Waits for the process $0 to end, then removes the folder $1 and the control groups, once their processes have ended.
const SCRIPT: &str = r#"
while [ -d "/proc/$0" ]; do sleep 0.2; done
for attempt in $(seq 100); do
    groups=$(find /sys/fs/cgroup -depth -type d -path "*/portolan-cluster-$0-*")
    [ -z "$groups" ] && break
    rmdir $groups
    sleep 0.1
done
rm -rf "$1"
"#;

/// Starts it, out of reach of what is sent to this process's group.
pub(super) fn start(folder: &Path) -> anyhow::Result<()> {
    let mut janitor = Command::new("sh");
    janitor.args(["-c", SCRIPT, &std::process::id().to_string()]).arg(folder).process_group(0);
    janitor.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    janitor.spawn().map(drop).context("starting the janitor failed")
}
