//! What happens while `up` runs, one line per event.

use std::convert::Infallible;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use tokio::time::{Instant, sleep, timeout_at};

use crate::printer::Printer;

/// Events that come within this time are shown together.
const GATHER: Duration = Duration::from_millis(300);
/// At most this many lines are shown of events that came together.
const LINES: usize = 20;
/// After this long without an answer the watch is started again.
const AGAIN: Duration = Duration::from_secs(1);

/// The events from now on.
pub(super) struct Live {
    events: Api<Event>,
    version: String,
}

impl Live {
    /// Leaves out what happened before, as events of an earlier run.
    pub(super) async fn from_now(client: Client) -> kube::Result<Self> {
        let events = Api::all(client);
        let listed = events.list(&ListParams::default().limit(1)).await?;
        Ok(Self { events, version: listed.metadata.resource_version.unwrap_or_default() })
    }

    /// Prints them until it is dropped.
    pub(super) async fn show(mut self, printer: &Printer) -> Infallible {
        loop {
            if self.follow(printer).await.is_err() {
                // its history is gone, or the server stops
                if let Ok(again) = Self::from_now(self.events.clone().into_client()).await {
                    self = again;
                }
            }
            sleep(AGAIN).await;
        }
    }

    async fn follow(&mut self, printer: &Printer) -> kube::Result<()> {
        let mut watch = self.events.watch(&WatchParams::default(), &self.version).await?.boxed();
        while let Some(first) = watch.next().await {
            let mut lines = Vec::new();
            self.take(first?, &mut lines)?;
            let end = Instant::now() + GATHER;
            while let Ok(Some(next)) = timeout_at(end, watch.next()).await {
                self.take(next?, &mut lines)?;
            }
            print(&lines, printer);
        }
        Ok(())
    }

    fn take(&mut self, event: WatchEvent<Event>, lines: &mut Vec<String>) -> kube::Result<()> {
        match event {
            WatchEvent::Added(event) | WatchEvent::Modified(event) => {
                self.version = event.resource_version().unwrap_or_default();
                lines.extend(line(&event));
            }
            WatchEvent::Deleted(event) => self.version = event.resource_version().unwrap_or_default(),
            WatchEvent::Bookmark(bookmark) => self.version = bookmark.metadata.resource_version,
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        }
        Ok(())
    }
}

fn print(lines: &[String], printer: &Printer) {
    for line in lines.iter().take(LINES) {
        printer.note(line);
    }
    let more = lines.len().saturating_sub(LINES);
    if more > 0 {
        printer.note(&format!("... and {more} more: kubectl get events -A"));
    }
}

/// `KIND NAMESPACE/NAME: what happened`.
fn line(event: &Event) -> Option<String> {
    let regarding = event.regarding.as_ref()?;
    let kind = regarding.kind.as_deref()?;
    let name = regarding.name.as_deref()?;
    let namespace = regarding.namespace.as_deref().map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let reason = event.reason.as_deref().unwrap_or_default();
    let note = event.note.as_deref().filter(|note| !note.is_empty()).unwrap_or(reason);
    let warning = if event.type_.as_deref() == Some("Warning") { "warning: " } else { "" };
    Some(format!("{warning}{kind} {namespace}{name}: {note}"))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ObjectReference;

    use super::*;

    #[test]
    fn a_line_names_the_object_and_says_what_happened() {
        let regarding = ObjectReference {
            kind: Some("EgressPolicy".to_owned()),
            namespace: Some("shop".to_owned()),
            name: Some("web".to_owned()),
            ..ObjectReference::default()
        };
        let mut event = Event {
            regarding: Some(regarding),
            reason: Some("EIPAssigned".to_owned()),
            note: Some("leaves with 10.6.1.55".to_owned()),
            type_: Some("Normal".to_owned()),
            ..Event::default()
        };
        assert_eq!(line(&event).unwrap(), "EgressPolicy shop/web: leaves with 10.6.1.55");
        (event.note, event.type_) = (None, Some("Warning".to_owned()));
        assert_eq!(line(&event).unwrap(), "warning: EgressPolicy shop/web: EIPAssigned");
        event.regarding = None;
        assert_eq!(line(&event), None);
    }
}
