//! The control groups of a cluster's containers, which no namespace takes along.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

const ROOT: &str = "/sys/fs/cgroup";
const PREFIX: &str = "portolan-cluster-";
/// How long killed processes may stay in their group.
const LIMIT: Duration = Duration::from_secs(5);

/// Tells a cluster from all others on the machine: its process, and its number in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClusterId {
    process: u32,
    number: u32,
}

impl ClusterId {
    pub(super) fn next() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        Self { process: std::process::id(), number: NUMBER.fetch_add(1, Ordering::Relaxed) }
    }

    /// The cluster of a group with this name.
    fn of(group: &str) -> Option<Self> {
        let mut numbers = group.strip_prefix(PREFIX)?.split('-').map(str::parse);
        Some(Self { process: numbers.next()?.ok()?, number: numbers.next()?.ok()? })
    }
}

/// The group of one node, the same in every hierarchy.
pub(super) fn name(ClusterId { process, number }: ClusterId, node: &str) -> String {
    format!("/{PREFIX}{process}-{number}-{node}")
}

/// Makes a group in every hierarchy.
pub(super) fn make(name: &str) -> io::Result<()> {
    hierarchies()?.iter().try_for_each(|hierarchy| fs::create_dir_all(hierarchy.join(name.trim_start_matches('/'))))
}

/// Removes the groups of a cluster, and those of clusters whose process is gone.
pub(super) fn sweep(cluster: ClusterId) -> io::Result<()> {
    for hierarchy in hierarchies()? {
        for entry in fs::read_dir(&hierarchy)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let owner = ClusterId::of(&name);
            if owner.is_some_and(|owner| owner == cluster || !is_running(owner)) {
                remove(&entry.path())?;
            }
        }
    }
    Ok(())
}

fn is_running(ClusterId { process, .. }: ClusterId) -> bool {
    Path::new(&format!("/proc/{process}")).exists()
}

/// A group can be removed once its processes have gone, and those below it.
fn remove(group: &Path) -> io::Result<()> {
    for entry in fs::read_dir(group)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    let deadline = Instant::now() + LIMIT;
    loop {
        match fs::remove_dir(group) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            ended => return ended,
        }
    }
}

/// Every hierarchy of version 1, or the one of version 2.
fn hierarchies() -> io::Result<Vec<PathBuf>> {
    if Path::new(ROOT).join("cgroup.controllers").exists() {
        return Ok(vec![PathBuf::from(ROOT)]);
    }
    let folders = fs::read_dir(ROOT)?.flatten().map(|entry| entry.path());
    // Some names are links to a hierarchy of several controllers.
    Ok(folders.filter(|folder| folder.is_dir() && !folder.is_symlink()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_names_its_cluster() {
        let [first, second] = [ClusterId::next(), ClusterId::next()];
        assert_ne!(first, second);
        assert_eq!(ClusterId::of(name(second, "node-1").trim_start_matches('/')), Some(second));
        assert_eq!(ClusterId::of("portolan-cluster-7"), None);
    }
}
