//! A proxy's API on loopback and a client that speaks to it, byte by byte.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use portolan_proxy::config::document::{Language, parse};
use portolan_proxy::config::json::Json;
use portolan_proxy::rest::exchange::{Client, Request, Response};
use portolan_proxy::rest::server::{self, Listen, Running};
use portolan_proxy::rest::{Access, Api, Settings};
use serde_json::Value;

use super::engine::Memory;

/// No answer takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// An API on a port of its own.
pub(super) struct Proxy {
    pub(super) api: Arc<Api>,
    pub(super) engine: Arc<Memory>,
    running: Running,
}

/// An answer as it came.
#[derive(Debug, Clone)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) reason: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

/// What to send.
#[derive(Debug, Clone, Default)]
pub(super) struct Call<'a> {
    pub(super) line: &'a str,
    pub(super) headers: Vec<(&'a str, String)>,
    pub(super) body: Vec<u8>,
}

impl Proxy {
    /// Starts with a configuration in YAML.
    pub(super) fn start(config: &str, strict: bool) -> Self {
        Self::start_with(config, Access::default(), Settings { strict, ..Settings::default() })
    }

    pub(super) fn start_with(config: &str, access: Access, settings: Settings) -> Self {
        let engine = Arc::new(Memory::default());
        let api = Arc::new(Api::new(Arc::clone(&engine) as Arc<_>, access, settings));
        let listen = Listen { address: SocketAddr::from(([127, 0, 0, 1], 0)), tls: None };
        let (_, queue) = server::api_queue();
        let running = server::start(Arc::clone(&api), queue, Some(listen)).expect("loopback has a free port");
        let config: Json = parse(config, Language::Yaml).expect("the test's configuration is YAML");
        api.load(&config).expect("the test's configuration is good");
        Self { api, engine, running }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.running.address.expect("it listens")
    }

    pub(super) fn connect(&self) -> Connection {
        let stream = TcpStream::connect(self.address()).expect("the API accepts");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
        Connection { stream: BufReader::new(stream) }
    }

    /// Asks without the wire between.
    pub(super) fn direct(&self, method: &str, target: &str, body: &Value) -> Response {
        self.api.handle(&Request {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: vec![("content-type".to_owned(), "application/json".to_owned())],
            body: body.to_string().into_bytes(),
            client: Client { address: Some([127, 0, 0, 1].into()), certified: false },
        })
    }

    /// Asks once, with a JSON body if there is one.
    pub(super) fn ask(&self, line: &str, body: Option<Value>) -> Answer {
        self.connect().ask(line, body)
    }
}

/// A connection that is kept alive.
pub(super) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(super) fn ask(&mut self, line: &str, body: Option<Value>) -> Answer {
        let headers = body.iter().map(|_| ("Content-Type", "application/json".to_owned())).collect();
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        self.send(&Call { line, headers, body })
    }

    /// `line` is a method and a target.
    pub(super) fn send(&mut self, call: &Call<'_>) -> Answer {
        let mut head = Vec::new();
        write!(head, "{} HTTP/1.1\r\nHost: proxy\r\nContent-Length: {}\r\n", call.line, call.body.len())
            .expect("a vector takes all");
        for (name, value) in &call.headers {
            write!(head, "{name}: {value}\r\n").expect("a vector takes all");
        }
        head.extend(b"\r\n");
        head.extend(&call.body);
        self.stream.get_mut().write_all(&head).expect("the API reads");
        self.receive()
    }

    pub(super) fn receive(&mut self) -> Answer {
        let status_line = self.line();
        let mut words = status_line.splitn(3, ' ');
        assert_eq!(words.next(), Some("HTTP/1.1"), "{status_line}");
        let status = words.next().and_then(|word| word.parse().ok()).expect("a status");
        let reason = words.next().unwrap_or_default().to_owned();
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(": ") else { break };
            headers.push((name.to_owned(), value.to_owned()));
        }
        let mut answer = Answer { status, reason, headers, body: String::new() };
        let length = answer.header("Content-Length").and_then(|text| text.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("the body is as long as it says");
        answer.body = String::from_utf8(body).expect("bodies are text");
        answer
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("an answer");
        line.trim_end().to_owned()
    }
}

impl Answer {
    /// By the name exactly as it stands on the wire.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub(super) fn content(&self) -> Value {
        self.json()["content"].clone()
    }
}
