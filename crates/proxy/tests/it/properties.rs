//! Laws that hold for whatever arrives: bytes are read the same however they are cut, and none is a fault.
//!
//! Predicates, paths and rings have theirs in `core`; REST bodies and YAML in `rest::properties`.

use portolan_proxy::config::types::Framing;
use portolan_proxy::io::sys::Received;
use portolan_proxy::proto::framer::Framer;
use portolan_proxy::proto::http1::{
    Body, Chunks, HeadLimits, LAST_CHUNK, chunk_head, is_header_value, is_token, parse_head,
};
use portolan_proxy::proto::json_socket;
use portolan_proxy::proto::ws::{Event, Opcode, Reader, Role, Walker, handshake, write_frame};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

fn few() -> ProptestConfig {
    ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() }
}

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..most)
}

/// Cuts bytes at some places.
fn pieces(whole: &[u8], cuts: &[Index]) -> Vec<Vec<u8>> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(whole.len() + 1)).collect();
    places.extend([0, whole.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| whole[pair[0]..pair[1]].to_vec()).collect()
}

fn labels() -> impl Strategy<Value = Value> {
    vec(("[a-z]{1,4}", any::<String>()), 0..4)
        .prop_map(|pairs| json!(pairs.into_iter().collect::<std::collections::BTreeMap<_, _>>()))
}

proptest! {
    #![proptest_config(few())]

    #[test]
    fn a_json_socket_header_is_found_in_a_stream_and_read_back(labels in labels(), tail in bytes(40)) {
        let header = json_socket::build_request(None, &json!({ "labels": labels }));
        let stream = [&header[..], &tail].concat();
        prop_assert_eq!(json_socket::header_end(&stream), Some(header.len()));
        let read = json_socket::parse_request(&header).unwrap();
        prop_assert_eq!(read.get("labels"), Some(&labels));
        let counted = json_socket::count_hop(&header, 3);
        prop_assert_eq!(json_socket::hops(&json_socket::parse_request(&counted).unwrap()), 4);
    }

    #[test]
    fn any_json_socket_header_is_read_or_told_why_not(noise in bytes(60), cut in any::<Index>()) {
        let good = br#"{"labels":{"a":["x",1,null]},"JSONSocketVersion":1}"#;
        for header in [&noise[..], &good[..cut.index(good.len())]] {
            prop_assert!(json_socket::header_end(header).is_none_or(|end| end <= header.len()));
            if let Err(rejected) = json_socket::parse_request(header) {
                prop_assert_eq!(json_socket::parse_response(&rejected.to_bytes()), Err(rejected));
            }
        }
    }

    #[test]
    fn frames_come_back_however_they_are_cut(
        messages in vec((any::<bool>(), "[ -~]{0,300}"), 0..5), mask in any::<[u8; 4]>(), cuts in vec(any::<Index>(), 0..6),
    ) {
        let mut sent = Vec::new();
        for (text, data) in &messages {
            let opcode = if *text { Opcode::Text } else { Opcode::Binary };
            write_frame(&mut sent, opcode, data.as_bytes(), Some(mask));
        }
        let (mut reader, mut walker) = (Reader::new(Role::Server, 1000), Walker::default());
        let (mut read, mut walked) = (Vec::new(), 0);
        for mut piece in pieces(&sent, &cuts) {
            walked += walker.handle_bytes(&piece).unwrap();
            reader.handle_bytes(&mut piece, |event| {
                if let Event::Message { data, text } = event {
                    read.push((text, String::from_utf8(data.to_vec()).unwrap()));
                }
            }).unwrap();
        }
        prop_assert_eq!(&read, &messages);
        prop_assert_eq!(usize::try_from(walked).unwrap(), messages.len());
    }

    #[test]
    fn any_bytes_are_frames_or_a_violation_with_a_code(mut noise in bytes(200), role in prop_oneof![Just(Role::Server), Just(Role::Client)]) {
        Walker::default().handle_bytes(&noise);
        let mut longest = 0;
        let done = Reader::new(role, 64).handle_bytes(&mut noise, |event| {
            if let Event::Message { data, .. } = event {
                longest = longest.max(data.len());
            }
        });
        prop_assert!(longest <= 64);
        prop_assert!(done.is_ok() || done.is_err_and(|violation| (1000..1012).contains(&violation.code)));
    }

    #[test]
    fn a_handshake_is_understood_by_its_other_side_and_nothing_is_smuggled_in(
        host in any::<String>(), path in any::<String>(), headers in vec((any::<String>(), any::<String>()), 0..4),
        subprotocol in "[a-z]{1,5}", nonce in any::<[u8; 16]>(),
    ) {
        let request = handshake::Request { host, path, subprotocols: vec![subprotocol.clone()], headers: headers.clone() };
        let sent = request.to_bytes(nonce);
        let (head, used) = parse_head(&sent, HeadLimits { bytes: 100_000, headers: 100 }).unwrap().unwrap();
        prop_assert_eq!(used, sent.len());
        let given: Vec<String> = headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect();
        for (name, _) in &head.headers {
            prop_assert!(handshake::is_own(name) || given.contains(name), "{} came from nowhere", name);
        }
        let accepted = handshake::accept(&head, &[]).unwrap();
        let (answer, _) = parse_head(accepted.response.as_bytes(), HeadLimits::default()).unwrap().unwrap();
        prop_assert_eq!(handshake::confirm(&answer, nonce, &request.subprotocols), Ok(Some(subprotocol)));
    }

    #[test]
    fn a_head_is_whole_at_its_end_and_not_before(
        headers in vec(("[a-z][a-z-]{0,8}", "[!-~]([ -~]{0,20}[!-~])?"), 0..6), cut in any::<Index>(), tail in bytes(20),
    ) {
        let lines: Vec<String> = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let head = format!("GET /x HTTP/1.1\r\n{}\r\n", lines.concat());
        let prefix = &head.as_bytes()[..cut.index(head.len())];
        prop_assert_eq!(parse_head(prefix, HeadLimits::default()), Ok(None));
        let (read, used) = parse_head(&[head.as_bytes(), &tail].concat(), HeadLimits::default()).unwrap().unwrap();
        prop_assert_eq!((used, &read.headers), (head.len(), &headers));
    }

    #[test]
    fn any_bytes_are_a_head_or_an_error(noise in bytes(200)) {
        let sent = [b"GET / HTTP/1.1\r\n", &noise[..], b"\r\n\r\n"].concat();
        if let Ok(Some((head, used))) = parse_head(&sent, HeadLimits::default()) {
            prop_assert!(used <= sent.len());
            for (name, value) in &head.headers {
                prop_assert!(!name.is_empty() && name.bytes().all(is_token) && is_header_value(value), "{name}: {value}");
            }
        }
    }

    #[test]
    fn chunks_come_back_however_they_are_cut(parts in vec(bytes(50), 0..5), cuts in vec(any::<Index>(), 0..6), tail in bytes(10)) {
        let parts: Vec<Vec<u8>> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let mut sent = Vec::new();
        for part in &parts {
            sent.extend([chunk_head(part.len()).as_bytes(), part, b"\r\n"].concat());
        }
        sent.extend_from_slice(LAST_CHUNK);
        let (mut body, mut read, mut used) = (Body::Chunked(Chunks::default()), Vec::new(), 0);
        for piece in pieces(&[&sent[..], &tail].concat(), &cuts) {
            used += body.handle_bytes(&piece, |data| read.extend_from_slice(data)).unwrap();
        }
        prop_assert!(body.is_done());
        prop_assert_eq!((used, read), (sent.len(), parts.concat()));
    }

    #[test]
    fn any_bytes_are_chunks_or_an_error(noise in bytes(100)) {
        let mut read = 0;
        let used = Body::Chunked(Chunks::default()).handle_bytes(&noise, |data| read += data.len());
        prop_assert!(read <= noise.len());
        if let Ok(used) = used {
            prop_assert!(read <= used && used <= noise.len());
        }
    }

    #[test]
    fn framed_messages_come_back_however_they_are_cut(
        messages in vec(bytes(300), 0..5), cuts in vec(any::<Index>(), 0..6), wide in any::<bool>(),
    ) {
        let framing = if wide { Framing::Len32 } else { Framing::Len16 };
        let mut framer = Framer::new(framing, 1000).unwrap();
        let framed = |data: &Vec<u8>| [framer.header(data.len()).unwrap().as_slice(), data].concat();
        let sent: Vec<u8> = messages.iter().flat_map(framed).collect();
        let mut read = Vec::new();
        for piece in pieces(&sent, &cuts) {
            framer.handle_bytes(&piece, |message| read.push(message.to_vec())).unwrap();
        }
        prop_assert_eq!(read, messages);
    }

    #[test]
    fn a_message_longer_than_the_limit_is_refused_by_its_length_alone(length in 1001_u32.., tail in bytes(10)) {
        let sent = [&length.to_be_bytes()[..], &tail].concat();
        let refused = Framer::new(Framing::Len32, 1000).unwrap().handle_bytes(&sent, |_| ()).is_err();
        prop_assert!(refused);
    }

    #[test]
    fn coalesced_datagrams_are_split_without_loss(data in bytes(400), segment in 1_usize..500) {
        let received = Received { data: &data, segment };
        let parts: Vec<&[u8]> = received.split().collect();
        prop_assert_eq!(parts.len(), received.datagrams());
        prop_assert_eq!(parts.concat(), data.clone());
        prop_assert!(parts.iter().all(|part| part.len() <= segment));
        prop_assert!(parts.iter().rev().skip(1).all(|part| part.len() == segment));
    }
}
