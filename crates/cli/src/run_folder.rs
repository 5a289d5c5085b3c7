//! A folder for the time of one run. One that was killed leaves it, and the next run removes it.

use std::fs::File;
use std::io;
use std::path::Path;

use tempfile::TempDir;

/// Begins the names of these folders.
const PREFIX: &str = "portolan-up-";
/// A file in each of them that is locked while its run goes on.
const LOCK: &str = "lock";

/// The folder; dropping it removes it.
pub(crate) struct RunFolder {
    folder: TempDir,
    _lock: File,
}

impl RunFolder {
    /// Makes it below `parent`, where the folders of all runs are.
    pub(crate) fn below(parent: &Path) -> io::Result<Self> {
        remove_left(parent)?;
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        // others see the lock only when it is taken
        let early = folder.path().join("taken");
        let lock = File::create(&early)?;
        lock.lock()?;
        std::fs::rename(early, folder.path().join(LOCK))?;
        Ok(Self { folder, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes folders whose run was killed. What cannot be removed stays: it may be another user's.
fn remove_left(parent: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(parent)? {
        let Ok(entry) = entry else { continue };
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) {
            continue;
        }
        let path = entry.path().join(LOCK);
        // opening anything else, such as a pipe of another user, might not end
        let is_file = std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_file());
        if is_file && File::open(&path).is_ok_and(|lock| lock.try_lock().is_ok()) {
            std::fs::remove_dir_all(entry.path()).ok();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_killed_run_goes_with_the_next_one_and_that_of_a_running_one_stays() -> io::Result<()> {
        let parent = tempfile::tempdir()?;
        let [killed, early, other] =
            ["portolan-up-killed", "portolan-up-early", "other"].map(|it| parent.path().join(it));
        for folder in [&killed, &early, &other] {
            std::fs::create_dir(folder)?;
        }
        std::fs::write(killed.join(LOCK), "")?;
        std::fs::write(other.join(LOCK), "")?;
        let running = RunFolder::below(parent.path())?;
        let next = RunFolder::below(parent.path())?;
        assert!(!killed.exists());
        for folder in [running.path(), next.path(), &early, &other] {
            assert!(folder.exists(), "{}", folder.display());
        }
        let path = next.path().to_owned();
        drop(next);
        assert!(!path.exists());
        Ok(())
    }
}
