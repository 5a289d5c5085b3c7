//! Every chore of the workspace behind one entry: `cargo xtask`.
//!
//! Chores use the standard library alone, so that the entry compiles in a second on a fresh machine. What
//! varies is data: the tools to install ([`setup`]), the names that limit a test run ([`test`]). Benchmarks
//! and fuzz targets are found where they lie ([`bench`], [`fuzz`]), and generated files come from the `portolan` binary itself ([`generate`]).

mod bench;
mod call;
mod cluster;
mod conformance;
mod fuzz;
mod generate;
mod image;
mod peers;
mod setup;
mod test;
mod testkit;

use std::io::Write as _;
use std::process::ExitCode;

/// A chore that did not succeed: what went wrong, and a command that helps.
#[derive(Debug, PartialEq, Eq)]
struct Failure {
    /// 1 when the answer is no, 2 when the command was not understood.
    code: u8,
    what: String,
    hint: String,
    /// What stands last on stdout all the same.
    closing: String,
}

impl Failure {
    fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: 1, what: what.into(), hint: hint.into(), closing: String::new() }
    }

    fn usage(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: 2, ..Self::new(what, hint) }
    }
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
enum Chore {
    Help(String),
    Setup,
    Test { name: Option<String> },
    Bench { name: String, flags: Vec<[String; 2]> },
    Fuzz { target: Option<String>, seconds: u32 },
    Image,
    Cluster(Vec<String>),
    Conformance { suite: String },
    Crds,
    Manifests,
    Docs,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = parse(&words).and_then(|chore| match chore {
        Chore::Help(text) => {
            show(&text);
            Ok(())
        }
        Chore::Setup => setup::run(),
        Chore::Test { name } => test::run(name.as_deref()),
        Chore::Bench { name, flags } => bench::run(&name, &flags),
        Chore::Fuzz { target, seconds } => fuzz::run(target.as_deref(), seconds),
        Chore::Image => image::run(),
        Chore::Cluster(words) => cluster::run(&words),
        Chore::Conformance { suite } => conformance::run(&suite),
        Chore::Crds => generate::crds(),
        Chore::Manifests => generate::manifests(),
        Chore::Docs => generate::docs(),
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { code, what, hint, closing }) => {
            tell(&format!("error: {what}\n\nhint: {hint}"));
            show(&closing);
            ExitCode::from(code)
        }
    }
}

fn parse(words: &[String]) -> Result<Chore, Failure> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some((&chore, rest)) = words.split_first() else {
        return Err(Failure::usage("no chore named", "list them: cargo xtask --help"));
    };
    if matches!(chore, "help" | "--help" | "-h") {
        return Ok(Chore::Help(overview()));
    }
    let Some(page) = HELP.iter().find(|page| page.chore == chore) else {
        return Err(Failure::usage(format!("`{chore}` is not a chore"), "list them: cargo xtask --help"));
    };
    if rest.iter().any(|word| matches!(*word, "--help" | "-h")) {
        return Ok(Chore::Help(page.text()));
    }
    match (chore, rest) {
        ("setup", []) => Ok(Chore::Setup),
        ("image", []) => Ok(Chore::Image),
        ("cluster", ["up" | "status" | "down"] | ["load", _]) => {
            Ok(Chore::Cluster(rest.iter().map(|word| (*word).to_owned()).collect()))
        }
        ("conformance", [suite]) if conformance::suites().contains(suite) => {
            Ok(Chore::Conformance { suite: (*suite).to_owned() })
        }
        ("crds", []) => Ok(Chore::Crds),
        ("manifests", []) => Ok(Chore::Manifests),
        ("docs", []) => Ok(Chore::Docs),
        ("test", []) => Ok(Chore::Test { name: None }),
        ("test", [name]) if !name.starts_with('-') => Ok(Chore::Test { name: Some((*name).to_owned()) }),
        ("bench", _) => parse_bench(rest),
        ("fuzz", _) => parse_fuzz(rest),
        _ => Err(misused(chore, rest)),
    }
}

fn parse_bench(rest: &[&str]) -> Result<Chore, Failure> {
    let (mut name, mut flags, mut words) = (None, Vec::new(), rest.iter());
    while let Some(word) = words.next() {
        let value = if word.starts_with('-') { words.next() } else { None };
        match (*word, value) {
            ("--json" | "--only" | "--against", Some(value)) => flags.push([(*word).to_owned(), (*value).to_owned()]),
            (word, None) if !word.starts_with('-') && name.is_none() => name = Some(word.to_owned()),
            _ => return Err(misused("bench", rest)),
        }
    }
    name.map(|name| Chore::Bench { name, flags }).ok_or_else(|| misused("bench", rest))
}

fn parse_fuzz(rest: &[&str]) -> Result<Chore, Failure> {
    let (target, seconds) = match rest {
        [] => (None, "60"),
        ["--seconds", seconds] => (None, *seconds),
        [target] => (Some(*target), "60"),
        [target, "--seconds", seconds] | ["--seconds", seconds, target] => (Some(*target), *seconds),
        _ => return Err(misused("fuzz", rest)),
    };
    let seconds = seconds.parse().ok().filter(|seconds| *seconds > 0).ok_or_else(|| misused("fuzz", rest))?;
    if target.is_some_and(|target| target.starts_with('-')) {
        return Err(misused("fuzz", rest));
    }
    Ok(Chore::Fuzz { target: target.map(str::to_owned), seconds })
}

fn misused(chore: &str, rest: &[&str]) -> Failure {
    let what = if rest.is_empty() {
        format!("`cargo xtask {chore}` needs more words")
    } else {
        format!("`cargo xtask {chore}` does not take `{}`", rest.join(" "))
    };
    Failure::usage(what, format!("see its use: cargo xtask {chore} --help"))
}

/// One page of help.
struct Help {
    chore: &'static str,
    usage: &'static str,
    about: &'static str,
    more: &'static str,
    examples: &'static [&'static str],
}

impl Help {
    fn text(&self) -> String {
        let Self { chore: _, usage, about, more, examples } = self;
        let more = match *more {
            "SUITES" => format!(
                "SUITE is one of: {}\n\nIt runs upstream's own suite and writes docs/conformance/SUITE.md: `kubernetes` on `portolan up`, `mcs` on two
real control planes with an operator each, and nodes that a fake kubelet writes. The exit status says whether every
required spec passed.\n",
                conformance::suites().join(" ")
            ),
            "NAMES" => format!("NAME is one of: {}\n", test::names().join(" ")),
            "TARGETS" => match fuzz::targets() {
                Ok(targets) => format!("TARGET is one of: {}; without one each has its turn\n", targets.join(" ")),
                Err(Failure { what, .. }) => what,
            },
            "BENCHES" => match bench::known() {
                Ok(benches) => format!("NAME is one of: {}\n", bench::list(&benches)),
                Err(Failure { what, .. }) => what,
            },
            _ => format!("{more}\n"),
        };
        let examples = examples.join("\n  ");
        format!("{about}\n\nUsage: {usage}\n\n{more}\nExamples:\n  {examples}\n")
    }
}

const HELP: &[Help] = &[
    Help {
        chore: "setup",
        usage: "cargo xtask setup",
        about: "Install what the tests need and this machine lacks",
        more: "Debian packages by apt-get as root; the Kubernetes binaries are built once and kept outside the
checkout. A second run changes nothing.",
        examples: &["cargo xtask setup"],
    },
    Help {
        chore: "test",
        usage: "cargo xtask test [NAME]",
        about: "Set up, check format and lints, run the tests",
        more: "NAMES",
        examples: &["cargo xtask test", "cargo xtask test runtime"],
    },
    Help {
        chore: "bench",
        usage: "cargo xtask bench NAME [--json FILE] [--only TEXT] [--against PROGRAM]",
        about: "Run one benchmark; its exit status says whether every goal was met",
        more: "BENCHES",
        examples: &["cargo xtask bench runtime --json runtime.json", "cargo xtask bench proxy --only TCP"],
    },
    Help {
        chore: "fuzz",
        usage: "cargo xtask fuzz [TARGET] [--seconds N]",
        about: "Look for bytes that break a law of fuzz/, 60 seconds for each target",
        more: "TARGETS",
        examples: &["cargo xtask fuzz", "cargo xtask fuzz websocket --seconds 600"],
    },
    Help {
        chore: "image",
        usage: "cargo xtask image",
        about: "Write the container image and the list of its parts to target/image",
        more: "An OCI archive, made without a container engine; the same sources give the same bytes. Load it with
`ctr --namespace k8s.io images import`, `docker load --input` or `skopeo copy oci-archive:FILE`.",
        examples: &["cargo xtask image"],
    },
    Help {
        chore: "cluster",
        usage: "cargo xtask cluster up | load ARCHIVE | status | down",
        about: "Run a real Kubernetes cluster on this machine, as the end-to-end tests do (needs root)",
        more: "Three nodes with kubelet, containerd and kube-proxy, each in namespaces of its own, and a host outside of the
cluster. `up` prints how to reach it; `load` gives every node an image; nothing is left after `down`.",
        examples: &["cargo xtask cluster up", "cargo xtask cluster load target/image/portolan-0.1.0.oci.tar"],
    },
    Help {
        chore: "conformance",
        usage: "cargo xtask conformance SUITE",
        about: "Run an upstream conformance suite and write its report to docs/conformance",
        more: "SUITES",
        examples: &["cargo xtask conformance kubernetes", "cargo xtask conformance mcs"],
    },
    Help {
        chore: "crds",
        usage: "cargo xtask crds",
        about: "Write deploy/crds from the kinds that the binary serves",
        more: "Files of kinds that are gone are deleted.",
        examples: &["cargo xtask crds"],
    },
    Help {
        chore: "manifests",
        usage: "cargo xtask manifests",
        about: "Write the roles, webhooks and chart values in deploy from the capabilities",
        more: "Values and schema rules that people wrote are kept.",
        examples: &["cargo xtask manifests"],
    },
    Help {
        chore: "docs",
        usage: "cargo xtask docs",
        about: "Write docs/reference from the binary's own definitions",
        more: "A test fails while a generated file is stale.",
        examples: &["cargo xtask docs"],
    },
];

fn overview() -> String {
    let chores: Vec<String> = HELP.iter().map(|page| format!("  {:<40} {}", page.usage, page.about)).collect();
    let chores = chores.join("\n");
    format!(
        "Run a chore of the workspace\n\nUsage: cargo xtask CHORE\n\nChores:\n{chores}\n\nExamples:\n  cargo xtask \
         test\n  cargo xtask test --help\n"
    )
}

/// Prints what was asked for, on stdout. A reader that went away is no failure.
fn show(text: &str) {
    let mut out = std::io::stdout().lock();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Prints everything else, on stderr.
fn tell(line: &str) {
    drop(writeln!(std::io::stderr().lock(), "{line}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chore_parses_and_explains_itself() {
        for Help { chore, examples, .. } in HELP {
            for example in *examples {
                assert!(parse(&words(example)).is_ok(), "{example}");
            }
            let Ok(Chore::Help(text)) = parse(&words(&format!("cargo xtask {chore} --help"))) else {
                panic!("{chore} --help is not help");
            };
            assert!(text.contains(&format!("Usage: cargo xtask {chore}")), "{text}");
            assert!(overview().contains(&format!("cargo xtask {chore}")));
        }
    }

    #[test]
    fn what_is_not_understood_is_a_usage_error_with_a_hint() {
        for line in [
            "cargo xtask",
            "cargo xtask tset",
            "cargo xtask setup now",
            "cargo xtask test a b",
            "cargo xtask test --all",
            "cargo xtask bench",
            "cargo xtask bench x --json",
            "cargo xtask bench --json x",
            "cargo xtask fuzz --seconds",
            "cargo xtask fuzz x --seconds 0",
            "cargo xtask fuzz --minutes 3",
            "cargo xtask conformance",
            "cargo xtask conformance everything",
        ] {
            let failure = parse(&words(line)).expect_err(line);
            assert_eq!(failure.code, 2, "{line}");
            assert!(failure.hint.contains("cargo xtask"), "{line}: {}", failure.hint);
        }
    }

    #[test]
    fn the_json_file_may_come_before_or_after_the_name() {
        let flags = vec![["--json".to_owned(), "out.json".to_owned()]];
        let asked = Ok(Chore::Bench { name: "runtime".to_owned(), flags });
        assert_eq!(parse(&words("cargo xtask bench runtime --json out.json")), asked);
        assert_eq!(parse(&words("cargo xtask bench --json out.json runtime")), asked);
    }

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().skip(2).map(str::to_owned).collect()
    }
}
