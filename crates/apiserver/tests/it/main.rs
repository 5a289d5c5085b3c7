//! The embedded API server next to the real one, and under bad treatment.

// `cfg(test)` is always set here; it tells clippy that helpers, too, may unwrap.
#[cfg(test)]
mod child;
#[cfg(test)]
mod differential;
#[cfg(test)]
mod durability;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod in_process;
#[cfg(test)]
mod kubectl;
#[cfg(test)]
mod messages;
