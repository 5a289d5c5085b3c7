//! Unix-domain clusters.

use super::config::UdsCluster;
use super::path::allowed_path;
use crate::io::link::{Link, Stream};
use crate::io::session::Session;
use crate::io::sys::{self, UnixKind};
use crate::io::worker::Worker;
use crate::proto::session::Failure;
use std::path::Path;

impl Worker {
    pub(crate) fn connect_unix(&self, session: &Session, stage: usize, uds: &UdsCluster) -> Result<Link, Failure> {
        let endpoint = session.stages[stage].endpoint.as_ref();
        let path = endpoint.map(|e| e.address.as_str()).filter(|path| path.starts_with('/'));
        let path = path.map(Path::new).or(uds.filename.as_deref()).unwrap_or(Path::new(""));
        let host_mapping = &self.shared.host_mapping;
        let real = host_mapping.map_path(path);
        if !allowed_path(&real, &host_mapping.directories(&self.snapshot.admin.uds_dirs)) {
            return Err(Failure::connect(format!("{} is outside admin.uds_dirs", path.display())).permanent());
        }
        let kind = UnixKind::from(uds.kind);
        let socket = self.check_descriptor_limit(sys::unix_connected(&real, kind));
        let socket = socket.map_err(|error| {
            Failure::connect(format!("connect {} {}", sys::error_name(&error), path.display()))
                .with_endpoint_fault(sys::is_peers_fault(&error))
        })?;
        Ok(match kind {
            UnixKind::Stream => Link::Stream(Box::new(Stream::new(socket, self.codec(uds.framing)))),
            UnixKind::SeqPacket | UnixKind::Datagram => Link::Datagram(socket),
        })
    }
}
