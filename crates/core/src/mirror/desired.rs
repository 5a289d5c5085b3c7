//! The mirror of a source as it should be, and whether a Service differs from it.

use std::sync::Arc;

use super::rules::{CopyRules, MirrorType, Rules, TargetMode};
use super::types::{
    Copied, Local, LocalService, Remote, RemoteName, ServicePort, ServiceSpec, ServiceType, Source, TargetPort,
};
use crate::select::Labels;

/// A mirror as it should be.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredMirror {
    /// The remote that owns it.
    pub remote: RemoteName,
    /// UID of its RemoteCluster; empty for the remote of the flags.
    pub remote_uid: Arc<str>,
    /// UID of its source.
    pub source_uid: Arc<str>,
    /// It goes with its RemoteCluster.
    pub owned: bool,
    /// Its spec. Without families: those that the API server chooses.
    pub spec: ServiceSpec,
    /// Labels and annotations from the source.
    pub copied: Copied,
    /// Keys that are copied: one that the source lacks is removed.
    pub copy: CopyRules,
}

/// How a Service differs from the mirror it should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Difference {
    None,
    /// A patch will do.
    Patch,
    /// It has to be deleted and made again: the field cannot be changed.
    Immutable,
}

impl DesiredMirror {
    /// The mirror of a source; with `node_ports`, if the rules ask for them.
    pub(super) fn of(local: &Local, name: &RemoteName, remote: &Remote, source: &Source, node_ports: bool) -> Self {
        let rules = &remote.rules;
        let service_type = match rules.mirror_type {
            MirrorType::NodePort if node_ports => ServiceType::NodePort,
            MirrorType::NodePort | MirrorType::ClusterIp => ServiceType::ClusterIp,
        };
        let of_port = |port: &ServicePort| ServicePort {
            target: TargetPort::Number(match rules.target {
                TargetMode::NodePort => port.node_port.unwrap_or(port.port),
                TargetMode::LoadBalancer | TargetMode::Pod => port.port,
            }),
            node_port: port.node_port.filter(|_| service_type == ServiceType::NodePort),
            ..port.clone()
        };
        let here = |family: &crate::net::Family| local.families.as_ref().is_none_or(|local| local.contains(family));
        Self {
            remote: name.clone(),
            remote_uid: remote.uid.clone(),
            source_uid: source.uid.clone(),
            owned: rules.owned && !remote.uid.is_empty(),
            spec: ServiceSpec {
                service_type,
                headless: rules.target == TargetMode::Pod && source.spec.headless,
                families: source.spec.families.iter().copied().filter(here).collect(),
                dual_stack: source.spec.families.len() > 1,
                ports: source.spec.ports.iter().map(of_port).collect(),
                session_affinity: source.spec.session_affinity.filter(|_| rules.copy.session_affinity),
            },
            copied: copied(rules, source),
            copy: rules.copy.clone(),
        }
    }

    pub(super) fn difference(&self, seen: &LocalService) -> Difference {
        let (want, is) = (&self.spec, &seen.spec);
        let primary_differs = want.families.first().is_some_and(|family| is.families.first() != Some(family));
        if want.headless != is.headless || primary_differs {
            return Difference::Immutable;
        }
        let reference = self.owned.then_some(&self.remote_uid);
        let same = want.service_type == is.service_type
            && want.dual_stack == is.dual_stack
            && as_set(&want.ports) == as_set(&is.ports)
            && (!self.copy.session_affinity || want.session_affinity == is.session_affinity)
            && seen.owner.as_ref() == Some(&self.remote)
            && seen.remote_uid.as_ref() == Some(&self.remote_uid)
            && seen.source_uid.as_ref() == Some(&self.source_uid)
            && seen.owner_reference.as_ref() == reference
            && agree(&self.copy.labels, &self.copied.labels, &seen.copied.labels)
            && agree(&self.copy.annotations, &self.copied.annotations, &seen.copied.annotations);
        if same { Difference::None } else { Difference::Patch }
    }
}

/// The order of ports means nothing.
fn as_set(ports: &[ServicePort]) -> Vec<&ServicePort> {
    let mut ports: Vec<&ServicePort> = ports.iter().collect();
    ports.sort_unstable();
    ports
}

fn agree(keys: &std::collections::BTreeSet<Arc<str>>, want: &Labels, seen: &Labels) -> bool {
    keys.iter().all(|key| want.get(key) == seen.get(key))
}

fn copied(rules: &Rules, source: &Source) -> Copied {
    let pick = |keys: &std::collections::BTreeSet<Arc<str>>, from: &Labels| -> Labels {
        keys.iter().filter_map(|key| Some((key.clone(), Arc::from(from.get(key)?)))).collect::<Labels>()
    };
    Copied {
        labels: pick(&rules.copy.labels, &source.labels),
        annotations: pick(&rules.copy.annotations, &source.annotations),
    }
}
