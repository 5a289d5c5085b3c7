//! The Service derived from an import: kube-proxy knows Services, not imports, and its addresses become the import's.

use std::sync::Arc;

use super::decision::Action;
use super::types::{DerivedSpec, ImportSpec, ImportType, InternalTrafficPolicy, RecordedDerived, RecordedImport};
use crate::mirror::{ServiceName, short_hash};

/// The Service that gives an import its addresses, as it should be. It has no selector.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredDerived {
    /// Its name, in the namespace of the import.
    pub name: Arc<str>,
    /// UID of the ServiceImport that owns it.
    pub import_uid: Arc<str>,
    /// Its spec.
    pub spec: DerivedSpec,
}

/// The name of the Service derived from an import.
pub fn derived_name(import: &ServiceName) -> Arc<str> {
    format!("derived-{}", short_hash(&import.to_string())).into()
}

/// The spec of the Service for an import. None: the import has no addresses.
pub(super) fn derived_spec(import: &ImportSpec, exports_here: bool) -> Option<DerivedSpec> {
    if import.import_type == ImportType::Headless || import.families.is_empty() {
        return None;
    }
    Some(DerivedSpec {
        ports: import.ports.clone(),
        families: import.families.clone(),
        session_affinity: import.session_affinity,
        // Endpoints of other clusters are on no node of this one: with `Local`, nobody would reach them.
        internal_traffic_policy: if exports_here {
            import.internal_traffic_policy
        } else {
            InternalTrafficPolicy::Cluster
        },
        // The API server refuses a Service with any other value; an import may have it.
        traffic_distribution: import
            .traffic_distribution
            .clone()
            .filter(|value| ["PreferClose", "PreferSameZone", "PreferSameNode"].contains(&&**value)),
    })
}

/// What happens to the Service of an import. It is made after the import, which owns it.
pub(super) fn derived_action(
    name: &ServiceName,
    import: Option<&RecordedImport>,
    derived: Option<&RecordedDerived>,
    wanted: Option<&DerivedSpec>,
) -> Action<DesiredDerived> {
    let desired = |spec: &DerivedSpec, import: &RecordedImport| {
        let (name, import_uid) = (derived_name(name), import.uid.clone());
        Box::new(DesiredDerived { name, import_uid, spec: spec.clone() })
    };
    match (derived, wanted, import) {
        (None, Some(spec), Some(import)) => Action::Create(desired(spec, import)),
        (Some(derived), ..) if !derived.managed || derived.deleting => Action::None,
        (Some(_), None, _) => Action::Delete,
        // The first family of a Service cannot be changed.
        (Some(derived), Some(spec), _) if derived.spec.families.first() != spec.families.first() => Action::Recreate,
        (Some(derived), Some(spec), Some(import))
            if derived.spec != *spec || derived.import_uid.as_ref() != Some(&import.uid) =>
        {
            Action::Update(desired(spec, import))
        }
        _ => Action::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_is_made_from_namespace_and_name() {
        assert_eq!(&*derived_name(&ServiceName::new("shop", "web")), "derived-isrlchlhrq");
    }
}
