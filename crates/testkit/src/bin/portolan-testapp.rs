//! What runs in the pods of a test cluster.
//!
//! - `pause` waits for SIGTERM and reaps orphans: the sandbox of every pod, and the first process of a node.
//! - `echo --udp PORT --tcp PORT --http PORT` answers `PEER NAME TEXT`: who asked, which pod answers ($NAME), and what
//!   was sent.
//! - `send udp|tcp|http ADDRESS:PORT COUNT EVERY-MS` sends numbered texts, waits for each answer, and prints one JSON line:
//!   how many were answered, which were not, why, and how long the slowest failure took, the longest gap between
//!   answers, and the peers and pods that the answers name. With `-` as COUNT it sends until its standard input ends.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::signal::unix::{SignalKind, signal};

/// An answer that takes longer counts as lost: long, as the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        runtime.block_on(async {
            match words[..] {
                ["pause"] => pause().await,
                ["echo", ref ports @ ..] => echo(ports).await,
                ["send", protocol, to, count, every] => {
                    let count = if count == "-" { None } else { Some(count.parse()?) };
                    send(protocol, to, count, every.parse()?).await
                }
                _ => bail!(
                    "use: pause | echo --udp PORT --tcp PORT --http PORT | send udp|tcp|http ADDRESS:PORT COUNT EVERY-MS"
                ),
            }
        })
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            writeln!(io::stderr(), "error: {error:#}").ok();
            ExitCode::FAILURE
        }
    }
}

/// The first process of a namespace gets the orphans of all others, and no signal that it does not ask for.
async fn pause() -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut child = signal(SignalKind::child())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = child.recv() => {
                while let Ok(Some(_)) = rustix::process::wait(rustix::process::WaitOptions::NOHANG) {}
            }
        }
    }
}

async fn echo(ports: &[&str]) -> anyhow::Result<()> {
    let name = std::env::var("NAME").unwrap_or_else(|_| "-".into());
    for pair in ports.chunks(2) {
        let &[protocol, port] = pair else { bail!("a protocol needs a port") };
        let at = format!("[::]:{port}");
        let name = name.clone();
        match protocol {
            "--udp" => drop(tokio::spawn(echo_udp(UdpSocket::bind(at).await?, name))),
            "--tcp" => drop(tokio::spawn(echo_tcp(TcpListener::bind(at).await?, name))),
            "--http" => drop(tokio::spawn(echo_http(TcpListener::bind(at).await?, name))),
            other => bail!("{other} is not a protocol: --udp, --tcp, --http"),
        }
    }
    pause().await
}

async fn echo_udp(socket: UdpSocket, name: String) -> anyhow::Result<()> {
    let mut buffer = vec![0; 65_536];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).await?;
        let mut answer = format!("{} {name} ", from.ip().to_canonical()).into_bytes();
        answer.extend_from_slice(&buffer[..length]);
        // One that has gone away is no reason to leave the others.
        socket.send_to(&answer, from).await.ok();
    }
}

async fn echo_tcp(listener: TcpListener, name: String) -> anyhow::Result<()> {
    loop {
        let (stream, from) = listener.accept().await?;
        let greeting = format!("{} {name} ", from.ip().to_canonical());
        tokio::spawn(async move {
            let (read, mut write) = stream.into_split();
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if write.write_all(format!("{greeting}{line}\n").as_bytes()).await.is_err() {
                    return;
                }
            }
        });
    }
}

async fn echo_http(listener: TcpListener, name: String) -> anyhow::Result<()> {
    loop {
        let (mut stream, from) = listener.accept().await?;
        let body = format!("{} {name} ", from.ip().to_canonical());
        tokio::spawn(async move {
            let mut head = Vec::new();
            while !head.windows(4).any(|four| four == b"\r\n\r\n") {
                if stream.read_buf(&mut head).await.unwrap_or_default() == 0 {
                    return;
                }
            }
            let first = String::from_utf8_lossy(&head).lines().next().unwrap_or_default().to_owned();
            let body = format!("{body}{first}\n");
            let length = body.len();
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
            stream.write_all(answer.as_bytes()).await.ok();
        });
    }
}

async fn send(protocol: &str, to: &str, count: Option<u64>, every: u64) -> anyhow::Result<()> {
    let mut seen = Seen::default();
    let mut last = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_millis(every.max(1)));
    let input = std::thread::spawn(|| io::copy(&mut io::stdin(), &mut io::sink()));
    let mut sent = 0;
    while count.map_or_else(|| !input.is_finished(), |count| sent < count) {
        ticks.tick().await;
        let number = sent;
        sent += 1;
        let asked = Instant::now();
        let answer = tokio::time::timeout(PATIENCE, ask(protocol, to, &number.to_string())).await;
        let answer = answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        match answer {
            Ok(answer) => {
                let mut words = answer.split_whitespace();
                let (peer, name) =
                    words.next().zip(words.next()).with_context(|| format!("`{answer}` is no answer"))?;
                *seen.peers.entry(peer.to_owned()).or_default() += 1;
                *seen.names.entry(name.to_owned()).or_default() += 1;
                seen.answered += 1;
                (seen.longest_gap, last) = (seen.longest_gap.max(last.elapsed()), Instant::now());
            }
            Err(error) => {
                seen.lost.push(number);
                *seen.errors.entry(error.kind().to_string()).or_default() += 1;
                seen.slowest_error = seen.slowest_error.max(asked.elapsed());
            }
        }
    }
    let longest_gap = seen.longest_gap.max(last.elapsed());
    let line = serde_json::json!({
        "sent": sent,
        "answered": seen.answered,
        "lost": seen.lost,
        "errors": seen.errors,
        "slowestErrorMs": u64::try_from(seen.slowest_error.as_millis())?,
        "longestGapMs": u64::try_from(longest_gap.as_millis())?,
        "peers": seen.peers,
        "names": seen.names,
    });
    writeln!(io::stdout(), "{line}")?;
    Ok(())
}

#[derive(Default)]
struct Seen {
    answered: u64,
    lost: Vec<u64>,
    /// How many of the lost ended with which kind of error.
    errors: BTreeMap<String, u64>,
    slowest_error: Duration,
    longest_gap: Duration,
    peers: BTreeMap<String, u64>,
    names: BTreeMap<String, u64>,
}

/// One question on a socket of its own, as a new client would.
async fn ask(protocol: &str, to: &str, text: &str) -> io::Result<String> {
    match protocol {
        "udp" => {
            let any = if to.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
            let socket = UdpSocket::bind(any).await?;
            socket.connect(to).await?;
            socket.send(text.as_bytes()).await?;
            let mut buffer = [0; 2048];
            let length = socket.recv(&mut buffer).await?;
            Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
        }
        "tcp" => {
            let mut stream = connect(to).await?;
            stream.write_all(format!("{text}\n").as_bytes()).await?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).await?;
            Ok(line)
        }
        "http" => {
            let mut stream = connect(to).await?;
            let request = format!("GET /{text} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
            let is_good = head.starts_with("HTTP/1.1 200 ");
            if is_good { Ok(body.to_owned()) } else { Err(io::Error::other(format!("`{head}` is no good answer"))) }
        }
        other => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{other} is not a protocol: udp, tcp, http"))),
    }
}

/// Connects, or learns of a refusal as soon as the kernel does.
///
/// An ICMP error that arrives while `connect` still holds the socket, as that of a firewall on the same machine does,
/// ends the attempt only with the first retransmission, a second later. Until then the kernel says so to whoever asks.
async fn connect(to: &str) -> io::Result<TcpStream> {
    let invalid = |_| io::Error::new(io::ErrorKind::InvalidInput, format!("{to} is not ADDRESS:PORT"));
    let to: SocketAddr = to.parse().map_err(invalid)?;
    let socket = if to.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    let same_socket = std::net::TcpStream::from(socket.as_fd().try_clone_to_owned()?);
    let refused = async {
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if let Some(error) = same_socket.take_error()? {
                return Err(error);
            }
        }
    };
    tokio::select! {
        connected = socket.connect(to) => connected,
        refused = refused => refused,
    }
}
