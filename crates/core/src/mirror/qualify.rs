//! Which Services of a remote are sources.

use super::rules::Rules;
use super::types::{Local, Remote, ServiceName, ServiceType, Source};

/// Why a Service of a remote is not mirrored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disqualified {
    /// Its namespace is not allowed, or denied.
    NamespaceDenied,
    /// Its namespace is one that no mirror may enter.
    NamespaceProtected,
    /// Its annotation says so.
    Ignored,
    /// Its type is not mirrored.
    ServiceType,
    /// It lacks the labels that are asked for.
    Labels,
    /// It is being deleted.
    Deleting,
    /// It is the Service of the API server.
    ApiServer,
    /// It is itself a mirror.
    Mirror,
    /// The remote has more sources than are taken into account, and this is one of the youngest.
    Limit,
}

impl Disqualified {
    /// What `portolan why` says.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NamespaceDenied => "its namespace is not mirrored",
            Self::NamespaceProtected => "its namespace is protected: no remote may write there",
            Self::Ignored => "its annotation tfw.io/barrelman is `ignore`",
            Self::ServiceType => "its type is not mirrored",
            Self::Labels => "the label selector does not match it",
            Self::Deleting => "it is being deleted",
            Self::ApiServer => "it is the Service of the API server",
            Self::Mirror => "it is itself the mirror of a Service in another cluster",
            Self::Limit => "the remote has more Services than limits.services, and older ones come first",
        }
    }
}

/// The source of this name, or why it is none. Limits are not looked at.
pub(super) fn qualifies<'a>(
    local: &Local,
    remote: &'a Remote,
    name: &ServiceName,
) -> Result<&'a Source, Option<Disqualified>> {
    let source = remote.services.get(name).ok_or(None)?;
    disqualified(local, &remote.rules, name, source).map_or(Ok(source), |why| Err(Some(why)))
}

fn disqualified(local: &Local, rules: &Rules, name: &ServiceName, source: &Source) -> Option<Disqualified> {
    if *name.namespace == *"default" && *name.name == *"kubernetes" {
        return Some(Disqualified::ApiServer);
    }
    if source.is_mirror {
        return Some(Disqualified::Mirror);
    }
    if source.deleting {
        return Some(Disqualified::Deleting);
    }
    if source.ignored {
        return Some(Disqualified::Ignored);
    }
    if source.spec.service_type == ServiceType::ExternalName || !rules.service_types.contains(&source.spec.service_type)
    {
        return Some(Disqualified::ServiceType);
    }
    if !rules.selector.matches(&source.labels) {
        return Some(Disqualified::Labels);
    }
    namespace_refused(local, rules, &name.namespace)
}

/// Why a remote may not write into a namespace.
pub(super) fn namespace_refused(local: &Local, rules: &Rules, namespace: &str) -> Option<Disqualified> {
    let of = &rules.namespaces;
    let any = |patterns: &[super::types::NamespacePattern]| patterns.iter().any(|pattern| pattern.matches(namespace));
    if any(&of.deny) || of.allow.as_deref().is_some_and(|allow| !any(allow)) {
        return Some(Disqualified::NamespaceDenied);
    }
    (any(&local.protected) && !any(&of.lifted)).then_some(Disqualified::NamespaceProtected)
}
