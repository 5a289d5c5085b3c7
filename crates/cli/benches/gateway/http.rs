//! Plain HTTP/1.1 on blocking sockets: nothing of a client library is measured.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::Value;

use crate::site::LOGIN;

/// Longer than anything takes.
const LIMIT: Duration = Duration::from_secs(30);

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    /// Fails unless it has this status code.
    pub(crate) fn is(self, code: u16) -> anyhow::Result<Self> {
        ensure!(self.code == code, "{code} was expected: {self:?}");
        Ok(self)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_str(&self.body).with_context(|| format!("not JSON: {self:?}"))
    }
}

pub(crate) fn get(at: SocketAddr, path: &str) -> anyhow::Result<Answer> {
    send(at, "GET", path, "")
}

/// Sends a request as a tenant, on a connection of its own.
pub(crate) fn send(at: SocketAddr, method: &str, path: &str, body: &str) -> anyhow::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&at, LIMIT)?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.write_all(request(method, path, body, "close").as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8(bytes)?;
    let (head, body) = text.split_once("\r\n\r\n").context("no end of the head")?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse().ok()).context("no status code")?;
    Ok(Answer { code, head: head.to_owned(), body: body.to_owned() })
}

pub(crate) fn request(method: &str, path: &str, body: &str, connection: &str) -> String {
    format!(
        "{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: {LOGIN}\r\nConnection: {connection}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A connection that is used again.
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Connection {
    pub(crate) fn open(at: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(at)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        Ok(Self { stream, buffer: vec![0; 1 << 16] })
    }

    /// Sends a request whose answer says how long it is; fails unless that is 200.
    pub(crate) fn ok(&mut self, request: &str) -> anyhow::Result<()> {
        self.stream.write_all(request.as_bytes())?;
        let mut length = 0;
        loop {
            let read = self.stream.read(&mut self.buffer[length..])?;
            ensure!(read > 0, "the connection was closed");
            length += read;
            let Some(head_end) = self.buffer[..length].windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
                continue;
            };
            let head = std::str::from_utf8(&self.buffer[..head_end])?;
            ensure!(head.starts_with("HTTP/1.1 200 "), "{head}");
            let line = head
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ").map(str::to_owned));
            let Some(body) = line else { bail!("no length: {head}") };
            if length >= head_end + 4 + body.parse::<usize>()? {
                return Ok(());
            }
        }
    }
}

/// Writes to the API server that an operator has counted on its admin port.
pub(crate) fn writes(admin: SocketAddr) -> anyhow::Result<f64> {
    let metrics = get(admin, "/metrics")?;
    let lines = metrics.body.lines().filter(|line| line.starts_with("portolan_runtime_writes_total"));
    // a sum of nothing is -0.0
    Ok(lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>() + 0.0)
}
