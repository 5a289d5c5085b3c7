//! Import circles between the files of a crate: files that all depend on each other, directly or through others.
//!
//! A file depends on another if it names an item that is defined there. A name that a module only re-exports counts
//! for the file that defines it; the re-export itself and `mod` declarations do not count. Modules named `tests` are left out: they are not
//! part of the program.

use std::collections::{BTreeMap, BTreeSet};

use super::scan::{Import, Source, Use};

/// Re-exports of re-exports that are followed, at most.
const DEEPEST: usize = 16;

/// The files of one crate, by module path.
pub(crate) struct Crate {
    files: Vec<File>,
    /// The file that each module is in; inline modules are in the file around them.
    modules: BTreeMap<Vec<String>, usize>,
    /// What each `use` brings into the scope of a module, as a path from the root of the crate.
    imports: BTreeMap<Vec<String>, BTreeMap<String, Vec<String>>>,
    globs: BTreeMap<Vec<String>, Vec<Vec<String>>>,
    items: BTreeSet<(Vec<String>, String)>,
}

struct File {
    name: String,
    uses: Vec<Use>,
}

/// A file that depends on another one, and the first path that shows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Edge {
    from: usize,
    to: usize,
    line: usize,
    path: String,
}

/// Files that all depend on each other.
pub(crate) struct Circle {
    pub(crate) files: Vec<String>,
    /// One line per dependency between them.
    pub(crate) edges: Vec<String>,
}

impl Crate {
    /// Reads files: name, module path and text of each.
    pub(crate) fn read(files: impl IntoIterator<Item = (String, Vec<String>, String)>) -> Self {
        let mut krate = Self {
            files: Vec::new(),
            modules: BTreeMap::new(),
            imports: BTreeMap::new(),
            globs: BTreeMap::new(),
            items: BTreeSet::new(),
        };
        for (name, module, text) in files {
            if is_test(&module) {
                continue;
            }
            let Source { uses, items, mentions, .. } = Source::scan(&text, &module);
            let index = krate.files.len();
            krate.modules.insert(module.clone(), index);
            for inner in items.iter().map(|(inner, _)| inner).chain(uses.iter().map(|one| &one.module)) {
                krate.modules.entry(inner.clone()).or_insert(index);
            }
            krate.items.extend(items);
            let uses: Vec<Use> = uses.into_iter().filter(|one| !is_test(&one.module)).collect();
            for one in &uses {
                let scope = one.module.clone();
                match &one.import {
                    Some(Import::Name(name)) => {
                        krate.imports.entry(scope).or_default().insert(name.clone(), one.path.clone());
                    }
                    Some(Import::Glob) => krate.globs.entry(scope).or_default().push(one.path.clone()),
                    None => {}
                }
            }
            let uses = uses.into_iter().filter(|one| !one.is_re_export(&mentions)).collect();
            krate.files.push(File { name, uses });
        }
        krate
    }

    /// All circles, the largest first.
    pub(crate) fn circles(&self) -> Vec<Circle> {
        let edges = self.edges();
        let mut circles: Vec<Circle> = components(self.files.len(), &edges)
            .into_iter()
            .filter(|files| files.len() > 1)
            .map(|files| {
                let inside = edges.iter().filter(|edge| files.contains(&edge.from) && files.contains(&edge.to));
                let show = |edge: &Edge| {
                    let Edge { from, to, line, path } = edge;
                    format!("{}:{line} -> {} ({path})", self.files[*from].name, self.files[*to].name)
                };
                Circle {
                    edges: inside.map(show).collect(),
                    files: files.iter().map(|file| self.files[*file].name.clone()).collect(),
                }
            })
            .collect();
        circles.sort_by_key(|circle| std::cmp::Reverse(circle.files.len()));
        circles
    }

    /// Which file depends on which, each pair once.
    fn edges(&self) -> Vec<Edge> {
        let mut edges: BTreeMap<(usize, usize), Edge> = BTreeMap::new();
        for (from, file) in self.files.iter().enumerate() {
            for one in &file.uses {
                let Some(to) = self.defining_file(one).filter(|to| *to != from) else { continue };
                let path = one.path.join("::");
                edges.entry((from, to)).or_insert(Edge { from, to, line: one.line, path });
            }
        }
        edges.into_values().collect()
    }

    /// The file that defines what a path names; none for modules as such and for other crates.
    fn defining_file(&self, one: &Use) -> Option<usize> {
        let path = self.rooted(&one.path, &one.module, one.import.is_some())?;
        if one.import == Some(Import::Glob) {
            return self.modules.get(&path).copied();
        }
        self.resolve(&path, DEEPEST)
    }

    /// A path from the root of the crate, without `crate`; none for paths of other crates.
    fn rooted(&self, path: &[String], module: &[String], is_import: bool) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        if first == "crate" {
            return Some(rest.to_vec());
        }
        let child: Vec<String> = module.iter().chain([first]).cloned().collect();
        if self.modules.contains_key(&child) {
            return Some(child.iter().chain(rest).cloned().collect());
        }
        let imported = self.imports.get(module)?.get(first).filter(|imported| !is_import && *imported != path)?;
        let base = imported.strip_prefix(&["crate".to_owned()][..])?;
        Some(base.iter().chain(rest).cloned().collect())
    }

    /// Follows modules, then re-exports, to the file that defines the next segment.
    fn resolve(&self, path: &[String], depth: usize) -> Option<usize> {
        let known = (0..=path.len()).rev().find(|length| self.modules.contains_key(&path[..*length]))?;
        let (module, rest) = path.split_at(known);
        let file = self.modules.get(module).copied();
        let (name, after) = rest.split_first()?;
        if depth == 0 || self.items.contains(&(module.to_vec(), name.clone())) {
            return file;
        }
        if let Some(imported) = self.imports.get(module).and_then(|imports| imports.get(name)) {
            let onward = self.rooted(imported, module, true)?;
            let onward: Vec<String> = onward.iter().chain(after).cloned().collect();
            return self.resolve(&onward, depth - 1);
        }
        for glob in self.globs.get(module).into_iter().flatten() {
            let onward = self.rooted(glob, module, true).unwrap_or_default();
            if self.items.contains(&(onward.clone(), name.clone())) {
                return self.modules.get(&onward).copied();
            }
        }
        // made by a macro of that file
        file
    }
}

/// Whether a module is only there for tests.
fn is_test(module: &[String]) -> bool {
    module.iter().any(|part| part == "tests")
}

/// Strongly connected components, by Tarjan's algorithm.
fn components(count: usize, edges: &[Edge]) -> Vec<Vec<usize>> {
    let mut next: Vec<Vec<usize>> = vec![Vec::new(); count];
    for edge in edges {
        next[edge.from].push(edge.to);
    }
    let mut search = Search { next, index: vec![None; count], low: vec![0; count], ..Search::default() };
    for start in 0..count {
        if search.index[start].is_none() {
            search.visit(start);
        }
    }
    search.found
}

#[derive(Default)]
struct Search {
    next: Vec<Vec<usize>>,
    index: Vec<Option<usize>>,
    low: Vec<usize>,
    stack: Vec<usize>,
    visited: usize,
    found: Vec<Vec<usize>>,
}

impl Search {
    fn visit(&mut self, node: usize) {
        let own = self.visited;
        (self.index[node], self.low[node]) = (Some(own), own);
        self.visited += 1;
        self.stack.push(node);
        for to in self.next[node].clone() {
            match self.index[to] {
                None => {
                    self.visit(to);
                    self.low[node] = self.low[node].min(self.low[to]);
                }
                Some(index) if self.stack.contains(&to) => self.low[node] = self.low[node].min(index),
                Some(_) => {}
            }
        }
        if self.low[node] == own {
            let from = self.stack.iter().position(|other| *other == node).expect("it was pushed above");
            let mut component = self.stack.split_off(from);
            component.sort_unstable();
            self.found.push(component);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        read(files).circles().into_iter().map(|circle| circle.files).collect()
    }

    fn read(files: &[(&str, &str)]) -> Crate {
        Crate::read(files.iter().map(|(name, text)| {
            let module = crate::module_of(std::path::Path::new(name));
            ((*name).to_owned(), module, (*text).to_owned())
        }))
    }

    #[test]
    fn a_circle_is_found_with_its_files_and_edges() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
            ("a.rs", "use crate::b::B; pub struct A(B);"),
            ("b.rs", "pub struct B; fn f() { crate::c::f() }"),
            ("c.rs", "use super::d; pub fn f() { d::g() }"),
            ("d.rs", "use crate::a; pub fn g(a: a::A) {}"),
            ("e.rs", "use super::a::A;"),
        ];
        let circles = read(&files).circles();
        assert_eq!(circles.len(), 1);
        assert_eq!(circles[0].files, ["a.rs", "b.rs", "c.rs", "d.rs"]);
        assert_eq!(
            circles[0].edges,
            [
                "a.rs:1 -> b.rs (crate::b::B)",
                "b.rs:1 -> c.rs (crate::c::f)",
                "c.rs:1 -> d.rs (d::g)",
                "d.rs:1 -> a.rs (a::A)"
            ]
        );
    }

    #[test]
    fn a_re_export_counts_for_the_file_that_defines_the_item() {
        // `two` names the parent, but the item is `one`'s
        let files = [
            ("x/mod.rs", "mod one; mod two; pub use one::{One, Other as Renamed}; use two::Two; struct Own(Two);"),
            ("x/one.rs", "pub struct One; pub struct Other;"),
            ("x/two.rs", "use super::One; pub struct Two(One, super::Renamed);"),
        ];
        assert!(sizes(&files).is_empty());
        let globs = [
            ("x/mod.rs", "mod one; mod two; pub use one::*; fn f() { two::f(); }"),
            ("x/one.rs", "pub struct One;"),
            ("x/two.rs", "pub fn f(one: super::One) {}"),
        ];
        assert!(sizes(&globs).is_empty());
    }

    #[test]
    fn an_item_of_the_parents_own_file_counts() {
        let files = [
            ("x/mod.rs", "mod one; use self::one::One; pub struct Own(One);"),
            ("x/one.rs", "use super::Own; pub struct One; impl Own {}"),
        ];
        assert_eq!(sizes(&files), [["x/mod.rs", "x/one.rs"]]);
    }

    #[test]
    fn tests_and_other_crates_do_not_count() {
        let files = [
            ("a.rs", "use crate::b::B; use std::fmt; #[cfg(test)] mod tests { use super::*; use crate::b::B; }"),
            ("b.rs", "pub struct B; #[cfg(test)] mod tests { use crate::a::f; use super::*; }"),
            ("b/tests.rs", "use crate::a;"),
        ];
        assert!(sizes(&files).is_empty());
    }
}
