//! The folder of a unit.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use portolan_core::gateway::unit::UnitId;
use ring::digest::{SHA256, digest};

use super::error::ProcessError;
use crate::envoy::resources::hex;

/// The path of a Unix socket has 108 bytes, of which the last is zero.
const MAX_SOCKET_PATH: usize = 107;
/// Bytes of the hash that names a unit's folder: short, and no two units share it.
const NAME_BYTES: usize = 8;
const XDS_SOCKET: &str = "xds.sock";
const ADMIN_SOCKET: &str = "admin.sock";

/// The longest path under which the sockets of units have room.
const fn longest() -> usize {
    MAX_SOCKET_PATH - "/".len() - 2 * NAME_BYTES - "/".len() - ADMIN_SOCKET.len()
}

/// Makes the folder of the units' folders.
pub(super) fn prepare(folder: &Path) -> Result<(), ProcessError> {
    let failed = |cause| ProcessError::MakeFolder { folder: folder.to_owned(), cause };
    let absolute = std::path::absolute(folder).map_err(failed)?;
    if absolute.as_os_str().len() > longest() {
        return Err(ProcessError::FolderTooLong { folder: absolute, longest: longest() });
    }
    private(&absolute, true).map_err(failed)
}

/// The folder of one unit, removed when dropped.
pub(super) struct UnitFolder {
    path: PathBuf,
}

impl UnitFolder {
    /// Makes it; what another process has left there is removed.
    pub(super) fn make(all: &Path, unit: &UnitId) -> io::Result<Self> {
        let hash = digest(&SHA256, unit.to_string().as_bytes());
        let path = std::path::absolute(all)?.join(hex(&hash.as_ref()[..NAME_BYTES]));
        match fs::remove_dir_all(&path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(cause),
            Ok(()) | Err(_) => {}
        }
        private(&path, false)?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn xds_socket(&self) -> PathBuf {
        self.path.join(XDS_SOCKET)
    }

    pub(super) fn admin_socket(&self) -> PathBuf {
        self.path.join(ADMIN_SOCKET)
    }

    pub(super) fn bootstrap(&self) -> PathBuf {
        self.path.join("bootstrap.json")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path.join("envoy.log")
    }
}

impl Drop for UnitFolder {
    fn drop(&mut self) {
        // what is left is removed when the unit is started again
        fs::remove_dir_all(&self.path).ok();
    }
}

fn private(path: &Path, is_recursive: bool) -> io::Result<()> {
    DirBuilder::new().recursive(is_recursive).mode(0o700).create(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn unit(name: &str) -> UnitId {
        UnitId { namespace: "egw-acme".into(), name: name.into() }
    }

    #[test]
    fn sockets_of_the_longest_names_have_room() {
        let base = tempfile::tempdir().unwrap();
        let fill = longest() - base.path().as_os_str().len() - 1;
        let folder = base.path().join("f".repeat(fill));
        prepare(&folder).unwrap();
        let made = UnitFolder::make(&folder, &unit(&"n".repeat(253))).unwrap();
        assert_eq!(made.admin_socket().as_os_str().len(), MAX_SOCKET_PATH);
        std::os::unix::net::UnixListener::bind(made.admin_socket()).unwrap();
        let longer = base.path().join("f".repeat(fill + 1));
        assert!(matches!(prepare(&longer), Err(ProcessError::FolderTooLong { .. })));
    }

    #[test]
    fn a_folder_is_private_and_goes_with_its_unit() {
        let base = tempfile::tempdir().unwrap();
        let one = UnitFolder::make(base.path(), &unit("one")).unwrap();
        let two = UnitFolder::make(base.path(), &unit("two")).unwrap();
        assert_ne!(one.path(), two.path());
        assert_eq!(fs::metadata(one.path()).unwrap().permissions().mode() & 0o777, 0o700);
        let path = one.path().to_owned();
        drop(one);
        assert!(!path.exists() && two.path().exists());
    }
}
