//! Standard input, for the one session that a Stdio cluster serves.

use super::command::Command;
use super::ring::Ring;
use super::sync::Member;
use parking_lot::{Condvar, Mutex};
use std::io::Read;
use std::sync::Arc;

/// Bytes of one read.
const ROOM: usize = 65_536;

/// The session that has standard input, and the thread that reads it.
#[derive(Default)]
pub(crate) struct Stdio {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    holder: Option<Member>,
    reads: bool,
    /// Used in place of standard input.
    input: Option<Box<dyn Read + Send>>,
}

impl Stdio {
    /// Reads from `input` in the place of standard input.
    #[cfg(test)]
    pub(crate) fn set_input(&self, input: Box<dyn Read + Send>) {
        self.state.lock().input = Some(input);
    }

    /// Gives standard input to a session; false if another one has it.
    pub(crate) fn join(self: &Arc<Self>, member: Member, rings: &[Arc<Ring<Command>>]) -> bool {
        let mut state = self.state.lock();
        if state.holder.is_some() {
            return false;
        }
        state.holder = Some(member);
        self.changed.notify_all();
        if !std::mem::replace(&mut state.reads, true) {
            let input = state.input.take().unwrap_or_else(|| Box::new(std::io::stdin()));
            let (stdio, rings) = (Arc::clone(self), rings.to_vec());
            let reader = std::thread::Builder::new().name("proxy-stdin".to_owned());
            if let Err(error) = reader.spawn(move || stdio.read(input, &rings)) {
                tracing::warn!(%error, "cannot read standard input");
            }
        }
        true
    }

    /// Takes standard input back from a session, if it has it.
    pub(crate) fn leave(&self, member: Member) {
        let mut state = self.state.lock();
        if state.holder == Some(member) {
            state.holder = None;
        }
    }

    /// Reads to the end; input without a session waits for the next session.
    fn read(&self, mut input: Box<dyn Read + Send>, rings: &[Arc<Ring<Command>>]) {
        let mut buffer = vec![0; ROOM];
        while let Ok(n) = input.read(&mut buffer) {
            if n == 0 {
                return;
            }
            let mut state = self.state.lock();
            while state.holder.is_none() {
                self.changed.wait(&mut state);
            }
            let Some(member) = state.holder else { return };
            drop(state);
            let message = vec![(member, buffer[..n].to_vec())];
            if rings.get(member.worker).is_none_or(|ring| ring.push(Command::GroupMessages(message)).is_err()) {
                tracing::warn!("a worker is overloaded: data from standard input was dropped");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::json::Json;
    use crate::io::{DataPlane, Options};
    use crate::rest::{Access, Api, Settings};
    use serde_json::json;
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::Arc;
    use std::time::Duration;

    #[test]
    fn standard_input_goes_to_one_session_at_a_time_and_then_to_the_next() {
        let plane = DataPlane::start(Options { workers: 2, ..Options::default() }).unwrap();
        let (input, mut typed) = std::io::pipe().unwrap();
        plane.stdio().set_input(Box::new(input));
        let api = Api::new(Arc::clone(&plane) as _, Access::new(None, false, true).unwrap(), Settings::default());
        let rules = json!([{ "action": { "route": { "destination": { "spec": { "protocol": "Stdio" } } } } }]);
        let spec = json!({ "protocol": "TCP", "port": 0, "address": "127.0.0.1" });
        let config =
            json!({ "admin": { "allow_stdio": true }, "listeners": [{ "name": "l", "spec": spec, "rules": rules }] });
        api.load(&Json::from(&config)).unwrap();
        let connect = || {
            let stream = TcpStream::connect(plane.local_address("l").unwrap()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            stream
        };
        let read = |stream: &mut TcpStream, n: usize| {
            let mut bytes = vec![0; n];
            stream.read_exact(&mut bytes).map(|()| String::from_utf8(bytes).unwrap()).ok()
        };
        let mut first = connect();
        typed.write_all(b"hello").unwrap();
        assert_eq!(read(&mut first, 5).as_deref(), Some("hello"));
        assert_eq!(read(&mut connect(), 1), None, "the second is refused");
        drop(first);
        while api.metrics().lines().any(|line| line == "portolan_proxy_sessions 1") {
            std::thread::sleep(Duration::from_millis(1));
        }
        typed.write_all(b"again").unwrap();
        assert_eq!(read(&mut connect(), 5).as_deref(), Some("again"), "what was typed meanwhile waits");
        plane.stop();
    }
}
