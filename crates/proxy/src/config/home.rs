//! What addresses and folders of a configuration stand for: a process that shares a machine with others like it can be
//! at home on an address and in folders of its own, as if it had a network and a file system to itself.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

/// Where this process is at home; by default nowhere in particular.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Home {
    /// Stands for all addresses.
    pub address: Option<IpAddr>,
    /// Stands for 127.0.0.1 and ::1.
    pub localhost: Option<IpAddr>,
    pub mounts: Vec<Mount>,
}

/// A folder that stands for a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub path: PathBuf,
    pub folder: PathBuf,
}

impl FromStr for Mount {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (path, folder) = text.split_once('=').ok_or("write it as PATH=FOLDER")?;
        let is_plain = |path: &str| {
            let parts = Path::new(path).components();
            path.starts_with('/')
                && parts.into_iter().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
        };
        if !is_plain(path) || !is_plain(folder) {
            return Err("both are whole paths without `..`");
        }
        Ok(Self { path: path.into(), folder: folder.into() })
    }
}

impl Home {
    /// Where a listener binds that wants this address; none for all.
    pub fn bound(&self, wanted: Option<IpAddr>) -> Option<IpAddr> {
        let wanted = wanted.filter(|address| self.address.is_none() || !address.is_unspecified());
        wanted.map(|address| self.meant(address)).or(self.address)
    }

    /// The address to connect to for this one.
    pub fn meant(&self, address: IpAddr) -> IpAddr {
        let is_localhost = address == Ipv4Addr::LOCALHOST || address == Ipv6Addr::LOCALHOST;
        self.localhost.filter(|_| is_localhost).unwrap_or(address)
    }

    /// Where a path really lies.
    pub fn real<'a>(&self, path: &'a Path) -> Cow<'a, Path> {
        let inner = |mount: &&Mount| path.starts_with(&mount.path);
        let deepest = self.mounts.iter().filter(inner).max_by_key(|mount| mount.path.components().count());
        let real = deepest.and_then(|mount| Some(mount.folder.join(path.strip_prefix(&mount.path).ok()?)));
        real.map_or(Cow::Borrowed(path), Cow::Owned)
    }

    /// Where directories really lie, with everything that is mounted inside of them.
    pub fn directories<'a>(&self, directories: &'a [PathBuf]) -> Cow<'a, [PathBuf]> {
        if self.mounts.is_empty() {
            return Cow::Borrowed(directories);
        }
        let inside = |mount: &&Mount| directories.iter().any(|directory| mount.path.starts_with(directory));
        let mounted = self.mounts.iter().filter(inside).map(|mount| mount.folder.clone());
        directories.iter().map(|directory| self.real(directory).into_owned()).chain(mounted).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(mounts: &[&str]) -> Home {
        let mounts = mounts.iter().map(|text| text.parse().unwrap()).collect();
        let own = Some([127, 77, 0, 1].into());
        Home { address: own, localhost: own, mounts }
    }

    #[test]
    fn localhost_and_all_addresses_are_its_own() {
        let (home, anywhere) = (home(&[]), Home::default());
        let own = home.address;
        let other: IpAddr = [10, 0, 0, 1].into();
        for wanted in ["0.0.0.0", "::", "127.0.0.1", "::1"] {
            let wanted: Option<IpAddr> = wanted.parse().ok();
            assert_eq!((home.bound(wanted), anywhere.bound(wanted)), (own, wanted));
        }
        assert_eq!((home.bound(None), anywhere.bound(None)), (own, None));
        assert_eq!((home.bound(Some(other)), home.meant(other)), (Some(other), other));
        assert_eq!(Some(home.meant([127, 0, 0, 1].into())), own);
        assert_eq!(home.meant([127, 0, 0, 2].into()), IpAddr::from([127, 0, 0, 2]), "another one of the machine");
    }

    #[test]
    fn paths_lie_where_the_deepest_mount_says() {
        let home = home(&["/var/run/sock=/t/sock", "/var=/t/var", "/var/run/sock/in=/t/in"]);
        for (path, real) in [
            ("/var/run/sock/a", "/t/sock/a"),
            ("/var/run/sock/in/a", "/t/in/a"),
            ("/var/run/socks/a", "/t/var/run/socks/a"),
            ("/var", "/t/var"),
            ("/etc/a", "/etc/a"),
            ("a", "a"),
        ] {
            assert_eq!(home.real(Path::new(path)), Path::new(real), "{path}");
        }
        let directories = ["/var/run", "/run"].map(PathBuf::from);
        let real = ["/t/var/run", "/run", "/t/sock", "/t/in"].map(PathBuf::from);
        assert_eq!(*home.directories(&directories), real);
    }

    #[test]
    fn a_mount_is_two_whole_paths() {
        for text in ["/a", "a=/b", "/a=b", "/a/../b=/c", "/a=/b/../c", "="] {
            assert!(text.parse::<Mount>().is_err(), "{text}");
        }
        assert_eq!("/a=/b=c".parse(), Ok(Mount { path: "/a".into(), folder: "/b=c".into() }));
    }
}
