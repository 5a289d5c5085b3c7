//! What is reported of an object: one verdict for each condition.

use std::borrow::Cow;

use super::problem::Problem;

/// A condition of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionKind {
    /// The object is valid.
    Accepted,
    /// All objects that it names exist.
    ResolvedRefs,
    /// It has its numbers and its address.
    Allocated,
    /// Its address would be given to it today, too.
    AddressInPool,
    /// Envoy has its configuration.
    Programmed,
    /// Clients' nodes are connected.
    TunnelsUp,
    /// The summary.
    Ready,
}

impl ConditionKind {
    /// The type of the condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "Accepted",
            Self::ResolvedRefs => "ResolvedRefs",
            Self::Allocated => "Allocated",
            Self::AddressInPool => "AddressInPool",
            Self::Programmed => "Programmed",
            Self::TunnelsUp => "TunnelsUp",
            Self::Ready => "Ready",
        }
    }
}

/// One condition, and why it is not true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Which condition.
    pub kind: ConditionKind,
    /// None if it is true.
    pub problem: Option<Problem>,
}

impl Verdict {
    /// Its problem, if that matters for traffic.
    fn matter(&self) -> Option<&Problem> {
        let matters = !matches!(self.kind, ConditionKind::AddressInPool | ConditionKind::TunnelsUp);
        self.problem.as_ref().filter(|_| matters)
    }
}

/// The conditions of an object, in the order in which they are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Verdicts(pub Cow<'static, [Verdict]>);

impl Verdicts {
    /// What is reported of an endpoint that works, as most do: they share one list.
    pub(super) const fn working_endpoint() -> Self {
        const ALL: &[Verdict] = &[
            Verdict { kind: ConditionKind::Accepted, problem: None },
            Verdict { kind: ConditionKind::ResolvedRefs, problem: None },
            Verdict { kind: ConditionKind::Programmed, problem: None },
        ];
        Self(Cow::Borrowed(ALL))
    }

    /// What is reported of a load balancer that works, as most do: they share one list for each kind of tunnels. None if
    /// its own have another problem.
    pub(super) const fn working_load_balancer(tunnels: &Problem) -> Option<Self> {
        const fn all(tunnels: Problem) -> [Verdict; 7] {
            [
                Verdict { kind: ConditionKind::Accepted, problem: None },
                Verdict { kind: ConditionKind::ResolvedRefs, problem: None },
                Verdict { kind: ConditionKind::Allocated, problem: None },
                Verdict { kind: ConditionKind::AddressInPool, problem: None },
                Verdict { kind: ConditionKind::Programmed, problem: None },
                Verdict { kind: ConditionKind::TunnelsUp, problem: Some(tunnels) },
                Verdict { kind: ConditionKind::Ready, problem: None },
            ]
        }
        const DIRECT: &[Verdict] = &all(Problem::DriverDirect);
        const NOT_OFFERED: &[Verdict] = &all(Problem::NoTunnelAddress);
        if matches!(tunnels, Problem::DriverDirect) {
            Some(Self(Cow::Borrowed(DIRECT)))
        } else if matches!(tunnels, Problem::NoTunnelAddress) {
            Some(Self(Cow::Borrowed(NOT_OFFERED)))
        } else {
            None
        }
    }

    pub(super) fn of<const N: usize>(verdicts: [(ConditionKind, Option<&Problem>); N]) -> Self {
        // the summary is added to most of them
        let mut all = Vec::with_capacity(N + 1);
        all.extend(verdicts.into_iter().map(|(kind, problem)| Verdict { kind, problem: problem.cloned() }));
        Self(all.into())
    }

    /// Adds the summary: the first that is not true and matters for traffic.
    pub(super) fn summarised(self) -> Self {
        self.summarised_without(None)
    }

    /// Adds the summary of all but one.
    pub(super) fn summarised_without(mut self, ignored: Option<ConditionKind>) -> Self {
        let mut others = self.0.iter().filter(|verdict| Some(verdict.kind) != ignored);
        let problem = others.find_map(Verdict::matter).cloned();
        self.0.to_mut().push(Verdict { kind: ConditionKind::Ready, problem });
        self
    }

    /// The first problem that matters for traffic.
    pub fn first_problem(&self) -> Option<&Problem> {
        self.0.iter().find_map(Verdict::matter)
    }

    /// The problem of one condition.
    pub fn problem(&self, kind: ConditionKind) -> Option<&Problem> {
        self.0.iter().find(|verdict| verdict.kind == kind)?.problem.as_ref()
    }
}
