//! Asks etcd to forget its history, by its JSON gateway on a Unix socket.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

/// Forgets everything but the newest version of each key.
pub(super) fn compact(socket: &Path) -> anyhow::Result<()> {
    // Any key does: the answer names the revision of the whole store.
    let newest = post(socket, "/v3/kv/range", &json!({ "key": "AA==" }))?;
    let revision = newest["header"]["revision"].as_str().context("etcd names its revision")?;
    post(socket, "/v3/kv/compaction", &json!({ "revision": revision, "physical": true })).map(drop)
}

fn post(socket: &Path, path: &str, body: &Value) -> anyhow::Result<Value> {
    let body = body.to_string();
    let mut stream =
        UnixStream::connect(socket).with_context(|| format!("connecting to {} failed", socket.display()))?;
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("etcd answers in HTTP")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{path} was answered {answer}");
    // Long answers come in pieces with their lengths; ours are short, but may still come as one piece.
    let start = body.find('{').context("etcd answers in JSON")?;
    let end = body.rfind('}').context("etcd answers in JSON")?;
    Ok(serde_json::from_str(&body[start..=end])?)
}
