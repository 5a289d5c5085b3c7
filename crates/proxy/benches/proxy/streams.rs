//! Byte streams: a sender that writes, and the sink that counts what arrives.

use anyhow::{Context as _, ensure};
use portolan_proxy::proto::http1::{Head, HeadLimits, parse_head};
use portolan_proxy::proto::ws::{Opcode, handshake, write_frame};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A server that counts the bytes of its clients.
pub(crate) struct ByteSink {
    count: Arc<AtomicU64>,
}

impl ByteSink {
    /// `websocket`: whether each client is first answered its upgrade.
    pub(crate) fn start(port: u16, websocket: bool) -> anyhow::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port))?;
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let counted = Arc::clone(&counted);
                std::thread::spawn(move || read_all(stream, websocket, &counted));
            }
        });
        Ok(Self { count })
    }
}

fn read_all(mut stream: TcpStream, websocket: bool, counted: &AtomicU64) -> anyhow::Result<()> {
    if websocket {
        let head = read_head(&mut stream)?;
        let accepted = handshake::accept(&head, &[]).map_err(anyhow::Error::msg)?;
        stream.write_all(accepted.response.as_bytes())?;
    }
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            return Ok(());
        }
        counted.fetch_add(n as u64, Relaxed);
    }
}

/// A stream through one contestant.
pub(crate) struct Pusher<'a> {
    stream: TcpStream,
    sink: &'a ByteSink,
    data: Vec<u8>,
}

impl<'a> Pusher<'a> {
    /// Connects, for which a peer may need some time, and makes the chunk that is written over and over.
    pub(crate) fn new(stream: TcpStream, sink: &'a ByteSink, data: Vec<u8>) -> Self {
        Self { stream, sink, data }
    }

    /// Writes the chunk so many times and waits until all of it has arrived.
    pub(crate) fn turn(&mut self, times: u64) -> anyhow::Result<()> {
        let all = self.sink.count.load(Relaxed) + self.data.len() as u64 * times;
        for _ in 0..times {
            self.stream.write_all(&self.data)?;
        }
        let began = Instant::now();
        while self.sink.count.load(Relaxed) < all {
            ensure!(began.elapsed() < Duration::from_secs(10), "bytes are missing after 10 s");
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }
}

/// A connection to a port, which a peer may open only after some time.
pub(crate) fn connect(port: u16) -> anyhow::Result<TcpStream> {
    let began = Instant::now();
    loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) if began.elapsed() > Duration::from_secs(10) => {
                return Err(error).with_context(|| format!("nobody listens on port {port}"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// The same with a WebSocket handshake.
pub(crate) fn connect_websocket(port: u16) -> anyhow::Result<TcpStream> {
    let mut stream = connect(port)?;
    let request = handshake::Request { host: "x".into(), path: "/".into(), ..handshake::Request::default() };
    stream.write_all(&request.to_bytes([1; 16]))?;
    read_head(&mut stream)?;
    Ok(stream)
}

/// So many binary frames of a client in a row.
pub(crate) fn frames(count: usize, size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..count {
        write_frame(&mut bytes, Opcode::Binary, &vec![7; size], Some([1, 2, 3, 4]));
    }
    bytes
}

fn read_head(stream: &mut TcpStream) -> anyhow::Result<Head> {
    let (mut read, mut byte) = (Vec::new(), [0]);
    loop {
        stream.read_exact(&mut byte).context("the connection ended within a head")?;
        read.push(byte[0]);
        let parsed = parse_head(&read, HeadLimits::default()).map_err(|error| anyhow::anyhow!("{error}"))?;
        if let Some((head, _)) = parsed {
            return Ok(head);
        }
    }
}
