//! Runs `go build`, with its progress on standard error, and finds the sources of modules.

use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, IsTerminal, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};

use super::{GO_MODULE, kubernetes_version};

/// How often progress is written: on a terminal it replaces one line, elsewhere it adds one.
const EVERY_ON_TERMINAL: Duration = Duration::from_millis(500);
const EVERY_IN_LOG: Duration = Duration::from_secs(10);
/// How much of the compiler's output an error carries.
const TAIL: usize = 30;

pub(super) fn build(output: &Path) -> anyhow::Result<()> {
    let mut go = Command::new("go")
        .args(["build", "-v", "-trimpath", "-ldflags", &linker_flags(kubernetes_version()), "-o"])
        .arg(output)
        .arg(".")
        .current_dir(GO_MODULE)
        .env("CGO_ENABLED", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context(
            "starting `go` failed, and the Kubernetes binaries are built with it: \
             install Go 1.26 or later from https://go.dev/dl/, or name a folder with them in KUBEBUILDER_ASSETS",
        )?;
    let messages = go.stderr.take().context("standard error is a pipe")?;
    let (send, lines) = mpsc::sync_channel(64);
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(messages).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                return;
            }
        }
    });
    let tail = report(&lines);
    reader.join().ok().context("reading the output of `go build` failed")?;
    let status = go.wait()?;
    if !status.success() {
        bail!("`go build` in {GO_MODULE} failed ({status}):\n{}", tail.into_iter().collect::<Vec<_>>().join("\n"));
    }
    Ok(())
}

/// The folder with the sources of a Go module that the Kubernetes programs are built of, downloaded if need be.
pub(super) fn sources(module: &str) -> anyhow::Result<PathBuf> {
    let go = |arguments: &[&str]| {
        let output = Command::new("go").args(arguments).current_dir(GO_MODULE).output();
        let output = output.context("starting `go` failed: install Go 1.26 or later from https://go.dev/dl/")?;
        ensure!(output.status.success(), "go {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        anyhow::Ok(output.stdout)
    };
    go(&["mod", "download", module])?;
    let folder = String::from_utf8(go(&["list", "-m", "-f", "{{.Dir}}", module])?)?;
    Ok(PathBuf::from(folder.trim()))
}

/// Writes progress until the compiler has closed its output, and returns the end of that output.
fn report(lines: &mpsc::Receiver<String>) -> VecDeque<String> {
    let terminal = io::stderr().is_terminal();
    let every = if terminal { EVERY_ON_TERMINAL } else { EVERY_IN_LOG };
    let (started, mut next) = (Instant::now(), Instant::now());
    let (mut packages, mut tail) = (0_u32, VecDeque::with_capacity(TAIL));
    loop {
        if Instant::now() >= next {
            progress(terminal, packages, started.elapsed());
            next = Instant::now() + every;
        }
        match lines.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                packages += 1;
                if tail.len() == TAIL {
                    tail.pop_front();
                }
                tail.push_back(line);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    progress(terminal, packages, started.elapsed());
    if terminal {
        writeln!(io::stderr()).ok();
    }
    tail
}

fn progress(terminal: bool, packages: u32, elapsed: Duration) {
    let version = kubernetes_version();
    let seconds = elapsed.as_secs();
    let text = format!(
        "building Kubernetes {version}, which happens once: {packages} packages in {}:{:02}",
        seconds / 60,
        seconds % 60
    );
    // Progress that cannot be written is no reason to stop the build.
    if terminal { write!(io::stderr(), "\r{text}") } else { writeln!(io::stderr(), "{text}") }.ok();
}

/// Stamps the version where programs of Kubernetes read it.
pub(crate) fn linker_flags(version: &str) -> String {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let stamps = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"].map(|package| {
        format!("-X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}")
    });
    format!("-s -w {}", stamps.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_stamped_where_kubernetes_reads_it() {
        let flags = linker_flags("v1.36.4");
        assert!(flags.contains("-X k8s.io/component-base/version.gitMinor=36"), "{flags}");
        assert!(flags.contains("-X k8s.io/client-go/pkg/version.gitVersion=v1.36.4"), "{flags}");
    }
}
