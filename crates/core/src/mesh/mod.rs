//! What decides over a session, without the session: paths into its metadata, predicates over it, rewrites of
//! it, the walk through rulelists, and the choice of an endpoint. Proxy and control plane use the same code.
//!
//! ```text
//! metadata -- lookup(rulelist) --> Verdict { rule } -- rewrite --> metadata'
//!                Predicate, Path                       Rewrite, Path      |
//!                                       route --> cluster -- Balancer.pick(Ask) --> endpoint
//! ```
//!
//! Everything is compiled once, from whatever JSON there is, and total from then on: what is wrong in a rule is
//! told as a warning when it is compiled and makes the rule match nothing.

mod balancer;
pub mod control;
mod index;
mod path;
mod predicate;
mod rewrite;
mod rules;
mod value;

pub use balancer::{Balancer, LbPolicy, LbPolicyError, PickContext, WeightedEndpoint};
pub use path::Path;
pub use predicate::{Predicate, PredicateError, PredicateErrorKind};
pub use rewrite::Rewrite;
pub use rules::{Action, LookupError, Rule, RuleList, RuleListEntry, RuleMatch, lookup};
pub use value::key_text;

/// The header with the term of the leader that makes a call: a proxy refuses a change of a term below the highest that
/// it has seen, and names that one in the same header of its answer.
pub const TERM_HEADER: &str = "portolan-term";
