use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Ran, portolan};

#[test]
fn the_committed_reference_is_what_the_binary_prints() {
    let Ran { exit, stdout, .. } = portolan("reference");
    assert_eq!(exit, Some(0));
    let committed = fs::read_to_string(root().join("docs/reference/cli.md")).unwrap_or_default();
    assert!(committed == stdout, "docs/reference/cli.md is stale: run `cargo xtask docs`");
}

#[test]
fn the_committed_definitions_are_what_the_binary_writes() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("crds");
    drop(fs::remove_dir_all(&folder));
    let Ran { exit, .. } = portolan(&format!("crds --output-dir {}", folder.display()));
    assert_eq!(exit, Some(0));
    assert!(files(&root().join("deploy/crds")) == files(&folder), "deploy/crds is stale: run `cargo xtask crds`");
}

#[test]
fn the_committed_manifests_are_what_the_binary_writes() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("deploy");
    drop(fs::remove_dir_all(&folder));
    for part in ["manifests", "chart", "chart/templates"] {
        fs::create_dir_all(folder.join(part)).expect("the folder is ours");
        for (name, text) in texts(&root().join("deploy").join(part)) {
            fs::write(folder.join(part).join(name), text).expect("the folder is ours");
        }
    }
    let Ran { exit, stdout, stderr } = portolan(&format!("manifests --deploy {}", folder.display()));
    assert_eq!(exit, Some(0), "{stderr}");
    for file in stdout.lines() {
        let inside = Path::new(file).strip_prefix(&folder).expect("it was told to write there");
        let committed = fs::read_to_string(root().join("deploy").join(inside)).unwrap_or_default();
        let written = fs::read_to_string(file).expect("it was written");
        assert!(committed == written, "deploy/{} is stale: run `cargo xtask manifests`", inside.display());
    }
    assert_eq!(stdout.lines().count(), 8, "{stdout}");
}

/// Every file of a folder with its text.
fn texts(folder: &Path) -> BTreeMap<PathBuf, String> {
    let entries = fs::read_dir(folder).expect("the folder can be read").map(|entry| entry.expect("it is there").path());
    let files = entries.filter(|path| path.is_file());
    files
        .map(|path| {
            (PathBuf::from(path.file_name().expect("it has a name")), fs::read_to_string(&path).expect("it is text"))
        })
        .collect()
}

/// The YAML files of a folder with their texts; a folder that is not there has none.
fn files(folder: &Path) -> BTreeMap<PathBuf, String> {
    let Ok(entries) = fs::read_dir(folder) else { return BTreeMap::new() };
    entries
        .map(|entry| entry.expect("the folder can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .map(|path| {
            let name = path.file_name().map(PathBuf::from).expect("a file has a name");
            (name, fs::read_to_string(&path).expect("YAML is text"))
        })
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
