//! A program that is built once from a Go module of this crate.
//!
//! It is kept beside the Kubernetes binaries, in `$XDG_CACHE_HOME/portolan/NAME/VERSION-HASH/NAME`, where HASH changes with
//! the module.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, ensure};

use crate::binaries::{cache_folder, hash};

/// What is built of which module.
pub(crate) struct GoProgram {
    /// The file's name, and the folder's in the cache.
    pub(crate) name: &'static str,
    /// The folder of this crate with the Go module.
    pub(crate) module: &'static str,
    pub(crate) go_mod: &'static str,
    pub(crate) go_sum: &'static str,
    /// The package to build, in the module or required by it.
    pub(crate) package: &'static str,
    /// The required module whose version is the program's.
    pub(crate) versioned: &'static str,
    /// What the linker is told for a version.
    pub(crate) linker_flags: fn(&str) -> String,
}

impl GoProgram {
    /// The program; when it is not there, the error says which command makes it.
    pub(crate) fn locate(&self) -> anyhow::Result<PathBuf> {
        let program = self.path()?;
        ensure!(program.is_file(), "{} is not there: run `cargo xtask setup`", self.name);
        Ok(program)
    }

    /// Finds the program or builds it, which takes some minutes once; two builds never run at a time.
    pub(crate) fn build(&self) -> anyhow::Result<PathBuf> {
        let program = self.path()?;
        let folder = program.parent().context("the program lies in a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("making {} failed", folder.display()))?;
        let lock = File::create(folder.join("lock"))?;
        lock.lock().context("waiting for another build failed")?;
        if program.is_file() {
            return Ok(program);
        }
        writeln!(io::stderr(), "building {} {}, which happens once", self.name, self.version()).ok();
        // Made aside, then renamed: a build that was interrupted leaves nothing under the final name.
        let aside = program.with_extension("building");
        let module = Path::new(env!("CARGO_MANIFEST_DIR")).join(self.module);
        let status = Command::new("go")
            .args(["build", "-trimpath", "-ldflags", &(self.linker_flags)(self.version()), "-o"])
            .arg(&aside)
            .arg(self.package)
            .current_dir(&module)
            .env("CGO_ENABLED", "0")
            .status()
            .with_context(|| {
                format!("starting `go` failed; {} needs Go 1.26 or later: https://go.dev/dl/", self.name)
            })?;
        ensure!(status.success(), "`go build` in {} failed ({status})", module.display());
        fs::rename(&aside, &program)?;
        Ok(program)
    }

    /// The version that the Go module asks for, like `v3.22.0`.
    pub(crate) fn version(&self) -> &'static str {
        let required = |line: &'static str| line.trim().strip_prefix(self.versioned)?.strip_prefix(' ');
        let found = self.go_mod.lines().find_map(required);
        found.and_then(|version| version.split_whitespace().next()).expect("go.mod requires the module")
    }

    fn path(&self) -> anyhow::Result<PathBuf> {
        let module = hash([self.go_mod, self.go_sum]);
        Ok(cache_folder()?.join(self.name).join(format!("{}-{module:08x}", self.version())).join(self.name))
    }
}
