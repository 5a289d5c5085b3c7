//! UDP clusters.

use super::config::UdpCluster;
use crate::io::connect::Remote;
use crate::io::link::Link;
use crate::io::loop_detection::Family;
use crate::io::session::Session;
use crate::io::worker::Worker;
use crate::proto::session::Failure;
use std::net::IpAddr;

impl Worker {
    /// Opens the socket of a UDP stage; `None` while a name is resolved.
    pub(crate) fn connect_udp(
        &mut self,
        session: &mut Session,
        stage: usize,
        udp: &UdpCluster,
        found: Option<&[IpAddr]>,
    ) -> Result<Option<Link>, Failure> {
        let remote = Remote { family: Family::Udp, host: None, port: None, default_port: udp.port, bind: &udp.bind };
        let socket = self.dial(session, stage, &remote, found)?;
        Ok(socket.map(|(socket, _)| Link::Datagram(socket)))
    }
}
