//! The remotes that users ask for: RemoteClusters and the remote of the flags, checked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::{Resource, ResourceExt};
use portolan_api::mirror::RemoteCluster;
use portolan_api::well_known::mirror::APPROVE_DELETIONS;
use portolan_core::mirror::RemoteName;
use portolan_drivers::gke::EndpointKind;

use super::credentials::SecretFolder;
use super::observe::Cache;
use super::remote::{GkeKey, Target};
use super::settings::{FlagsSource, Options};
use super::validate::{CheckedRules, Problem, created, rules};

/// A remote that a user asks for.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Declared {
    /// UID of its RemoteCluster; empty for the remote of the flags.
    pub(super) uid: Arc<str>,
    pub(super) checked: CheckedRules,
    pub(super) target: Result<Target, Problem>,
    pub(super) paused: bool,
    /// Services are shared with it by the Multi-Cluster Services API.
    pub(super) shares: bool,
    /// Endpoints are written beside EndpointSlices.
    pub(super) writes_endpoints: bool,
    /// The hash of held deletions that may be made.
    pub(super) approved: Option<String>,
    /// Creation time: of two that are the same cluster, the older one is used.
    pub(super) created: i64,
    /// The cluster that it was when it was last reported.
    pub(super) recorded_identity: Option<Arc<str>>,
}

/// All remotes, and why some are refused.
#[derive(Debug, Default)]
pub(super) struct DeclaredRemotes {
    pub(super) remotes: BTreeMap<RemoteName, Declared>,
    pub(super) refused: BTreeMap<RemoteName, Problem>,
    /// UIDs of all RemoteClusters, refused ones included.
    pub(super) uids: BTreeSet<Arc<str>>,
}

/// Reads the RemoteClusters and the flags.
pub(super) fn declared(cache: &Cache, options: &Options) -> DeclaredRemotes {
    let mut all = DeclaredRemotes::default();
    let secrets = SecretFolder {
        secrets: &cache.secrets,
        namespace: &options.operator_namespace,
        allow_loopback: options.allow_loopback,
    };
    if let Some((name, flags)) = of_flags(options) {
        all.remotes.insert(name, flags);
    }
    let mut objects: Vec<Arc<RemoteCluster>> = cache.remotes.all().into_values().collect();
    objects.sort_by_key(|object| (created(object.meta()), object.name_any()));
    for object in objects {
        let name: RemoteName = object.name_any().into();
        all.uids.extend(object.uid().map(Arc::from));
        // One that is being deleted is read no more; nothing is written for it.
        if object.metadata.deletion_timestamp.is_some() {
            continue;
        }
        match of_object(&all, &name, &object, secrets) {
            Ok(declared) => drop(all.remotes.insert(name, declared)),
            Err(problem) => drop(all.refused.insert(name, problem)),
        }
    }
    all
}

fn of_object(
    all: &DeclaredRemotes,
    name: &RemoteName,
    object: &RemoteCluster,
    secrets: SecretFolder<'_>,
) -> Result<Declared, Problem> {
    if all.remotes.contains_key(name) {
        let message = format!("{name} is the name of the remote that the operator's flags describe: rename this one");
        return Err(Problem::new("NameTaken", message));
    }
    let checked = rules(object)?;
    let same = |other: &&RemoteName| all.remotes[*other].checked.rules.cluster_id == checked.rules.cluster_id;
    if let Some(other) = all.remotes.keys().find(same) {
        let message = format!(
            "clusterID {} is that of RemoteCluster {other}, which is older: set spec.clusterID to another",
            checked.rules.cluster_id
        );
        return Err(Problem::new("NameTaken", message));
    }
    Ok(Declared {
        uid: object.uid().unwrap_or_default().into(),
        checked,
        target: secrets.target(object),
        paused: object.spec.paused,
        shares: object.spec.mcs.enabled,
        writes_endpoints: object.spec.write_endpoints,
        approved: object.annotations().get(APPROVE_DELETIONS).cloned(),
        created: created(object.meta()),
        recorded_identity: object.status.as_ref().and_then(|status| status.cluster_uid.as_deref()).map(Arc::from),
    })
}

fn of_flags(options: &Options) -> Option<(RemoteName, Declared)> {
    let flags = options.flags_remote.as_ref()?;
    let target = match &flags.source {
        FlagsSource::Gke(cluster) => {
            Target::Gke { cluster: cluster.clone(), endpoint: EndpointKind::Auto, ca: None, key: GkeKey::Ambient }
        }
        FlagsSource::Kubeconfig { path, context } => Target::File { path: path.clone(), context: context.clone() },
    };
    let declared = Declared {
        uid: "".into(),
        checked: CheckedRules { rules: flags.rules.clone(), stale_after: STALE_AFTER },
        target: Ok(target),
        paused: false,
        shares: false,
        writes_endpoints: flags.writes_endpoints,
        approved: flags.approved.clone(),
        // Older than any object.
        created: i64::MIN,
        recorded_identity: None,
    };
    Some((flags.name.as_str().into(), declared))
}

/// As for a RemoteCluster that says nothing.
const STALE_AFTER: Duration = Duration::from_mins(10);
