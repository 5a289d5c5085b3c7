//! What operators say to a proxy, recorded on the way: a relay at the pod's address, before the real proxy.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::harness::{API, fresh_address};

/// A request that came by.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) at: Instant,
    /// The request line, for whoever reads a failure.
    #[expect(dead_code, reason = "shown when a test fails")]
    pub(super) line: String,
    /// The term of whoever sent it.
    pub(super) term: Option<u64>,
}

/// One relay, while it is here.
pub(super) struct Relay {
    pub(super) address: Ipv4Addr,
    seen: Arc<Mutex<Vec<Seen>>>,
    answers: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Relay {
    pub(super) async fn start(proxy: Ipv4Addr) -> anyhow::Result<Self> {
        let address = fresh_address();
        let listener = TcpListener::bind((address, API)).await?;
        let (seen, answers) = (Arc::new(Mutex::new(Vec::new())), watch::Sender::new(true));
        let (record, passes, mut tasks) = (Arc::clone(&seen), answers.subscribe(), JoinSet::new());
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (record, passes) = (Arc::clone(&record), passes.clone());
                open.spawn(async move { drop(pass(stream, proxy, &record, passes).await) });
            }
        });
        Ok(Self { address, seen, answers, _tasks: tasks })
    }

    /// Whether requests reach the proxy; otherwise connections are closed, and further ones after their first request.
    pub(super) fn set_answers(&self, answers: bool) {
        self.answers.send_replace(answers);
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }
}

/// Requests of operators are small, and each comes after the answer to the last: what is read at once is one request.
async fn pass(
    mut from: TcpStream,
    to: Ipv4Addr,
    seen: &Mutex<Vec<Seen>>,
    mut answers: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let mut proxy = TcpStream::connect((to, API)).await?;
    let (mut request, mut answer) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let passes = *answers.borrow_and_update();
    loop {
        tokio::select! {
            _ = answers.changed(), if passes => return Ok(()),
            length = from.read(&mut request) => {
                let length = length?;
                note(&request[..length], seen);
                if length == 0 || !passes {
                    return Ok(());
                }
                proxy.write_all(&request[..length]).await?;
            }
            length = proxy.read(&mut answer) => {
                let length = length?;
                if length == 0 || !passes {
                    return Ok(());
                }
                from.write_all(&answer[..length]).await?;
            }
        }
    }
}

/// Records the head of a request; a body that comes by itself has none.
fn note(bytes: &[u8], seen: &Mutex<Vec<Seen>>) {
    let text = String::from_utf8_lossy(bytes);
    let Some(line) = text.lines().next().filter(|line| line.ends_with("HTTP/1.1")) else { return };
    let term = text.lines().find_map(|line| line.strip_prefix("portolan-term: ")?.trim().parse().ok());
    seen.lock().push(Seen { at: Instant::now(), line: line.to_owned(), term });
}
