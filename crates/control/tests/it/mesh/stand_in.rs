//! Things at a proxy's address that are no proxy: they say nothing, or what they should not.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::harness::{API, fresh_address};

/// What it does with a request.
#[derive(Clone)]
pub(super) enum Habit {
    /// Takes connections and says nothing.
    Silent,
    /// Sends this, and ends the connection.
    Says(String),
    /// Sends a body of so many bytes.
    Long(usize),
}

/// One such thing, while it is here.
pub(super) struct StandIn {
    pub(super) address: Ipv4Addr,
    asked: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl StandIn {
    pub(super) async fn start(habit: Habit) -> anyhow::Result<Self> {
        let address = fresh_address();
        let listener = TcpListener::bind((address, API)).await?;
        let asked = Arc::new(AtomicUsize::new(0));
        let (count, mut tasks) = (Arc::clone(&asked), JoinSet::new());
        tasks.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                let habit = habit.clone();
                open.spawn(async move { drop(answer(stream, &habit).await) });
            }
        });
        Ok(Self { address, asked, _tasks: tasks })
    }

    /// How many connections it got.
    pub(super) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

async fn answer(mut stream: TcpStream, habit: &Habit) -> std::io::Result<()> {
    let mut request = [0; 4096];
    while stream.read(&mut request).await? > 0 {
        match habit {
            Habit::Silent => {}
            Habit::Says(text) => {
                stream.write_all(text.as_bytes()).await?;
                return stream.shutdown().await;
            }
            Habit::Long(bytes) => {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
                stream.write_all(head.as_bytes()).await?;
                let block = vec![b' '; 1 << 20];
                for _ in 0..*bytes / block.len() {
                    stream.write_all(&block).await?;
                }
            }
        }
    }
    Ok(())
}
