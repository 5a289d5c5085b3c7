//! The import that several exports make together. The oldest export decides, ports are united.

use super::exporters::Exporter;
use super::types::{ImportPort, ImportSpec, ImportType, RecordedImport};
use crate::mirror::Copied;
use crate::select::Labels;

/// What exports come to, before this cluster's addresses and families.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Merged {
    /// Without addresses.
    pub(super) spec: ImportSpec,
    pub(super) exported: Copied,
}

/// Merges exports, oldest first. What is recorded counts as older than all of them, if it is given. None: there is
/// nothing to merge.
pub(super) fn merge(recorded: Option<&RecordedImport>, exporters: &[Exporter<'_>]) -> Option<Merged> {
    let mut merged = match (recorded, exporters.first()) {
        (Some(recorded), oldest) => {
            let mut spec = ImportSpec { ips: Vec::new(), ..recorded.spec.clone() };
            if let Some(oldest) = oldest.filter(|_| spec.families.is_empty()) {
                spec.families.clone_from(&oldest.service.spec.families);
            }
            Merged { spec, exported: recorded.exported.clone() }
        }
        (None, Some(oldest)) => of_oldest(oldest),
        (None, None) => return None,
    };
    for exporter in exporters {
        unite(&mut merged.spec.ports, exporter.service.spec.ports.iter().map(ImportPort::from));
    }
    Some(merged)
}

/// The type of import that an export asks for.
pub(super) fn import_type(exporter: &Exporter<'_>) -> ImportType {
    if exporter.service.spec.headless { ImportType::Headless } else { ImportType::ClusterSetIp }
}

/// Labels or annotations without those by which objects are owned or found: a remote must not set them.
pub(super) fn exported(labels: &Labels) -> Labels {
    labels.shared().filter(|(key, _)| !is_reserved(key)).cloned().collect()
}

fn of_oldest(oldest: &Exporter<'_>) -> Merged {
    let service = oldest.service;
    Merged {
        spec: ImportSpec {
            ports: Vec::new(),
            ips: Vec::new(),
            import_type: import_type(oldest),
            session_affinity: service.spec.session_affinity,
            families: service.spec.families.clone(),
            internal_traffic_policy: service.internal_traffic_policy,
            traffic_distribution: service.traffic_distribution.clone(),
        },
        exported: Copied { labels: exported(&oldest.export.labels), annotations: exported(&oldest.export.annotations) },
    }
}

/// Adds the ports of a younger export. One that has the name, or the protocol and number, of an older port gives way.
fn unite(ports: &mut Vec<ImportPort>, younger: impl Iterator<Item = ImportPort>) {
    for port in younger {
        // A Service with several ports needs a name for each.
        let is_unnamed = |one: &ImportPort| one.name.is_empty();
        let lacks_name = ports.iter().any(is_unnamed) || !ports.is_empty() && is_unnamed(&port);
        let same = |one: &ImportPort| one.name == port.name || (one.protocol, one.port) == (port.protocol, port.port);
        if !lacks_name && !ports.iter().any(same) {
            ports.push(port);
        }
    }
}

fn is_reserved(key: &str) -> bool {
    let Some((domain, _)) = key.split_once('/') else { return false };
    RESERVED.contains(&domain) || domain == OWN_DOMAIN || domain.ends_with(".portolan.dev")
}

/// Domains whose labels and annotations say what an object is to Kubernetes or to us. Others under `kubernetes.io`,
/// such as `app.kubernetes.io`, belong to users.
const RESERVED: [&str; 5] =
    ["kubernetes.io", "k8s.io", "multicluster.kubernetes.io", "endpointslice.kubernetes.io", "tfw.io"];
const OWN_DOMAIN: &str = "portolan.dev";
