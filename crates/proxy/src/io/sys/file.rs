//! Files inside a directory, opened without following any link.

use rustix::fs::{CWD, Mode, OFlags, openat};
use std::fs::File;
use std::io;
use std::path::{Component, Path};

/// Opens a file below a directory for appending, and creates it if it does not exist. The directory may be reached by a
/// link, nothing below it.
pub fn append_inside(directory: &Path, file: &Path) -> io::Result<File> {
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, directory, folder, Mode::empty())?;
    let mut parts = file.components().peekable();
    while let Some(part) = parts.next() {
        let Component::Normal(name) = part else { return Err(io::ErrorKind::InvalidInput.into()) };
        if parts.peek().is_none() {
            // without blocking, in case it is a pipe that nobody reads
            let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            let opened = openat(&at, name, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o640))?;
            return Ok(File::from(opened));
        }
        at = openat(&at, name, folder | OFlags::NOFOLLOW, Mode::empty())?;
    }
    Err(io::ErrorKind::InvalidInput.into())
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
