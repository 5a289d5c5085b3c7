//! `cargo xtask test`: the whole check of a change, cheap steps first.
//!
//! A name limits the run to one capability or crate. A run that found no test is a failure: a filter that
//! matches nothing must not look like success.

use std::time::{Duration, Instant};

use crate::call::{Call, spell};
use crate::{Failure, setup, show, tell};

/// What a name limits the run to.
struct Scope {
    name: &'static str,
    /// All packages when empty.
    packages: &'static [&'static str],
    /// Words for the test programs: a part of the test's path, or what to leave out.
    select: &'static [&'static str],
    /// Whether the tests start a real control plane.
    kubernetes: bool,
}

/// Without a name: everything.
const ALL: Scope = Scope { name: "all", packages: &[], select: &[], kubernetes: true };

const SCOPES: &[Scope] = &[
    Scope { name: "gateway", select: &["gateway"], ..ALL },
    Scope { name: "gateway-client", select: &["gateway_client"], ..ALL },
    Scope { name: "egress", select: &["egress"], ..ALL },
    Scope { name: "ipam", select: &["ipam"], ..ALL },
    Scope { name: "mirror", select: &["mirror"], ..ALL },
    Scope { name: "mesh", select: &["mesh"], ..ALL },
    // what all capabilities share: the package's tests, less those of the capabilities' own folders
    Scope {
        name: "runtime",
        packages: &["portolan-control"],
        select: &[
            "--skip=gateway::",
            "--skip=gateway_client::",
            "--skip=egress::",
            "--skip=ipam::",
            "--skip=mirror::",
            "--skip=mesh::",
            "--skip=agent::",
        ],
        kubernetes: true,
    },
    Scope { name: "proxy", packages: &["portolan-proxy", "portolan-fuzz"], select: &[], kubernetes: false },
    Scope { name: "apiserver", packages: &["portolan-apiserver"], ..ALL },
    Scope { name: "testkit", packages: &["portolan-testkit"], ..ALL },
    Scope { name: "core", packages: &["portolan-core"], select: &[], kubernetes: false },
    Scope { name: "api", packages: &["portolan-api"], select: &[], kubernetes: false },
    Scope { name: "drivers", packages: &["portolan-drivers"], select: &[], kubernetes: false },
    Scope { name: "cli", packages: &["portolan"], ..ALL },
    Scope { name: "xtask", packages: &["xtask"], select: &[], kubernetes: false },
];

/// The names that limit a run.
pub(crate) fn names() -> Vec<&'static str> {
    SCOPES.iter().map(|scope| scope.name).collect()
}

pub(crate) fn run(name: Option<&str>) -> Result<(), Failure> {
    let scope = find(name)?;
    let mut steps = Steps::default();
    steps.run("tools", "", setup::tools)?;
    steps.call("format", &Call::line("cargo fmt --all --check"), Call::run).map_err(reformat)?;
    steps.call("lints", &scope.lints(), Call::run)?;
    steps.call("build", &scope.build(), Call::run)?;
    if scope.kubernetes {
        steps.run("kubernetes", "builds what is not there yet", setup::kubernetes)?;
    }
    let tests = scope.tests();
    let mut counts = Counts::default();
    let good = steps.call("tests", &tests, |call| call.watch(&mut std::io::stdout(), |line| counts.add(line)))?;

    for (step, took) in &steps.took {
        tell(&format!("{step:<12} {:>12}", spell(*took)));
    }
    if counts.ignored > 0 {
        tell(&format!("{} tests are ignored", counts.ignored));
    }
    let closing = format!("{} passed, {} failed\n", counts.passed, counts.failed);
    match verdict(scope, &tests.shown(), good, &counts) {
        Ok(()) => {
            show(&closing);
            Ok(())
        }
        Err(failure) => Err(Failure { closing, ..failure }),
    }
}

fn find(name: Option<&str>) -> Result<&'static Scope, Failure> {
    let Some(name) = name else { return Ok(&ALL) };
    SCOPES.iter().find(|scope| scope.name == name).ok_or_else(|| {
        let hint = format!("name one of these: {}", names().join(" "));
        Failure::usage(format!("`{name}` is not a name that limits the tests"), hint)
    })
}

impl Scope {
    fn lints(&self) -> Call {
        let call = Call::line("cargo clippy").and(self.which());
        call.and(["--all-targets", "--", "-D", "warnings"])
    }

    /// Before the tests, so that compile time and test time are reported separately.
    fn build(&self) -> Call {
        Call::line("cargo test --no-run").and(self.which())
    }

    fn tests(&self) -> Call {
        let threads = format!("RUST_TEST_THREADS={}", threads());
        let call = Call::new(["env", &threads, "cargo", "test"]).and(self.which()).and(["--no-fail-fast"]);
        if self.select.is_empty() { call } else { call.and(["--"]).and(self.select.iter().copied()) }
    }

    fn which(&self) -> Vec<&'static str> {
        if self.packages.is_empty() {
            return vec!["--workspace"];
        }
        self.packages.iter().flat_map(|package| ["--package", package]).collect()
    }
}

/// Tests wait for others most of the time, so each processor runs several.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(4, |processors| (processors.get() * TESTS_PER_PROCESSOR).min(32))
}

const TESTS_PER_PROCESSOR: usize = 3;

/// What the test programs said of themselves, added up.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl Counts {
    /// Takes in a line such as `test result: ok. 3 passed; 0 failed; 0 ignored; ...`; other lines say nothing.
    fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let words: Vec<&str> = result.split_whitespace().collect();
        for pair in words.windows(2) {
            let Ok(number) = pair[0].parse::<u64>() else { continue };
            match pair[1] {
                "passed;" => self.passed += number,
                "failed;" => self.failed += number,
                "ignored;" => self.ignored += number,
                _ => (),
            }
        }
    }
}

fn verdict(scope: &Scope, command: &str, good: bool, counts: &Counts) -> Result<(), Failure> {
    let repeat = format!("repeat it: {command}");
    if counts.failed > 0 {
        return Err(Failure::new(format!("{} tests failed", counts.failed), repeat));
    }
    if !good {
        return Err(Failure::new("the tests did not build, or a test program ended early", repeat));
    }
    if counts.passed == 0 {
        let hint = format!("list what there is: {}", list(scope));
        return Err(Failure::new(format!("`{command}` ran no test at all"), hint));
    }
    Ok(())
}

fn list(scope: &Scope) -> String {
    Call::line("cargo test").and(scope.which()).and(["--", "--list"]).shown()
}

fn reformat(failure: Failure) -> Failure {
    Failure { hint: "let the formatter do it: cargo fmt --all".to_owned(), ..failure }
}

/// The steps that were run, each with its duration.
#[derive(Default)]
struct Steps {
    took: Vec<(&'static str, Duration)>,
}

impl Steps {
    fn call<T>(
        &mut self,
        name: &'static str,
        call: &Call,
        run: impl FnOnce(&Call) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.run(name, &call.shown(), || run(call))
    }

    fn run<T>(
        &mut self,
        name: &'static str,
        about: &str,
        run: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let colon = if about.is_empty() { "" } else { ": " };
        tell(&format!("==> {name}{colon}{about}"));
        let start = Instant::now();
        let result = run();
        let took = start.elapsed();
        tell(&format!("{name} took {}", spell(took)));
        self.took.push((name, took));
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_all_test_programs_add_up() {
        let mut counts = Counts::default();
        for line in [
            "running 4 tests",
            "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 12 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1.20s",
            "note: test result: ok. 9 passed; 9 failed;",
        ] {
            counts.add(line);
        }
        assert_eq!(counts, Counts { passed: 15, failed: 2, ignored: 1 });
    }

    #[test]
    fn a_run_without_a_single_test_never_passes() {
        let failure = verdict(&ALL, "cargo test", true, &Counts::default()).expect_err("nothing ran");
        assert!(failure.what.contains("ran no test"), "{}", failure.what);
        let ran = Counts { passed: 1, failed: 0, ignored: 0 };
        assert_eq!(verdict(&ALL, "cargo test", true, &ran), Ok(()));
    }

    #[test]
    fn a_failed_test_and_a_failed_build_name_the_command_to_repeat() {
        let one = Counts { passed: 3, failed: 1, ignored: 0 };
        for (good, counts) in [(false, one), (false, Counts { passed: 3, failed: 0, ignored: 0 })] {
            let failure = verdict(&ALL, "cargo test --workspace", good, &counts).expect_err("it failed");
            assert_eq!(failure.hint, "repeat it: cargo test --workspace");
        }
    }

    #[test]
    fn a_name_becomes_packages_or_a_filter() {
        let threads = format!("env RUST_TEST_THREADS={} ", threads());
        let shown = |name| find(name).unwrap().tests().shown().replace(&threads, "");
        assert_eq!(shown(None), "cargo test --workspace --no-fail-fast");
        assert_eq!(shown(Some("cli")), "cargo test --package portolan --no-fail-fast");
        assert_eq!(shown(Some("egress")), "cargo test --workspace --no-fail-fast -- egress");
        assert_eq!(find(None).unwrap().lints().shown(), "cargo clippy --workspace --all-targets -- -D warnings");
    }

    #[test]
    fn an_unknown_name_lists_the_known() {
        let Err(failure) = find(Some("egres")) else { panic!("it is not a name") };
        assert_eq!(failure.code, 2);
        for name in names() {
            assert!(failure.hint.contains(name), "{}", failure.hint);
        }
    }
}
