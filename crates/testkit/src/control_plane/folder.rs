//! The data folder of one control plane, removed with it, or by the next one when its process was killed.
//!
//! A static control plane never drops and a killed process cleans nothing, so every start sweeps: each
//! folder holds a lock file that its process keeps locked for life; a folder nobody locks has no owner.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
};

use anyhow::Context;
use tempfile::TempDir;

const PREFIX: &str = "portolan-kube-";
const LOCK: &str = "lock";

pub(crate) struct DataFolder {
    folder: TempDir,
    /// Locked until this process ends or the value drops.
    _owned: File,
}

impl DataFolder {
    pub(crate) fn new() -> anyhow::Result<Self> {
        Self::within(&std::env::temp_dir())
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file into the folder and returns its path as an argument takes it.
    pub(crate) fn write(&self, name: &str, content: &str) -> anyhow::Result<String> {
        let path = self.path().join(name);
        fs::write(&path, content).with_context(|| format!("writing {} failed", path.display()))?;
        path.into_os_string().into_string().ok().context("the folder for temporary files has a name in UTF-8")
    }

    fn within(parent: &Path) -> anyhow::Result<Self> {
        // Held while folders are made and swept, so that nobody sweeps one that is not locked yet.
        let user = fs::metadata("/proc/self")?.uid();
        let gate = File::create(parent.join(format!("portolan-kube.{user}.lock")))?;
        gate.lock()?;
        sweep(parent)?;
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let owned = File::create(folder.path().join(LOCK))?;
        owned.try_lock().context("locking a folder just made failed")?;
        Ok(Self { folder, _owned: owned })
    }
}

fn sweep(parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PREFIX) && !is_owned(&entry.path()) {
            // Another user's folder stays: it cannot be removed and does not matter.
            fs::remove_dir_all(entry.path()).ok();
        }
    }
    Ok(())
}

fn is_owned(folder: &Path) -> bool {
    File::open(folder.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_swept_once_its_owner_is_gone_and_not_before() {
        let parent = tempfile::tempdir().unwrap();
        let left = parent.path().join(format!("{PREFIX}left-behind"));
        fs::create_dir(&left).unwrap();
        File::create(left.join(LOCK)).unwrap();

        let first = DataFolder::within(parent.path()).unwrap();
        assert!(!left.exists(), "nobody owns it");
        let second = DataFolder::within(parent.path()).unwrap();
        assert!(first.path().exists() && second.path().exists(), "both are owned");

        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists(), "it goes with its owner");
    }
}
