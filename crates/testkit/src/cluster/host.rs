//! A host of the cluster: network, processes and mounts of its own, which all end with its first process.
//!
//! The kernel kills every process of a process namespace when the first one ends, and the first one ends with the test:
//! containers and their shims, which are nobody's children, cannot be left behind, nor their mounts and links.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};

use crate::{
    network_namespace::{NetworkNamespace, finished},
    program::Program,
};

/// How long the first process may take to appear.
const LIMIT: Duration = Duration::from_secs(10);

/// A running host; it ends when dropped.
pub struct Host {
    network: NetworkNamespace,
    first_process: u32,
    /// Dropped before the first process, which would take them along anyhow.
    programs: Vec<Program>,
    _unshare: Program,
}

impl Host {
    /// Starts a host in which nothing runs yet, and whose only link is loopback.
    pub(super) fn start(name: &str, test_app: &Path, folder: &Path) -> anyhow::Result<Self> {
        // Files whose paths are fixed in the programs: each host has its own.
        let mounts = "for at in /run /var/log /var/lib /opt; do mount -t tmpfs tmpfs $at; done && exec \"$0\" pause";
        let arguments = ["--net", "--pid", "--mount", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc", "--"];
        let mut arguments: Vec<String> = arguments.map(String::from).into();
        arguments.extend(["sh", "-c", mounts].map(String::from));
        arguments.push(test_app.display().to_string());
        let unshare = Program::start(name, Path::new("unshare"), &arguments, folder)?;
        let first_process = only_child(&unshare).with_context(|| format!("{name}: {}", unshare.log_tail()))?;
        let network = NetworkNamespace::of_process(name, first_process)?;
        let host = Self { network, first_process, programs: Vec::new(), _unshare: unshare };
        host.ip(&["link set lo up"])?;
        Ok(host)
    }

    /// Its name, which is that of its node if it is one.
    pub fn name(&self) -> &str {
        self.network.name()
    }

    /// The id of its first process, for `nsenter --target`.
    pub fn first_process(&self) -> u32 {
        self.first_process
    }

    /// A command that runs on the host, with its network, processes and mounts.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(self.enter()).arg(program).stdin(Stdio::null());
        command
    }

    /// Runs a command on the host to its end; a bad exit is an error with what it wrote.
    pub fn run(&self, words: &[&str]) -> anyhow::Result<String> {
        let (program, arguments) = words.split_first().context("a command names its program")?;
        let output = self.command(program).args(arguments).output().context("starting `nsenter` failed")?;
        finished(&format!("`{}` on {}", words.join(" "), self.name()), &output)
    }

    /// Runs lines of `ip` in the host's network alone, so that process ids in them are those of the caller.
    pub fn ip(&self, lines: &[&str]) -> anyhow::Result<()> {
        self.network.ip(lines)
    }

    /// Starts a program on the host that ends with it.
    pub(super) fn start_program(&mut self, name: &str, words: &[String], folder: &Path) -> anyhow::Result<()> {
        // Entering the host's mounts leads to its root: what a program writes must not land there.
        let mut arguments = vec![format!("--wdns={}", folder.display())];
        arguments.extend(self.enter());
        // A node whose kubelet waits for a compiler of the same machine would be lost.
        arguments.extend(["nice", "--adjustment=-10"].map(String::from));
        arguments.extend(words.iter().cloned());
        self.programs.push(Program::start(name, Path::new("nsenter"), &arguments, folder)?);
        Ok(())
    }

    /// A program that has ended, with the end of its log: all of them should run as long as the host.
    pub(super) fn ended(&mut self) -> Option<String> {
        let name = self.network.name();
        self.programs.iter_mut().find_map(|program| match program.ended() {
            Ok(None) => None,
            _ => Some(format!("{} on {name} has ended:\n{}", program.name(), program.log_tail())),
        })
    }

    fn enter(&self) -> Vec<String> {
        enter(self.first_process)
    }
}

/// The arguments of `nsenter` for the host with this first process.
pub(super) fn enter(first_process: u32) -> Vec<String> {
    let target = first_process.to_string();
    ["--target", &target, "--net", "--pid", "--mount", "--uts", "--ipc", "--"].map(String::from).into()
}

/// Waits until `unshare` has its one child.
fn only_child(unshare: &Program) -> anyhow::Result<u32> {
    let id = unshare.id();
    let deadline = Instant::now() + LIMIT;
    loop {
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        // The shell is replaced by the program that waits once the mounts are made.
        let child = children.split_whitespace().next().and_then(|child| child.parse().ok());
        if let Some(child) = child.filter(|child| is_pausing(*child)) {
            return Ok(child);
        }
        ensure!(Instant::now() < deadline, "its first process did not start: are we root?");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_pausing(process: u32) -> bool {
    fs::read(format!("/proc/{process}/cmdline"))
        .is_ok_and(|line| line.ends_with(b"\0pause\0") && !line.starts_with(b"sh\0"))
}
