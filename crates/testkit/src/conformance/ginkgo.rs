//! What Ginkgo reports of the specs of a run, and cells of a table about them.

use std::time::Duration;

use anyhow::Context as _;

/// Of a message, in bytes; some suites print whole objects.
const LONGEST: usize = 400;

/// The specs of one run.
#[derive(Debug)]
pub(super) struct Results {
    /// By their text.
    pub(super) specs: Vec<Spec>,
    /// What broke outside of specs.
    pub(super) broken: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Spec {
    pub(super) text: String,
    pub(super) labels: Vec<String>,
    pub(super) verdict: Verdict,
    pub(super) took: Duration,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    Failed(String),
    LeftOut(String),
}

impl Results {
    /// Reads the JSON report of Ginkgo.
    pub(super) fn read(json: &str) -> anyhow::Result<Self> {
        let suites: Vec<wire::Suite> = serde_json::from_str(json).context("the report of Ginkgo cannot be read")?;
        let all: Vec<wire::Spec> =
            suites.into_iter().flat_map(|suite| suite.spec_reports.unwrap_or_default()).collect();
        let (specs, others): (Vec<_>, Vec<_>) = all.into_iter().partition(|spec| spec.leaf_node_type == "It");
        let broken = others.into_iter().filter(|node| node.state != "passed" && node.state != "skipped");
        let broken = broken.map(|node| format!("{}: {}", node.leaf_node_type, message(&node))).collect();
        let mut specs: Vec<Spec> = specs.iter().map(spec).collect();
        specs.sort_by(|one, other| one.text.cmp(&other.text));
        Ok(Self { specs, broken })
    }
}

/// Text as a cell of a table: what looks like markup is none.
pub(super) fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

fn spec(report: &wire::Spec) -> Spec {
    let mut labels: Vec<String> =
        report.container_hierarchy_labels.iter().flatten().flatten().flatten().cloned().collect();
    labels.extend(report.leaf_node_labels.clone().unwrap_or_default());
    let verdict = match report.state.as_str() {
        "passed" => Verdict::Passed,
        "skipped" | "pending" => Verdict::LeftOut(message(report)),
        _ => Verdict::Failed(message(report)),
    };
    let texts = report.container_hierarchy_texts.iter().flatten().chain([&report.leaf_node_text]);
    let texts: Vec<&str> = texts.map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
    Spec { text: texts.join(" "), labels, verdict, took: Duration::from_nanos(report.run_time) }
}

/// The words of a failure, without where in the suite it is and the dump of the value that was not as expected.
fn message(report: &wire::Spec) -> String {
    let text = report.failure.as_ref().map(|failure| failure.message.as_str()).unwrap_or_default();
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("The function passed to"));
    let (mut words, mut expected) = (Vec::new(), false);
    for line in lines {
        expected |= line == "Expected";
        if words.len() == 4 || line.starts_with('{') || (expected && words.len() > 1) {
            break;
        }
        words.push(line);
    }
    let mut words = if words.is_empty() { report.state.clone() } else { words.join(" ") };
    if words.len() > LONGEST {
        words.truncate(words.floor_char_boundary(LONGEST));
        words.push_str(" ...");
    }
    words
}

/// The parts of Ginkgo's report that are read.
mod wire {
    use serde::Deserialize;

    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    pub(super) struct Suite {
        pub(super) spec_reports: Option<Vec<Spec>>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    pub(super) struct Spec {
        pub(super) container_hierarchy_texts: Option<Vec<String>>,
        pub(super) container_hierarchy_labels: Option<Vec<Option<Vec<String>>>>,
        pub(super) leaf_node_type: String,
        #[serde(default)]
        pub(super) leaf_node_text: String,
        pub(super) leaf_node_labels: Option<Vec<String>>,
        pub(super) state: String,
        #[serde(default)]
        pub(super) run_time: u64,
        pub(super) failure: Option<Failure>,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    pub(super) struct Failure {
        #[serde(default)]
        pub(super) message: String,
    }
}
