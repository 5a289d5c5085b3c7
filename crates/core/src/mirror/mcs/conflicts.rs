//! Where the exports of a name differ. The oldest wins; every export is told, so that users can make them equal.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::exporters::Exporter;
use super::merge::{exported, import_type};
use super::types::ImportPort;
use crate::net::Family;

/// A property in which exports differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// Which property.
    pub reason: ConflictReason,
    /// Who differs from whom, and what to do.
    pub message: String,
}

/// Which property of exports differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names are those of the MCS API")]
pub enum ConflictReason {
    Port,
    Type,
    SessionAffinity,
    SessionAffinityConfig,
    Labels,
    Annotations,
    InternalTrafficPolicy,
    TrafficDistribution,
    IpFamily,
}

impl ConflictReason {
    /// As conditions spell it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Port => "PortConflict",
            Self::Type => "TypeConflict",
            Self::SessionAffinity => "SessionAffinityConflict",
            Self::SessionAffinityConfig => "SessionAffinityConfigConflict",
            Self::Labels => "LabelsConflict",
            Self::Annotations => "AnnotationsConflict",
            Self::InternalTrafficPolicy => "InternalTrafficPolicyConflict",
            Self::TrafficDistribution => "TrafficDistributionConflict",
            Self::IpFamily => "IPFamilyConflict",
        }
    }
}

/// Properties in which exports, oldest first, are not all alike.
pub(super) fn conflicts(exporters: &[Exporter<'_>]) -> Vec<Conflict> {
    let Some((oldest, younger)) = exporters.split_first() else { return Vec::new() };
    let compare = Comparison { oldest, younger };
    let affinity = |one: &Exporter<'_>| one.service.spec.session_affinity;
    let set = |families: &[Family]| families.iter().copied().collect::<BTreeSet<Family>>();
    let found = [
        compare.ports(),
        compare.by(ConflictReason::Type, "the type", import_type, |one| one.as_str().to_owned()),
        compare.by(
            ConflictReason::SessionAffinity,
            "sessionAffinity",
            |one| affinity(one).is_some(),
            |is_some| if *is_some { "ClientIP" } else { "None" }.to_owned(),
        ),
        compare.by(
            ConflictReason::SessionAffinityConfig,
            "the timeout of sessionAffinityConfig",
            // Without affinity there is no timeout to differ in.
            |one| affinity(one).or(affinity(oldest)).filter(|_| affinity(oldest).is_some()),
            |timeout| timeout.map_or_else(String::new, |seconds| format!("{seconds} s")),
        ),
        compare.unshown(ConflictReason::Labels, "exportedLabels", |one| exported(&one.export.labels)),
        compare.unshown(ConflictReason::Annotations, "exportedAnnotations", |one| exported(&one.export.annotations)),
        compare.by(
            ConflictReason::InternalTrafficPolicy,
            "internalTrafficPolicy",
            |one| one.service.internal_traffic_policy,
            |policy| policy.as_str().to_owned(),
        ),
        compare.by(
            ConflictReason::TrafficDistribution,
            "trafficDistribution",
            |one| one.service.traffic_distribution.clone(),
            |value| value.as_ref().map_or_else(|| "not set".to_owned(), |value: &Arc<str>| format!("`{value}`")),
        ),
        compare.by(
            ConflictReason::IpFamily,
            "ipFamilies",
            |one| set(&one.service.spec.families),
            |families| families.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and "),
        ),
    ];
    found.into_iter().flatten().collect()
}

struct Comparison<'a> {
    oldest: &'a Exporter<'a>,
    younger: &'a [Exporter<'a>],
}

impl Comparison<'_> {
    fn by<T: PartialEq>(
        &self,
        reason: ConflictReason,
        what: &str,
        of: impl Fn(&Exporter<'_>) -> T,
        show: impl Fn(&T) -> String,
    ) -> Option<Conflict> {
        let is = of(self.oldest);
        let other = self.younger.iter().find(|one| of(one) != is)?;
        let message = format!(
            "{what} is {} in {} (the oldest export, which decides) and {} in {}: make them equal",
            show(&is),
            self.oldest.cluster_id,
            show(&of(other)),
            other.cluster_id
        );
        Some(Conflict { reason, message })
    }

    fn unshown<T: PartialEq>(
        &self,
        reason: ConflictReason,
        what: &str,
        of: impl Fn(&Exporter<'_>) -> T,
    ) -> Option<Conflict> {
        let other = self.younger.iter().find(|one| of(one) != of(self.oldest))?;
        let message = format!(
            "{what} of {} differ from those of {} (the oldest export, which decides): make them equal",
            other.cluster_id, self.oldest.cluster_id
        );
        Some(Conflict { reason, message })
    }

    fn ports(&self) -> Option<Conflict> {
        let of = |one: &Exporter<'_>| one.service.spec.ports.iter().map(ImportPort::from).collect::<BTreeSet<_>>();
        let is = of(self.oldest);
        let other = self.younger.iter().find(|one| of(one) != is)?;
        let others = of(other);
        let only = |these: &BTreeSet<ImportPort>, those: &BTreeSet<ImportPort>| {
            let ports: Vec<String> = these.difference(those).take(MOST_SHOWN).map(shown).collect();
            if ports.is_empty() { "no other port".to_owned() } else { ports.join(", ") }
        };
        let message = format!(
            "ports differ: {} (the oldest export, which decides) has {}, {} has {}: make them equal",
            self.oldest.cluster_id,
            only(&is, &others),
            other.cluster_id,
            only(&others, &is)
        );
        Some(Conflict { reason: ConflictReason::Port, message })
    }
}

fn shown(port: &ImportPort) -> String {
    let ImportPort { name, protocol, app_protocol, port } = port;
    let protocol = protocol.as_str();
    let spoken = app_protocol.as_ref().map_or_else(String::new, |spoken| format!(" ({spoken})"));
    if name.is_empty() { format!("{port}/{protocol}{spoken}") } else { format!("{name} {port}/{protocol}{spoken}") }
}

/// Ports that a message lists for each side.
const MOST_SHOWN: usize = 3;
