//! Starts programs that end with this process.
//!
//! The kernel's parent-death signal does that, also after `kill -9`. It is set by `setpriv`, which then becomes the
//! program: setting it here, between fork and exec, needs unsafe code. The signal follows the *thread* that started
//! the program, so one thread starts them all and lives as long as the driver.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::{Child, Command};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

/// Starts programs.
#[derive(Clone)]
pub(super) struct Spawner {
    requests: mpsc::Sender<Request>,
}

struct Request {
    command: Command,
    runtime: Handle,
    reply: oneshot::Sender<io::Result<Child>>,
}

/// A program to start.
pub(super) struct Program<'a> {
    /// `setpriv`.
    pub(super) setpriv: &'a Path,
    pub(super) path: &'a Path,
    pub(super) arguments: Vec<OsString>,
    /// Where it runs.
    pub(super) folder: &'a Path,
    /// Where its output goes; none can be read by the caller.
    pub(super) log: Option<PathBuf>,
}

impl Spawner {
    /// Starts the thread; it ends with the last copy of this value.
    pub(super) fn start() -> io::Result<Self> {
        let (requests, mut received) = mpsc::channel::<Request>(1);
        let serve = move || {
            while let Some(Request { mut command, runtime, reply }) = received.blocking_recv() {
                let _context = runtime.enter();
                // if nobody waits for it any more, it is killed when dropped
                drop(reply.send(command.spawn()));
            }
        };
        std::thread::Builder::new().name("envoy-spawner".to_owned()).spawn(serve)?;
        Ok(Self { requests })
    }

    /// Starts a program in a process group of its own, without environment. It is killed when dropped.
    pub(super) async fn spawn(&self, program: Program<'_>) -> io::Result<Child> {
        let (reply, spawned) = oneshot::channel();
        let request = Request { command: command(program)?, runtime: Handle::current(), reply };
        self.requests.send(request).await.map_err(io::Error::other)?;
        spawned.await.map_err(io::Error::other)?
    }
}

#[expect(clippy::disallowed_methods, reason = "this driver's work is to run Envoy; no shell, and only from here")]
fn command(program: Program<'_>) -> io::Result<Command> {
    let Program { setpriv, path, arguments, folder, log } = program;
    let (stdout, stderr) = match log {
        Some(log) => {
            let log = File::create(log)?;
            (log.try_clone()?.into(), log.into())
        }
        None => (Stdio::piped(), Stdio::piped()),
    };
    let mut command = Command::from(std::process::Command::new(setpriv));
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(path)
        .args(arguments)
        .current_dir(folder)
        .env_clear()
        .process_group(0)
        .kill_on_drop(true)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[tokio::test]
    async fn a_program_ends_with_the_thread_that_started_it() {
        let spawner = Spawner::start().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let program = Program {
            setpriv: "/usr/bin/setpriv".as_ref(),
            path: "/bin/sleep".as_ref(),
            arguments: vec!["600".into()],
            folder: folder.path(),
            log: Some(folder.path().join("log")),
        };
        let mut child = spawner.spawn(program).await.unwrap();
        // setpriv has become the program, so the signal is set
        let name = format!("/proc/{}/comm", child.id().unwrap());
        while std::fs::read_to_string(&name).unwrap().trim() != "sleep" {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        drop(spawner);
        let ended = tokio::time::timeout(std::time::Duration::from_mins(1), child.wait()).await;
        assert_eq!(ended.expect("it ends").unwrap().signal(), Some(9));
    }
}
