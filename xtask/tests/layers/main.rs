//! What may know what, as DESIGN.md draws it: packages first, then folders inside `core` and `control`.
//!
//! ```text
//! cli -> control -> drivers, proxy -> core        api, certs and core know none of ours; apiserver knows certs
//! ```
//!
//! Packages are judged by what cargo itself says of their dependencies, folders by the paths in their sources
//! ([`scan`]), and the files of every crate by the circles that their imports form ([`circles`]). A rule is a row in a
//! table here; each kind of rule is shown to fail on a forbidden sample.

mod circles;
mod scan;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use circles::Crate;
use scan::{Source, Use};

/// One of our packages, and which others of ours it may depend on outside its tests.
struct Layer {
    package: &'static str,
    knows: &'static [&'static str],
}

const LAYERS: &[Layer] = &[
    Layer { package: "portolan-core", knows: &[] },
    Layer { package: "portolan-api", knows: &[] },
    Layer { package: "portolan-drivers", knows: &["portolan-core"] },
    Layer { package: "portolan-proxy", knows: &["portolan-core"] },
    Layer {
        package: "portolan-control",
        knows: &["portolan-api", "portolan-certs", "portolan-core", "portolan-drivers", "portolan-proxy"],
    },
    Layer { package: "portolan-certs", knows: &[] },
    Layer { package: "portolan-apiserver", knows: &["portolan-certs"] },
    Layer {
        package: "portolan-simulator",
        knows: &["portolan-api", "portolan-apiserver", "portolan-control", "portolan-core", "portolan-drivers"],
    },
    Layer { package: "portolan-bench", knows: &[] },
    Layer {
        package: "portolan-testkit",
        knows: &[
            "portolan-api",
            "portolan-bench",
            "portolan-certs",
            "portolan-apiserver",
            "portolan-core",
            "portolan-drivers",
        ],
    },
    Layer {
        package: "portolan",
        knows: &[
            "portolan-api",
            "portolan-apiserver",
            "portolan-control",
            "portolan-core",
            "portolan-drivers",
            "portolan-proxy",
            "portolan-simulator",
        ],
    },
    Layer {
        package: "portolan-fuzz",
        knows: &["portolan-apiserver", "portolan-core", "portolan-drivers", "portolan-proxy"],
    },
    Layer { package: "xtask", knows: &[] },
];

/// What the pure crate may depend on outside its tests: data and small algorithms, no I/O, clock or Kubernetes.
const PURE: &[&str] =
    &["hashbrown", "ipnet", "prefix-trie", "regex", "serde", "serde_json", "sha2", "thiserror", "xxhash-rust"];

/// Folders of `control` that never import one another.
const CONTROL: &[&str] = &["gateway", "gateway_client", "egress", "ipam", "mirror", "mesh", "agent"];
/// Folders of `core` that never import one another, and that `control`'s folder of another name leaves alone.
const CORE: &[&str] = &["gateway", "gateway_client", "egress", "ipam", "mirror", "mesh"];
/// Folders below all capabilities: they never import one.
const SHARED: &[&str] = &["runtime", "net", "pick", "hash"];
/// Files of a capability folder that may hold a client or a writer; all others only compute. A name that ends in a
/// slash is a folder. `mod.rs` passes the client on, `answers.rs`, `query.rs`, `why.rs` and `snapshot.rs` read for queries,
/// `doctor` reads, and repairs what a user has agreed to, `rest/writes.rs` of gateway writes what REST clients send, and `slices.rs` and `tunnels.rs` of egress write the kind that
/// they are named after.
const MAY_HOLD_CLIENT: &[&str] = &[
    "mod.rs",
    "act.rs",
    "act/",
    "remote/",
    "status.rs",
    "events.rs",
    "webhooks.rs",
    "query.rs",
    "why.rs",
    "snapshot.rs",
    "doctor.rs",
    "doctor/",
    "rest/writes.rs",
];
/// The types that reach the API server.
const CLIENTS: &[&str] = &["Client", "Api", "Writer"];

/// Files of one crate that may depend on each other in a circle, at most.
const LARGEST_CIRCLE: usize = 3;
/// Larger circles that still exist: the crate, and the number of files in each. A row that is no longer needed fails
/// the test, so that the table shrinks with them.
const KNOWN_CIRCLES: &[(&str, &[usize])] = &[];

#[test]
fn packages_depend_only_on_what_the_design_allows() {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version=1"])
        .current_dir(root())
        .output()
        .expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let found = check_packages(&dependencies(&metadata));
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn folders_import_only_what_the_design_allows() {
    let (mut files, mut found) = (0, Vec::new());
    for (krate, capabilities) in [("core", CORE), ("control", CONTROL)] {
        let sources = root().join("crates").join(krate).join("src");
        for path in rust_files(&sources) {
            let inside = path.strip_prefix(&sources).expect("it was found there");
            let text = fs::read_to_string(&path).expect("a source is text");
            let findings = check_file(krate, capabilities, inside, &text);
            found.extend(findings.into_iter().map(|finding| format!("crates/{krate}/src/{finding}")));
            files += 1;
        }
    }
    assert!(files > 0, "no source was found: the check looked in the wrong place");
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn files_do_not_import_each_other_in_circles() {
    let mut found = Vec::new();
    for krate in fs::read_dir(root().join("crates")).expect("the workspace has crates") {
        let folder = krate.expect("the folder can be read").path();
        let krate = folder.file_name().expect("a crate's folder has a name").to_string_lossy().into_owned();
        let known = KNOWN_CIRCLES.iter().find(|(of, _)| *of == krate).map_or(&[][..], |(_, sizes)| sizes);
        found.extend(check_circles(&krate, &read_crate(&folder.join("src")), known));
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

fn read_crate(sources: &Path) -> Crate {
    Crate::read(rust_files(sources).into_iter().filter_map(|path| {
        let inside = path.strip_prefix(sources).expect("it was found there");
        let module = module_of(inside);
        // a program beside a library is a crate of its own
        let is_other_root = module.is_empty() && inside != Path::new("lib.rs") && sources.join("lib.rs").exists();
        let text = fs::read_to_string(&path).expect("a source is text");
        (!is_other_root && !inside.starts_with("bin")).then(|| (inside.display().to_string(), module, text))
    }))
}

/// Judges the circles of a crate by their sizes.
fn check_circles(krate: &str, sources: &Crate, known: &[usize]) -> Vec<String> {
    let circles: Vec<_> = sources.circles().into_iter().filter(|circle| circle.files.len() > LARGEST_CIRCLE).collect();
    let sizes: Vec<usize> = circles.iter().map(|circle| circle.files.len()).collect();
    let mut found = Vec::new();
    for (place, circle) in circles.iter().enumerate() {
        if known.get(place).is_none_or(|known| sizes[place] > *known) {
            found.push(format!(
                "crates/{krate}/src: {} files import each other in a circle: {}\n    {}",
                sizes[place],
                circle.files.join(", "),
                circle.edges.join("\n    ")
            ));
        }
    }
    if found.is_empty() && sizes != known {
        found.push(format!("KNOWN_CIRCLES says {known:?} for `{krate}`, but there are {sizes:?}: lower it"));
    }
    found
}

/// A dependency of a package, as cargo names it.
struct Dependency {
    package: String,
    on: String,
    /// Whether only tests, examples and benchmarks see it.
    dev: bool,
}

fn dependencies(metadata: &serde_json::Value) -> Vec<Dependency> {
    let packages = metadata["packages"].as_array().expect("cargo lists packages");
    let mut all = Vec::new();
    for package in packages {
        let name = package["name"].as_str().expect("a package has a name");
        // a package without dependencies is still one of the workspace
        all.push(Dependency { package: name.to_owned(), on: name.to_owned(), dev: true });
        for dependency in package["dependencies"].as_array().expect("cargo lists dependencies") {
            let on = dependency["name"].as_str().expect("a dependency has a name").to_owned();
            all.push(Dependency { package: name.to_owned(), on, dev: dependency["kind"] == "dev" });
        }
    }
    all
}

fn check_packages(dependencies: &[Dependency]) -> Vec<String> {
    let mut found = BTreeSet::new();
    for Dependency { package, on, dev } in dependencies {
        let Some(layer) = LAYERS.iter().find(|layer| layer.package == package) else {
            found.insert(format!("{package}: has no row in LAYERS: say what it may know"));
            continue;
        };
        if *dev {
            continue;
        }
        let ours = on.starts_with("portolan") || on == "xtask";
        if on == "portolan-testkit" {
            found.insert(format!("{package}: portolan-testkit is a dev-dependency only"));
        } else if ours && !layer.knows.contains(&on.as_str()) {
            found.insert(format!("{package}: may not depend on {on}"));
        } else if !ours && package == "portolan-core" && !PURE.contains(&on.as_str()) {
            found.insert(format!("{package}: may not depend on {on}: it stays pure"));
        }
    }
    found.into_iter().collect()
}

/// Judges one file of `core` or `control` by the paths it names; `inside` is relative to the crate's `src`.
fn check_file(krate: &str, capabilities: &[&str], inside: &Path, text: &str) -> Vec<String> {
    let module = module_of(inside);
    let Some(folder) = module.first().map(String::as_str) else { return Vec::new() };
    let capability = capabilities.contains(&folder);
    if !capability && !SHARED.contains(&folder) {
        return Vec::new();
    }
    let source = Source::scan(text, &module);
    let mut found = BTreeSet::new();
    let mut blame = |line: usize, why: &str| found.insert(format!("{}:{line}: {why}", inside.display()));

    for Use { line, path, whole, .. } in &source.uses {
        let (place, other) = match path.first().map(String::as_str) {
            Some("crate") => ("", capabilities),
            // the agent is no capability of core's: it may serve any of them
            Some("portolan_core") if krate == "control" && folder != "agent" => ("core's ", CORE),
            _ => continue,
        };
        match path.get(1) {
            Some(to) if to != folder && other.contains(&to.as_str()) => {
                blame(*line, &format!("`{folder}` may not import {place}`{to}`: move what both need down"));
            }
            None if *whole => {
                blame(*line, &format!("`{folder}` takes in all of {place}root: name the modules it needs"));
            }
            _ => (),
        }
    }
    if krate == "control" && capability && folder != "agent" && !may_hold_client(inside) {
        for (line, word) in source.words.iter().filter(|(_, word)| CLIENTS.contains(&word.as_str())) {
            blame(*line, &format!("names `{word}`: only the files in MAY_HOLD_CLIENT hold a client"));
        }
    }
    found.into_iter().collect()
}

/// Whether a file of a capability folder may hold a client.
fn may_hold_client(inside: &Path) -> bool {
    let in_folder: Vec<_> = inside.iter().skip(1).map(|part| part.to_string_lossy()).collect();
    let Some(first) = in_folder.first() else { return true };
    MAY_HOLD_CLIENT.iter().any(|allowed| match allowed.strip_suffix('/') {
        Some(folder) => in_folder.len() > 1 && first == folder,
        None => in_folder.join("/") == **allowed,
    })
}

/// The module that a file is, as seen from its crate's root.
fn module_of(inside: &Path) -> Vec<String> {
    let mut module: Vec<String> =
        inside.with_extension("").iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if module.last().is_some_and(|last| matches!(last.as_str(), "mod" | "lib" | "main")) {
        module.pop();
    }
    module
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("the crate has sources") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

#[test]
fn forbidden_packages_are_found() {
    for (package, on) in [
        ("portolan-core", "tokio"),
        ("portolan-core", "kube"),
        ("portolan-core", "portolan-api"),
        ("portolan-api", "portolan-core"),
        ("portolan-drivers", "portolan-api"),
        ("portolan-proxy", "portolan-drivers"),
        ("portolan-control", "portolan-apiserver"),
        ("portolan-control", "portolan-testkit"),
        ("portolan-apiserver", "portolan-api"),
        ("portolan", "portolan-testkit"),
        ("portolan-unheard-of", "serde"),
    ] {
        let found = check_packages(&[depends(package, on, false)]);
        assert_eq!(found.len(), 1, "{package} on {on}: {found:?}");
    }
}

#[test]
fn allowed_packages_are_not_found() {
    for (package, on, dev) in [
        ("portolan-core", "ipnet", false),
        ("portolan-core", "proptest", true),
        ("portolan-control", "portolan-core", false),
        ("portolan-control", "portolan-testkit", true),
        ("portolan-control", "tokio", false),
        ("portolan", "portolan-apiserver", false),
    ] {
        assert_eq!(check_packages(&[depends(package, on, dev)]), Vec::<String>::new(), "{package} on {on}");
    }
}

#[test]
fn forbidden_imports_are_found() {
    for (krate, file, text) in [
        ("control", "gateway/act.rs", "use crate::egress::act;"),
        ("control", "gateway/act.rs", "use crate::{runtime::store, egress::{act, status as s}};"),
        ("control", "gateway/act.rs", "fn f() { crate::egress::act::apply() }"),
        ("control", "gateway/act.rs", "use super::super::egress;"),
        ("control", "gateway/mod.rs", "use super::egress;"),
        ("control", "gateway/act.rs", "mod tests { use super::super::super::egress::x; }"),
        ("control", "gateway/act.rs", "use portolan_core::egress::Plan;"),
        ("control", "gateway/act.rs", "type P = ::portolan_core::egress::Plan;"),
        ("control", "gateway/act.rs", "use crate::*;"),
        ("control", "gateway/act.rs", "use crate as all;"),
        ("control", "gateway/act.rs", "use crate::{self as all};"),
        ("control", "gateway/act.rs", "use portolan_core::{self as pure};"),
        ("control", "gateway/act.rs", "macro_rules! m { () => { $crate::mesh::x() } }"),
        ("control", "gateway.rs", "use crate::mesh;"),
        ("control", "agent/mod.rs", "use crate::egress;"),
        ("control", "runtime/queue.rs", "use crate::mirror;"),
        ("control", "gateway/observe.rs", "use kube::Client;"),
        ("control", "gateway/observe.rs", "fn f(nodes: &kube::Api<Node>) {}"),
        ("control", "gateway/validate.rs", "use kube::{api::Api, ResourceExt};"),
        ("control", "gateway/model.rs", "use crate::runtime::write::Writer;"),
        ("control", "gateway/validate/act.rs", "use kube::Client;"),
        ("core", "egress/plan.rs", "use crate::ipam::types::Zone;"),
        ("core", "net/pool.rs", "use crate::ipam::types::Zone;"),
    ] {
        let found = check(krate, file, text);
        assert_eq!(found.len(), 1, "{file}: {text}\n{found:?}");
        assert!(found[0].starts_with(&format!("{file}:1: ")), "{found:?}");
    }
}

#[test]
fn allowed_imports_are_not_found() {
    for (krate, file, text) in [
        ("control", "gateway/act.rs", "use crate::gateway::status; use crate::runtime::store;"),
        ("control", "gateway/act.rs", "use super::{status, super::runtime};"),
        ("control", "gateway/act.rs", "use portolan_core::{gateway::Plan, net::Pool};"),
        ("control", "gateway/act.rs", "// use crate::egress;\n/* crate::egress /* nested */ crate::mesh */"),
        ("control", "gateway/act.rs", "const A: &str = \"crate::egress\"; const B: &str = r#\"crate::\"mesh\"#;"),
        ("control", "gateway/act.rs", "fn f<'a>(x: &'a str) -> char { 'c' } // crate::egress"),
        ("control", "gateway/act.rs", "let egress = my::egress::x; mod egress {} self::egress::y();"),
        ("control", "gateway/act.rs", "use kube::Client;"),
        ("control", "gateway/act/claims.rs", "use crate::runtime::write::Writer;"),
        ("control", "gateway.rs", "use kube::Client;"),
        ("core", "mesh/client.rs", "struct Client;"),
        ("control", "gateway/observe.rs", "use kube::ResourceExt; struct ApiKey; // Client"),
        ("control", "agent/mod.rs", "use portolan_core::egress::Plan;"),
        ("control", "lib.rs", "use crate::{egress, gateway};"),
        ("control", "operator.rs", "use crate::{egress, gateway};"),
        ("core", "egress/plan.rs", "use crate::{egress::types::World, net::Pool};"),
    ] {
        assert_eq!(check(krate, file, text), Vec::<String>::new(), "{file}: {text}");
    }
}

fn check(krate: &str, file: &str, text: &str) -> Vec<String> {
    check_file(krate, if krate == "core" { CORE } else { CONTROL }, Path::new(file), text)
}

#[test]
fn circles_beyond_the_table_are_found_and_so_are_rows_that_are_too_generous() {
    let files = ["a", "b", "c", "d"].iter().zip(["b", "c", "d", "a"]).map(|(own, next)| {
        (format!("{own}.rs"), vec![(*own).to_owned()], format!("use crate::{next}::X; pub struct X;"))
    });
    let sources = Crate::read(files);
    assert_eq!(check_circles("x", &sources, &[4]), Vec::<String>::new());
    let found = check_circles("x", &sources, &[]);
    assert!(found[0].contains("4 files import each other in a circle: a.rs, b.rs, c.rs, d.rs"), "{found:?}");
    assert!(found[0].contains("d.rs:1 -> a.rs (crate::a::X)"), "{found:?}");
    for generous in [&[5][..], &[4, 4]] {
        assert!(check_circles("x", &sources, generous)[0].contains("lower it"), "{generous:?}");
    }
}

fn depends(package: &str, on: &str, dev: bool) -> Dependency {
    Dependency { package: package.to_owned(), on: on.to_owned(), dev }
}
