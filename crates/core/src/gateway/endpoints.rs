//! The endpoints of one load balancer.

use std::sync::Arc;

/// The endpoints that name one load balancer, in the order of their names. There are far more of them than of anything
/// else, and most stay as they are: a plan shares them with the world that it is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoints<E>(Vec<(Arc<str>, E)>);

impl<E> Default for Endpoints<E> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<E> Endpoints<E> {
    /// Adds an endpoint, or replaces the one of that name.
    pub fn insert(&mut self, name: Arc<str>, endpoint: E) {
        match self.find(&name) {
            Ok(place) => self.0[place].1 = endpoint,
            Err(place) => self.0.insert(place, (name, endpoint)),
        }
    }

    /// Removes an endpoint, if it is there.
    pub fn remove(&mut self, name: &str) {
        if let Ok(place) = self.find(name) {
            self.0.remove(place);
        }
    }

    /// The endpoint of that name.
    pub fn get(&self, name: &str) -> Option<&E> {
        self.find(name).ok().map(|place| &self.0[place].1)
    }

    /// Its place in the order of names.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.find(name).ok()
    }

    /// All of them with their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &E)> {
        self.0.iter().map(|(name, endpoint)| (name, endpoint))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(other, _)| (**other).cmp(name))
    }
}

impl<E> FromIterator<(Arc<str>, E)> for Endpoints<E> {
    fn from_iter<T: IntoIterator<Item = (Arc<str>, E)>>(all: T) -> Self {
        let mut endpoints = Self::default();
        all.into_iter().for_each(|(name, endpoint)| endpoints.insert(name, endpoint));
        endpoints
    }
}
