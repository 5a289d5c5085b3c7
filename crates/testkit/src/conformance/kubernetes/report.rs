//! The verdicts on a run, as a page for people.

use std::{fmt::Write as _, time::Duration};

use super::super::ginkgo::{Results, Spec, Verdict, cell};
use super::expected::{CANNOT_PASS, CONFORMANCE, LEFT_OUT, SIG};
use super::suite::PACKAGE;

/// What was run, and when.
pub(super) struct About<'a> {
    pub(super) date: String,
    pub(super) took: Duration,
    pub(super) kubernetes: &'a str,
    /// Of the suite's module.
    pub(super) checksum: &'a str,
}

/// The conformance specs of one run.
#[derive(Debug)]
pub(super) struct Report {
    specs: Vec<Spec>,
    broken: Vec<String>,
    cannot_pass: &'static [(&'static str, &'static str)],
}

impl Report {
    /// Reads the JSON report of Ginkgo, which names every spec of the suite, run or not.
    pub(super) fn read(json: &str) -> anyhow::Result<Self> {
        let Results { mut specs, broken } = Results::read(json)?;
        specs.retain(|spec| spec.text.contains(SIG) && spec.text.contains(CONFORMANCE));
        Ok(Self { specs, broken, cannot_pass: CANNOT_PASS })
    }

    /// Whether every spec that was run passed, but for those that cannot.
    pub(super) fn is_as_expected(&self) -> bool {
        self.count(&Verdict::Passed) > 0 && self.surprises().is_empty()
    }

    /// What was not expected, in a line each.
    pub(super) fn surprises(&self) -> Vec<String> {
        let broken = self.broken.iter().cloned();
        let failed = self.specs.iter().filter_map(|spec| match (&spec.verdict, self.why_failing(spec)) {
            (Verdict::Failed(why), None) => Some(format!("failed: {}: {why}", name(spec))),
            (Verdict::Passed, Some(_)) => Some(format!("passed, and stands among those that cannot: {}", name(spec))),
            (Verdict::LeftOut(why), _) if why_left_out(spec).is_none() => {
                Some(format!("not run: {}: {why}", name(spec)))
            }
            _ => None,
        });
        let named = |part: &str| self.specs.iter().any(|spec| spec.text.contains(part));
        let stale = self.cannot_pass.iter().filter(|(part, _)| !named(part));
        let stale =
            stale.map(|(part, _)| format!("no spec is named like `{part}`, which stands among those that cannot pass"));
        broken.chain(failed).chain(stale).collect()
    }

    pub(super) fn summary(&self) -> String {
        let left_out = self.specs.iter().filter(|spec| matches!(spec.verdict, Verdict::LeftOut(_))).count();
        let run = self.specs.len() - left_out;
        format!("{} of {run} specs passed, {left_out} left out", self.count(&Verdict::Passed))
    }

    pub(super) fn markdown(&self, about: &About<'_>) -> String {
        let mut page = String::from(
            "# Kubernetes conformance of the embedded API server\n\n\
             <!-- Written by `cargo xtask conformance kubernetes`: changes made here are lost. -->\n\n",
        );
        let seconds = about.took.as_secs();
        let rows = [
            ("date", about.date.clone()),
            ("suite", format!("`{PACKAGE}`, {}", about.kubernetes)),
            ("checksum of its module", format!("`{}`", about.checksum)),
            ("specs", format!("`{SIG} ... {CONFORMANCE}`")),
            ("Portolan", format!("{}, `portolan up`", env!("CARGO_PKG_VERSION"))),
            ("took", format!("{} min {:02} s", seconds / 60, seconds % 60)),
            ("result", self.summary()),
        ];
        page.push_str("| | |\n|---|---|\n");
        for (name, value) in rows {
            writeln!(page, "| {name} | {value} |").ok();
        }
        page.push_str(
            "\nNodes are simulated: pods are marked as running, and no container runs. A spec that cannot pass fails the \
             chore once it passes, as does any other that fails.\n",
        );
        for broken in &self.broken {
            writeln!(page, "\n**{}**", cell(broken)).ok();
        }
        let failed = |spec: &&Spec| matches!(spec.verdict, Verdict::Failed(_));
        self.section(&mut page, "Failed", |spec| failed(&spec) && self.why_failing(spec).is_none());
        self.section(&mut page, "Passed", |spec| spec.verdict == Verdict::Passed);
        self.section(&mut page, "Cannot pass", |spec| failed(&spec) && self.why_failing(spec).is_some());
        self.section(&mut page, "Not run", |spec| matches!(spec.verdict, Verdict::LeftOut(_)));
        page
    }

    fn section(&self, page: &mut String, heading: &str, belongs: impl Fn(&Spec) -> bool) {
        let specs: Vec<&Spec> = self.specs.iter().filter(|spec| belongs(spec)).collect();
        if specs.is_empty() {
            return;
        }
        write!(page, "\n## {heading}\n\n| verdict | spec | seconds | remark |\n|---|---|---|---|\n").ok();
        for spec in specs {
            let (verdict, said) = match &spec.verdict {
                Verdict::Passed => ("passed", ""),
                Verdict::Failed(why) => ("**failed**", why.as_str()),
                Verdict::LeftOut(why) => ("not run", why.as_str()),
            };
            let remark = self.why_failing(spec).or_else(|| why_left_out(spec)).unwrap_or(said);
            let [text, remark] = [&name(spec), remark].map(cell);
            writeln!(page, "| {verdict} | {text} | {:.1} | {remark} |", spec.took.as_secs_f64()).ok();
        }
    }

    fn why_failing(&self, spec: &Spec) -> Option<&'static str> {
        self.cannot_pass.iter().find(|(part, _)| spec.text.contains(part)).map(|(_, why)| *why)
    }

    fn count(&self, verdict: &Verdict) -> usize {
        self.specs.iter().filter(|spec| spec.verdict == *verdict).count()
    }
}

/// Why the area of a spec is not run.
fn why_left_out(spec: &Spec) -> Option<&'static str> {
    LEFT_OUT.iter().find(|(area, _)| spec.text.contains(area)).map(|(_, why)| *why)
}

/// The text of a spec without what all of them have.
fn name(spec: &Spec) -> String {
    let text = [SIG, CONFORMANCE].iter().fold(spec.text.clone(), |text, part| text.replace(part, ""));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn it(text: &str, state: &str) -> Value {
        json!({
            "ContainerHierarchyTexts": ["[sig-api-machinery] Watchers"], "LeafNodeType": "It",
            "LeafNodeText": format!("{text} [Conformance]"), "State": state, "RunTime": 1_500_000_000_u64,
            "Failure": { "Message": "no event" },
        })
    }

    fn read(specs: &[Value]) -> Report {
        let report = Report::read(&json!([{ "SpecReports": specs }]).to_string()).unwrap();
        Report { cannot_pass: &[("should fly", "no wings")], ..report }
    }

    #[test]
    fn a_run_is_good_when_all_pass_that_can_and_none_that_cannot() {
        let (good, cannot) = (it("should observe", "passed"), it("should fly", "failed"));
        assert!(read(&[good.clone(), cannot.clone()]).is_as_expected());
        assert!(read(&[good.clone(), cannot.clone(), it("AdmissionWebhook deny", "skipped")]).is_as_expected());
        for (specs, told) in [
            (vec![good.clone(), it("should fly", "passed")], "passed, and stands among those that cannot"),
            (vec![good.clone(), cannot.clone(), it("should end", "failed")], "failed: Watchers should end: no event"),
            (vec![good.clone(), cannot.clone(), it("should end", "skipped")], "not run: Watchers should end"),
            (vec![good], "no spec is named like `should fly`"),
        ] {
            let report = read(&specs);
            assert!(report.surprises().concat().contains(told), "{:?}", report.surprises());
            assert!(!report.is_as_expected());
        }
        assert!(!read(&[cannot]).is_as_expected(), "nothing passed");
    }

    #[test]
    fn the_page_has_every_spec_with_its_reason() {
        let report = read(&[
            it("should observe", "passed"),
            it("should fly", "failed"),
            it("should end", "failed"),
            it("AdmissionWebhook deny", "skipped"),
        ]);
        let about = About {
            date: "2026-01-02".into(),
            took: Duration::from_secs(125),
            kubernetes: "v1.36.4",
            checksum: "h1:c=",
        };
        let page = report.markdown(&about);
        for line in [
            "| took | 2 min 05 s |",
            "| result | 1 of 3 specs passed, 1 left out |",
            "| passed | Watchers should observe | 1.5 |  |",
            "| **failed** | Watchers should end | 1.5 | no event |",
            "| **failed** | Watchers should fly | 1.5 | no wings |",
            "| not run | Watchers AdmissionWebhook deny | 1.5 | the webhook is a container, and none runs here |",
        ] {
            assert!(page.lines().any(|own| own == line), "{line}\n{page}");
        }
    }
}
