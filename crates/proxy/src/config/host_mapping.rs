//! Maps addresses and folders of a configuration: several proxies on one machine can each have their own address and
//! folders, as if each had its own network and file system.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// Address and folder mapping of this process; maps nothing by default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostMapping {
    /// Used in place of all addresses (0.0.0.0 and ::).
    pub address: Option<IpAddr>,
    /// Used in place of 127.0.0.1 and ::1.
    pub localhost: Option<IpAddr>,
    pub mounts: Vec<Mount>,
}

/// A path and the folder it is mapped to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub path: PathBuf,
    pub folder: PathBuf,
}

impl FromStr for Mount {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (path, folder) = text.split_once('=').ok_or("expected PATH=FOLDER")?;
        let is_plain = |path: &str| {
            let parts = Path::new(path).components();
            path.starts_with('/')
                && parts.into_iter().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
        };
        if !is_plain(path) || !is_plain(folder) {
            return Err("both must be absolute paths without `..`");
        }
        Ok(Self { path: path.into(), folder: folder.into() })
    }
}

impl HostMapping {
    /// The address that a listener binds to; `None` is all addresses.
    pub fn bind_address(&self, wanted: Option<IpAddr>) -> Option<IpAddr> {
        let wanted = wanted.filter(|address| self.address.is_none() || !address.is_unspecified());
        wanted.map(|address| self.map_address(address)).or(self.address)
    }

    /// The address to connect to in place of this one.
    pub fn map_address(&self, address: IpAddr) -> IpAddr {
        let is_localhost = address == Ipv4Addr::LOCALHOST || address == Ipv6Addr::LOCALHOST;
        self.localhost.filter(|_| is_localhost).unwrap_or(address)
    }

    /// The real location of a path.
    pub fn map_path<'a>(&self, path: &'a Path) -> Cow<'a, Path> {
        let inner = |mount: &&Mount| path.starts_with(&mount.path);
        let deepest = self.mounts.iter().filter(inner).max_by_key(|mount| mount.path.components().count());
        let real = deepest.and_then(|mount| Some(mount.folder.join(path.strip_prefix(&mount.path).ok()?)));
        real.map_or(Cow::Borrowed(path), Cow::Owned)
    }

    /// The real locations of directories, including folders mounted inside them.
    pub fn directories<'a>(&self, directories: &'a [PathBuf]) -> Cow<'a, [PathBuf]> {
        if self.mounts.is_empty() {
            return Cow::Borrowed(directories);
        }
        let inside = |mount: &&Mount| directories.iter().any(|directory| mount.path.starts_with(directory));
        let mounted = self.mounts.iter().filter(inside).map(|mount| mount.folder.clone());
        directories.iter().map(|directory| self.map_path(directory).into_owned()).chain(mounted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(mounts: &[&str]) -> HostMapping {
        let mounts = mounts.iter().map(|text| text.parse().unwrap()).collect();
        let own = Some([127, 77, 0, 1].into());
        HostMapping { address: own, localhost: own, mounts }
    }

    #[test]
    fn localhost_and_all_addresses_are_mapped() {
        let (mapping, anywhere) = (mapping(&[]), HostMapping::default());
        let own = mapping.address;
        let other: IpAddr = [10, 0, 0, 1].into();
        for wanted in ["0.0.0.0", "::", "127.0.0.1", "::1"] {
            let wanted: Option<IpAddr> = wanted.parse().ok();
            assert_eq!((mapping.bind_address(wanted), anywhere.bind_address(wanted)), (own, wanted));
        }
        assert_eq!((mapping.bind_address(None), anywhere.bind_address(None)), (own, None));
        assert_eq!((mapping.bind_address(Some(other)), mapping.map_address(other)), (Some(other), other));
        assert_eq!(Some(mapping.map_address([127, 0, 0, 1].into())), own);
        assert_eq!(
            mapping.map_address([127, 0, 0, 2].into()),
            IpAddr::from([127, 0, 0, 2]),
            "other loopback addresses are not mapped"
        );
    }

    #[test]
    fn the_deepest_mount_maps_a_path() {
        let mapping = mapping(&["/var/run/sock=/t/sock", "/var=/t/var", "/var/run/sock/in=/t/in"]);
        for (path, real) in [
            ("/var/run/sock/a", "/t/sock/a"),
            ("/var/run/sock/in/a", "/t/in/a"),
            ("/var/run/socks/a", "/t/var/run/socks/a"),
            ("/var", "/t/var"),
            ("/etc/a", "/etc/a"),
            ("a", "a"),
        ] {
            assert_eq!(mapping.map_path(Path::new(path)), Path::new(real), "{path}");
        }
        let directories = ["/var/run", "/run"].map(PathBuf::from);
        let real = ["/t/var/run", "/run", "/t/sock", "/t/in"].map(PathBuf::from);
        assert_eq!(*mapping.directories(&directories), real);
    }

    #[test]
    fn a_mount_is_two_absolute_paths() {
        for text in ["/a", "a=/b", "/a=b", "/a/../b=/c", "/a=/b/../c", "="] {
            assert!(text.parse::<Mount>().is_err(), "{text}");
        }
        assert_eq!("/a=/b=c".parse(), Ok(Mount { path: "/a".into(), folder: "/b=c".into() }));
    }
}
