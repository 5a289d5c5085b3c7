//! Scripts for watches: which event is lost, where the stream breaks, when a resume has expired.

use std::collections::VecDeque;

/// One step of a script. `[Pass(2), Cut, ExpireOnOpen]` cuts the watch right after its second event and
/// answers the resume with 410; `[Pass(1), Lose(3), ExpireInStream]` loses three events in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchStep {
    /// Lets that many events pass. Bookmarks pass too and do not count.
    Pass(u32),
    /// Loses that many events, and the bookmarks among them.
    Lose(u32),
    /// Cuts the connection.
    Cut,
    /// Ends the stream in good order, as the API server does when the time of a watch is up.
    End,
    /// Sends an ERROR event with code 410 and ends the stream.
    ExpireInStream,
    /// Answers the next request to watch with HTTP status 410. Until it comes, events pass.
    ExpireOnOpen,
}

/// What a script does to a stream without waiting for an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Break {
    Cut,
    End,
    Expire,
}

/// The scripts of one replica, by how the path ends.
#[derive(Debug, Default)]
pub(super) struct Scripts(Vec<(String, VecDeque<WatchStep>)>);

impl Scripts {
    pub(super) fn set(&mut self, path: &str, steps: Vec<WatchStep>) {
        self.0.retain(|(end, _)| end != path);
        self.0.push((path.to_owned(), steps.into()));
    }

    pub(super) fn left(&self, path: &str) -> usize {
        self.0.iter().filter(|(end, _)| end == path).map(|(_, steps)| steps.len()).sum()
    }

    /// Takes the step that breaks a stream, if it is due.
    pub(super) fn break_due(&mut self, path: &str) -> Option<Break> {
        let steps = self.of(path)?;
        let due = match steps.front()? {
            WatchStep::Cut => Break::Cut,
            WatchStep::End => Break::End,
            WatchStep::ExpireInStream => Break::Expire,
            WatchStep::Pass(_) | WatchStep::Lose(_) | WatchStep::ExpireOnOpen => return None,
        };
        steps.pop_front();
        Some(due)
    }

    /// Takes the step that refuses a watch, if it is due.
    pub(super) fn refuses(&mut self, path: &str) -> bool {
        let Some(steps) = self.of(path) else { return false };
        steps.pop_front_if(|step| *step == WatchStep::ExpireOnOpen).is_some()
    }

    /// Counts an event, and says whether it passes.
    pub(super) fn event_passes(&mut self, path: &str) -> bool {
        let Some(steps) = self.of(path) else { return true };
        let Some(WatchStep::Pass(left) | WatchStep::Lose(left)) = steps.front_mut() else { return true };
        *left -= 1;
        let (done, passes) = (*left == 0, matches!(steps.front(), Some(WatchStep::Pass(_))));
        if done {
            steps.pop_front();
        }
        passes
    }

    /// Whether a bookmark passes: not among events that are lost, or the client would resume after them.
    pub(super) fn bookmark_passes(&mut self, path: &str) -> bool {
        !matches!(self.of(path).and_then(|steps| steps.front()), Some(WatchStep::Lose(_)))
    }

    fn of(&mut self, path: &str) -> Option<&mut VecDeque<WatchStep>> {
        let (_, steps) = self.0.iter_mut().find(|(end, steps)| path.ends_with(end.as_str()) && !steps.is_empty())?;
        while let Some(WatchStep::Pass(0) | WatchStep::Lose(0)) = steps.front() {
            steps.pop_front();
        }
        Some(steps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "/apis/testkit.portolan.dev/v1/namespaces/x/tickets";

    fn script(steps: &[WatchStep]) -> Scripts {
        let mut scripts = Scripts::default();
        scripts.set("tickets", steps.to_vec());
        scripts
    }

    #[test]
    fn events_are_passed_and_lost_as_counted_then_the_stream_breaks() {
        let mut scripts = script(&[WatchStep::Pass(1), WatchStep::Lose(2), WatchStep::Cut]);
        assert_eq!(scripts.break_due(PATH), None);
        assert!(scripts.event_passes(PATH));
        assert!(!scripts.bookmark_passes(PATH) && !scripts.event_passes(PATH) && !scripts.event_passes(PATH));
        assert_eq!(scripts.break_due(PATH), Some(Break::Cut));
        assert!(scripts.event_passes(PATH) && scripts.left("tickets") == 0, "a script that is done lets all pass");
    }

    #[test]
    fn a_refusal_waits_for_a_request() {
        let mut scripts = script(&[WatchStep::Pass(0), WatchStep::ExpireOnOpen]);
        assert!(scripts.event_passes(PATH) && scripts.break_due(PATH).is_none());
        assert!(!scripts.refuses("/api/v1/pods"));
        assert!(scripts.refuses(PATH) && !scripts.refuses(PATH));
    }
}
