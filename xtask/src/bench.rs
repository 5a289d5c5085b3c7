//! `cargo xtask bench`: finds a benchmark by its name and runs it.
//!
//! A benchmark is a file `crates/*/benches/NAME.rs` with `harness = false`; the tree itself is the list. Its
//! exit status is the verdict, so this chore passes it on.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::call::{Call, root};
use crate::{Failure, peers, tell};

/// Benchmarks by name, each with its package.
pub(crate) type Benches = BTreeMap<String, String>;

/// Flags with their values go to the benchmark as they are, but for paths.
pub(crate) fn run(name: &str, flags: &[[String; 2]]) -> Result<(), Failure> {
    let benches = known()?;
    let Some(package) = benches.get(name) else {
        let hint = format!("name one of these: {}", list(&benches));
        return Err(Failure::usage(format!("there is no benchmark `{name}`"), hint));
    };
    if name == "proxy" {
        peers::unpack()?;
    }
    let mut call = Call::new(["cargo", "bench", "--package", package, "--bench", name]);
    if !flags.is_empty() {
        call = call.and(["--"]);
    }
    for [flag, value] in flags {
        // cargo starts a benchmark in its package's folder: a path is meant from here
        let path = std::path::absolute(value).map_err(|cause| unreadable(Path::new(value), &cause))?;
        let value = if flag == "--only" { value.clone() } else { path.to_string_lossy().into_owned() };
        call = call.and([flag.clone(), value]);
    }
    tell(&format!("==> {}", call.shown()));
    call.run()
}

/// Looks for the benchmarks of every crate.
pub(crate) fn known() -> Result<Benches, Failure> {
    find(&root().join("crates"))
}

/// Names them on one line.
pub(crate) fn list(benches: &Benches) -> String {
    if benches.is_empty() {
        return "(there is none yet)".to_owned();
    }
    benches.keys().map(String::as_str).collect::<Vec<_>>().join(" ")
}

fn find(crates: &Path) -> Result<Benches, Failure> {
    let mut benches = Benches::new();
    for folder in entries(crates)? {
        let Some(package) = package(&folder.join("Cargo.toml")) else { continue };
        let from = folder.join("benches");
        if !from.is_dir() {
            continue;
        }
        for file in entries(&from)? {
            if file.extension().is_some_and(|extension| extension == "rs")
                && let Some(name) = file.file_stem()
            {
                benches.insert(name.to_string_lossy().into_owned(), package.clone());
            }
        }
    }
    Ok(benches)
}

fn entries(folder: &Path) -> Result<Vec<std::path::PathBuf>, Failure> {
    let read = || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>();
    read().map_err(|cause| unreadable(folder, &cause))
}

fn package(manifest: &Path) -> Option<String> {
    let text = fs::read_to_string(manifest).ok()?;
    let line = text.lines().find(|line| line.starts_with("name = "))?;
    Some(line.split('"').nth(1)?.to_owned())
}

fn unreadable(path: &Path, cause: &std::io::Error) -> Failure {
    Failure::new(format!("`{}` cannot be read: {cause}", path.display()), "run from a whole checkout: git status")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benches_are_found_with_their_package() {
        let crates = std::env::temp_dir().join(format!("xtask-bench-{}", std::process::id()));
        let benches = crates.join("control/benches");
        fs::create_dir_all(&benches).unwrap();
        fs::create_dir_all(crates.join("core")).unwrap();
        fs::write(crates.join("core/Cargo.toml"), "[package]\nname = \"portolan-core\"\n").unwrap();
        fs::write(crates.join("control/Cargo.toml"), "[package]\nname = \"portolan-control\"\n").unwrap();
        fs::write(benches.join("runtime.rs"), "").unwrap();
        fs::write(benches.join("README.md"), "").unwrap();
        let found = find(&crates);
        fs::remove_dir_all(&crates).unwrap();
        assert_eq!(found, Ok(Benches::from([("runtime".to_owned(), "portolan-control".to_owned())])));
    }

    #[test]
    fn an_unknown_bench_is_a_usage_error_that_lists_the_known() {
        let failure = run("no-such-bench", &[]).expect_err("it is unknown");
        assert_eq!(failure.code, 2);
        assert!(failure.hint.contains(&list(&known().unwrap())), "{}", failure.hint);
    }
}
