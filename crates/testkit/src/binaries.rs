//! The Kubernetes programs the tests run: found, or built once.
//!
//! They come from the Go module in `kube/`: one binary that acts as any of [`PROGRAMS`] and
//! [`CLUSTER_PROGRAMS`], by the name it is called by. It is kept outside the checkout, in
//! `$XDG_CACHE_HOME/portolan/kube/VERSION-HASH/`, where HASH changes with the module: a change of the
//! module builds anew, every checkout with the same module shares one build.
//!
//! `KUBEBUILDER_ASSETS` names a folder with other builds of the same programs instead.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail, ensure};

mod go;

pub(crate) use go::linker_flags;

/// The programs a folder must hold to be used.
pub const PROGRAMS: [&str; 4] = ["etcd", "kube-apiserver", "kube-controller-manager", "kubectl"];
/// The programs that a whole cluster needs besides.
pub const CLUSTER_PROGRAMS: [&str; 3] = ["kube-proxy", "kube-scheduler", "kubelet"];

const GO_MODULE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/kube");
const GO_MOD: &str = include_str!("../kube/go.mod");
const GO_SUM: &str = include_str!("../kube/go.sum");
const MAIN_GO: &str = include_str!("../kube/main.go");
const COMBINED: &str = "portolan-kube";
const BUILDING: &str = ".building-";

/// A folder known to hold every one of [`PROGRAMS`].
#[derive(Debug, Clone)]
pub struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    /// Finds the programs; when there are none, the error says which command makes them.
    pub fn locate() -> anyhow::Result<Self> {
        if let Some(folder) = variable("KUBEBUILDER_ASSETS") {
            return Self::in_folder(&folder).context("KUBEBUILDER_ASSETS names a folder that cannot be used");
        }
        Self::in_folder(&cached_folder()?).context("the Kubernetes binaries are not there: run `cargo xtask setup`")
    }

    /// The folder with the published sources of a Go module that the programs are built of.
    pub fn sources(module: &str) -> anyhow::Result<PathBuf> {
        go::sources(module)
    }

    /// Finds the programs or builds them, which takes some minutes once; two builds never run at a time.
    pub fn build() -> anyhow::Result<Self> {
        if variable("KUBEBUILDER_ASSETS").is_some() {
            return Self::locate();
        }
        let folder = cached_folder()?;
        if let Ok(binaries) = Self::in_folder(&folder) {
            return Ok(binaries);
        }
        let parent = folder.parent().context("the cache folder has a parent")?;
        fs::create_dir_all(parent).with_context(|| format!("making {} failed", parent.display()))?;
        let lock = File::create(parent.join("lock"))?;
        if lock.try_lock().is_err() {
            writeln!(io::stderr(), "waiting for another process that builds Kubernetes").ok();
            lock.lock().context("waiting for another build failed")?;
        }
        if let Ok(binaries) = Self::in_folder(&folder) {
            return Ok(binaries);
        }
        // A build that was interrupted leaves nothing under the final name: it is made aside, then renamed.
        remove_leftovers(parent)?;
        let aside = tempfile::Builder::new().prefix(BUILDING).tempdir_in(parent)?;
        go::build(&aside.path().join(COMBINED))?;
        for program in PROGRAMS.into_iter().chain(CLUSTER_PROGRAMS) {
            std::os::unix::fs::symlink(COMBINED, aside.path().join(program))?;
        }
        remove_if_there(&folder)?;
        fs::rename(aside.path(), &folder).with_context(|| format!("making {} failed", folder.display()))?;
        Self::in_folder(&folder)
    }

    /// The folder that holds the programs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// kubectl for the server of a kubeconfig.
    pub fn kubectl(&self, kubeconfig: &Path) -> Command {
        let mut kubectl = Command::new(self.program("kubectl"));
        kubectl.env("KUBECONFIG", kubeconfig);
        // kubectl remembers by address what a server serves, and the next server may get the same port.
        kubectl.env("KUBECACHEDIR", kubeconfig.with_extension("cache"));
        kubectl
    }

    /// The same, if the programs of nodes are there as well.
    pub fn of_cluster(self) -> anyhow::Result<Self> {
        let missing: Vec<&str> =
            CLUSTER_PROGRAMS.into_iter().filter(|program| !self.program(program).is_file()).collect();
        ensure!(missing.is_empty(), "{} has no {}", self.folder.display(), missing.join(", "));
        Ok(self)
    }

    /// The path of one of [`PROGRAMS`] or [`CLUSTER_PROGRAMS`].
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn in_folder(folder: &Path) -> anyhow::Result<Self> {
        let missing: Vec<&str> = PROGRAMS.into_iter().filter(|program| !folder.join(program).is_file()).collect();
        if !missing.is_empty() {
            bail!("{} has no {}", folder.display(), missing.join(", "));
        }
        // Absolute, because the programs are started in a folder of their own.
        Ok(Self { folder: std::path::absolute(folder)? })
    }
}

/// The version of Kubernetes that the Go module asks for, like `v1.36.4`.
pub fn kubernetes_version() -> &'static str {
    GO_MOD
        .lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes "))
        .expect("go.mod requires k8s.io/kubernetes")
        .trim()
}

/// Where programs are kept that are built once, outside the checkout.
pub(crate) fn cache_folder() -> anyhow::Result<PathBuf> {
    let cache = match variable("XDG_CACHE_HOME") {
        Some(cache) => cache,
        None => variable("HOME").context("neither XDG_CACHE_HOME nor HOME is set: set one of them")?.join(".cache"),
    };
    Ok(cache.join("portolan"))
}

fn cached_folder() -> anyhow::Result<PathBuf> {
    let module = hash([MAIN_GO, GO_MOD, GO_SUM]);
    Ok(cache_folder()?.join("kube").join(format!("{}-{module:08x}", kubernetes_version())))
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Removes what interrupted builds have left; whoever calls holds the lock, so no build is under way.
fn remove_leftovers(parent: &Path) -> io::Result<()> {
    for entry in fs::read_dir(parent)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(BUILDING) {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

fn remove_if_there(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// FNV-1a of the texts, with a zero byte after each: fixed by definition, so a folder's name never drifts.
pub(crate) fn hash<const N: usize>(texts: [&str; N]) -> u32 {
    texts
        .iter()
        .flat_map(|text| text.bytes().chain([0]))
        .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_go_mod() {
        let version = kubernetes_version();
        assert!(version.starts_with("v1.") && version.split('.').count() == 3, "{version}");
    }

    #[test]
    fn the_hash_is_fixed_by_definition_and_sees_where_a_file_ends() {
        // FNV-1a (32 bits) of "a\0" by hand: the published hash of "a" is e40c292c, times the prime.
        assert_eq!(hash(["a"]), 0xe40c_292c_u32.wrapping_mul(0x0100_0193));
        assert_ne!(hash(["ab", "c"]), hash(["a", "bc"]));
    }

    #[test]
    fn a_folder_that_lacks_a_program_is_refused_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        for program in ["etcd", "kube-apiserver", "kubectl"] {
            File::create(folder.path().join(program)).unwrap();
        }
        let error = Binaries::in_folder(folder.path()).unwrap_err().to_string();
        assert!(error.ends_with("has no kube-controller-manager"), "{error}");
    }
}
