//! `portolan-proxy` as a process of its own, and an HTTP client for its API.

use super::lab::{LONG, free_port, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub(super) struct Program {
    child: Child,
    pub api: SocketAddr,
    pub dir: tempfile::TempDir,
}

impl Program {
    /// Starts it with flags and a file, and waits until it is ready.
    pub(super) fn start(flags: &[&str], config: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), flags, config)
    }

    /// Starts it with so many descriptors, and no way to more.
    pub(super) fn start_with_files(files: u32, flags: &[&str], config: &str) -> Self {
        let limit = format!("--nofile={files}");
        Self::start_by(&["prlimit", &limit, "--"], tempfile::tempdir().unwrap(), flags, config)
    }

    pub(super) fn start_in(dir: tempfile::TempDir, flags: &[&str], config: &str) -> Self {
        Self::start_by(&[], dir, flags, config)
    }

    fn start_by(starter: &[&str], dir: tempfile::TempDir, flags: &[&str], config: &str) -> Self {
        std::fs::write(dir.path().join("proxy.yaml"), config).unwrap();
        let api = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let listen = api.to_string();
        let words = [&["-c", "proxy.yaml", "--api", &listen], flags].concat();
        let child = spawn_by(starter, dir.path(), &words);
        let mut program = Self { child, api, dir };
        until("the proxy to be ready", || {
            assert!(program.exit_code().is_none(), "it ended: {}", program.log());
            TcpStream::connect(api).is_ok() && program.get("/readyz").0 == 200
        });
        program
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Bytes of memory that the process has.
    pub(super) fn resident(&self) -> usize {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.id())).unwrap();
        statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
    }

    /// How long its threads ran so far.
    pub(super) fn processor_time(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
        let ran = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok());
        Duration::from_nanos(ran.map(|stat| stat.split(' ').next().unwrap().parse::<u64>().unwrap()).sum())
    }

    pub(super) fn rewrite(&self, config: &str) {
        std::fs::write(self.dir.path().join("proxy.yaml"), config).unwrap();
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops all of its threads until it gets `SIGCONT`.
    pub(super) fn pause(&self) {
        self.signal(Signal::STOP);
        let threads =
            || std::fs::read_dir(format!("/proc/{}/task", self.id())).unwrap().map(|task| task.unwrap().path());
        let is_stopped = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('T'));
        until("the proxy to be stopped", || {
            threads().all(|task| std::fs::read_to_string(task.join("stat")).is_ok_and(is_stopped))
        });
    }

    /// How it ended, if it did.
    pub(super) fn exit_code(&mut self) -> Option<i32> {
        self.child.try_wait().unwrap().map(|status| status.code().unwrap_or(-1))
    }

    /// Waits for its end.
    pub(super) fn ended(&mut self) -> i32 {
        until("the process to end", || self.exit_code().is_some());
        self.exit_code().unwrap()
    }

    /// What it wrote on stdout and stderr.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Asks the API over its own socket.
    pub(super) fn get(&self, target: &str) -> (u16, String) {
        http(self.api, &format!("GET {target}"), "", "")
    }

    pub(super) fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(&format!("/api/v1{path}"));
        assert_eq!(status, 200, "GET {path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Posts a body in YAML, as JSON is too.
    pub(super) fn post(&self, path: &str, body: &str) {
        let (status, answer) = http(self.api, &format!("POST /api/v1{path}"), "text/yaml", body);
        assert_eq!(status, 200, "POST {path} {body}: {answer}");
    }

    pub(super) fn delete(&self, path: &str) -> (u16, String) {
        http(self.api, &format!("DELETE /api/v1{path}"), "", "")
    }

    /// A counter or a whole number of `/metrics`; zero where there is none.
    pub(super) fn metric(&self, sample: &str) -> u64 {
        let (_, text) = self.get("/metrics");
        let value = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or(0)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.exit_code().is_none() {
            self.child.kill().ok();
            self.child.wait().ok();
        }
    }
}

/// Starts it in a folder with nothing in its environment; it dies with this thread.
pub(super) fn spawn(folder: &Path, words: &[&str]) -> Child {
    spawn_by(&[], folder, words)
}

/// The same, by another program that becomes it.
#[expect(clippy::disallowed_methods, reason = "the test is about the program as it is started")]
fn spawn_by(starter: &[&str], folder: &Path, words: &[&str]) -> Child {
    let log = File::create(folder.join("log")).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).args(starter);
    command.arg(env!("CARGO_BIN_EXE_portolan-proxy")).args(words);
    command.current_dir(folder).env_clear().stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    command.spawn().expect("setpriv of util-linux starts it")
}

/// One request on a connection of its own.
pub(super) fn http(at: SocketAddr, line: &str, kind: &str, body: &str) -> (u16, String) {
    try_http(at, line, kind, body).unwrap_or_else(|error| panic!("{line}: {error}"))
}

pub(super) fn try_http(at: SocketAddr, line: &str, kind: &str, body: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(LONG))?;
    let kind = if kind.is_empty() { String::new() } else { format!("Content-Type: {kind}\r\n") };
    let length = body.len();
    write!(
        stream,
        "{line} HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n{kind}Content-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok((status.ok_or(std::io::ErrorKind::InvalidData)?, body.to_owned()))
}
