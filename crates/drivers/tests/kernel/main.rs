//! The kernel driver: the contract on both back ends, the ruleset in a real kernel, and real packets through it.
//!
//! All of it runs in network namespaces of the tests, as root.

// `cfg(test)` is always set here; it tells clippy that helpers, too, may unwrap.
#[cfg(test)]
mod contract;
#[cfg(test)]
mod node;
#[cfg(test)]
mod path;
#[cfg(test)]
mod ruleset;
