//! What several workers write to, kept off what they only read.

use std::ops::Deref;

/// A value in cache lines of its own: while one worker writes to it, others read its neighbours undisturbed.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct CachePadded<T>(pub T);

impl<T> Deref for CachePadded<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
