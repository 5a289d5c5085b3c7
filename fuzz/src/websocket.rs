//! WebSocket frames, from either side.

use portolan_proxy::proto::ws::{Event, Opcode, Reader, Role, Walker, close_frame, write_frame};

/// Longest message.
const LIMIT: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    Message {
        data: Vec<u8>,
        text: bool,
    },
    Ping(Vec<u8>),
    Pong,
    Close {
        code: u16,
        reason: String,
    },
    /// The close code of a breach.
    Broken(u16),
}

pub(crate) fn run(bytes: &[u8]) {
    for role in [Role::Server, Role::Client] {
        let seen = crate::whichever_way(bytes, |pieces| read(role, pieces));
        laws(&seen);
        written_again(role, &seen);
        if !matches!(seen.last(), Some(Seen::Broken(_))) {
            let walked = crate::whichever_way(bytes, walk).expect("frames that are read can be walked");
            assert!(walked >= seen.len() as u64, "each event began with a frame");
        }
    }
    crate::whichever_way(bytes, walk);
}

fn read(role: Role, pieces: std::slice::Chunks<'_, u8>) -> Vec<Seen> {
    let mut reader = Reader::new(role, LIMIT);
    let mut seen = Vec::new();
    for piece in pieces {
        let done = reader.handle_bytes(&mut piece.to_vec(), |event| {
            seen.push(match event {
                Event::Message { data, text } => Seen::Message { data: data.to_vec(), text },
                Event::Ping(data) => Seen::Ping(data.to_vec()),
                Event::Pong => Seen::Pong,
                Event::Close { code, reason } => Seen::Close { code, reason: reason.to_owned() },
            });
        });
        if let Err(violation) = done {
            seen.push(Seen::Broken(violation.code));
            break;
        }
    }
    seen
}

fn walk(pieces: std::slice::Chunks<'_, u8>) -> Option<u64> {
    let mut walker = Walker::default();
    pieces.map(|piece| walker.handle_bytes(piece)).sum()
}

fn laws(seen: &[Seen]) {
    for event in seen {
        match event {
            Seen::Message { data, text } => {
                assert!(data.len() <= LIMIT, "a message has a limit");
                assert!(!text || std::str::from_utf8(data).is_ok(), "text is UTF-8");
            }
            Seen::Ping(data) => assert!(data.len() <= 125, "a ping is short"),
            Seen::Close { code, reason } => assert!(*code >= 1000 && reason.len() <= 123, "{code} {reason}"),
            Seen::Broken(code) => assert!(matches!(code, 1002 | 1007 | 1009), "{code} is no breach"),
            Seen::Pong => {}
        }
    }
}

/// What was read and is written again reads the same.
fn written_again(role: Role, seen: &[Seen]) {
    let mask = (role == Role::Server).then_some([0x5a, 0, 0xff, 1]);
    let whole: Vec<Seen> = seen.iter().filter(|event| !matches!(event, Seen::Broken(_))).cloned().collect();
    let mut sent = Vec::new();
    for event in &whole {
        match event {
            Seen::Message { data, text: true } => write_frame(&mut sent, Opcode::Text, data, mask),
            Seen::Message { data, text: false } => write_frame(&mut sent, Opcode::Binary, data, mask),
            Seen::Ping(data) => write_frame(&mut sent, Opcode::Ping, data, mask),
            Seen::Pong => write_frame(&mut sent, Opcode::Pong, b"", mask),
            Seen::Close { code, reason } => close_frame(&mut sent, *code, reason, mask),
            Seen::Broken(_) => {}
        }
    }
    assert_eq!(crate::whichever_way(&sent, |pieces| read(role, pieces)), whole);
}
