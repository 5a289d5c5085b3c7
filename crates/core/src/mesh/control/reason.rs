//! All reasons of conditions, events and metrics of the mesh.

use std::fmt;

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $word:ident $class:ident,)+) => {
        /// Why an object is invalid, unresolved or pending, or gets a warning. Used as condition reason, event reason
        /// and metric label.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Reason { $($(#[doc = $doc])+ $word,)+ }

        impl Reason {
            /// All reasons, for reference pages and metrics.
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
    /// The object is valid, but a reference cannot be resolved: `ResolvedRefs=False`.
    Unmet,
    /// Some proxies do not have it: `Programmed=False`.
    Pending,
    /// It works, with a side effect that the user should know.
    Warning,
}

reasons! {
    /// A required field is missing.
    MissingField Invalid,
    /// A field has a value of the wrong type or outside its range.
    InvalidField Invalid,
    /// A port is not a number from 1 to 65535.
    BadPort Invalid,
    /// A protocol is unknown.
    BadProtocol Invalid,
    /// An invalid predicate, path or regular expression, which l7mp would accept and never match.
    BadMatch Invalid,
    /// A rule has neither route nor apply.
    NoRoute Invalid,
    /// The same field is set twice.
    DuplicateField Invalid,
    /// Two fields exclude each other.
    ConflictingFields Invalid,
    /// The protocol is reserved for the API of the proxy.
    ReservedProtocol Invalid,
    /// The spec is larger or deeper than a proxy accepts.
    SpecTooLarge Invalid,
    /// Proxies must not connect to the address.
    EndpointNotAllowed Invalid,
    /// A route leads back to its own listener.
    RouteLoop Invalid,
    /// Another listener uses the port.
    PortConflict Invalid,
    /// A VirtualService with rules whose pods run no proxy.
    NakedService Invalid,
    /// A pod with two proxies is skipped.
    TwoProxies Invalid,
    /// The proxy does not support it.
    UnsupportedByProxy Invalid,
    /// The balancer is unknown, or crashes l7mp.
    BadBalancer Invalid,

    /// A referenced object does not exist.
    RefNotFound Unmet,
    /// The other namespace does not allow the reference.
    RefNotPermitted Unmet,
    /// The referenced object is invalid.
    RefInvalid Unmet,
    /// All pods of the Service run a proxy, which needs a VirtualService.
    ProxyServiceNeedsVirtualService Unmet,
    /// The Service has several ports.
    AmbiguousPort Unmet,
    /// A named port has different numbers on the pods.
    MixedPorts Unmet,
    /// Proxies do not support the protocol.
    UnsupportedProtocol Unmet,
    /// A UNIX domain socket is reachable from its own pod only.
    NotRemote Unmet,
    /// The selector of the Target does not match a proxy that needs it.
    TargetNotPlacedHere Unmet,

    /// No pods match.
    NoPods Pending,
    /// The named rulelist does not exist on the proxy.
    RuleListMissing Pending,
    /// Some proxies do not have it yet.
    Partial Pending,
    /// A proxy does not respond.
    Unreachable Pending,
    /// A proxy rejected it.
    Rejected Pending,

    /// An unknown field.
    UnknownField Warning,
    /// A field without effect.
    IgnoredField Warning,
    /// A misspelt value that was understood.
    Misspelt Warning,
    /// Only some pods of a Service run a proxy.
    MixedPods Warning,
    /// Some pods of a VirtualService with rules run no proxy.
    NakedPods Warning,
    /// The Trivial balancer always takes the first endpoint.
    TrivialWithManyEndpoints Warning,
    /// A selector names a VirtualService instead of a Service.
    SelectorThroughVirtualService Warning,
    /// Generated objects cannot be written and are kept in memory.
    GeneratedInMemory Warning,
    /// A user has edited a generated object.
    GeneratedObjectTaken Warning,
    /// A route may lead back over other proxies.
    PossibleLoop Warning,
    /// Another container may use the port.
    PortMayClash Warning,
    /// A Sync query may miss its label on l7mp.
    QueryMayMiss Warning,
    /// l7mp may not match a test of an address.
    AddressMayMiss Warning,
    /// l7mp ends the sessions.
    SessionsCut Warning,
    /// Sessions on l7mp prevent a delete.
    StaleSessions Warning,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A reason with a message for the user: where, what, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diagnostic {
    /// The reason.
    pub reason: Reason,
    /// The message.
    pub message: String,
}

impl Diagnostic {
    /// Makes a diagnostic.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, message: message.into() }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}
