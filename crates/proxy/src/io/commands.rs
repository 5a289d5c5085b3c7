//! How a worker runs commands of other threads.

use super::command::Command;
use super::port::Port;
use super::ports::OpenPort;
use super::slab::Key;
use super::sys;
use super::token::Token;
use super::worker::Worker;
use crate::config::types::Qos;
use crate::proto::session::Finish;
use std::sync::Arc;

impl Worker {
    pub(crate) fn run_commands(&mut self) {
        for command in self.commands.take() {
            self.follow_configuration();
            self.guarded(|worker| worker.run_command(command));
        }
    }

    fn run_command(&mut self, command: Command) {
        match command {
            Command::Attach(port) => self.attach(&port),
            Command::Detach(port) => self.detach(&port),
            Command::CloseUnused(port) => self.close_if_unused(port),
            Command::EndOf(listener) => {
                for key in self.sessions.keys() {
                    if self.sessions.get(key).is_some_and(|session| Arc::ptr_eq(&session.listener, &listener)) {
                        self.end(key, Finish::Api, "Listener deleted from API");
                    }
                }
            }
            // the caller may have timed out; then the reply is dropped
            Command::List { filter, from, limit, reply } => drop(reply.send(self.list(&filter, from, limit))),
            Command::Sweep { filter, from, how, reply } => drop(reply.send(self.sweep(&filter, from, how))),
            Command::GroupMessages(messages) => self.group_messages.extend(messages),
            Command::CloseNotice { flow, token } => self.handle_close_notice(flow, token),
            Command::Answer { session, response } => self.handle_api_answer(session, &response),
            Command::Resolved { session, stage, addresses } => self.resolved(session, stage, &addresses),
            Command::Drain => {
                let ports: Vec<Arc<Port>> = self.ports.iter().map(|open| Arc::clone(&open.port)).collect();
                for port in &ports {
                    self.detach(port);
                }
            }
            #[cfg(test)]
            Command::Fault => panic!("fault injected by a test"),
            Command::Stop => {
                for key in self.sessions.keys() {
                    self.end(key, Finish::Shutdown, "Shutdown");
                }
                self.stopping = true;
            }
        }
    }

    pub(crate) fn attach(&mut self, port: &Arc<Port>) {
        let Some(fd) = port.socket(self.id) else { return };
        let listener = port.listener.load_full();
        let qos = listener.as_ref().and_then(|listener| listener.config.options.qos.as_ref());
        sys::set_dscp(fd, qos.map_or(0, Qos::code_point));
        let reads_dscp = qos.is_some();
        if reads_dscp {
            sys::receive_dscp(fd);
        }
        let id = port.id;
        if let Some(open) = self.ports.get_mut(id) {
            open.detached = false;
            open.reads_dscp |= reads_dscp;
        } else {
            if let Err(error) = self.epoll.add(fd, Token::Port(id).pack(), sys::READ) {
                tracing::error!(%error, address = ?port.bind_address, "cannot watch a listening socket");
                return;
            }
            self.ports.add(OpenPort { port: Arc::clone(port), fd, detached: false, drops: 0, reads_dscp });
        }
        if let Some(listener) = listener.filter(|listener| listener.is_singleton()) {
            self.open_singleton(port, &listener);
        }
    }

    fn detach(&mut self, port: &Arc<Port>) {
        if !port.is_datagram() {
            return self.close_port(port.id);
        }
        if let Some(open) = self.ports.get_mut(port.id) {
            open.detached = port.listener.load().is_none();
        }
        self.close_if_unused(port.id);
    }

    pub(crate) fn end(&mut self, key: Key, finish: Finish, content: &'static str) {
        self.with_session(key, |worker, session| session.machine.handle_end(finish, Some(content), worker.now));
    }
}
