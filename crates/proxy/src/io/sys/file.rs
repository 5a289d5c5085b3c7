//! Files inside a directory, opened without following any link.

use super::call::check;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// Opens a file below a directory for appending, made if it is not there. The directory may be reached by a link,
/// nothing below it.
pub fn append_inside(directory: &Path, file: &Path) -> io::Result<File> {
    let mut at = open(libc::AT_FDCWD, directory.as_os_str().as_bytes(), libc::O_PATH | libc::O_DIRECTORY)?;
    let mut parts = file.components().peekable();
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else { return Err(io::ErrorKind::InvalidInput.into()) };
        if parts.peek().is_none() {
            // Without a wait for somebody to read, should it be a pipe.
            let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_NOFOLLOW | libc::O_NONBLOCK;
            return open(at.as_raw_fd(), name.as_bytes(), flags).map(File::from);
        }
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
        at = open(at.as_raw_fd(), name.as_bytes(), flags)?;
    }
    Err(io::ErrorKind::InvalidInput.into())
}

fn open(at: i32, name: &[u8], flags: i32) -> io::Result<OwnedFd> {
    let name = CString::new(name)?;
    let mode: libc::c_uint = 0o640;
    // SAFETY: a live string that ends with zero; a non-negative result is a fresh descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(check(libc::openat(at, name.as_ptr(), flags | libc::O_CLOEXEC, mode))?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn no_link_leads_out_of_the_directory() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let target = outside.path().join("target");
        std::fs::write(&target, "kept").unwrap();
        std::fs::create_dir(inside.path().join("sub")).unwrap();
        std::os::unix::fs::symlink(&target, inside.path().join("file")).unwrap();
        std::os::unix::fs::symlink(outside.path(), inside.path().join("dir")).unwrap();
        let append = |file: &str| append_inside(inside.path(), Path::new(file));
        for refused in ["file", "dir/target", "../x", "/etc/x", "", "sub"] {
            assert!(append(refused).is_err(), "{refused}");
        }
        for text in ["a", "b"] {
            append("sub/log").unwrap().write_all(text.as_bytes()).unwrap();
        }
        assert_eq!(std::fs::read_to_string(inside.path().join("sub/log")).unwrap(), "ab");
        assert_eq!(std::fs::read_to_string(target).unwrap(), "kept");
    }
}
