//! A list that mostly has one member.

use std::ops::{Deref, DerefMut};

/// Members in a row: one lies here, several lie elsewhere. Sessions are many and mostly have one stage.
#[derive(Clone, Debug)]
pub(crate) enum Few<T> {
    One(T),
    Others(Vec<T>),
}

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self::Others(Vec::new())
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(members: I) -> Self {
        let mut members = members.into_iter();
        match (members.next(), members.next()) {
            (Some(one), None) => Self::One(one),
            (first, second) => Self::Others(first.into_iter().chain(second).chain(members).collect()),
        }
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::Others(others) => others,
        }
    }
}

impl<T> DerefMut for Few<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::One(one) => std::slice::from_mut(one),
            Self::Others(others) => others,
        }
    }
}

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'a, T> IntoIterator for &'a mut Few<T> {
    type Item = &'a mut T;
    type IntoIter = std::slice::IterMut<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_order_however_many_they_are() {
        for count in 0..4 {
            let mut few: Few<usize> = (0..count).collect();
            assert_eq!(*few, *(0..count).collect::<Vec<_>>());
            few.iter_mut().for_each(|member| *member += 1);
            assert_eq!(few.into_iter().copied().collect::<Vec<_>>(), (1..=count).collect::<Vec<_>>());
        }
        assert!(Few::<u8>::default().is_empty());
    }
}
