//! What a watcher has not read yet.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// A watcher that leaves more than this is dropped.
const MOST: usize = 1 << 20;

#[derive(Default)]
pub(super) struct Backlog {
    waiting: Mutex<Waiting>,
    more: Notify,
}

#[derive(Default)]
struct Waiting {
    frames: VecDeque<Bytes>,
    bytes: usize,
    is_dropped: bool,
}

impl Backlog {
    /// False if the watcher has too much to read already; it is then given nothing more.
    pub(super) fn push(&self, frame: Bytes) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.bytes += frame.len();
        if waiting.bytes > MOST {
            *waiting = Waiting { is_dropped: true, ..Waiting::default() };
        } else {
            waiting.frames.push_back(frame);
        }
        let takes = !waiting.is_dropped;
        drop(waiting);
        self.more.notify_one();
        takes
    }

    /// The next frame; none if the watcher was dropped. For one reader.
    pub(super) async fn next(&self) -> Option<Bytes> {
        loop {
            {
                let mut waiting = self.waiting.lock();
                if waiting.is_dropped {
                    return None;
                }
                if let Some(frame) = waiting.frames.pop_front() {
                    waiting.bytes -= frame.len();
                    return Some(frame);
                }
            }
            self.more.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_watcher_that_does_not_read_is_dropped_at_a_mebibyte() {
        let backlog = Backlog::default();
        let frame = Bytes::from(vec![b'x'; 1 << 16]);
        assert!((0..16).all(|_| backlog.push(frame.clone())));
        assert!(!backlog.push(frame.clone()));
        assert_eq!(backlog.next().await, None);
        let reads = Backlog::default();
        for _ in 0..1000 {
            assert!(reads.push(frame.clone()));
            assert_eq!(reads.next().await, Some(frame.clone()));
        }
    }
}
