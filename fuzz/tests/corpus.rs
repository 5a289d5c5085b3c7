//! The committed inputs, replayed.

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use portolan_fuzz::TARGETS;

#[test]
fn every_committed_input_keeps_the_laws() {
    let mut broken = Vec::new();
    for (name, run) in TARGETS {
        let inputs = entries(&corpus().join(name));
        assert!(inputs.len() >= 10, "{name} has {} inputs", inputs.len());
        for path in inputs {
            let bytes = fs::read(&path).unwrap();
            if catch_unwind(|| run(&bytes)).is_err() {
                broken.push(path.display().to_string());
            }
        }
    }
    assert!(broken.is_empty(), "laws are broken by\n{}", broken.join("\n"));
}

#[test]
fn every_corpus_has_its_target() {
    let folders: BTreeSet<String> =
        entries(&corpus()).iter().map(|path| path.file_name().unwrap().to_string_lossy().into_owned()).collect();
    assert_eq!(folders, TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect());
}

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(folder).expect("the folder can be read");
    found.map(|entry| entry.expect("an entry can be read").path()).collect()
}
