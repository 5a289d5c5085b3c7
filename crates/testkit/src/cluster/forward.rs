//! A port on this machine's loopback that leads to a server on a host of the cluster.
//!
//! A socket belongs to the network of the thread that made it: the thread that forwards lives in the host's network, and
//! listens on a socket that was made here before.

use std::{
    fs::File,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    thread,
};

use anyhow::Context;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::sync::oneshot;

/// Forwards until it is dropped.
pub(super) struct Forward {
    port: u16,
    _stop: oneshot::Sender<()>,
}

impl Forward {
    /// From a free port here to `to` in the network of a process.
    pub(super) fn start(process: u32, to: SocketAddr) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let network = File::open(format!("/proc/{process}/ns/net"))?;
        let (stop, stopped) = oneshot::channel::<()>();
        thread::Builder::new()
            .name("testkit-forward".into())
            .spawn(move || {
                let forwarding = forward(listener, &network, to, stopped);
                if let Err(error) = forwarding {
                    tracing::error!("forwarding to {to} ended: {error:#}");
                }
            })
            .context("starting a thread failed")?;
        Ok(Self { port, _stop: stop })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }
}

fn forward(
    listener: TcpListener,
    network: &File,
    to: SocketAddr,
    stopped: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    move_into_link_name_space(std::os::fd::AsFd::as_fd(network), Some(LinkNameSpaceType::Network))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let accepting = async {
            loop {
                let (mut here, _) = listener.accept().await?;
                tokio::spawn(async move {
                    if let Ok(mut there) = tokio::net::TcpStream::connect(to).await {
                        // A connection that breaks is its two ends' to handle.
                        tokio::io::copy_bidirectional(&mut here, &mut there).await.ok();
                    }
                });
            }
        };
        tokio::select! {
            ended = accepting => ended,
            // Also when the sender is dropped.
            _ = stopped => Ok(()),
        }
    })
}
