//! Resolves names to objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::compiled::ResolvedHop;
use super::dependencies::{Callee, Dependency, GeneratedTarget};
use super::sets::not_exported;
use super::state::Resolver;
use crate::mesh::control::types::{MeshKind, ObjectName};
use crate::mesh::control::{Diagnostic, Reason};

impl Resolver {
    /// Resolves the name of a hop: a Target, else a VirtualService, else a Service.
    pub(super) fn find_hop(
        &self,
        text: &str,
        namespace: &Arc<str>,
        reads: &mut BTreeSet<Dependency>,
    ) -> Result<ResolvedHop, Diagnostic> {
        let (kind, name) =
            self.find(text, namespace, &[MeshKind::Target, MeshKind::VirtualService, MeshKind::Service], reads)?;
        if kind == MeshKind::Target {
            return Ok(ResolvedHop::Target(name));
        }
        let callee = self.callee_of(kind, name.clone(), reads);
        let generated = if name.namespace == *namespace {
            name
        } else {
            ObjectName::new(Arc::clone(namespace), format!("{}.{}", name.name, name.namespace))
        };
        reads.insert(Dependency::Object(MeshKind::Target, generated.clone()));
        if self.is_user_object(MeshKind::Target, &generated) {
            return Ok(ResolvedHop::Target(generated));
        }
        Ok(ResolvedHop::Generated(GeneratedTarget { name: generated, callee }))
    }

    /// Resolves the VirtualService, or else the Service, that a Target takes spec and endpoints from.
    pub(super) fn find_linked(
        &self,
        text: &str,
        namespace: &Arc<str>,
        reads: &mut BTreeSet<Dependency>,
    ) -> Result<Callee, Diagnostic> {
        let (kind, name) = self.find(text, namespace, &[MeshKind::VirtualService, MeshKind::Service], reads)?;
        Ok(self.callee_of(kind, name, reads))
    }

    /// The Route of a rule.
    pub(super) fn find_route(
        &self,
        text: &str,
        namespace: &Arc<str>,
        reads: &mut BTreeSet<Dependency>,
    ) -> Result<ObjectName, Diagnostic> {
        Ok(self.find(text, namespace, &[MeshKind::Route], reads)?.1)
    }

    /// A user's VirtualService takes precedence over the Service of the same name.
    fn callee_of(&self, kind: MeshKind, name: ObjectName, reads: &mut BTreeSet<Dependency>) -> Callee {
        reads.insert(Dependency::Object(MeshKind::VirtualService, name.clone()));
        if kind == MeshKind::Service && !self.is_user_object(MeshKind::VirtualService, &name) {
            return Callee::Service(name);
        }
        Callee::VirtualService(name)
    }

    fn find(
        &self,
        text: &str,
        namespace: &Arc<str>,
        kinds: &[MeshKind],
        reads: &mut BTreeSet<Dependency>,
    ) -> Result<(MeshKind, ObjectName), Diagnostic> {
        let reference = self.world.settings.domain.reference(text, namespace);
        let name = reference.name;
        let fixed = reference.kind.map(|kind| [kind]);
        let steps = fixed.as_ref().map_or(kinds, |kind| &kind[..]);
        let listed = steps.iter().map(|kind| kind.as_str()).collect::<Vec<_>>();
        if let Some(kind) = reference.kind.filter(|kind| !kinds.contains(kind)) {
            let wanted = kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(" or ");
            let message = format!("`{text}` names a {}, but a {wanted} is required: correct it", kind.as_str());
            return Err(Diagnostic::new(Reason::RefNotFound, message));
        }
        let is_foreign = name.namespace != *namespace;
        if is_foreign {
            reads.insert(Dependency::Namespace(Arc::clone(&name.namespace)));
        }
        for kind in steps {
            reads.insert(match kind {
                MeshKind::Service => Dependency::Service(name.clone()),
                MeshKind::VirtualService | MeshKind::Route | MeshKind::Target | MeshKind::Rule => {
                    Dependency::Object(*kind, name.clone())
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
            "`{text}`: {} `{}` does not exist in namespace `{}`: create it, or correct the name",
            any_of(&listed),
            name.name,
            name.namespace
        );
        Err(Diagnostic::new(Reason::RefNotFound, message))
    }

    /// The annotations of an object, recorded as an input.
    fn annotations(&self, kind: MeshKind, name: &ObjectName) -> Option<&crate::select::Labels> {
        match kind {
            MeshKind::Service => self.world.services.get(name).map(|service| &service.annotations),
            MeshKind::VirtualService | MeshKind::Route | MeshKind::Target | MeshKind::Rule => {
                let object = self.world.objects.get(&(kind, name.clone()));
                object.filter(|_| self.is_user_object(kind, name)).map(|object| &object.annotations)
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
