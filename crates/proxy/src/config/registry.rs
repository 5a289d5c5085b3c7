//! The only place where the configuration changes; a change is applied completely or not at all.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use super::delete::{self, Cut, Delete};
use super::engine::{BindError, Ending, Engine, SessionFilter};
use super::refusal::{Class, Refusal};
use super::state::State;
use super::types::{Listener, Name};
use super::write::Writer;

/// The current configuration and the engine that runs it.
pub struct Registry {
    state: State,
    engine: Arc<dyn Engine>,
    /// Listeners that route to the API are bound to loopback.
    loopback: bool,
    /// Addresses of the API's own server.
    own: Vec<SocketAddr>,
    /// The highest leadership term that a changing call had; 0 before the first.
    term: u64,
}

/// A change being prepared on a copy of the configuration.
pub struct Change {
    pub state: State,
    /// The index of the current operation.
    pub operation: usize,
    cuts: Vec<Cut>,
}

/// The outcome of a change or of a dry run.
#[derive(Debug)]
pub struct ChangeResult<R> {
    pub result: R,
    pub generation: u64,
    /// Sessions ended by each operation; operations that ended none are omitted.
    pub sessions_cut: BTreeMap<usize, usize>,
}

impl Registry {
    /// An empty configuration. `loopback`: the API has no authentication, so it is bound to loopback.
    pub fn new(engine: Arc<dyn Engine>, loopback: bool) -> Self {
        Self { state: State::default(), engine, loopback, own: Vec::new(), term: 0 }
    }

    /// Sets the addresses of the API's own server, to which sessions are never routed.
    pub fn set_own(&mut self, own: Vec<SocketAddr>) -> Result<(), Refusal> {
        self.own = own;
        // before the first configuration there is nothing to apply
        if self.state.snapshot.generation == 0 { Ok(()) } else { self.change(|_| Ok(())).map(drop) }
    }

    /// The highest leadership term seen; 0 if none was.
    pub fn term(&self) -> u64 {
        self.term
    }

    /// Refuses a caller whose term is over, and remembers the highest term. The caller changes something under the same
    /// lock, so that no other term gets in between.
    pub fn admit_term(&mut self, term: Option<u64>) -> Result<(), Refusal> {
        let Some(term) = term else { return Ok(()) };
        if term < self.term {
            let content = format!("term {term} is over: term {} was seen; another operator leads now", self.term);
            return Err(Refusal::new(Class::StaleTerm { highest: self.term }, content));
        }
        self.term = term;
        Ok(())
    }

    pub fn state(&self) -> &State {
        &self.state
    }

    pub fn engine(&self) -> &dyn Engine {
        &*self.engine
    }

    /// Applies a change: all of `edit`, or nothing if any part is refused or a socket cannot be opened.
    pub fn change<R>(
        &mut self,
        edit: impl FnOnce(&mut Change) -> Result<R, Refusal>,
    ) -> Result<ChangeResult<R>, Refusal> {
        let (change, result) = self.prepare(edit)?;
        let Change { mut state, cuts, .. } = change;
        if state.changed {
            state.seal();
            self.engine.apply(Arc::new(state.snapshot.clone())).map_err(|error| unbound(&error))?;
            state.snapshot.changed_listeners.clear();
            state.changed = false;
            self.state = state;
        }
        let sessions_cut = tally(&cuts, |cut| self.engine.end(&cut.filter, cut.how));
        Ok(ChangeResult { result, generation: self.state.snapshot.generation, sessions_cut })
    }

    /// Computes what a change would do, without applying it or opening sockets.
    pub fn dry_run<R>(&self, edit: impl FnOnce(&mut Change) -> Result<R, Refusal>) -> Result<ChangeResult<R>, Refusal> {
        let (change, result) = self.prepare(edit)?;
        let sessions_cut = tally(&change.cuts, |cut| self.engine.count(&cut.filter));
        Ok(ChangeResult { result, generation: self.state.snapshot.generation, sessions_cut })
    }

    /// Removes objects that were waiting for their last session to end.
    pub fn sweep(&mut self) {
        if self.state.pending_removal.is_empty() {
            return;
        }
        let waiting = self.state.pending_removal.clone();
        let swept = self.change(|change| {
            change.state.pending_removal.clear();
            change.state.orphans.extend(waiting);
            Ok(())
        });
        if let Err(refusal) = swept {
            tracing::warn!(%refusal, "cannot remove unused objects yet");
        }
    }

    fn prepare<R>(&self, edit: impl FnOnce(&mut Change) -> Result<R, Refusal>) -> Result<(Change, R), Refusal> {
        let mut change = Change { state: self.state.clone(), operation: 0, cuts: Vec::new() };
        let result = edit(&mut change)?;
        delete::sweep(&mut change.state, |filter| self.engine.count(filter) > 0);
        self.settle_listeners(&mut change.state)?;
        Ok((change, result))
    }

    /// Checks that no two listeners claim the same socket, and binds an unauthenticated API to loopback.
    fn settle_listeners(&self, state: &mut State) -> Result<(), Refusal> {
        let changed: Vec<Arc<Listener>> =
            state.snapshot.changed_listeners.iter().filter_map(|change| change.after.clone()).collect();
        for listener in changed {
            if let Some((what, conflicting_listener)) = state.conflicting_listener(&listener) {
                let content = format!("Cannot add listener: {what} is used by listener \"{conflicting_listener}\"");
                return Err(Refusal::conflict(content));
            }
            let carries = delete::carries_api(state, &listener.name);
            state.note_api_listener(&listener, carries);
            if self.loopback && carries {
                tracing::warn!(
                    listener = &*listener.name,
                    "the API has no authentication, so it listens on loopback only: pass --api-token-file or \
                     --api-client-ca to enable authentication, or --insecure-api to allow unauthenticated access"
                );
                state.bind_to_loopback(&listener.name);
            }
        }
        self.guard_api(state);
        Ok(())
    }

    /// Denies sessions access to the API's own address.
    fn guard_api(&self, state: &mut State) {
        let mut own = self.own.clone();
        own.extend(state.api_listeners());
        if state.snapshot.admin.endpoint_policy.own != own {
            Arc::make_mut(&mut state.snapshot.admin).endpoint_policy.own = own;
            state.changed = true;
        }
    }
}

impl Change {
    /// Writes objects; existing ones are replaced or refused.
    pub fn writer(&mut self, owner: Option<Name>, replace: bool) -> Writer<'_> {
        Writer { state: &mut self.state, owner, replace }
    }

    pub fn delete(&mut self, what: Delete<'_>) -> Result<(), Refusal> {
        let cuts = delete::delete(&mut self.state, what)?;
        self.cut(cuts);
        Ok(())
    }

    /// Removes a rule from a rulelist, by position or by name; `recursive` also removes its inline objects.
    pub fn remove_rule(&mut self, list: &str, which: &str, recursive: bool) -> Result<(), Refusal> {
        let earlier = std::mem::take(&mut self.state.orphans);
        self.writer(None, false).remove_rule(list, which)?;
        if recursive {
            let mut cuts = Vec::new();
            delete::sweep_all(&mut self.state, &mut cuts);
            self.cut(cuts);
        }
        self.state.orphans.extend(earlier);
        Ok(())
    }

    fn cut(&mut self, cuts: Vec<(SessionFilter, Ending)>) {
        let operation = self.operation;
        self.cuts.extend(cuts.into_iter().map(|(filter, how)| Cut { operation, filter, how }));
    }
}

fn tally(cuts: &[Cut], count: impl Fn(&Cut) -> usize) -> BTreeMap<usize, usize> {
    let mut sum = BTreeMap::new();
    for cut in cuts {
        *sum.entry(cut.operation).or_default() += count(cut);
    }
    sum
}

fn unbound(error: &BindError) -> Refusal {
    let BindError { listener, protocol, call, at, code } = error;
    let content = if *protocol == "UDP" {
        format!("UDPListener.run: \"{listener}\": Could not bind to {at}: {call} {code} {at}")
    } else {
        format!("Cannot add listener: could not bind \"{listener}\" to {at}: {call} {code}")
    };
    let why = match code.as_str() {
        "EADDRINUSE" => " (another process listens there)",
        "ENOENT" | "ENOTDIR" => " (the folder of the socket file does not exist)",
        "ENAMETOOLONG" => " (the path of a socket file has at most 107 bytes)",
        _ => "",
    };
    let content = if *protocol == "UDP" { content } else { content + why };
    if code == "EADDRINUSE" { Refusal::conflict(content) } else { Refusal::bad(content) }
}
