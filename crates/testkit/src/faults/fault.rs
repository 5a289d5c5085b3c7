//! The faults that a proxy can inject.

/// What went wrong with a request on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The connection was closed and nothing was sent on.
    DroppedBefore,
    /// The request was sent on and its answer lost.
    DroppedAfter,
    /// The request was sent on and half of its answer lost.
    CutAnswer,
    /// 409 without asking the API server.
    Conflict,
    /// 410 without asking the API server.
    Gone,
    /// 429 without asking the API server.
    Throttled(u32),
    /// This 5xx without asking the API server.
    ServerError(u16),
    /// A watch was cut or ended, by chance, by a script or by a switch.
    CutWatch,
    /// The replica was killed here.
    Killed(Phase),
    /// The replica was dying when the request came.
    Refused,
    /// No fault of ours: the API server could not be reached, so the connection was closed.
    Unreachable,
}

/// Where in the course of a request a replica is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// The request is not sent on.
    BeforeSend,
    /// The request is sent on and done, its answer is not delivered.
    AfterCommit,
    /// The answer is delivered, and it is the last thing the replica hears.
    AfterAnswer,
}
