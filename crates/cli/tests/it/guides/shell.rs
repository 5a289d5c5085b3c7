//! The shell of a reader: a folder with the examples, a network of its own, and all programs on the search path.
//!
//! The network has nothing but loopback, so documents may name any port and any address of 127.0.0.0/8. Whatever is
//! started, in the background as well, ends with the shell, which ends with the test.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

use anyhow::Context as _;
use portolan_testkit::{Binaries, NetworkNamespace, envoy, helm};

use super::PATIENCE;
use crate::program;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const DONE: &str = "the command has ended with";

pub(super) struct Shell {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
    folder: tempfile::TempDir,
    _network: NetworkNamespace,
}

impl Shell {
    /// With this kubectl, and these addresses on the loopback link besides its own.
    pub(super) fn start(kubectl: &Path, addresses: &[&str]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let programs = folder.path().join("bin");
        std::fs::create_dir(&programs)?;
        let linked = [
            ("kubectl", kubectl.to_owned()),
            ("portolan", env!("CARGO_BIN_EXE_portolan").into()),
            ("helm", helm::program()?),
            ("envoy", envoy::binary()?),
        ];
        for (name, path) in linked {
            std::os::unix::fs::symlink(path, programs.join(name))?;
        }
        // as on a terminal; and servers that have just been started may not listen yet
        let curl = "silent\nretry = 120\nretry-delay = 1\nretry-connrefused\n";
        std::fs::write(folder.path().join(".curlrc"), curl)?;
        let network = NetworkNamespace::new("guide")?;
        for address in addresses {
            network.ip(&[&format!("address add {address} dev lo")])?;
        }
        let mut command = program(Path::new("setpriv"));
        command.args(["--pdeathsig", "KILL", "--", "nsenter", &format!("--net={}", network.path()), "--"]);
        command.args(["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "/bin/bash"]);
        command.current_dir(folder.path()).env("HOME", folder.path()).env("KUBECONFIG", "portolan.kubeconfig");
        // what a guide makes with mktemp goes with the folder, too
        command.env("TMPDIR", folder.path());
        command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", programs.display()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            anyhow::bail!("the shell has no pipes");
        };
        writeln!(input, "exec 2>&1; shopt -s expand_aliases")?;
        let (lines, read) = mpsc::channel();
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
        });
        let mut shell = Self { child, input, output: read, folder, _network: network };
        // copied, as guides write into these folders
        shell.succeed(&format!("cp -rL {ROOT}/examples {ROOT}/deploy ."))?;
        Ok(shell)
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Its exit code and what it prints.
    pub(super) fn run(&mut self, command: &str) -> anyhow::Result<(i32, Vec<String>)> {
        // it reads nothing that the shell is yet to read
        writeln!(self.input, "{{\n{command}\n}} </dev/null\necho \"{DONE} $?\"")?;
        self.input.flush()?;
        let end = Instant::now() + PATIENCE;
        let mut lines = Vec::new();
        loop {
            let line = self.output.recv_timeout(end.saturating_duration_since(Instant::now()));
            let line = line.with_context(|| format!("`{command}` does not end; it printed\n{}", lines.join("\n")))?;
            if let Some((before, exit)) = line.split_once(DONE) {
                // output may end without a newline
                lines.extend((!before.is_empty()).then(|| before.to_owned()));
                return Ok((exit.trim().parse()?, lines));
            }
            lines.push(line.trim_end().to_owned());
        }
    }

    /// The same for a command that must succeed.
    pub(super) fn succeed(&mut self, command: &str) -> anyhow::Result<Vec<String>> {
        let (exit, output) = self.run(command)?;
        anyhow::ensure!(exit == 0, "`{command}` exits {exit} and prints\n{}", output.join("\n"));
        Ok(output)
    }

    /// Starts what runs until it is stopped, with its output in a file of the folder.
    pub(super) fn start_server(&mut self, command: &str, log: &str) -> anyhow::Result<()> {
        let log = self.folder.path().join(log);
        self.succeed(&format!("{{ {command}\n}} > {} 2>&1 &", log.display())).map(drop)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        // unshare ends its child, the first process of its own, and so all others
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The kubectl of the tests.
pub(crate) fn newest_kubectl() -> anyhow::Result<PathBuf> {
    Ok(Binaries::locate()?.program("kubectl"))
}
