//! TCP clusters.

use super::config::TcpCluster;
use crate::io::connect::Remote;
use crate::io::link::{Link, Stream};
use crate::io::loop_detection::Family;
use crate::io::session::Session;
use crate::io::worker::Worker;
use crate::proto::session::Failure;
use std::net::IpAddr;

impl Worker {
    /// Opens the socket of a TCP stage; `None` while a name is resolved.
    pub(crate) fn connect_tcp(
        &mut self,
        session: &mut Session,
        stage: usize,
        tcp: &TcpCluster,
        found: Option<&[IpAddr]>,
    ) -> Result<Option<Link>, Failure> {
        let remote = Remote { family: Family::Tcp, host: None, port: None, default_port: tcp.port, bind: &tcp.bind };
        let Some((socket, _)) = self.dial(session, stage, &remote, found)? else { return Ok(None) };
        Ok(Some(Link::Stream(Box::new(Stream::new(socket, self.codec(tcp.framing)).connecting()))))
    }
}
