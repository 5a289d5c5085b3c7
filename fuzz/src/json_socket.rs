//! JSONSocket headers and answers.

use portolan_proxy::config::types::HeaderItem;
use portolan_proxy::proto::json_socket::{
    Rejected, add_token, build_request, close_notice, count_hop, header_end, hops, parse_close_notice, parse_request,
    parse_response, take_token,
};
use serde_json::{Map, Value};

pub(crate) fn run(bytes: &[u8]) {
    end(bytes);
    match parse_request(bytes) {
        Ok(header) => accepted(bytes, header),
        Err(rejected) => refused(bytes.len(), rejected),
    }
    if let Some((port, token)) = parse_close_notice(bytes) {
        assert_eq!(parse_close_notice(&close_notice(port, token)), Some((port, token)));
    }
    if let Err(rejected) = parse_response(bytes) {
        assert_eq!(parse_response(&rejected.to_bytes()), Err(rejected), "a refusal passed on is the same refusal");
    }
}

/// Where a header ends does not depend on what follows, and no earlier place is one.
fn end(bytes: &[u8]) {
    let Some(end) = header_end(bytes) else { return };
    assert!(end <= bytes.len());
    assert_eq!(header_end(&bytes[..end]), Some(end), "what follows a header does not move its end");
    let object = bytes.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
    assert!(!object || header_end(&bytes[..end - 1]).is_none(), "an object has one end");
}

fn accepted(bytes: &[u8], header: Map<String, Value>) {
    let behind = hops(&header);
    let metadata = Value::Object(header);
    let everything = [HeaderItem::Copy { from: "/".to_owned(), to: "/".to_owned() }];
    let sent = build_request(Some(&everything), &metadata);
    let read = parse_request(&sent).expect("what we send is a header");
    let again = build_request(Some(&everything), &Value::Object(read));
    assert!(again == sent || crate::has_double(&metadata), "a header sent on stays as it is");
    assert_eq!(header_end(&sent), Some(sent.len()), "a header ends where it ends");

    let counted = parse_request(&count_hop(bytes, behind)).expect("a counted header is a header");
    let has_labels = metadata.get("labels").is_none_or(Value::is_object);
    let expected = if has_labels { behind.saturating_add(1) } else { behind };
    assert_eq!(hops(&counted), expected, "each proxy counts once");
    build_request(None, &metadata);

    let mut signed = parse_request(&add_token(bytes, 7)).expect("a signed header is a header");
    assert_eq!(take_token(&mut signed), Some(7));
}

/// A refusal is told in bounded words that its reader understands.
fn refused(len: usize, rejected: Rejected) {
    let told = rejected.to_bytes();
    assert!(told.len() <= 6 * len + 400, "{len} bytes are refused with {}", told.len());
    assert_eq!(parse_response(&told), Err(rejected));
}
