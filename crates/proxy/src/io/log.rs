//! A thread that writes what Logger clusters and the access log say, so that no worker waits for a disk.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Lines that wait; more are dropped.
const WAITING: usize = 4096;

/// Where lines are handed in.
#[derive(Clone)]
pub(super) struct Sink(SyncSender<Line>);

pub(super) struct Line {
    /// `None` is standard output.
    pub file: Option<PathBuf>,
    pub bytes: Vec<u8>,
}

impl Sink {
    /// Starts the thread; it ends when the last sink is dropped.
    pub(super) fn start() -> io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING);
        std::thread::Builder::new().name("proxy-log".to_owned()).spawn(move || write_lines(&receiver))?;
        Ok(Self(sender))
    }

    /// Hands a line in; false if too many wait.
    pub(super) fn write(&self, line: Line) -> bool {
        self.0.try_send(line).is_ok()
    }
}

fn write_lines(lines: &Receiver<Line>) {
    let mut files: BTreeMap<PathBuf, Option<File>> = BTreeMap::new();
    for Line { file, bytes } in lines {
        let done = match file {
            None => io::stdout().lock().write_all(&bytes).and_then(|()| io::stdout().lock().flush()),
            Some(path) => {
                let open = files.entry(path.clone()).or_insert_with(|| open(&path));
                open.as_mut().map_or(Ok(()), |file| file.write_all(&bytes))
            }
        };
        if let Err(error) = done {
            tracing::debug!(%error, "a line could not be written");
        }
    }
}

/// Opens a file for appending; links are not followed.
fn open(path: &Path) -> Option<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = OpenOptions::new().append(true).create(true).custom_flags(libc::O_NOFOLLOW).open(path);
    file.inspect_err(|error| tracing::warn!(path = %path.display(), %error, "a log file cannot be opened")).ok()
}
