//! From a text to the thing it stands for.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Resolver;
use super::keys::{Callee, Generated, Key};
use super::sets::not_exported;
use crate::mesh::control::types::{MeshKind, ObjectName};
use crate::mesh::control::{Diagnostic, Reason};

/// What a hop's name stands for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Found {
    /// A user's Target.
    Target(ObjectName),
    /// A Target to be generated.
    Generated(Generated),
}

impl Resolver {
    /// A hop's name, by the four steps: a Target, else a VirtualService, else a Service, else nothing.
    pub(super) fn find_hop(
        &self,
        text: &str,
        namespace: &Arc<str>,
        reads: &mut BTreeSet<Key>,
    ) -> Result<Found, Diagnostic> {
        let (kind, name) =
            self.find(text, namespace, &[MeshKind::Target, MeshKind::VirtualService, MeshKind::Service], reads)?;
        if kind == MeshKind::Target {
            return Ok(Found::Target(name));
        }
        let callee = self.callee_of(kind, name.clone(), reads);
        let generated = if name.namespace == *namespace {
            name
        } else {
            ObjectName::new(Arc::clone(namespace), format!("{}.{}", name.name, name.namespace))
        };
        reads.insert(Key::Object(MeshKind::Target, generated.clone()));
        if self.is_users(MeshKind::Target, &generated) {
            return Ok(Found::Target(generated));
        }
        Ok(Found::Generated(Generated { name: generated, callee }))
    }

    /// The VirtualService that a Target takes spec and endpoints from, or the Service in its stead.
    pub(super) fn find_linked(
        &self,
        text: &str,
        namespace: &Arc<str>,
        reads: &mut BTreeSet<Key>,
    ) -> Result<Callee, Diagnostic> {
        let (kind, name) = self.find(text, namespace, &[MeshKind::VirtualService, MeshKind::Service], reads)?;
        Ok(self.callee_of(kind, name, reads))
    }

    /// The Route of a rule.
    pub(super) fn find_route(
        &self,
        text: &str,
        namespace: &Arc<str>,
        reads: &mut BTreeSet<Key>,
    ) -> Result<ObjectName, Diagnostic> {
        Ok(self.find(text, namespace, &[MeshKind::Route], reads)?.1)
    }

    /// A Service that a user has written a VirtualService for is reached as that one says.
    fn callee_of(&self, kind: MeshKind, name: ObjectName, reads: &mut BTreeSet<Key>) -> Callee {
        reads.insert(Key::Object(MeshKind::VirtualService, name.clone()));
        if kind == MeshKind::Service && !self.is_users(MeshKind::VirtualService, &name) {
            return Callee::Service(name);
        }
        Callee::VirtualService(name)
    }

    fn find(
        &self,
        text: &str,
        namespace: &Arc<str>,
        kinds: &[MeshKind],
        reads: &mut BTreeSet<Key>,
    ) -> Result<(MeshKind, ObjectName), Diagnostic> {
        let reference = self.world.settings.domain.reference(text, namespace);
        let name = reference.name;
        let fixed = reference.kind.map(|kind| [kind]);
        let steps = fixed.as_ref().map_or(kinds, |kind| &kind[..]);
        let listed = steps.iter().map(|kind| kind.as_str()).collect::<Vec<_>>();
        if let Some(kind) = reference.kind.filter(|kind| !kinds.contains(kind)) {
            let wanted = kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(" or ");
            let message = format!("`{text}` names a {} where a {wanted} is needed: correct it", kind.as_str());
            return Err(Diagnostic::new(Reason::RefNotFound, message));
        }
        let is_foreign = name.namespace != *namespace;
        if is_foreign {
            reads.insert(Key::Namespace(Arc::clone(&name.namespace)));
        }
        for kind in steps {
            reads.insert(match kind {
                MeshKind::Service => Key::Service(name.clone()),
                MeshKind::VirtualService | MeshKind::Route | MeshKind::Target | MeshKind::Rule => {
                    Key::Object(*kind, name.clone())
                }
            });
            let annotations = self.annotations(*kind, &name);
            if is_foreign && !self.exports(annotations, &name.namespace, namespace) {
                return Err(not_exported(&name, namespace));
            }
            if annotations.is_some() {
                return Ok((*kind, name));
            }
        }
        let message = format!(
            "`{text}`: there is no {} `{}` in namespace `{}`: create it or correct the name",
            any_of(&listed),
            name.name,
            name.namespace
        );
        Err(Diagnostic::new(Reason::RefNotFound, message))
    }

    /// The annotations of a thing that exists as an input.
    fn annotations(&self, kind: MeshKind, name: &ObjectName) -> Option<&crate::select::Labels> {
        match kind {
            MeshKind::Service => self.world.services.get(name).map(|service| &service.annotations),
            MeshKind::VirtualService | MeshKind::Route | MeshKind::Target | MeshKind::Rule => {
                let object = self.world.objects.get(&(kind, name.clone()));
                object.filter(|_| self.is_users(kind, name)).map(|object| &object.annotations)
            }
        }
    }
}

/// Words joined for reading: `a, b or c`.
fn any_of(words: &[&str]) -> String {
    match words {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => words.concat(),
    }
}
