//! Starts programs that die with this process, however it dies.
//!
//! The kernel's parent-death signal does that also after `kill -9`, and for statics that never drop. It
//! follows the *thread* that started the program, so one spawner thread that never ends starts them all: a
//! test's own thread ends with the test.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{OnceLock, mpsc},
};

use anyhow::Context;
use rustix::process::Pid;
pub use rustix::process::Signal;

/// How much of a log an error shows, in bytes.
const TAIL: u64 = 3_000;

/// A running program, its output in a log file; killed when dropped.
pub struct Program {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts `path` in `folder`, with an empty environment but for the search path.
    pub fn start(name: &str, path: &Path, arguments: &[String], folder: &Path) -> anyhow::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let output = File::create(&log)?;
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(path)
            .args(arguments)
            .current_dir(folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let child = spawn_from_spawner_thread(command).map_err(|error| {
            let hint = if error.kind() == io::ErrorKind::NotFound { ": install util-linux, for `setpriv`" } else { "" };
            anyhow::Error::new(error).context(format!("starting {name} failed{hint}"))
        })?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id; setpriv replaces itself by the program, so it is the program's own.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends the program a signal.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = Pid::from_child(&self.child);
        rustix::process::kill_process(id, signal).with_context(|| format!("signalling {} failed", self.name))
    }

    /// Waits until the program ends by itself.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    /// How the program ended, if it did.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// The whole log.
    pub fn log(&self) -> anyhow::Result<String> {
        let log = std::fs::read(&self.log).with_context(|| format!("reading {} failed", self.log.display()))?;
        Ok(String::from_utf8_lossy(&log).into_owned())
    }

    /// The end of the log.
    pub fn log_tail(&self) -> String {
        tail(&self.log).unwrap_or_else(|error| format!("(reading {} failed: {error})", self.log.display()))
    }
}

/// Kills a process that something under test has started.
pub fn kill(id: u32) -> anyhow::Result<()> {
    let id = Pid::from_raw(id.try_into()?).context("0 is no process")?;
    rustix::process::kill_process(id, Signal::KILL).context("killing a process failed")
}

/// Builds an example of a package and gives its path: `cargo test` builds examples only when it runs all tests, and a
/// stale one would test the code of yesterday.
pub fn example(package: &str, name: &str) -> anyhow::Result<PathBuf> {
    Ok(build(package, "--example", name)?.join("examples").join(name))
}

/// Builds a program of another package and gives its path.
pub fn binary(package: &str, name: &str) -> anyhow::Result<PathBuf> {
    Ok(build(package, "--bin", name)?.join(name))
}

/// Gives the folder of the profile.
fn build(package: &str, kind: &str, name: &str) -> anyhow::Result<PathBuf> {
    let tests = std::env::current_exe()?;
    let built = tests.parent().and_then(Path::parent).context("tests stand in TARGET/PROFILE/deps")?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", kind, name]);
    cargo.arg("--target-dir").arg(built.parent().context("a profile stands in a target folder")?);
    // Tests are built for the whole workspace and benchmarks for one package: with other features everything below
    // would be compiled once more.
    if built.ends_with("release") {
        cargo.args(["--release", "--package", package]);
    } else {
        cargo.arg("--workspace");
    }
    // What the outer cargo says of the package under test would make build scripts, and all above them, run again.
    let own = |name: &std::ffi::OsStr| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| own(name)) {
        cargo.env_remove(name);
    }
    let output = cargo.stdin(Stdio::null()).output().context("starting cargo failed")?;
    anyhow::ensure!(output.status.success(), "building {name} failed:\n{}", String::from_utf8_lossy(&output.stderr));
    Ok(built.to_owned())
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail only if the program has ended and was waited for, which is what they are for.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn tail(log: &Path) -> io::Result<String> {
    let mut file = File::open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

type SpawnRequest = (Command, mpsc::SyncSender<io::Result<Child>>);

fn spawn_from_spawner_thread(command: Command) -> io::Result<Child> {
    static SPAWNER: OnceLock<Result<mpsc::SyncSender<SpawnRequest>, String>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| start_spawner_thread().map_err(|error| error.to_string()));
    let spawner = spawner.as_ref().map_err(|error| io::Error::other(error.clone()))?;
    let (reply, child) = mpsc::sync_channel(1);
    spawner.send((command, reply)).map_err(io::Error::other)?;
    child.recv().map_err(io::Error::other)?
}

fn start_spawner_thread() -> anyhow::Result<mpsc::SyncSender<SpawnRequest>> {
    let (send, requests) = mpsc::sync_channel::<SpawnRequest>(0);
    std::thread::Builder::new()
        .name("testkit-spawner".into())
        .spawn(move || {
            for (mut command, reply) in requests {
                // Whoever asked waits for the reply; if it panicked meanwhile, the child goes with this process.
                reply.send(command.spawn()).ok();
            }
        })
        .context("starting the spawner thread failed")?;
    Ok(send)
}
