//! Two streams joined inside the kernel.

use super::sys::{self, Pipe};
use std::io;
use std::os::fd::RawFd;

/// Two streams joined inside the kernel: a pipe for each direction.
pub(crate) struct Splice {
    /// The stage is connected again when it ends, so its end is not passed on.
    pub reconnects: bool,
    pub pipes: [Pipe; 2],
    pub ended: [bool; 2],
    pub end_sent: [bool; 2],
    /// Directions whose receiver takes nothing more; what it sent before is still moved.
    deaf: [bool; 2],
}

impl Splice {
    /// Size of each pipe.
    const PIPE: usize = 256 * 1024;

    pub(crate) fn new(reconnects: bool) -> io::Result<Self> {
        let pipes = [Pipe::new(Self::PIPE)?, Pipe::new(Self::PIPE)?];
        Ok(Self { reconnects, pipes, ended: [false; 2], end_sent: [false; 2], deaf: [false; 2] })
    }

    /// The end that takes nothing more, once all that it had sent is moved.
    pub(crate) fn is_over_with(&self) -> Option<usize> {
        (0..2).find(|way| self.deaf[*way] && self.ended[1 - way] && self.pipes[1 - way].held() == 0).map(|way| 1 - way)
    }

    /// The highest of its descriptors.
    pub(crate) fn last_descriptor(&self) -> RawFd {
        self.pipes.iter().map(Pipe::last_descriptor).max().unwrap_or(-1)
    }
}

/// What one direction waits for.
pub(crate) struct Interest {
    pub reads: bool,
    pub writes: bool,
}

/// Rounds of one direction per event.
const ROUNDS: usize = 16;

/// Moves bytes in one direction until one side blocks.
pub(crate) fn move_bytes(
    splice: &mut Splice,
    way: usize,
    ends: [i32; 2],
    moved: &mut (u64, u64),
) -> Result<Interest, (usize, io::Error)> {
    let (from, to) = (ends[way], ends[1 - way]);
    if splice.deaf[way] {
        return Ok(Interest { reads: false, writes: false });
    }
    let mut writes = false;
    for _ in 0..ROUNDS {
        let mut blocked = splice.ended[way];
        if !splice.ended[way] && splice.pipes[way].held() == 0 {
            match splice.pipes[way].fill(from) {
                Ok(0) => {
                    splice.ended[way] = true;
                    blocked = true;
                }
                Ok(n) => {
                    moved.0 += 1;
                    moved.1 += n as u64;
                }
                Err(error) if sys::would_block(&error) => blocked = true,
                Err(error) => return Err((way, error)),
            }
        }
        while splice.pipes[way].held() > 0 {
            match splice.pipes[way].drain(to) {
                Ok(_) => {}
                Err(error) if sys::would_block(&error) => {
                    writes = true;
                    break;
                }
                Err(_) => {
                    splice.deaf[way] = true;
                    return Ok(Interest { reads: false, writes: false });
                }
            }
        }
        if writes || blocked {
            break;
        }
    }
    let passed_on = way == 0 || !splice.reconnects || splice.ended[0];
    if splice.ended[way] && splice.pipes[way].held() == 0 && passed_on && !splice.end_sent[way] {
        splice.end_sent[way] = true;
        sys::end_writing(to);
    }
    Ok(Interest { reads: !splice.ended[way] && splice.pipes[way].held() == 0, writes })
}
