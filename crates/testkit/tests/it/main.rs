//! The testkit, tried on itself.

// `cfg(test)` is always set here; it tells clippy that helpers, too, may unwrap.
#[cfg(test)]
mod builders;
#[cfg(test)]
mod cluster;
#[cfg(test)]
mod control_plane;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod kubelet;
#[cfg(test)]
mod setting;
#[cfg(test)]
mod watches;
#[cfg(test)]
mod webhooks;
