//! Options of list, watch and collection delete.

use http::StatusCode;

use super::token::Token;
use super::{Query, checked, forbidden, not_supported, parse_revision};
use crate::kinds::Kind;
use crate::rest::select::{FieldSelector, LabelSelector};
use crate::rest::text::quote;
use crate::status::{Cause, Failure};

/// What a list, a watch or a collection delete is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListOptions {
    pub labels: LabelSelector,
    pub fields: FieldSelector,
    pub watch: bool,
    pub bookmarks: bool,
    /// As it was written: empty and `0` mean different things.
    pub resource_version: String,
    pub version_match: Option<VersionMatch>,
    pub timeout_seconds: Option<i64>,
    /// 0 or less is no limit.
    pub limit: i64,
    /// The token as it was written; [`Self::page`] reads it.
    pub continue_: String,
    pub send_initial_events: Option<bool>,
}

/// How a list's revision is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionMatch {
    Exact,
    NotOlderThan,
}

impl ListOptions {
    /// Reads the options for a kind; `name` is that of a watch of one object, by the old `/watch/` prefix.
    pub fn parse(query: &Query, kind: &Kind, name: Option<&str>, watch: bool) -> Result<Self, Failure> {
        let text = |name: &str| query.first(name).unwrap_or_default().to_owned();
        let mut options = Self {
            watch: query.flag("watch").unwrap_or_default(),
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or_default(),
            resource_version: text("resourceVersion"),
            timeout_seconds: query.integer("timeoutSeconds")?,
            limit: query.integer("limit")?.unwrap_or_default(),
            continue_: text("continue"),
            send_initial_events: query.flag("sendInitialEvents"),
            labels: LabelSelector::parse(&text("labelSelector"))?,
            fields: FieldSelector::parse(&text("fieldSelector"))?,
            version_match: None,
        };
        let mut matching = text("resourceVersionMatch");
        let legacy = matches!(options.resource_version.as_str(), "" | "0");
        if options.watch && legacy && options.send_initial_events.is_none() && matching.is_empty() {
            options.send_initial_events = Some(true);
            "NotOlderThan".clone_into(&mut matching);
        }
        let faults = if options.watch { options.watch_faults(&matching) } else { options.list_faults(&matching) };
        checked("ListOptions", &faults)?;
        options.version_match = match matching.as_str() {
            "Exact" => Some(VersionMatch::Exact),
            "NotOlderThan" => Some(VersionMatch::NotOlderThan),
            _ => None,
        };
        options.fields.check(kind)?;
        if let Some(name) = name {
            options.fields = options.fields.named(name)?;
        }
        options.watch |= watch;
        Ok(options)
    }

    /// The revision of a list: none when the newest is meant.
    pub fn revision(&self) -> Result<Option<u64>, Failure> {
        if self.resource_version.is_empty() {
            return Ok(None);
        }
        parse_revision(&self.resource_version).map(Some).map_err(|why| {
            let fault = revision_fault(&self.resource_version, &why);
            Failure::bad_request(format!("invalid resource version: {fault}"))
        })
    }

    /// The page to go on with, if the client names one.
    pub fn page(&self) -> Result<Option<Token>, Failure> {
        if self.continue_.is_empty() {
            return Ok(None);
        }
        let token = Token::decode(&self.continue_)?;
        if !matches!(self.resource_version.as_str(), "" | "0") {
            return Err(Failure::bad_request("specifying resource version is not allowed when using continue"));
        }
        Ok(Some(token))
    }

    fn list_faults(&self, matching: &str) -> Vec<Cause> {
        let mut faults = Vec::new();
        let field = "resourceVersionMatch";
        if !matching.is_empty() {
            if self.resource_version.is_empty() {
                faults.push(forbidden(field, "resourceVersionMatch is forbidden unless resourceVersion is provided"));
            }
            if !self.continue_.is_empty() {
                faults.push(forbidden(field, "resourceVersionMatch is forbidden when continue is provided"));
            }
            if !matches!(matching, "Exact" | "NotOlderThan") {
                faults.push(not_supported(field, &quote(matching), &["Exact", "NotOlderThan", ""]));
            }
            if matching == "Exact" && self.resource_version == "0" {
                let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                faults.push(forbidden(field, why));
            }
        }
        if self.send_initial_events.is_some() {
            faults.push(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
        }
        faults
    }

    fn watch_faults(&self, matching: &str) -> Vec<Cause> {
        let mut faults = Vec::new();
        let field = "resourceVersionMatch";
        let initial = self.send_initial_events.is_some();
        if initial && matching != "NotOlderThan" {
            faults.push(forbidden(field, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
        }
        if matching.is_empty() {
            return faults;
        }
        if !initial {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            faults.push(forbidden(field, why));
        }
        if matching != "NotOlderThan" {
            faults.push(not_supported(field, &quote(matching), &["NotOlderThan"]));
        }
        if !self.continue_.is_empty() {
            faults.push(forbidden(field, "resourceVersionMatch is forbidden when continue is provided"));
        }
        faults
    }
}

/// The revision of a watch: none when it starts with what there is.
pub fn watch_revision(text: &str) -> Result<Option<u64>, Failure> {
    if text.is_empty() { Ok(None) } else { get_revision(text) }
}

/// The revision that a read must have seen: none for empty and `0`.
pub fn get_revision(text: &str) -> Result<Option<u64>, Failure> {
    if matches!(text, "" | "0") {
        return Ok(None);
    }
    // Kubernetes blames itself here.
    parse_revision(text)
        .map(Some)
        .map_err(|why| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "", revision_fault(text, &why)))
}

fn revision_fault(text: &str, why: &str) -> String {
    format!("resourceVersion: Invalid value: {}: {why}", quote(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rest::fixtures::widget;

    fn read(query: &str) -> Result<ListOptions, Failure> {
        ListOptions::parse(&Query::parse(query), &widget(), None, false)
    }

    fn faults(query: &str) -> String {
        let failure = read(query).unwrap_err();
        assert_eq!((failure.code.as_u16(), failure.reason.as_ref()), (422, "Invalid"), "{query}");
        assert_eq!(failure.details["kind"], "ListOptions");
        let head = "ListOptions.meta.k8s.io \"\" is invalid: ";
        failure.message.strip_prefix(head).unwrap_or(&failure.message).to_owned()
    }

    #[test]
    fn options_are_read() {
        let options =
            read("limit=5&continue=x&labelSelector=a%3Db&fieldSelector=spec.desk%3Dd1&resourceVersion=0").unwrap();
        assert_eq!((options.limit, options.continue_.as_str()), (5, "x"));
        assert!(options.fields.exact("spec.desk") == Some("d1") && !options.labels.is_empty());
        let exact = read("resourceVersion=7&resourceVersionMatch=Exact").unwrap();
        assert_eq!((exact.version_match, exact.revision()), (Some(VersionMatch::Exact), Ok(Some(7))));
    }

    #[test]
    fn a_watch_from_the_start_sends_initial_events() {
        let options = read("watch=1").unwrap();
        assert_eq!(options.send_initial_events, Some(true));
        assert_eq!(options.version_match, Some(VersionMatch::NotOlderThan));
        assert_eq!(read("watch=1&resourceVersion=5").unwrap().send_initial_events, None);
        assert!(read("watch=").unwrap().watch && !read("watch=False").unwrap().watch);
    }

    #[test]
    fn the_rules_of_combination_are_those_of_the_real_server() {
        let unsupported =
            r#"resourceVersionMatch: Unsupported value: "Foo": supported values: "Exact", "NotOlderThan", """#;
        let forbidden = |why: &str| format!("resourceVersionMatch: Forbidden: {why}");
        let unless = forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided");
        let paged = forbidden("resourceVersionMatch is forbidden when continue is provided");
        assert_eq!(faults("resourceVersionMatch=Exact"), unless);
        assert_eq!(faults("resourceVersionMatch=Foo"), format!("[{unless}, {unsupported}]"));
        assert_eq!(faults("resourceVersionMatch=Foo&resourceVersion=1"), unsupported);
        assert_eq!(faults("resourceVersionMatch=Exact&resourceVersion=1&continue=x"), paged);
        assert_eq!(
            faults("resourceVersionMatch=Exact&resourceVersion=0"),
            forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
        );
        assert_eq!(
            faults("sendInitialEvents=true"),
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"
        );
        assert_eq!(faults("watch=1&continue=x"), paged);
        let only = r#"resourceVersionMatch: Unsupported value: "Exact": supported values: "NotOlderThan""#;
        let needs = forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
        assert_eq!(faults("watch=1&resourceVersionMatch=Exact"), format!("[{needs}, {only}]"));
        assert_eq!(
            faults("watch=1&sendInitialEvents=true"),
            forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        );
    }

    #[test]
    fn numbers_come_before_selectors_and_timeout_before_limit() {
        let text = |query: &str| read(query).unwrap_err().message;
        assert_eq!(
            text("limit=x&watch=z&timeoutSeconds=q&labelSelector=,"),
            r#"strconv.ParseInt: parsing "q": invalid syntax"#
        );
        assert_eq!(text("labelSelector=,&fieldSelector=x"), "found ',', expected: !, identifier, or 'end of string'");
    }

    #[test]
    fn revisions_fail_differently_for_lists_and_watches() {
        let fault = r#"resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax"#;
        let listed = read("resourceVersion=x").unwrap().revision().unwrap_err();
        assert_eq!((listed.code.as_u16(), listed.message), (400, format!("invalid resource version: {fault}")));
        let watched = watch_revision("x").unwrap_err();
        assert_eq!((watched.code.as_u16(), watched.reason.as_ref(), watched.message.as_str()), (500, "", fault));
        assert_eq!(get_revision("0"), Ok(None));
    }

    #[test]
    fn a_page_excludes_a_revision() {
        let token = Token { revision: 5, start: "x".to_owned() }.encode();
        assert_eq!(read(&format!("continue={token}&resourceVersion=0")).unwrap().page().unwrap().unwrap().revision, 5);
        let both = read(&format!("continue={token}&resourceVersion=1")).unwrap().page().unwrap_err();
        assert_eq!(both.message, "specifying resource version is not allowed when using continue");
    }
}
