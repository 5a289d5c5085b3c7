//! Padding against false sharing between workers.

use std::ops::Deref;

/// A value in its own cache lines, so that writes to it do not disturb readers of its neighbours.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct CachePadded<T>(pub T);

impl<T> Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
