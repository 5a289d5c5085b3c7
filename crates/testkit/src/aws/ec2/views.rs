//! What reads show of interfaces: the truth of a while ago, each interface with a delay of its own.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::world::Interface;

#[derive(Default)]
pub(super) struct Views {
    lag: Duration,
    views: BTreeMap<String, VecDeque<View>>,
}

struct View {
    visible_at: Instant,
    /// None once the interface is deleted.
    interface: Option<Interface>,
}

impl Views {
    pub(super) fn set_lag(&mut self, lag: Duration) {
        self.lag = lag;
    }

    /// Records a change, to be seen after a random part of the lag.
    pub(super) fn publish(&mut self, id: &str, interface: Option<Interface>, random: &mut fastrand::Rng) {
        let views = self.views.entry(id.to_owned()).or_default();
        let earliest = Instant::now() + self.lag.mul_f64(random.f64());
        let visible_at = views.back().map_or(earliest, |last| last.visible_at.max(earliest));
        views.push_back(View { visible_at, interface });
    }

    /// Shows everything now.
    pub(super) fn settle(&mut self) {
        let now = Instant::now();
        for view in self.views.values_mut().flatten() {
            view.visible_at = view.visible_at.min(now);
        }
    }

    /// All interfaces as they are seen now, ordered by id.
    pub(super) fn seen(&mut self) -> BTreeMap<String, Interface> {
        let now = Instant::now();
        for views in self.views.values_mut() {
            while views.get(1).is_some_and(|next| next.visible_at <= now) {
                views.pop_front();
            }
        }
        self.views.retain(|_, views| {
            views.len() > 1 || views.front().is_some_and(|view| view.interface.is_some() || view.visible_at > now)
        });
        let seen = self.views.iter().filter_map(|(id, views)| {
            let first = views.front().filter(|view| view.visible_at <= now)?;
            Some((id.clone(), first.interface.clone()?))
        });
        seen.collect()
    }
}
