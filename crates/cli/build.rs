//! Tells the program which commit it was built from, for `portolan --version`.
//!
//! The commit is read from the checkout's files, so that no `git` is needed; outside a checkout it stays
//! unknown. Whoever builds from an archive sets `PORTOLAN_COMMIT` instead.

use std::fs;
use std::path::{Path, PathBuf};

/// Enough digits to find the commit by.
const DIGITS: usize = 12;

fn main() {
    println!("cargo::rerun-if-env-changed=PORTOLAN_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var_os("PORTOLAN_COMMIT").is_some() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if let Some(commit) = git_folder(&root).and_then(|git| head(&git)) {
        println!("cargo::rustc-env=PORTOLAN_COMMIT={}", &commit[..commit.len().min(DIGITS)]);
    }
}

/// The folder with `HEAD`: in a second work tree, `.git` is a file that names it.
fn git_folder(root: &Path) -> Option<PathBuf> {
    let git = root.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let text = read(&git)?;
    Some(root.join(text.strip_prefix("gitdir:")?.trim()))
}

fn head(git: &Path) -> Option<String> {
    let head = read(&git.join("HEAD"))?;
    let Some(branch) = head.strip_prefix("ref:").map(str::trim) else { return commit(&head) };
    let common = read(&git.join("commondir")).map_or_else(|| git.to_owned(), |to| git.join(to.trim()));
    let loose = common.join(branch);
    if !loose.exists() {
        // the branch's own file comes to be with its next commit: watch for it
        watch(loose.parent()?);
    }
    read(&loose).as_deref().and_then(commit).or_else(|| {
        let packed = read(&common.join("packed-refs"))?;
        let line = packed.lines().find(|line| line.split_whitespace().nth(1) == Some(branch))?;
        commit(line)
    })
}

fn commit(text: &str) -> Option<String> {
    let word = text.split_whitespace().next()?;
    (word.len() >= DIGITS && word.chars().all(|c| c.is_ascii_hexdigit())).then(|| word.to_owned())
}

fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    watch(path);
    Some(text)
}

/// Runs this again when the path changes; a path that is not there would run it every time.
fn watch(path: &Path) {
    if path.exists() {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}
