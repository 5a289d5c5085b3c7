//! What is inside the program, as a CycloneDX document: the crates that are compiled into it, with licence and checksum.

use std::{collections::BTreeMap, path::Path, process::Command};

use anyhow::{Context, ensure};
use serde_json::{Value, json};

/// The document for a package of the workspace in this folder.
pub fn of_package(package: &str, workspace: &Path) -> anyhow::Result<Value> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["tree", "--locked", "--package", package, "--edges", "normal", "--prefix", "none"])
        .args(["--format", "{p}|{l}"])
        .current_dir(workspace)
        .output()
        .context("starting `cargo tree` failed")?;
    ensure!(output.status.success(), "`cargo tree` failed: {}", String::from_utf8_lossy(&output.stderr));
    let lock = std::fs::read_to_string(workspace.join("Cargo.lock")).context("reading Cargo.lock failed")?;
    document(package, &String::from_utf8(output.stdout)?, &checksums(&lock))
}

/// Lines are `name vVERSION (where)|licence`; a crate that was listed before ends in `(*)`.
fn document(package: &str, tree: &str, checksums: &BTreeMap<(String, String), String>) -> anyhow::Result<Value> {
    let mut crates = BTreeMap::new();
    for line in tree.lines().filter(|line| !line.trim().is_empty()) {
        let (what, licence) = line.split_once('|').with_context(|| format!("`cargo tree` says `{line}`"))?;
        let mut words = what.split_whitespace();
        let (name, version) = words.next().zip(words.next()).with_context(|| format!("`cargo tree` says `{line}`"))?;
        let licence = licence.trim_end_matches("(*)").trim();
        crates.insert((name.to_owned(), version.trim_start_matches('v').to_owned()), licence.to_owned());
    }
    let program = crates.keys().find(|(name, _)| name == package).cloned();
    let program = program.with_context(|| format!("`cargo tree` does not list {package}"))?;
    let licence = crates.remove(&program).unwrap_or_default();
    let components: Vec<Value> =
        crates.iter().map(|(key, licence)| component("library", key, licence, checksums.get(key))).collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": component("application", &program, &licence, None) },
        "components": components,
    }))
}

fn component(kind: &str, (name, version): &(String, String), licence: &str, checksum: Option<&String>) -> Value {
    // A crate without a checksum is one of this workspace, and on no registry.
    let purl = format!("pkg:cargo/{name}@{version}");
    let mut component = json!({ "type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl });
    if !licence.is_empty() {
        // Some crates still write the slash that older manifests used for OR.
        component["licenses"] = json!([{ "expression": licence.replace(" / ", " OR ").replace('/', " OR ") }]);
    }
    if let Some(checksum) = checksum {
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

/// The checksums in a Cargo.lock, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |package: &str, field: &str| {
        let line = package.lines().find_map(|line| line.strip_prefix(field)?.trim().strip_prefix('='));
        line.map(|text| text.trim().trim_matches('"').to_owned())
    };
    let packages = lock.split("[[package]]").skip(1);
    packages.filter_map(|one| Some(((value(one, "name")?, value(one, "version")?), value(one, "checksum")?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_listed_once_with_licence_and_checksum() {
        let tree = "portolan v0.1.0 (/somewhere/crates/cli)|Apache-2.0\nbytes v1.2.3|MIT\nold v0.1.0|MIT/Apache-2.0\n\
                    bytes v1.2.3|MIT (*)\n";
        let lock = "[[package]]\nname = \"bytes\"\nversion = \"1.2.3\"\nchecksum = \"abcd\"\n\n[[package]]\nname = \"old\"\n\
                    version = \"0.1.0\"\n";
        let document = document("portolan", tree, &checksums(lock)).unwrap();
        assert_eq!(document["metadata"]["component"]["version"], "0.1.0");
        let components = document["components"].as_array().unwrap();
        assert_eq!(components.len(), 2);
        assert_eq!(components[0]["hashes"][0]["content"], "abcd");
        assert_eq!(components[1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert!(!document.to_string().contains("somewhere"), "no path of this machine");
    }
}
