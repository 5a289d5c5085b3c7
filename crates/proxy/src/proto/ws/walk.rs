//! Follows frames that pass through untouched, only to count them.

use super::frame::parse;

/// Counts messages in a stream of frames without looking at their content.
#[derive(Debug, Default)]
pub struct Walker {
    /// Payload bytes of the current frame that are missing.
    left: u64,
    /// A header that is not complete: fourteen bytes at most.
    head: Vec<u8>,
}

impl Walker {
    /// Takes bytes that are passed on; returns how many frames began in them, or nothing if they are no frames.
    pub fn handle_bytes(&mut self, mut bytes: &[u8]) -> Option<u64> {
        let mut frames = 0;
        while !bytes.is_empty() {
            if self.left > 0 {
                let skip = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
                self.left -= skip as u64;
                bytes = bytes.get(skip..).unwrap_or_default();
                continue;
            }
            let before = self.head.len();
            let head = if before == 0 {
                parse(bytes).ok()?
            } else {
                self.head.extend_from_slice(bytes.get(..14.min(bytes.len())).unwrap_or_default());
                parse(&self.head).ok()?
            };
            let Some(head) = head else {
                if before == 0 {
                    self.head.extend_from_slice(bytes);
                }
                return Some(frames);
            };
            self.head.clear();
            frames += 1;
            self.left = head.len;
            bytes = bytes.get(head.size - before..).unwrap_or_default();
        }
        Some(frames)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Opcode, write_frame};
    use super::*;

    #[test]
    fn frames_are_counted_however_the_stream_is_cut() {
        let mut stream = Vec::new();
        for (len, mask) in [(0, None), (5, Some([1, 2, 3, 4])), (300, None), (70_000, Some([1, 2, 3, 4]))] {
            write_frame(&mut stream, Opcode::Binary, &vec![0xff; len], mask);
        }
        for step in [1, 2, 5, 13, 14, 15, 400, 100_000] {
            let mut walker = Walker::default();
            let frames: u64 = stream.chunks(step).map(|piece| walker.handle_bytes(piece).unwrap()).sum();
            assert_eq!((frames, walker.left), (4, 0), "step {step}");
        }
    }
}
