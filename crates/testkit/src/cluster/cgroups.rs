//! The control groups of a cluster's containers, which no namespace takes along.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const ROOT: &str = "/sys/fs/cgroup";
const PREFIX: &str = "portolan-cluster-";
/// How long killed processes may stay in their group.
const LIMIT: Duration = Duration::from_secs(5);

/// The group of one node, the same in every hierarchy.
pub(super) fn name(cluster: u32, node: &str) -> String {
    format!("/{PREFIX}{cluster}-{node}")
}

/// Makes a group in every hierarchy.
pub(super) fn make(name: &str) -> io::Result<()> {
    hierarchies()?.iter().try_for_each(|hierarchy| fs::create_dir_all(hierarchy.join(name.trim_start_matches('/'))))
}

/// Removes the groups of a cluster, and those of clusters whose process is gone.
pub(super) fn sweep(cluster: u32) -> io::Result<()> {
    for hierarchy in hierarchies()? {
        for entry in fs::read_dir(&hierarchy)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let owner = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
            if owner.is_some_and(|owner| owner == cluster || !Path::new(&format!("/proc/{owner}")).exists()) {
                remove(&entry.path())?;
            }
        }
    }
    Ok(())
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
