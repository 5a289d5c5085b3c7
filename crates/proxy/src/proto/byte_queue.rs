//! Bytes that wait, in order and within a bound.

/// A queue of bytes that a peer can fill. Its owner stops reading from whoever fills it once it [is full](Self::is_full),
/// so it exceeds its limit by one read at most.
#[derive(Debug)]
pub struct ByteQueue {
    bytes: Vec<u8>,
    /// Where the bytes that still wait begin.
    start: usize,
    limit: usize,
}

/// Memory that an empty queue keeps after it held more than its limit.
const KEPT: usize = 16 * 1024;

impl ByteQueue {
    pub const fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), start: 0, limit }
    }

    /// Another limit; what waits stays.
    pub const fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    pub const fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it should not be filled further.
    pub const fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// How many bytes fit until it is full.
    pub const fn room(&self) -> usize {
        self.limit.saturating_sub(self.len())
    }

    pub fn as_slice(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Lets `build` add bytes at the end.
    pub fn build(&mut self, build: impl FnOnce(&mut Vec<u8>)) {
        build(&mut self.bytes);
    }

    /// Drops the first `n` bytes. The others move to the front only when they are the smaller part, so that the cost of
    /// many small steps stays linear.
    pub fn consume(&mut self, n: usize) {
        self.start = (self.start + n).min(self.bytes.len());
        if self.is_empty() {
            self.bytes.clear();
            self.start = 0;
            if self.bytes.capacity() > self.limit.max(KEPT) {
                self.bytes.shrink_to(KEPT);
            }
        } else if self.start > KEPT && self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
    }

    pub fn clear(&mut self) {
        self.consume(self.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_as_they_went_in_and_memory_follows_what_waits() {
        let mut queue = ByteQueue::new(100);
        let (mut sent, mut got) = (0_usize, 0_usize);
        for round in 0..20_000_usize {
            for _ in 0..round % 7 * 40 {
                queue.push(&[u8::try_from(sent % 251).unwrap()]);
                sent += 1;
            }
            let take = (round % 5 * 60).min(queue.len());
            for byte in queue.as_slice().get(..take).unwrap() {
                assert_eq!(usize::from(*byte), got % 251);
                got += 1;
            }
            queue.consume(take);
            assert_eq!(queue.len(), sent - got);
            assert!(queue.bytes.len() <= 2 * queue.len() + KEPT + 300, "{} for {}", queue.bytes.len(), queue.len());
        }
        queue.clear();
        assert!(queue.is_empty() && queue.bytes.capacity() <= KEPT);
    }

    #[test]
    fn the_limit_says_when_to_stop() {
        let mut queue = ByteQueue::new(4);
        queue.push(b"abc");
        assert_eq!((queue.is_full(), queue.room()), (false, 1));
        queue.push(b"de");
        assert_eq!((queue.is_full(), queue.room(), queue.as_slice()), (true, 0, &b"abcde"[..]));
        queue.consume(2);
        assert_eq!((queue.is_full(), queue.as_slice()), (false, &b"cde"[..]));
    }
}
