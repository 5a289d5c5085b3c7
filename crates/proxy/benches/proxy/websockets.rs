//! WebSocket frames through one contestant.

use crate::contestant::Contestant;
use crate::place;
use crate::setting::{REFRAMED, TO_WS_SINK, WS_TO_SINK};
use crate::streams::{ByteSink, Pusher, connect_websocket, frames};
use crate::udp::{Sink, Window};
use portolan_bench::Side;
use std::io::Write as _;
use std::slice::from_ref;

/// Frames of one write, and writes of a turn.
const FRAMES: usize = 400;
const WRITES: u64 = 100;
const SIZE: usize = 64;

#[derive(Clone, Copy)]
pub(crate) enum Frames {
    ToUdp,
    Passed,
    Reframed,
}

impl Frames {
    pub(crate) const ALL: [Self; 3] = [Self::ToUdp, Self::Passed, Self::Reframed];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ToUdp => "WebSocket to UDP, 64 B",
            Self::Passed => "WebSocket to WebSocket, 64 B",
            Self::Reframed => "WebSocket to WebSocket, opened and closed again, 64 B",
        }
    }
}

/// A side that sends such frames through this process, whose first port is `first`.
pub(crate) fn pushing<'a>(
    kind: Frames,
    name: &str,
    process: &Contestant,
    first: u16,
    (udp, websocket): (&'a Sink, &'a ByteSink),
) -> anyhow::Result<Side<'a>> {
    let through = |port, in_a_write, writes| -> anyhow::Result<Side<'a>> {
        let mut pusher = Pusher::new(connect_websocket(first + port)?, websocket, frames(in_a_write, SIZE));
        Ok(Side::new(name, move || pusher.turn(writes).map(|()| in_a_write as u64 * writes)))
    };
    let side = match kind {
        Frames::ToUdp => to_udp(name, first + WS_TO_SINK, udp)?,
        Frames::Passed => through(TO_WS_SINK, FRAMES * 2, WRITES * 20)?,
        Frames::Reframed => through(REFRAMED, FRAMES, WRITES * 4)?,
    };
    Ok(side.of_processes(vec![process.pid()]))
}

fn to_udp<'a>(name: &str, port: u16, sink: &'a Sink) -> anyhow::Result<Side<'a>> {
    let (mut stream, bytes) = (connect_websocket(port)?, frames(FRAMES, SIZE));
    Ok(Side::new(name, move || {
        let mut window = Window::new(from_ref(sink));
        for write in 1..=WRITES {
            place::beside(place::THEIRS);
            stream.write_all(&bytes)?;
            window.drain(write * FRAMES as u64);
            place::apart();
        }
        Ok(FRAMES as u64 * WRITES - window.lost)
    }))
}
