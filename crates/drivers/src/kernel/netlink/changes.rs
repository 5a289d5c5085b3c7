//! What others change: in our tables, on the tunnel, among our routes and rules, and links of any kind.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::neighbour;
use super::route::{DELETE_ROUTE, DELETE_RULE, NEW_ROUTE, NEW_RULE, PROTOCOL, link_index, route_protocol};
use super::socket::{NETFILTER, ROUTE, Socket, wait_for_any};
use super::wire::{Received, find, messages, text};
use crate::kernel::KernelError;
use crate::kernel::ruleset::{TABLE, TUNNEL_INDEX};

/// Groups of messages about links, neighbours, addresses, routes and rules.
const ROUTE_GROUPS: u32 = 0x1 | 0x4 | 0x10 | 0x40 | 0x80 | 0x100 | 0x400 | 1 << 18;
const NFTABLES_GROUP: u32 = 1 << 6;

pub(super) struct Changes {
    routes: Socket,
    rulesets: Socket,
    /// The ports of our own sockets.
    own: [u32; 2],
}

impl Changes {
    pub(super) fn open(own: [u32; 2]) -> Result<Self, KernelError> {
        let routes = Socket::open(ROUTE, ROUTE_GROUPS)?;
        let rulesets = Socket::open(NETFILTER, NFTABLES_GROUP)?;
        Ok(Self { routes, rulesets, own })
    }

    /// Waits for a change by someone else that matters.
    pub(super) fn wait(&mut self, at_most: Duration) -> Result<bool, KernelError> {
        let deadline = Instant::now() + at_most;
        loop {
            let rest = deadline.saturating_duration_since(Instant::now());
            let [routes, rulesets] = wait_for_any([&self.routes, &self.rulesets], rest)?;
            let own = self.own;
            let of_others = |message: &Received<'_>| !own.contains(&message.port);
            let mut matters = false;
            if routes {
                matters |= read(&mut self.routes, |message| of_others(message) && concerns_network(message))?;
            }
            if rulesets {
                matters |= read(&mut self.rulesets, |message| of_others(message) && concerns_ruleset(message))?;
            }
            if matters || rest.is_zero() {
                return Ok(matters);
            }
        }
    }
}

/// Reads what has arrived. What was lost may have mattered.
fn read(socket: &mut Socket, matters: impl Fn(&Received<'_>) -> bool) -> Result<bool, KernelError> {
    match socket.receive() {
        Ok(datagram) => Ok(messages(datagram).any(|message| matters(&message))),
        Err(KernelError::Socket { cause: Errno::NOBUFS, .. }) => Ok(true),
        Err(error) => Err(error),
    }
}

fn concerns_network(message: &Received<'_>) -> bool {
    match message.kind {
        neighbour::NEW | neighbour::DELETE => link_index(message.body) == Some(TUNNEL_INDEX),
        NEW_ROUTE | DELETE_ROUTE => route_protocol(message.body) == Some(PROTOCOL),
        NEW_RULE | DELETE_RULE => {
            message.body.get(12..).and_then(|attributes| find(attributes, 21)) == Some(&[PROTOCOL])
        }
        // Links and their addresses are few.
        _ => true,
    }
}

/// Every kind of object has its table's name as the first attribute.
fn concerns_ruleset(message: &Received<'_>) -> bool {
    message.body.get(4..).and_then(|attributes| find(attributes, 1)).and_then(text) == Some(TABLE)
}
