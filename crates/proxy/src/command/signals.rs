//! The signals that a proxy listens to.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

pub(super) struct Signals {
    reload: Signal,
    terminate: Signal,
    interrupt: Signal,
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Reload,
    Stop,
}

impl Wish {
    pub(super) const fn is_reload(self) -> bool {
        matches!(self, Self::Reload)
    }
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            reload: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.reload.recv() => Wish::Reload,
            _ = self.terminate.recv() => Wish::Stop,
            _ = self.interrupt.recv() => Wish::Stop,
        }
    }

    /// Waits for a signal to stop, whatever else comes.
    pub(super) async fn stop(&mut self) {
        while self.next().await.is_reload() {}
    }
}
