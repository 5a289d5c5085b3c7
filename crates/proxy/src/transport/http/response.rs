//! Responses of the proxy itself.

use crate::io::link::{Codec, Stream};
use serde_json::json;

/// Responds to a request whose session could not be set up.
pub(crate) fn answer_error(stream: &mut Stream, message: &str, content: &str) {
    let Codec::Http(state) = &mut stream.codec else { return };
    state.answering = true;
    state.answered = true;
    let keep = state.keep_alive && state.body.is_done();
    state.keep_alive = keep;
    let status = status_of(message);
    let text = |value: &str| json!(value).to_string();
    let body = format!(
        "{{\n    \"status\": {status},\n    \"message\": {},\n    \"content\": {}\n}}",
        text(message),
        text(content)
    );
    let connection = if keep { "" } else { "Connection: close\r\n" };
    let head = format!(
        "HTTP/1.1 {status} {message}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{connection}\r\n",
        body.len()
    );
    let body = if state.is_bodyless() { "" } else { &body };
    stream.write(head.as_bytes(), body.as_bytes());
}

/// The status of an error by its message.
pub(crate) fn status_of(message: &str) -> u16 {
    match message {
        "Not Found" => 404,
        "Service Unavailable" => 503,
        "Bad Gateway" => 502,
        "Bad Request" => 400,
        _ => 500,
    }
}
