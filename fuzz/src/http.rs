//! HTTP/1 heads, the bodies behind them, and WebSocket handshakes.

use portolan_proxy::proto::http1::{
    Body, Chunks, Head, HeadLimits, LAST_CHUNK, chunk_head, is_header_value, is_token, parse_head,
};
use portolan_proxy::proto::ws::handshake;

const LIMITS: HeadLimits = HeadLimits { bytes: 2000, headers: 20 };

pub(crate) fn run(bytes: &[u8]) {
    let Ok(Some((head, end))) = parse_head(bytes, LIMITS) else { return };
    assert!(end <= bytes.len().min(LIMITS.bytes) && head.headers.len() <= LIMITS.headers);
    assert_eq!(parse_head(&bytes[..end], LIMITS), Ok(Some((head.clone(), end))), "what follows does not matter");
    assert_eq!(parse_head(&bytes[..end - 1], LIMITS), Ok(None), "a head has one end");
    for (name, value) in &head.headers {
        assert!(!name.is_empty() && name.bytes().all(is_token) && is_header_value(value), "{name}: {value}");
    }
    let again = written(&head);
    assert_eq!(parse_head(&again, HeadLimits { bytes: usize::MAX, ..LIMITS }), Ok(Some((head.clone(), again.len()))));
    handshakes(&head);
    if Body::of_request(&head).is_ok() {
        bodies(&head, &bytes[end..]);
    }
}

fn written(head: &Head) -> Vec<u8> {
    let lines: Vec<String> = head.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    format!("{}\r\n{}\r\n", head.start.join(" "), lines.concat()).into_bytes()
}

/// An accepted request is answered with a head of ours, whatever the client offered.
fn handshakes(head: &Head) {
    drop(handshake::confirm(head, [7; 16], &[]));
    let Ok(accepted) = handshake::accept(head, &[]) else { return };
    let answer = parse_head(accepted.response.as_bytes(), HeadLimits::default());
    let (answer, end) = answer.expect("the answer is a head").expect("and complete");
    assert_eq!((answer.status(), end), (101, accepted.response.len()), "the client smuggles nothing in");
    assert_eq!(answer.headers.len(), 3 + usize::from(accepted.subprotocol.is_some()));
}

/// A body reads the same however it is cut, and the same again when it is sent on in chunks.
fn bodies(head: &Head, bytes: &[u8]) {
    let (read, used, done) = crate::whichever_way(bytes, |pieces| {
        let mut body = Body::of_request(head).expect("it was one before");
        let (mut data, mut used) = (Vec::new(), 0);
        for piece in pieces {
            match body.handle_bytes(piece, |part| data.extend_from_slice(part)) {
                Ok(taken) => used += taken,
                Err(_) => return (data, None, false),
            }
        }
        (data, Some(used), body.is_done())
    });
    assert!(read.len() <= bytes.len() && used.is_none_or(|used| used <= bytes.len()));
    if done && !read.is_empty() {
        let sent = [chunk_head(read.len()).as_bytes(), &read, b"\r\n", LAST_CHUNK, b"next"].concat();
        let (mut body, mut data) = (Body::Chunked(Chunks::default()), Vec::new());
        let used = body.handle_bytes(&sent, |part| data.extend_from_slice(part));
        assert_eq!((used, body.is_done(), data), (Ok(sent.len() - 4), true, read));
    }
}
