//! The HTTP upgrade that opens a WebSocket, from both ends.

use crate::proto::http1::{Head, is_header_value, is_token};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use std::fmt::Write;

const GUID: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The answer to a request that asks for no WebSocket.
pub const UPGRADE_REQUIRED: &str = "HTTP/1.1 426 Upgrade Required\r\nUpgrade: websocket\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 16\r\n\r\nUpgrade Required";

/// The answer to a request for another version of the protocol.
pub const OTHER_VERSION: &str = "HTTP/1.1 426 Upgrade Required\r\nSec-WebSocket-Version: 13\r\nUpgrade: websocket\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 16\r\n\r\nUpgrade Required";

/// The answer to a request for a WebSocket without a valid key.
pub const BAD_KEY: &str = "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: 28\r\n\r\nSec-WebSocket-Key is invalid";

/// Headers of the handshake itself: never copied from one side to the other.
pub fn is_own(header: &str) -> bool {
    matches!(header, "host" | "upgrade" | "connection" | "content-length" | "transfer-encoding")
        || header.starts_with("sec-websocket-")
}

/// What a client asked for and how to answer it.
#[derive(Debug, PartialEq, Eq)]
pub struct Accepted {
    pub subprotocol: Option<String>,
    pub response: String,
}

/// Judges a client's request; the answer to send instead if it is refused.
pub fn accept(head: &Head, known: &[String]) -> Result<Accepted, &'static str> {
    let upgrades = head.method() == "GET" && head.lists("upgrade", "websocket") && head.lists("connection", "upgrade");
    if !upgrades {
        return Err(UPGRADE_REQUIRED);
    }
    if head.header("sec-websocket-version").as_deref() != Some("13") {
        return Err(OTHER_VERSION);
    }
    let key = head.header("sec-websocket-key");
    let key = key.filter(|key| STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16)).ok_or(BAD_KEY)?;
    let offered = head.header("sec-websocket-protocol").unwrap_or_default();
    let mut offered = offered.split(',').map(str::trim).filter(|name| !name.is_empty());
    let subprotocol = offered.find(|name| known.is_empty() || known.iter().any(|k| k == name)).map(str::to_owned);
    let chosen = subprotocol.as_ref().map(|name| format!("Sec-WebSocket-Protocol: {name}\r\n")).unwrap_or_default();
    let response = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: {}\r\n{chosen}\r\n",
        accept_key(&key)
    );
    Ok(Accepted { subprotocol, response })
}

fn accept_key(key: &str) -> String {
    // SHA-1 protects nothing here: it shows that the server read the key
    STANDARD.encode(digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{GUID}").as_bytes()))
}

/// What we ask a server for.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// `host:port`, as the Host header has it.
    pub host: String,
    pub path: String,
    pub subprotocols: Vec<String>,
    /// From metadata; those of the handshake itself and those with line breaks are left out.
    pub headers: Vec<(String, String)>,
}

impl Request {
    /// The bytes to send; `nonce` is sixteen random bytes.
    pub fn to_bytes(&self, nonce: [u8; 16]) -> Vec<u8> {
        let path = if is_target(&self.path) { self.path.as_str() } else { "/" };
        let host = if is_header_value(&self.host) { self.host.as_str() } else { "" };
        let slash = if path.starts_with('/') { "" } else { "/" };
        let mut text = format!(
            "GET {slash}{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {}\r\nSec-WebSocket-Version: 13\r\n",
            STANDARD.encode(nonce)
        );
        let mut line = |name: &str, value: &str| {
            write!(text, "{name}: {value}\r\n").expect("a string takes everything");
        };
        let names: Vec<&str> =
            self.subprotocols.iter().map(String::as_str).filter(|p| p.bytes().all(is_token)).collect();
        if !names.is_empty() {
            line("Sec-WebSocket-Protocol", &names.join(", "));
        }
        for (name, value) in &self.headers {
            let name = name.to_ascii_lowercase();
            if !name.is_empty() && name.bytes().all(is_token) && !is_own(&name) && is_header_value(value) {
                line(&name, value);
            }
        }
        text.push_str("\r\n");
        text.into_bytes()
    }
}

fn is_target(path: &str) -> bool {
    !path.is_empty() && path.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Judges a server's answer to [`Request::to_bytes`] with the same nonce and offered subprotocols; on success the one
/// that it chose.
pub fn confirm(head: &Head, nonce: [u8; 16], offered: &[String]) -> Result<Option<String>, String> {
    if head.status() != 101 {
        return Err(format!("Unexpected server response: {}", head.status()));
    }
    if !head.lists("upgrade", "websocket") || !head.lists("connection", "upgrade") {
        return Err("the server did not upgrade the connection".to_owned());
    }
    if head.header("sec-websocket-accept").as_deref() != Some(&accept_key(&STANDARD.encode(nonce))) {
        return Err("Invalid Sec-WebSocket-Accept header".to_owned());
    }
    if head.header("sec-websocket-extensions").is_some() {
        return Err("the server chose an extension that was not offered".to_owned());
    }
    let chosen = head.header("sec-websocket-protocol");
    if chosen.as_ref().is_some_and(|chosen| !offered.contains(chosen)) {
        return Err("the server chose a subprotocol that was not offered".to_owned());
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::http1::{HeadLimits, parse_head};

    fn parse(bytes: &[u8]) -> Head {
        parse_head(bytes, HeadLimits::default()).unwrap().unwrap().0
    }

    #[test]
    fn the_key_of_the_rfc_gives_the_answer_of_the_rfc() {
        assert_eq!(accept_key("dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    }

    #[test]
    fn both_ends_agree_and_the_first_known_subprotocol_is_chosen() {
        let request = Request {
            host: "h:1".into(),
            path: "p?q=1".into(),
            subprotocols: vec!["a".into(), "b".into()],
            headers: vec![
                ("X-Id".into(), "7".into()),
                ("Host".into(), "evil".into()),
                ("Sec-WebSocket-Key".into(), "evil".into()),
                ("x-split".into(), "a\r\nb: c".into()),
            ],
        };
        let bytes = request.to_bytes([3; 16]);
        let head = parse(&bytes);
        assert_eq!((head.target(), head.header("x-id").as_deref()), ("/p?q=1", Some("7")));
        assert_eq!((head.header("host").as_deref(), head.header("x-split")), (Some("h:1"), None));
        let accepted = accept(&head, &["b".into()]).unwrap();
        assert_eq!(accepted.subprotocol.as_deref(), Some("b"));
        assert_eq!(accept(&head, &[]).unwrap().subprotocol.as_deref(), Some("a"));
        let confirmed = |response: &str, nonce: u8, offered: &[&str]| {
            let offered: Vec<String> = offered.iter().map(|&name| name.to_owned()).collect();
            confirm(&parse(response.as_bytes()), [nonce; 16], &offered)
        };
        assert_eq!(confirmed(&accepted.response, 3, &["a", "b"]), Ok(Some("b".into())));
        assert!(confirmed(&accepted.response, 4, &["a", "b"]).is_err(), "another nonce");
        assert!(confirmed(&accepted.response, 3, &["a"]).is_err(), "a subprotocol that was not offered");
        let extended = accepted.response.replace("Connection", "Sec-WebSocket-Extensions: x\r\nConnection");
        assert!(confirmed(&extended, 3, &["a", "b"]).is_err(), "an extension that was not offered");
        let none = accepted.response.replace("Sec-WebSocket-Protocol: b\r\n", "");
        assert_eq!(confirmed(&none, 3, &["a", "b"]), Ok(None));
    }

    #[test]
    fn a_plain_request_is_no_websocket() {
        let good =
            String::from_utf8(Request { host: "h".into(), path: "/".into(), ..Request::default() }.to_bytes([0; 16]))
                .unwrap();
        assert!(accept(&parse(good.as_bytes()), &[]).is_ok());
        for (from, to, answer) in [
            ("GET", "POST", UPGRADE_REQUIRED),
            ("Version: 13", "Version: 8", OTHER_VERSION),
            ("Upgrade: websocket\r\n", "", UPGRADE_REQUIRED),
            ("Key: ", "Key: x", BAD_KEY),
            ("Key: AAAA", "Key: ", BAD_KEY),
        ] {
            assert_eq!(accept(&parse(good.replacen(from, to, 1).as_bytes()), &[]), Err(answer), "{to:?}");
        }
        for answer in [UPGRADE_REQUIRED, OTHER_VERSION, BAD_KEY] {
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("Content-Length: {}", body.len())), "{answer}");
        }
    }
}
