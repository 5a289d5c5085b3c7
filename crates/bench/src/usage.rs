//! The CPU time of processes, as the scheduler counts it for each thread.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};

/// A thread's running time is only sure to be counted when it left the processor: sleeping makes it.
const SETTLE: Duration = Duration::from_millis(1);
/// What threads that ended within a round may have used unseen: two ticks of the coarse clock and a little.
const UNSEEN: u64 = 30_000_000;

/// The CPU time of some processes so far.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    /// Nanoseconds of each living thread.
    threads: BTreeMap<(u32, u32), u64>,
    /// Nanoseconds of the processes whole, with the threads that ended, in steps of the coarse clock.
    whole: u64,
}

impl Usage {
    pub(crate) fn of(processes: &[u32]) -> anyhow::Result<Self> {
        std::thread::sleep(SETTLE);
        let mut usage = Self::default();
        for &process in processes {
            let folder = PathBuf::from(format!("/proc/{process}"));
            usage.whole += coarse_nanos(&read(&folder.join("stat"))?).context("/proc/PID/stat is not as expected")?;
            let threads = folder.join("task");
            for entry in fs::read_dir(&threads).with_context(|| format!("process {process} is not there"))? {
                let entry = entry?;
                // a thread may end while we look: its time is then missing, and `since` notices
                let Ok(text) = fs::read_to_string(entry.path().join("schedstat")) else { continue };
                let thread = entry.file_name().to_string_lossy().parse().context("a thread's folder is its number")?;
                let nanos = running_nanos(&text).context("/proc/PID/task/TID/schedstat is not as expected")?;
                usage.threads.insert((process, thread), nanos);
            }
        }
        Ok(usage)
    }

    /// The time used since an earlier look, in nanoseconds.
    pub(crate) fn since(&self, before: &Self) -> anyhow::Result<u64> {
        let used =
            |(thread, now): (&(u32, u32), &u64)| now - before.threads.get(thread).copied().unwrap_or(0).min(*now);
        let seen: u64 = self.threads.iter().map(used).sum();
        let whole = self.whole.saturating_sub(before.whole);
        let unseen = whole.saturating_sub(seen);
        ensure!(
            unseen <= UNSEEN + whole / 50,
            "threads that ended within the round used {} ms unseen: keep them alive from round to round",
            unseen / 1_000_000
        );
        Ok(seen)
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {} failed", path.display()))
}

/// The first number of `schedstat`: time spent running, in nanoseconds.
fn running_nanos(schedstat: &str) -> Option<u64> {
    schedstat.split_whitespace().next()?.parse().ok()
}

/// User and system time from `stat`, which counts hundredths of a second on Linux.
fn coarse_nanos(stat: &str) -> Option<u64> {
    // the name in parentheses may hold anything: fields are counted from its end
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(ticks * 10_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_from_the_scheduler() {
        assert_eq!(running_nanos("503794147 1200 7\n"), Some(503_794_147));
        let stat = "7 (a name) with ) in it) S 1 7 7 0 -1 4194304 100 0 0 0 12 30 0 0 20 0 1 0 99";
        assert_eq!(coarse_nanos(stat), Some(420_000_000));
        assert_eq!(coarse_nanos("nonsense"), None);
    }

    #[test]
    fn work_of_threads_that_ended_within_a_round_is_noticed() {
        let usage = |thread, whole| Usage { threads: BTreeMap::from([((1, 1), thread)]), whole };
        assert_eq!(usage(900, 0).since(&usage(400, 0)).unwrap(), 500);
        let error = usage(900, 500_000_000).since(&usage(400, 0)).unwrap_err();
        assert!(error.to_string().contains("499 ms unseen"), "{error}");
    }
}
