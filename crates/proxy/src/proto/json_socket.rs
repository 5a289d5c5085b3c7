//! JSONSocket, version 1: one JSON header before any data, one answer to it.

use crate::transport::json_socket::config::HeaderItem;
use portolan_core::mesh::Path;
use serde_json::{Map, Value, json};

/// A refused header, and the response to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{status} {message}")]
pub struct Rejected {
    pub status: u16,
    pub message: String,
}

/// The response that opens the connection.
pub const ACCEPTED: &str = r#"{"JSONSocketVersion":1,"JSONSocketStatus":200,"JSONSocketMessage":"OK"}"#;

const VERSION: &str = "JSONSocketVersion";
/// How much of a received header a response repeats.
const SHOWN: usize = 200;

/// Reads a client's header.
pub fn parse_request(bytes: &[u8]) -> Result<Map<String, Value>, Rejected> {
    let bad = |message: &str| Rejected { status: 400, message: format!("Bad Request: {message}") };
    let header = serde_json::from_slice::<Value>(bytes).map_err(|_| bad("Invalid JSON header"))?;
    let Value::Object(header) = header else { return Err(bad("err")) };
    let version = header.get(VERSION).ok_or_else(|| bad("err"))?;
    let whole = version.as_f64().filter(|number| number.fract() == 0.0);
    let Some(whole) = whole else {
        return Err(bad(&format!("JSONSocket version info is not numeric/integer in header: {}", shown(&header))));
    };
    if !(0.0..=1.0).contains(&whole) {
        let message = format!("Bad Request: Unsupported JSONSocket version in header: {}", shown(&header));
        return Err(Rejected { status: 505, message });
    }
    Ok(header)
}

/// A header as Node's inspect prints it if the version is all there is, else as compact JSON.
fn shown(header: &Map<String, Value>) -> String {
    let version = header.get(VERSION).filter(|_| header.len() == 1);
    let printed = version.and_then(|version| match version {
        Value::Null | Value::Bool(_) | Value::Number(_) => Some(version.to_string()),
        Value::String(text) => Some(format!("'{text}'")),
        Value::Array(_) | Value::Object(_) => None,
    });
    if let Some(printed) = printed {
        return format!("{{ {VERSION}: {printed} }}");
    }
    let text = Value::Object(header.clone()).to_string();
    let cut = (0..=SHOWN.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.get(..cut).unwrap_or_default().to_owned()
}

impl Rejected {
    /// The response that reports it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let message = Value::String(self.message.clone());
        format!(r#"{{"JSONSocketVersion":1,"JSONSocketStatus":{},"JSONSocketMessage":{message}}}"#, self.status)
            .into_bytes()
    }
}

/// Builds the header that we send as a client.
pub fn build_request(items: Option<&[HeaderItem]>, metadata: &Value) -> Vec<u8> {
    let mut header = json!({});
    let labels = [HeaderItem::Copy { from: "/labels".to_owned(), to: "/labels".to_owned() }];
    for item in items.unwrap_or(&labels) {
        match item {
            HeaderItem::Copy { from, to } => {
                if let Some(found) = Path::new(from).read(metadata).filter(|found| is_something(found)) {
                    Path::new(to).write(&mut header, found.clone());
                }
            }
            HeaderItem::Set { key, value } => {
                Path::new(key).write(&mut header, value.clone());
            }
        }
    }
    let Value::Object(mut header) = header else { return version_last(Map::new()) };
    header.remove(VERSION);
    version_last(header)
}

/// The label that counts the proxies on the way.
pub const HOPS: &str = "portolan-hops";

/// The hop count of a header.
pub fn hops(header: &Map<String, Value>) -> u8 {
    let label = header.get("labels").and_then(|labels| labels.get(HOPS));
    let count = label.and_then(|label| label.as_u64().or_else(|| label.as_str()?.parse().ok()));
    count.map_or(0, |count| u8::try_from(count).unwrap_or(u8::MAX))
}

/// A header with one hop more than `behind` among its labels, unless its labels are something else.
pub fn count_hop(header: &[u8], behind: u8) -> Vec<u8> {
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(header) else { return header.to_vec() };
    let Value::Object(labels) = fields.entry("labels").or_insert_with(|| json!({})) else { return header.to_vec() };
    labels.insert(HOPS.to_owned(), Value::String(behind.saturating_add(1).to_string()));
    fields.remove(VERSION);
    version_last(fields)
}

/// The header field with the token of the client's close notice.
const TOKEN: &str = "portolan-token";
/// The prefix of a close notice.
const CLOSE_NOTICE: &str = "{\"portolan-end\":";
/// Maximum length of a close notice.
const LONGEST_CLOSE_NOTICE: usize = 200;

/// Adds the token of the client's close notice to a header.
pub fn add_token(header: &[u8], token: u64) -> Vec<u8> {
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(header) else { return header.to_vec() };
    fields.insert(TOKEN.to_owned(), Value::String(format!("{token:016x}")));
    fields.remove(VERSION);
    version_last(fields)
}

/// Removes the token from a received header, so that it is not passed on.
pub fn take_token(header: &mut Map<String, Value>) -> Option<u64> {
    header.remove(TOKEN).and_then(|token| u64::from_str_radix(token.as_str()?, 16).ok())
}

/// A close notice, sent from another port than that of its session. A foreign server would take it for the header of a new
/// session, so it is sent to Portolan proxies only.
pub fn close_notice(port: u16, token: u64) -> Vec<u8> {
    format!("{CLOSE_NOTICE}{{\"port\":{port},\"token\":\"{token:016x}\"}},\"{VERSION}\":1}}").into_bytes()
}

/// Parses a close notice: the port of the ended session, and its token.
pub fn parse_close_notice(bytes: &[u8]) -> Option<(u16, u64)> {
    if bytes.len() > LONGEST_CLOSE_NOTICE || !bytes.starts_with(CLOSE_NOTICE.as_bytes()) {
        return None;
    }
    let said = serde_json::from_slice::<Value>(bytes).ok()?;
    let end = said.get("portolan-end")?;
    let port = end.get("port")?.as_u64().and_then(|port| u16::try_from(port).ok())?;
    Some((port, u64::from_str_radix(end.get("token")?.as_str()?, 16).ok()?))
}

fn is_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(yes) => *yes,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(_) | Value::Object(_) => true,
    }
}

fn version_last(header: Map<String, Value>) -> Vec<u8> {
    let comma = if header.is_empty() { "" } else { "," };
    let mut text = Value::Object(header).to_string();
    text.pop();
    format!("{text}{comma}\"{VERSION}\":1}}").into_bytes()
}

/// Checks a server's response.
pub fn parse_response(bytes: &[u8]) -> Result<(), Rejected> {
    let answer = serde_json::from_slice::<Value>(bytes).ok().filter(Value::is_object);
    let Some(answer) = answer else {
        return Err(Rejected { status: 400, message: "Bad Request: Invalid JSON header".to_owned() });
    };
    let Some(status) = answer.get("JSONSocketStatus") else { return Ok(()) };
    let status = status.as_u64().and_then(|status| u16::try_from(status).ok()).unwrap_or(400);
    if (200..300).contains(&status) {
        return Ok(());
    }
    let message = answer.get("JSONSocketMessage").and_then(Value::as_str).unwrap_or("Unknown error");
    Err(Rejected { status, message: message.to_owned() })
}

/// Where the first JSON object of a byte stream ends; nothing while it is not complete.
///
/// Bytes that begin no object are taken as one header up to the end of what is there: it is judged, and refused.
pub fn header_end(bytes: &[u8]) -> Option<usize> {
    let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace())?;
    if bytes.get(start) != Some(&b'{') {
        return Some(bytes.len());
    }
    let (mut depth, mut quoted, mut escaped) = (0usize, false, false);
    for (at, byte) in bytes.iter().enumerate().skip(start) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_answered_word_for_word() {
        for (header, status, message) in [
            ("nonsense", 400, "Bad Request: Invalid JSON header"),
            ("{}", 400, "Bad Request: err"),
            ("[]", 400, "Bad Request: err"),
            ("1", 400, "Bad Request: err"),
            ("\"x\"", 400, "Bad Request: err"),
            ("null", 400, "Bad Request: err"),
            (
                r#"{"JSONSocketVersion":"1"}"#,
                400,
                "Bad Request: JSONSocket version info is not numeric/integer in header: { JSONSocketVersion: '1' }",
            ),
            (
                r#"{"JSONSocketVersion":1.5}"#,
                400,
                "Bad Request: JSONSocket version info is not numeric/integer in header: { JSONSocketVersion: 1.5 }",
            ),
            (
                r#"{"JSONSocketVersion":null}"#,
                400,
                "Bad Request: JSONSocket version info is not numeric/integer in header: { JSONSocketVersion: null }",
            ),
            (
                r#"{"JSONSocketVersion":2}"#,
                505,
                "Bad Request: Unsupported JSONSocket version in header: { JSONSocketVersion: 2 }",
            ),
            (
                r#"{"a":1,"JSONSocketVersion":-1}"#,
                505,
                r#"Bad Request: Unsupported JSONSocket version in header: {"JSONSocketVersion":-1,"a":1}"#,
            ),
        ] {
            let rejected = parse_request(header.as_bytes()).unwrap_err();
            assert_eq!((rejected.status, rejected.message.as_str()), (status, message), "{header}");
        }
        for good in [r#"{"JSONSocketVersion":0}"#, r#"{"x":{"y":1},"JSONSocketVersion":1}"#] {
            assert!(parse_request(good.as_bytes()).is_ok(), "{good}");
        }
    }

    #[test]
    fn the_header_is_built_item_by_item() {
        let metadata = json!({"IP": {"src_addr": "127.0.0.1"}, "labels": {"a": "x"}, "zero": 0});
        let copy = |from: &str, to: &str| HeaderItem::Copy { from: from.into(), to: to.into() };
        let items = [
            copy("/labels", "/labels"),
            copy("/IP", "/"),
            copy("/zero", "/zero"),
            copy("/nothing", "/n"),
            HeaderItem::Set { key: "/foo/bar".into(), value: json!("z") },
        ];
        let built =
            |items: Option<&[HeaderItem]>, metadata: &Value| String::from_utf8(build_request(items, metadata)).unwrap();
        assert_eq!(
            built(Some(&items), &metadata),
            r#"{"foo":{"bar":"z"},"src_addr":"127.0.0.1","JSONSocketVersion":1}"#
        );
        assert_eq!(built(None, &metadata), r#"{"labels":{"a":"x"},"JSONSocketVersion":1}"#);
        assert_eq!(built(None, &json!({})), r#"{"JSONSocketVersion":1}"#);
        assert_eq!(built(Some(&[]), &metadata), r#"{"JSONSocketVersion":1}"#);
    }

    #[test]
    fn a_close_notice_has_the_token_of_the_header() {
        let header = add_token(br#"{"labels":{"a":"x"},"JSONSocketVersion":1}"#, 7);
        let mut read = parse_request(&header).unwrap();
        assert_eq!((take_token(&mut read), take_token(&mut read), read.len()), (Some(7), None, 2));
        assert_eq!(parse_close_notice(&close_notice(65_535, u64::MAX)), Some((65_535, u64::MAX)));
        assert_eq!(parse_close_notice(&header), None);
        for bad in [
            "",
            "{\"portolan-end\":",
            "{\"portolan-end\":{\"port\":65536,\"token\":\"7\"}}",
            "{\"portolan-end\":{\"port\":1}}",
        ] {
            assert_eq!(parse_close_notice(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn an_answer_opens_only_with_a_good_status_or_none() {
        assert_eq!(parse_response(ACCEPTED.as_bytes()), Ok(()));
        assert_eq!(parse_response(br#"{"JSONSocketVersion":1}"#), Ok(()));
        let rejected = Rejected { status: 404, message: "Not Found: \"x\"".into() };
        assert_eq!(parse_response(&rejected.to_bytes()), Err(rejected));
        assert!(parse_response(b"junk").is_err());
        for (status, opens) in [(199, false), (200, true), (299, true), (300, false)] {
            let answer = format!(r#"{{"JSONSocketVersion":1,"JSONSocketStatus":{status}}}"#);
            assert_eq!(parse_response(answer.as_bytes()).is_ok(), opens, "{status}");
        }
    }

    #[test]
    fn the_first_object_of_a_stream_ends_where_its_brace_does() {
        let text = br#" {"a":"}\"{","b":[{}]}rest"#;
        for cut in 0..22 {
            assert_eq!(header_end(&text[..cut.min(text.len() - 5)]).filter(|end| *end < 22), None, "cut {cut}");
        }
        assert_eq!(header_end(text), Some(text.len() - 4));
        assert_eq!(header_end(b"junk"), Some(4));
    }
}
