//! The thread that writes lines of Logger clusters and the access log, so that no worker waits for a disk.

use super::sys;
use crate::config::host_mapping::HostMapping;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Lines that wait; more are dropped.
const WAITING: usize = 4096;
/// Files that are kept open.
const OPEN: usize = 64;

/// Where lines are handed in.
#[derive(Clone)]
pub(crate) struct Sink(SyncSender<Line>);

pub(crate) struct Line {
    /// `None` is standard output.
    pub file: Option<LogFile>,
    pub bytes: Vec<u8>,
}

/// A file inside a directory; links out of it are not followed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogFile {
    pub directory: PathBuf,
    pub file: PathBuf,
}

impl Sink {
    /// Starts the thread; it ends when the last sink is dropped.
    pub(crate) fn start(host_mapping: HostMapping) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING);
        std::thread::Builder::new()
            .name("proxy-log".to_owned())
            .spawn(move || write_lines(&receiver, &host_mapping))?;
        Ok(Self(sender))
    }

    /// Hands a line in; false if too many wait.
    pub(crate) fn write(&self, line: Line) -> bool {
        self.0.try_send(line).is_ok()
    }
}

fn write_lines(lines: &Receiver<Line>, host_mapping: &HostMapping) {
    let mut files: BTreeMap<LogFile, Option<File>> = BTreeMap::new();
    for Line { file, bytes } in lines {
        let done = match file {
            None => io::stdout().lock().write_all(&bytes).and_then(|()| io::stdout().lock().flush()),
            Some(place) => {
                if files.len() >= OPEN && !files.contains_key(&place) {
                    files.clear();
                }
                let open = files.entry(place).or_insert_with_key(|place| open(place, host_mapping));
                open.as_mut().map_or(Ok(()), |file| file.write_all(&bytes))
            }
        };
        if let Err(error) = done {
            tracing::debug!(%error, "cannot write a log line");
        }
    }
}

fn open(place: &LogFile, host_mapping: &HostMapping) -> Option<File> {
    let opened = sys::append_inside(&host_mapping.map_path(&place.directory), &place.file);
    opened.inspect_err(|error| tracing::warn!(file = ?place, %error, "cannot open a log file")).ok()
}
