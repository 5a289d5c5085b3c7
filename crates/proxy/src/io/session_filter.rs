//! Which sessions a filter of the API selects.

use super::session::{Decision, Session, Stage};
use crate::config::engine::SessionFilter;
use crate::config::types::ObjectId;

/// What filters ask about a session.
#[derive(Clone, Default)]
pub(crate) struct Ids {
    pub listener: ObjectId,
    pub rulelists: Vec<ObjectId>,
    pub rule: Option<ObjectId>,
    pub route: Option<ObjectId>,
    pub clusters: Vec<ObjectId>,
    pub endpoints: Vec<ObjectId>,
}

impl Ids {
    pub(crate) fn of(session: &Session) -> Self {
        let decision = session.decision.as_ref();
        Self {
            listener: session.listener.config.id,
            rulelists: decision.map(|decision| decision.rulelists.clone()).unwrap_or_default(),
            rule: decision.map(|decision| decision.rule),
            route: decision.map(|decision| decision.route.id),
            clusters: session.stages.iter().filter_map(|stage| Some(stage.cluster.as_ref()?.id)).collect(),
            endpoints: session.stages.iter().filter_map(|stage| Some(stage.endpoint.as_ref()?.id)).collect(),
        }
    }

    pub(crate) fn fit(&self, filter: &SessionFilter) -> bool {
        let SessionFilter { name: _, listener, rulelist, rule, route, cluster, endpoint } = filter;
        let is = |wanted: &Option<ObjectId>, has: Option<ObjectId>| wanted.is_none() || *wanted == has;
        let among = |wanted: &Option<ObjectId>, has: &[ObjectId]| wanted.is_none_or(|wanted| has.contains(&wanted));
        is(listener, Some(self.listener))
            && among(rulelist, &self.rulelists)
            && is(rule, self.rule)
            && is(route, self.route)
            && among(cluster, &self.clusters)
            && among(endpoint, &self.endpoints)
    }
}

/// Whether a live session fits all but the name.
pub(crate) fn fits(session: &Session, filter: &SessionFilter) -> bool {
    let SessionFilter { name: _, listener, rulelist, rule, route, cluster, endpoint } = filter;
    let decision = session.decision.as_deref();
    let decided = |wanted: &Option<ObjectId>, holds: &dyn Fn(&Decision, ObjectId) -> bool| {
        wanted.is_none_or(|wanted| decision.is_some_and(|decision| holds(decision, wanted)))
    };
    let staged = |wanted: &Option<ObjectId>, id: &dyn Fn(&Stage) -> Option<ObjectId>| {
        wanted.is_none_or(|wanted| session.stages.iter().any(|stage| id(stage) == Some(wanted)))
    };
    listener.is_none_or(|wanted| session.listener.config.id == wanted)
        && decided(rulelist, &|decision, wanted| decision.rulelists.contains(&wanted))
        && decided(rule, &|decision, wanted| decision.rule == wanted)
        && decided(route, &|decision, wanted| decision.route.id == wanted)
        && staged(cluster, &|stage| stage.cluster.as_ref().map(|cluster| cluster.id))
        && staged(endpoint, &|stage| stage.endpoint.as_ref().map(|endpoint| endpoint.id))
}
