//! Decides about one name: whether there is an import, what it is, and what differs from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::condition::{Condition, ExportStatus};
use super::conflicts::{Conflict, conflicts};
use super::decision::{Action, Decision, DesiredImport, NotImported, Outcome};
use super::derived::{DesiredDerived, derived_action, derived_name, derived_spec};
use super::exporters::{Exporters, Limits};
use super::merge::{Merged, merge};
use super::slices::{ImportSliceAction, SliceOwner, SlicePlanner};
use super::status::ImportStatus;
use super::types::{ClusterId, ClusterSet, DerivedSpec, ImportSpec, ImportType, RecordedDerived, RecordedImport};
use crate::mirror::{Local, Reason, RemoteName, ServiceName, Sync, Unmet};
use crate::net::Family;

/// Decides about one name.
pub(super) fn decide(here: &Local, set: &ClusterSet, limits: &Limits<'_>, name: &ServiceName) -> Decision {
    let exporters = Exporters::of(here, set, limits, name);
    let import = set.local.imports.get(name);
    let derived = set.local.derived.get(name);
    let mut decider = Decider { here, set, name, import, derived, exporters, unmet: Vec::new() };
    let unknown = decider.unknown();
    let changes = match decider.outcome(&unknown) {
        Outcome::NotImported(why) => decider.not_imported(why),
        outcome @ (Outcome::Imported | Outcome::Held(_)) => decider.imported(outcome, &unknown),
    };
    decider.decision(changes)
}

struct Decider<'a> {
    here: &'a Local,
    set: &'a ClusterSet,
    name: &'a ServiceName,
    import: Option<&'a RecordedImport>,
    derived: Option<&'a RecordedDerived>,
    exporters: Exporters<'a>,
    unmet: Vec<Unmet>,
}

/// What is written besides the status of the export.
struct Changes {
    outcome: Outcome,
    import: Action<DesiredImport>,
    import_status: Option<ImportStatus>,
    derived: Action<DesiredDerived>,
    slices: BTreeMap<Arc<str>, ImportSliceAction>,
}

impl Decider<'_> {
    /// Clusters that took part in the import, of which it is not known whether they still do.
    fn unknown(&self) -> BTreeSet<ClusterId> {
        let counts = |name: &RemoteName| {
            self.exporters.counted.iter().any(|one| one.remote.is_some_and(|(counted, _)| counted == name))
        };
        let is_unknown = |name: &RemoteName| match self.set.remotes.get(name) {
            Some(remote) => (remote.paused || remote.sync != Sync::Complete) && !counts(name),
            None => true,
        };
        let recorded = self.import.filter(|import| import.managed);
        let by_status = self.set.remotes.iter().filter(|(name, remote)| {
            is_unknown(name) && recorded.is_some_and(|import| import.clusters.contains(&remote.rules.cluster_id))
        });
        let by_status = by_status.map(|(_, remote)| remote.rules.cluster_id.clone());
        // The status is written after the slices, so they may know more.
        let slices = self.set.local.slices.get(self.name).into_iter().flat_map(BTreeMap::values);
        let by_slices = slices.map(|recorded| &recorded.slice).filter(|slice| {
            let is_gone = self.here.gone_remotes.contains(&slice.remote_uid);
            let is_known = self.set.remotes.contains_key(&slice.remote);
            !slice.remote.is_empty() && (is_known || !is_gone) && is_unknown(&slice.remote)
        });
        by_status.chain(by_slices.map(|slice| slice.cluster_id.clone())).collect()
    }

    fn outcome(&self, unknown: &BTreeSet<ClusterId>) -> Outcome {
        let is_foreign = self.import.is_some_and(|import| !import.managed);
        let is_held = !unknown.is_empty() && self.import.is_some() && !is_foreign;
        match self.here.namespaces.get(&self.name.namespace) {
            Some(namespace) if namespace.terminating => Outcome::NotImported(NotImported::NamespaceTerminating),
            _ if self.exporters.counted.is_empty() && !is_held => {
                // An import without a status may have been made for any cluster.
                let is_new = self.import.is_none_or(|import| import.clusters.is_empty());
                let some_unknown =
                    self.set.remotes.values().any(|remote| remote.sync == Sync::Listing || remote.paused);
                let is_open = !unknown.is_empty() || is_new && some_unknown;
                Outcome::NotImported(if is_open { NotImported::NotKnown } else { NotImported::NotExported })
            }
            None => Outcome::NotImported(NotImported::NamespaceMissing),
            Some(_) if is_foreign => Outcome::NotImported(NotImported::NameConflict),
            Some(_) if is_held => Outcome::Held(unknown.clone()),
            Some(_) => Outcome::Imported,
        }
    }

    fn not_imported(&mut self, why: NotImported) -> Changes {
        let mut changes = Changes {
            outcome: Outcome::NotImported(why),
            import: Action::None,
            import_status: None,
            derived: Action::None,
            slices: BTreeMap::new(),
        };
        if why == NotImported::NameConflict {
            self.unmet.push(Unmet { remote: None, reason: Reason::NameConflict, message: why.as_str().to_owned() });
        }
        // The API server deletes what is in a namespace that goes.
        if why == NotImported::NamespaceTerminating {
            return changes;
        }
        if why != NotImported::NotKnown {
            if self.import.is_some_and(|import| import.managed && !import.deleting) {
                changes.import = Action::Delete;
            }
            if self.derived.is_some_and(|derived| derived.managed && !derived.deleting) {
                changes.derived = Action::Delete;
            }
        }
        changes.slices = self.slices(&ImportSpec::default(), None);
        changes
    }

    fn imported(&mut self, outcome: Outcome, unknown: &BTreeSet<ClusterId>) -> Changes {
        let held = self.import.filter(|_| matches!(outcome, Outcome::Held(_)));
        let Some(merged) = merge(held, &self.exporters.counted) else {
            return self.not_imported(NotImported::NotExported);
        };
        let Merged { mut spec, exported } = merged;
        let asked = spec.families.clone();
        let mut seen = BTreeSet::new();
        let is_supported = |family: &Family| self.here.families.as_ref().is_none_or(|here| here.contains(family));
        spec.families.retain(|family| is_supported(family) && seen.insert(*family));
        let exports_here = self.exporters.counted.iter().any(|one| one.remote.is_none());
        let wanted = derived_spec(&spec, exports_here);
        let derived = self.derived_action(wanted.is_some().then(|| derived_name(self.name)), wanted.as_ref());
        let owner = self.owner(spec.import_type, wanted.is_some(), &derived);
        let slices = self.slices(&spec, owner.as_ref());
        let ready = self.addresses(&mut spec, &asked, wanted.is_some(), &derived);
        let status = ImportStatus {
            clusters: self.exporters.counted.iter().map(|one| one.cluster_id).chain(unknown).cloned().collect(),
            ready,
        };
        let desired = DesiredImport { spec, exported, derived: wanted.map(|_| derived_name(self.name)) };
        Changes {
            import_status: self.status_differs(&status).then_some(status),
            import: self.import_action(desired),
            outcome,
            derived,
            slices,
        }
    }

    fn derived_action(&mut self, name: Option<Arc<str>>, wanted: Option<&DerivedSpec>) -> Action<DesiredDerived> {
        let is_foreign = self.derived.is_some_and(|derived| !derived.managed);
        if let Some(name) = name.filter(|_| is_foreign) {
            let message = format!("Service {name} exists and does not belong to the import: delete it");
            self.unmet.push(Unmet { remote: None, reason: Reason::NameConflict, message });
        }
        let import = self.import.filter(|import| import.managed && !import.deleting);
        derived_action(self.name, import, self.derived, wanted)
    }

    /// The object that owns the slices, once it is there to stay.
    fn owner(
        &self,
        import_type: ImportType,
        has_derived: bool,
        derived: &Action<DesiredDerived>,
    ) -> Option<SliceOwner> {
        match import_type {
            ImportType::Headless => {
                let import = self.import.filter(|import| !import.deleting)?;
                Some(SliceOwner { uid: import.uid.clone(), service_name: None })
            }
            ImportType::ClusterSetIp => {
                let there = self.usable_derived(derived).filter(|_| has_derived)?;
                Some(SliceOwner { uid: there.uid.clone(), service_name: Some(derived_name(self.name)) })
            }
        }
    }

    fn usable_derived(&self, action: &Action<DesiredDerived>) -> Option<&RecordedDerived> {
        let stays = !matches!(action, Action::Recreate | Action::Delete);
        self.derived.filter(|derived| stays && derived.managed && !derived.deleting)
    }

    /// Gives the spec the addresses of the derived Service; says whether these are all.
    fn addresses(
        &self,
        spec: &mut ImportSpec,
        asked: &[Family],
        has_derived: bool,
        derived: &Action<DesiredDerived>,
    ) -> Condition {
        if spec.families.is_empty() {
            let asked: Vec<String> = asked.iter().map(ToString::to_string).collect();
            let message = format!(
                "the Service is exported with {}, which Services cannot have here: export it with a family of this \
                 cluster",
                if asked.is_empty() { "no IP family".to_owned() } else { asked.join(" and ") }
            );
            return Condition::no("IPFamilyNotSupported", message);
        }
        if !has_derived {
            return Condition::yes("Ready", "its endpoints can be used here");
        }
        let wanted = spec.families.len();
        if let Some(derived) = self.usable_derived(derived) {
            let of = |family: &Family| derived.cluster_ips.iter().copied().find(|ip| Family::of(*ip) == *family);
            spec.ips = spec.families.iter().filter_map(of).collect();
            // Families and addresses go together, also while the second address is on its way.
            if !spec.ips.is_empty() {
                spec.families = spec.ips.iter().map(|ip| Family::of(*ip)).collect();
            }
        }
        if spec.ips.len() == wanted {
            return Condition::yes("Ready", "its addresses can be used here");
        }
        let name = derived_name(self.name);
        let message = if self.derived.is_some_and(|derived| !derived.managed) {
            format!("Service {name} exists and does not belong to the import: delete it")
        } else {
            format!("waiting for the addresses of Service {name}")
        };
        Condition::no("Pending", message)
    }

    fn import_action(&self, desired: DesiredImport) -> Action<DesiredImport> {
        let Some(import) = self.import else { return Action::Create(Box::new(desired)) };
        let is_same =
            (&import.spec, &import.exported, &import.derived) == (&desired.spec, &desired.exported, &desired.derived);
        if is_same || import.deleting { Action::None } else { Action::Update(Box::new(desired)) }
    }

    fn status_differs(&self, status: &ImportStatus) -> bool {
        self.import.is_some_and(|import| {
            !import.deleting && (&import.clusters, import.ready.as_ref()) != (&status.clusters, Some(&status.ready))
        })
    }

    fn slices(&mut self, spec: &ImportSpec, owner: Option<&SliceOwner>) -> BTreeMap<Arc<str>, ImportSliceAction> {
        let Self { here, set, name, exporters, unmet, .. } = self;
        SlicePlanner { here, set, name, spec, exporters: &exporters.counted }.actions(owner, unmet)
    }

    fn decision(mut self, changes: Changes) -> Decision {
        let conflicts = conflicts(&self.exporters.counted);
        let export_status = self.export_status(&conflicts, matches!(changes.outcome, Outcome::Held(_)));
        self.unmet.sort();
        self.unmet.dedup();
        let Changes { outcome, import, import_status, derived, slices } = changes;
        Decision {
            outcome,
            exporters: self.exporters.counted.iter().map(|one| one.cluster_id.clone()).collect(),
            excluded: self.exporters.excluded,
            conflicts,
            import,
            import_status,
            derived,
            slices,
            export_status,
            unmet: self.unmet,
        }
    }

    /// A conflict with a cluster that is not known stays.
    fn export_status(&self, conflicts: &[Conflict], is_held: bool) -> Option<ExportStatus> {
        let local = &self.set.local;
        local.exports.exports.get(self.name).filter(|export| !export.deleting)?;
        let own = self.exporters.excluded.iter().find(|excluded| excluded.remote.is_none());
        let recorded = local.statuses.get(self.name);
        let mut status = ExportStatus::of(own.map(|excluded| excluded.why), conflicts);
        if let Some(recorded) = recorded.filter(|recorded| recorded.conflict.is_true && is_held && own.is_none()) {
            status.conflict = recorded.conflict.clone();
        }
        (recorded != Some(&status)).then_some(status)
    }
}
