//! What Ginkgo reports, as a page for people.

use std::{fmt::Write as _, time::Duration};

use super::super::ginkgo::{Results, Spec, Verdict, cell};
use super::suite::{PACKAGE, Suite, version};

const REQUIRED: &str = "Required";
/// Why specs with a label are left out.
const LEFT_OUT: [(&str, &str); 2] = [
    ("DNS", "needs a cluster DNS that serves `clusterset.local`"),
    ("Connectivity", "needs pods with containers, and a data plane between the clusters"),
];
/// What a verdict alone does not say.
const REMARKS: [(&str, &str); 1] = [(
    "should be inaccessible",
    "it looks for an answer to `exec` in a pod, and passes here because there is none: these pods have no containers",
)];

/// What was run, and where.
pub(super) struct About<'a> {
    pub(super) date: String,
    pub(super) took: Duration,
    pub(super) kubernetes: &'a str,
    pub(super) suite: &'a Suite,
    pub(super) label_filter: &'a str,
}

/// The specs of one run, and what is to be said of them.
#[derive(Debug)]
pub(super) struct Report {
    specs: Vec<Spec>,
    broken: Vec<String>,
}

impl Report {
    /// Reads the JSON report of Ginkgo.
    pub(super) fn read(json: &str) -> anyhow::Result<Self> {
        let Results { mut specs, broken } = Results::read(json)?;
        for spec in &mut specs {
            if let Verdict::LeftOut(why) = &mut spec.verdict
                && let Some(reason) = why_left_out(&spec.labels)
            {
                *why = reason;
            }
        }
        Ok(Self { specs, broken })
    }

    /// Whether every required spec ran and passed.
    pub(super) fn conforms(&self) -> bool {
        let mut required = self.specs.iter().filter(|spec| is_required(spec)).peekable();
        self.broken.is_empty() && required.peek().is_some() && required.all(|spec| spec.verdict == Verdict::Passed)
    }

    pub(super) fn summary(&self) -> String {
        let part = |required: bool| {
            let all = self.judged(required);
            let passed = all.iter().filter(|spec| spec.verdict == Verdict::Passed).count();
            format!("{passed} of {}", all.len())
        };
        format!("{} required and {} optional specs passed", part(true), part(false))
    }

    pub(super) fn markdown(&self, about: &About<'_>) -> String {
        let mut page = String::from(
            "# MCS conformance\n\n<!-- Written by `cargo xtask conformance mcs`: changes made here are lost. -->\n\n",
        );
        let seconds = about.took.as_secs();
        let rows = [
            ("date", about.date.clone()),
            ("suite", format!("`{PACKAGE}`, tag `conformance/{}`", version())),
            ("its checksum", format!("`{}`", about.suite.checksum)),
            ("label filter", format!("`{}`", about.label_filter)),
            ("Portolan", env!("CARGO_PKG_VERSION").to_owned()),
            ("Kubernetes", format!("{}, two clusters, dual stack, upstream's CRDs", about.kubernetes)),
            ("took", format!("{} min {:02} s", seconds / 60, seconds % 60)),
            ("result", self.summary()),
        ];
        page.push_str("| | |\n|---|---|\n");
        for (name, value) in rows {
            writeln!(page, "| {name} | {value} |").ok();
        }
        page.push_str(
            "\nThe nodes are written by a fake kubelet: pods run and have addresses, but no containers. All that the specs read \
             are objects of the API.\n",
        );
        for broken in &self.broken {
            writeln!(page, "\n**{}**", cell(broken)).ok();
        }
        for (heading, required) in [("Required", true), ("Optional", false)] {
            section(&mut page, heading, &self.judged(required));
        }
        let left_out: Vec<&Spec> =
            self.specs.iter().filter(|spec| matches!(spec.verdict, Verdict::LeftOut(_))).collect();
        section(&mut page, "Left out", &left_out);
        page
    }

    fn judged(&self, required: bool) -> Vec<&Spec> {
        let judged = |spec: &&Spec| is_required(spec) == required && !matches!(spec.verdict, Verdict::LeftOut(_));
        self.specs.iter().filter(judged).collect()
    }
}

fn is_required(spec: &Spec) -> bool {
    spec.labels.iter().any(|label| label == REQUIRED)
}

fn section(page: &mut String, heading: &str, specs: &[&Spec]) {
    if specs.is_empty() {
        return;
    }
    write!(page, "\n## {heading}\n\n| verdict | spec | labels | seconds | remark |\n|---|---|---|---|---|\n").ok();
    for spec in specs {
        let (verdict, remark) = match &spec.verdict {
            Verdict::Passed => ("passed", remark(&spec.text)),
            Verdict::Failed(why) => ("**failed**", why.as_str()),
            Verdict::LeftOut(why) => ("left out", why.as_str()),
        };
        let [text, remark] = [&spec.text, remark].map(cell);
        let labels = spec.labels.join(", ");
        writeln!(page, "| {verdict} | {text} | {labels} | {:.1} | {remark} |", spec.took.as_secs_f64()).ok();
    }
}

fn remark(text: &str) -> &'static str {
    REMARKS.iter().find(|(end, _)| text.ends_with(end)).map_or("", |(_, remark)| remark)
}

fn why_left_out(labels: &[String]) -> Option<String> {
    let reasons = LEFT_OUT.iter().filter(|(label, _)| labels.iter().any(|own| own == label));
    let reasons: Vec<&str> = reasons.map(|(_, reason)| *reason).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(specs: &serde_json::Value) -> Report {
        Report::read(&json!([{ "SuiteDescription": "suite", "SpecReports": specs }]).to_string()).unwrap()
    }

    fn it(text: &str, labels: &[&str], state: &str, failure: &str) -> serde_json::Value {
        json!({
            "ContainerHierarchyTexts": ["", "a service"],
            "ContainerHierarchyLabels": [[], ["ClusterIP"]],
            "LeafNodeType": "It",
            "LeafNodeText": text,
            "LeafNodeLabels": labels,
            "State": state,
            "RunTime": 1_500_000_000_u64,
            "Failure": { "Message": failure },
        })
    }

    #[test]
    fn one_required_spec_that_does_not_pass_is_enough_and_optional_ones_are_not() {
        let good = it("is imported", &["Required"], "passed", "");
        let optional = it("has slices", &["Optional"], "failed", "none");
        assert!(read(&json!([good, optional])).conforms());
        for state in ["failed", "panicked", "timedout", "interrupted", "skipped"] {
            let other = it("has ports", &["Required"], state, "");
            assert!(!read(&json!([good, other])).conforms(), "{state}");
        }
    }

    #[test]
    fn a_run_without_required_specs_or_with_a_broken_set_up_is_no_success() {
        assert!(!read(&json!([])).conforms());
        assert!(!read(&json!([it("has slices", &["Optional"], "passed", "")])).conforms());
        let before = json!({ "LeafNodeType": "BeforeSuite", "State": "failed", "Failure": { "Message": "no CRD" } });
        let report = read(&json!([it("is imported", &["Required"], "passed", ""), before]));
        assert!(!report.conforms());
        assert_eq!(report.broken, ["BeforeSuite: no CRD"]);
    }

    #[test]
    fn the_page_has_every_spec_with_its_reason() {
        let report = read(&json!([
            it("is imported", &["Required"], "passed", ""),
            it("should be inaccessible", &["Required"], "passed", ""),
            it(
                "has <ports>",
                &["Required"],
                "failed",
                "Timed out after 20 s.\nThe function passed to Eventually failed at a.go:1 with:\nports | differ\nExpected\n    <bool>: false"
            ),
            it("resolves", &["Optional", "DNS"], "skipped", ""),
            it("three clusters", &["Optional"], "skipped", "needs three"),
        ]));
        assert_eq!(report.summary(), "2 of 3 required and 0 of 0 optional specs passed");
        let suite = Suite { program: "x".into(), definitions: ["e".into(), "i".into()], checksum: "h1:c=".into() };
        let about = About {
            date: "2026-01-02".into(),
            took: Duration::from_secs(125),
            kubernetes: "v1.36.4",
            suite: &suite,
            label_filter: "!DNS",
        };
        let page = report.markdown(&about);
        for line in [
            "| took | 2 min 05 s |",
            "| its checksum | `h1:c=` |",
            "| passed | a service is imported | ClusterIP, Required | 1.5 |  |",
            "| **failed** | a service has &lt;ports> | ClusterIP, Required | 1.5 | Timed out after 20 s. ports \\| differ |",
            "| left out | a service three clusters | ClusterIP, Optional | 1.5 | needs three |",
        ] {
            assert!(page.lines().any(|own| own == line), "{line}\n{page}");
        }
        assert!(
            page.contains("| left out | a service resolves | ClusterIP, Optional, DNS | 1.5 | needs a cluster DNS")
        );
        assert!(page.contains("these pods have no containers |"), "{page}");
    }
}
