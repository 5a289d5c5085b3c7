//! Every word by which the control plane says why something is not as its user wants it.

use std::fmt;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $word:ident $class:ident,)+) => {
        /// Why an object is refused, waits, or gets a remark. The word is condition reason, event reason and metric
        /// label alike.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason { $($(#[doc = $doc])+ $word,)+ }

        impl Reason {
            /// All of them, for reference pages and metrics.
            pub const ALL: &'static [Self] = &[$(Self::$word,)+];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$word => stringify!($word),)+ }
            }

            /// What it means for the object.
            pub const fn class(self) -> ReasonClass {
                match self { $(Self::$word => ReasonClass::$class,)+ }
            }
        }
    };
}

/// What a reason means for its object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReasonClass {
    /// The user must edit the object: `Accepted=False`.
    Invalid,
    /// The object is fine, something it needs is not there: `ResolvedRefs=False`.
    Unmet,
    /// It is not in force on some proxies: `Programmed=False`.
    Pending,
    /// It works; the user should know.
    Warning,
}

reasons! {
    /// A field that must be there is not.
    MissingField Invalid,
    /// A field has a value of the wrong type or outside its range.
    InvalidField Invalid,
    /// A port is no number from 1 to 65535.
    BadPort Invalid,
    /// A protocol is unknown.
    BadProtocol Invalid,
    /// A predicate, path or regular expression that a real l7mp would accept and never match.
    BadMatch Invalid,
    /// A rule leads nowhere.
    NoRoute Invalid,
    /// The same thing is said in two places.
    DuplicateField Invalid,
    /// Two fields exclude each other.
    ConflictingFields Invalid,
    /// The protocol is the proxy's own API.
    ReservedProtocol Invalid,
    /// The spec is larger or deeper than a proxy takes.
    SpecTooLarge Invalid,
    /// An address that tenants may not reach through a proxy.
    EndpointNotAllowed Invalid,
    /// A chain of hops leads back to its own listener.
    RouteLoop Invalid,
    /// Another listener has the port.
    PortConflict Invalid,
    /// A VirtualService with rules whose pods run no proxy.
    NakedService Invalid,
    /// A pod with two proxies is left out.
    TwoProxies Invalid,
    /// The proxy cannot do it.
    UnsupportedByProxy Invalid,
    /// The balancer is unknown, or ends a real l7mp.
    BadBalancer Invalid,

    /// A name stands for nothing.
    RefNotFound Unmet,
    /// The other side has not consented.
    RefNotPermitted Unmet,
    /// What the name stands for is itself refused.
    RefInvalid Unmet,
    /// Every pod of the Service runs a proxy, so somebody must say what it does.
    ProxyServiceNeedsVirtualService Unmet,
    /// The Service has several ports.
    AmbiguousPort Unmet,
    /// A named port has different numbers among the pods.
    MixedPorts Unmet,
    /// No proxy speaks it.
    UnsupportedProtocol Unmet,
    /// A UNIX domain socket is reached from its own pod only.
    NotRemote Unmet,
    /// The Target's selector leaves out a proxy that needs it.
    TargetNotPlacedHere Unmet,

    /// No pods match.
    NoPods Pending,
    /// The named rulelist is not on the proxy.
    RuleListMissing Pending,
    /// Some proxies do not hold it yet.
    Partial Pending,
    /// A proxy does not answer.
    Unreachable Pending,
    /// A proxy refused it.
    Rejected Pending,

    /// A key that means nothing.
    UnknownField Warning,
    /// A key that is read and not used.
    IgnoredField Warning,
    /// A word that was meant differently.
    Misspelt Warning,
    /// Some pods of a Service run a proxy, some do not.
    MixedPods Warning,
    /// Some pods of a VirtualService with rules run no proxy.
    NakedPods Warning,
    /// The Trivial balancer always takes the first endpoint.
    TrivialWithManyEndpoints Warning,
    /// A selector names a VirtualService where a Service should be.
    SelectorThroughVirtualService Warning,
    /// Generated objects could not be written and live in memory.
    GeneratedInMemory Warning,
    /// The user has taken a generated object over.
    GeneratedObjectTaken Warning,
    /// A chain of hops may lead back over other proxies.
    PossibleLoop Warning,
    /// Another container may use the port.
    PortMayClash Warning,
    /// A Sync query may miss its label on a real l7mp.
    QueryMayMiss Warning,
    /// An address test that a real l7mp may miss.
    AddressMayMiss Warning,
    /// A real l7mp cuts the sessions.
    SessionsCut Warning,
    /// A real l7mp has sessions that hinder a delete.
    StaleSessions Warning,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A reason with the words for the user: where, what, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    /// The bounded word.
    pub reason: Reason,
    /// The sentence.
    pub message: String,
}

impl Diagnostic {
    /// A note.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}
