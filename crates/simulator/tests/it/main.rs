//! The simulator from outside.

// `cfg(test)` is always set here; it tells clippy that helpers, too, may unwrap.
#[cfg(test)]
mod cluster;
