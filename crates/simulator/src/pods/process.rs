//! A container as a process: started again when it ends, and gone when it is told to be.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use portolan_control::runtime::tasks::Tasks;

/// How a container's process is started.
#[derive(Debug, Clone)]
pub(super) struct Launch {
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<OsString>,
    pub(super) environment: Vec<(String, OsString)>,
    /// Written by the process once everything listens.
    pub(super) ready_file: PathBuf,
    /// What it says, of its last run.
    pub(super) log: PathBuf,
}

/// What a container does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// It is not started yet, or ended and soon starts again.
    Waiting(Option<String>),
    Running {
        id: u32,
        since: Timestamp,
        ready: bool,
    },
    /// It was told to end, and has.
    Gone,
}

/// A container.
pub(super) struct Process {
    seen: Arc<Mutex<Seen>>,
    /// When it has to be gone, once it is to end.
    end: watch::Sender<Option<Instant>>,
}

/// What is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) state: State,
    pub(super) restarts: i32,
}

/// The pauses before a process is started again: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// A process that ran for so long is started again after the first pause.
const STEADY: Duration = Duration::from_secs(10);
/// How often a process that starts is asked whether it is ready.
const ASK: Duration = Duration::from_millis(20);
/// How much of a log is shown, in characters.
const TAIL: usize = 500;

impl Process {
    /// Starts it; whenever something changes, `wake` is told.
    pub(super) fn start(launch: Launch, restarts: i32, tasks: &Tasks, wake: Arc<Notify>) -> Self {
        let seen = Arc::new(Mutex::new(Seen { state: State::Waiting(None), restarts }));
        let (end, ending) = watch::channel(None);
        let stop = tasks.stop();
        let running = Running { launch, seen: Arc::clone(&seen), ending, stop, wake };
        tasks.spawn_finite("container", running.run());
        Self { seen, end }
    }

    pub(super) fn seen(&self) -> Seen {
        self.seen.lock().clone()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.seen.lock().state == State::Gone
    }

    /// Asks it to end, and kills it at `deadline`; what was said before does not prolong its life.
    pub(super) fn end(&self, deadline: Instant) {
        self.end.send_if_modified(|end| {
            let sooner = end.is_none_or(|end| deadline < end);
            if sooner {
                *end = Some(deadline);
            }
            sooner
        });
    }
}

struct Running {
    launch: Launch,
    seen: Arc<Mutex<Seen>>,
    ending: watch::Receiver<Option<Instant>>,
    /// The end of everything.
    stop: CancellationToken,
    wake: Arc<Notify>,
}

impl Running {
    async fn run(mut self) {
        let mut pause = PAUSES.0;
        while !self.is_ending() {
            let began = Instant::now();
            let ended = match self.launch.spawn() {
                Ok(child) => self.look_after(child).await,
                Err(error) => format!("it cannot be started: {error}"),
            };
            if self.is_ending() {
                break;
            }
            if began.elapsed() >= STEADY {
                pause = PAUSES.0;
            }
            self.say(|seen| seen.state = State::Waiting(Some(ended)));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.stop.cancelled() => {}
                _ = self.ending.changed() => {}
            }
            pause = (pause * 2).min(PAUSES.1);
            self.say(|seen| seen.restarts += 1);
        }
        self.say(|seen| seen.state = State::Gone);
    }

    /// Waits for the end of a process, and says how it came.
    async fn look_after(&mut self, mut child: Child) -> String {
        let (id, since) = (child.id().unwrap_or_default(), Timestamp::now());
        // waiting for a child closes what it reads from, unless that is kept elsewhere
        let _stdin = child.stdin.take();
        let ready_file = self.launch.ready_file.clone();
        self.say(|seen| seen.state = State::Running { id, since, ready: false });
        let mut ready = false;
        loop {
            let deadline = *self.ending.borrow_and_update();
            let asking = async {
                if ready || deadline.is_some() {
                    std::future::pending::<()>().await;
                }
                while !ready_file.exists() {
                    tokio::time::sleep(ASK).await;
                }
            };
            let late = async {
                match deadline {
                    Some(deadline) => tokio::time::sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                ended = child.wait() => return self.launch.last_words(&ended),
                () = self.stop.cancelled() => return kill(child).await,
                () = late => return kill(child).await,
                () = asking => {
                    ready = true;
                    self.say(|seen| seen.state = State::Running { id, since, ready });
                }
                _ = self.ending.changed() => terminate(&child),
            }
        }
    }

    fn is_ending(&self) -> bool {
        self.ending.borrow().is_some() || self.stop.is_cancelled()
    }

    fn say(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen.lock());
        self.wake.notify_one();
    }
}

impl Launch {
    fn spawn(&self) -> io::Result<Child> {
        match std::fs::remove_file(&self.ready_file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let log = File::create(&self.log)?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear().envs(self.environment.iter().map(|(name, value)| (name, value)));
        // The process holds the other end of its standard input: it ends with ours, whatever happens to us. Signals of
        // a terminal are for us alone.
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        command.process_group(0).kill_on_drop(true).spawn()
    }

    fn last_words(&self, ended: &io::Result<std::process::ExitStatus>) -> String {
        let how = match ended {
            Ok(status) => format!("it ended with {status}"),
            Err(error) => format!("it cannot be waited for: {error}"),
        };
        let said = tail(&self.log);
        if said.is_empty() { how } else { format!("{how}: {said}") }
    }
}

/// The end of a log.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let from = text.char_indices().rev().nth(TAIL - 1).map_or(0, |(at, _)| at);
    text[from..].trim().to_owned()
}

fn terminate(child: &Child) {
    let id = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    // It may have ended meanwhile.
    if let Some(id) = id {
        kill_process(id, Signal::TERM).ok();
    }
}

async fn kill(mut child: Child) -> String {
    child.kill().await.ok();
    "it was killed".to_owned()
}
