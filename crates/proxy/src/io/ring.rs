//! Queues between threads: bounded, and followed by a wake-up.

use super::sys::WakeUp;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// A bounded queue whose reader sleeps in epoll.
///
/// The lock is held for a push or for taking the whole queue, never while anything is done with its content; one
/// batch of messages is one entry, so that a packet costs no lock.
pub struct Ring<T> {
    queue: Mutex<VecDeque<T>>,
    limit: usize,
    wake: WakeUp,
}

impl<T> Ring<T> {
    pub fn new(limit: usize) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self { queue: Mutex::new(VecDeque::new()), limit, wake: WakeUp::new()? }))
    }

    /// Adds an entry, or gives it back if the queue is full.
    pub fn push(&self, entry: T) -> Result<(), T> {
        self.push_below(self.limit, entry)
    }

    /// The same, unless so many entries wait already.
    pub fn push_below(&self, most: usize, entry: T) -> Result<(), T> {
        let mut queue = self.queue.lock();
        if queue.len() >= self.limit.min(most) {
            return Err(entry);
        }
        queue.push_back(entry);
        let first = queue.len() == 1;
        drop(queue);
        if first {
            self.wake.wake();
        }
        Ok(())
    }

    /// Takes everything that is there.
    pub fn take(&self) -> VecDeque<T> {
        self.wake.clear();
        std::mem::take(&mut *self.queue.lock())
    }

    pub const fn wake_up(&self) -> &WakeUp {
        &self.wake
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_gives_the_entry_back_and_an_emptied_one_takes_again() {
        let ring = Ring::new(2).unwrap();
        assert_eq!((ring.push(1), ring.push(2), ring.push(3)), (Ok(()), Ok(()), Err(3)));
        assert_eq!(ring.take(), [1, 2]);
        assert_eq!(ring.push(4), Ok(()));
        assert_eq!(ring.take(), [4]);
    }

    #[test]
    fn entries_of_several_threads_all_arrive() {
        let ring = Ring::new(100_000).unwrap();
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let ring = Arc::clone(&ring);
                std::thread::spawn(move || (0..1000).for_each(|i| ring.push((writer, i)).unwrap()))
            })
            .collect();
        let mut seen = [0; 4];
        while seen.iter().sum::<i32>() < 4000 {
            for (writer, i) in ring.take() {
                assert_eq!(seen[writer], i, "order of one writer");
                seen[writer] += 1;
            }
        }
        for writer in writers {
            writer.join().unwrap();
        }
    }
}
