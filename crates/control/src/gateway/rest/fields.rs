//! Reading known keys of a body, without regard to case.

use super::refusal::{Refusal, Refused};
use super::tree::Tree;

static NOTHING: Tree = Tree::Null;

/// An object of a body, and where it is.
pub(super) struct Fields<'a> {
    path: String,
    keys: &'a [(String, Tree)],
}

impl<'a> Fields<'a> {
    /// The object at a path; null is an empty one.
    pub(super) fn of(path: impl Into<String>, tree: &'a Tree) -> Refused<Self> {
        let path = path.into();
        let keys = match tree {
            Tree::Object(keys) => keys.as_slice(),
            Tree::Null if !path.is_empty() => &[],
            Tree::Null | Tree::Bool | Tree::Number(_) | Tree::Text(_) | Tree::List(_) => {
                return Err(Refusal::malformed(&path, "this must be a JSON object"));
            }
        };
        let mut folded: Vec<String> = keys.iter().map(|(key, _)| key.to_ascii_lowercase()).collect();
        folded.sort_unstable();
        if let Some([twice, _]) = folded.windows(2).find(|pair| pair[0] == pair[1]) {
            let problem = format!("key `{twice}` is there twice, in upper and lower case: remove one");
            return Err(Refusal::malformed(&path, &problem));
        }
        Ok(Self { path, keys })
    }

    fn get(&self, name: &str) -> &'a Tree {
        let found = self.keys.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map_or(&NOTHING, |(_, tree)| tree)
    }

    pub(super) fn path(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    pub(super) fn object(&self, name: &str) -> Refused<Self> {
        Self::of(self.path(name), self.get(name))
    }

    /// A text; none if it is absent, null or empty.
    pub(super) fn text(&self, name: &str) -> Refused<Option<&'a str>> {
        match self.get(name) {
            Tree::Null => Ok(None),
            Tree::Text(text) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
            Tree::Bool | Tree::Number(_) | Tree::List(_) | Tree::Object(_) => {
                Err(Refusal::malformed(&self.path(name), "this must be a text"))
            }
        }
    }

    /// A whole number; none if it is absent or null.
    pub(super) fn number(&self, name: &str) -> Refused<Option<i64>> {
        match self.get(name) {
            Tree::Null => Ok(None),
            Tree::Number(number) => {
                let whole = number.as_i64();
                whole.map(Some).ok_or_else(|| Refusal::malformed(&self.path(name), "this must be a whole number"))
            }
            Tree::Bool | Tree::Text(_) | Tree::List(_) | Tree::Object(_) => {
                Err(Refusal::malformed(&self.path(name), "this must be a number"))
            }
        }
    }

    /// A number from `least` to 65535.
    pub(super) fn port(&self, name: &str, least: u16) -> Refused<Option<u16>> {
        let Some(number) = self.number(name)? else { return Ok(None) };
        let port = u16::try_from(number).ok().filter(|port| *port >= least);
        port.map(Some)
            .ok_or_else(|| Refusal::invalid(self.path(name), &format!("{number} is no port: use {least} to 65535")))
    }

    /// What is there, if it is a text.
    pub(super) fn as_text(&self, name: &str) -> Option<&'a str> {
        if let Tree::Text(text) = self.get(name) { Some(text) } else { None }
    }

    /// The objects of a list, each with its path; none if it is absent or null.
    pub(super) fn objects(&self, name: &str, most: usize) -> Refused<Option<Vec<Self>>> {
        let path = self.path(name);
        match self.get(name) {
            Tree::Null => Ok(None),
            Tree::List(list) if list.len() > most => {
                Err(Refusal::invalid(path, &format!("there are {} of them: send at most {most}", list.len())))
            }
            Tree::List(list) => {
                let each = |(place, tree): (usize, &'a Tree)| {
                    let path = format!("{path}[{place}]");
                    if *tree == Tree::Null {
                        return Err(Refusal::malformed(&path, "this must be a JSON object"));
                    }
                    Self::of(path, tree)
                };
                list.iter().enumerate().map(each).collect::<Refused<Vec<_>>>().map(Some)
            }
            Tree::Bool | Tree::Number(_) | Tree::Text(_) | Tree::Object(_) => {
                Err(Refusal::malformed(&path, "this must be a list"))
            }
        }
    }
}
