//! Message boundaries: lengths before messages in a stream, and datagrams that the kernel joined.

use portolan_proxy::config::types::Framing;
use portolan_proxy::io::sys::Received;
use portolan_proxy::proto::framer::Framer;

/// Longest message.
const LIMIT: usize = 1000;

pub(crate) fn run(bytes: &[u8]) {
    for framing in [Framing::Len16, Framing::Len32] {
        framed(framing, bytes);
    }
    if let Some((first, data)) = bytes.split_first() {
        joined(usize::from(*first) + 1, data);
    }
}

fn framed(framing: Framing, bytes: &[u8]) {
    let start = || Framer::new(framing, LIMIT).expect("it frames");
    let (read, refused) = crate::whichever_way(bytes, |mut pieces| {
        let (mut framer, mut read) = (start(), Vec::new());
        let refused = pieces.find_map(|piece| framer.handle_bytes(piece, |message| read.push(message.to_vec())).err());
        (read, refused)
    });
    assert!(read.iter().all(|message| message.len() <= LIMIT) && refused.is_none_or(|refused| refused.0 > LIMIT));
    let mut sent = Vec::new();
    for message in &read {
        sent.extend_from_slice(start().header(message.len()).expect("it had one").as_slice());
        sent.extend_from_slice(message);
    }
    assert!(bytes.starts_with(&sent), "what was read is what was sent");
}

fn joined(segment: usize, data: &[u8]) {
    let received = Received { data, segment };
    let parts: Vec<&[u8]> = received.split().collect();
    assert_eq!((parts.len(), parts.concat()), (received.datagrams(), data.to_vec()), "nothing is lost");
    assert!(parts.iter().all(|part| part.len() <= segment || parts.len() == 1));
    assert!(parts.iter().rev().skip(1).all(|part| part.len() == segment), "only the last is shorter");
}
