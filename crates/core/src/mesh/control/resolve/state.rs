//! The state of the resolver: the world, and everything computed from it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::assignment::{ConfigUnit, ProxyAssignment};
use super::compiled::{CompiledRoute, CompiledTarget};
use super::cycles::CallCycles;
use super::dependencies::{Dependency, DependencyGraph, GeneratedTarget, GraphNode, PodSetId};
use super::pod_sets::{PodIndex, PodSet};
use crate::mesh::control::Diagnostic;
use crate::mesh::control::normalize::Normalized;
use crate::mesh::control::types::{MeshKind, ObjectName, Route, RuleObject, Target, VirtualService};
use crate::mesh::control::wire::ConfigKind;
use crate::mesh::control::world::{ProxyRole, Transport, World};

/// The keys whose desired state may have changed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Affected {
    /// Configuration of proxies, by pod.
    pub pods: BTreeMap<ObjectName, BTreeSet<(ConfigKind, Arc<str>)>>,
    /// Objects whose status may have changed.
    pub objects: BTreeSet<(MeshKind, ObjectName)>,
    /// Generated objects that may have to be created, updated or deleted.
    pub generated: BTreeSet<(MeshKind, ObjectName)>,
}

pub(super) type Normal<T> = Normalized<Arc<T>>;

/// The users' objects in the normal form.
#[derive(Debug, Clone, Default)]
pub(super) struct NormalizedObjects {
    pub(super) virtual_services: BTreeMap<ObjectName, Normal<VirtualService>>,
    pub(super) routes: BTreeMap<ObjectName, Normal<Route>>,
    pub(super) targets: BTreeMap<ObjectName, Normal<Target>>,
    pub(super) rules: BTreeMap<ObjectName, Normal<RuleObject>>,
}

/// A user's Target and the proxies that hold it.
#[derive(Debug, Clone)]
pub(super) struct PlacedTarget {
    pub(super) outcome: Result<CompiledTarget, Diagnostic>,
    pub(super) diagnostics: Vec<Diagnostic>,
    pub(super) matched: usize,
    pub(super) pods: BTreeSet<ObjectName>,
    /// Proxies that cannot hold it, and why.
    pub(super) broken: BTreeMap<ObjectName, Diagnostic>,
    /// The Service it links to, if there is no VirtualService of that name.
    pub(super) service: Option<ObjectName>,
}

/// The result of compiling a generated Target.
#[derive(Debug, Clone)]
pub(super) struct GeneratedTargetState {
    pub(super) outcome: Result<CompiledTarget, Diagnostic>,
    pub(super) diagnostics: Vec<Diagnostic>,
}

/// One use of a generated Target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GeneratedUse {
    pub(super) target: GeneratedTarget,
    /// The object that names it.
    pub(super) user: (MeshKind, ObjectName),
    pub(super) caller: Caller,
}

/// The pods that call a generated Target.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Caller {
    pub(super) namespace: Arc<str>,
    /// The selector as JSON text.
    pub(super) selector: Arc<str>,
}

/// What a VirtualService or Rule puts on proxies.
#[derive(Debug, Clone, Default)]
pub(super) struct ServedObject {
    pub(super) refused: Option<Diagnostic>,
    pub(super) unmet: Vec<Diagnostic>,
    pub(super) diagnostics: Vec<Diagnostic>,
    pub(super) is_stub: bool,
    pub(super) matched: usize,
    pub(super) naked: usize,
    pub(super) units: BTreeMap<ObjectName, Arc<ConfigUnit>>,
    pub(super) uses: BTreeSet<GeneratedUse>,
    pub(super) callees: BTreeSet<ObjectName>,
}

/// The users of a generated Target, with reference counts.
#[derive(Debug, Clone, Default)]
pub(super) struct GeneratedUsers {
    pub(super) users: BTreeMap<(MeshKind, ObjectName), usize>,
    pub(super) callers: BTreeMap<Caller, usize>,
}

/// Resolves what every proxy should hold, for a whole world or change by change.
#[derive(Debug, Clone, Default)]
pub struct Resolver {
    pub(super) world: World,
    pub(super) slices_of: BTreeMap<ObjectName, BTreeSet<ObjectName>>,
    pub(super) proxy_roles: BTreeMap<ObjectName, ProxyRole>,
    /// Pods on the host's network that declare a port, by node.
    pub(super) host_ports: BTreeMap<(Arc<str>, Transport, u16), BTreeSet<ObjectName>>,
    pub(super) index: PodIndex,
    pub(super) sets: BTreeMap<PodSetId, PodSet>,
    pub(super) objects: NormalizedObjects,
    pub(super) graph: DependencyGraph,
    pub(super) dirty: BTreeSet<GraphNode>,
    pub(super) targets: BTreeMap<ObjectName, PlacedTarget>,
    pub(super) generated: BTreeMap<GeneratedTarget, GeneratedTargetState>,
    pub(super) routes: BTreeMap<ObjectName, CompiledRoute>,
    pub(super) served: BTreeMap<GraphNode, ServedObject>,
    pub(super) cycles: CallCycles,
    pub(super) assignments: BTreeMap<ObjectName, ProxyAssignment>,
    pub(super) shared: BTreeMap<GraphNode, Arc<ConfigUnit>>,
    /// Pods whose proxies need a shared unit.
    pub(super) pods_needing: BTreeMap<GraphNode, BTreeSet<ObjectName>>,
    pub(super) generated_users: BTreeMap<GeneratedTarget, GeneratedUsers>,
    /// Targets that link to a Service.
    pub(super) linked_services: BTreeMap<ObjectName, BTreeSet<ObjectName>>,
    /// Generated Targets whose callee is a Service without proxies.
    pub(super) wrapped_services: BTreeMap<ObjectName, BTreeSet<GeneratedTarget>>,
    pub(super) affected: Affected,
    /// The initial resolution is complete: affected keys are collected from here on.
    pub(super) is_resolved: bool,
    pub(super) evaluations: u64,
}

impl Resolver {
    /// A user's VirtualService, if it is valid.
    pub(super) fn virtual_service(&self, name: &ObjectName) -> Option<&Arc<VirtualService>> {
        self.objects.virtual_services.get(name)?.outcome.as_ref().ok()
    }

    /// Whether a user's object of this name exists.
    pub(super) fn is_user_object(&self, kind: MeshKind, name: &ObjectName) -> bool {
        match kind {
            MeshKind::VirtualService => self.objects.virtual_services.contains_key(name),
            MeshKind::Route => self.objects.routes.contains_key(name),
            MeshKind::Target => self.objects.targets.contains_key(name),
            MeshKind::Rule => self.objects.rules.contains_key(name),
            MeshKind::Service => self.world.services.contains_key(name),
        }
    }

    /// Marks everything that depends on a changed input for evaluation.
    pub(super) fn invalidate(&mut self, key: &Dependency) {
        self.dirty.extend(self.graph.readers(key).cloned());
    }
}
