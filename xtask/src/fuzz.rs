//! `cargo xtask fuzz`: libFuzzer on the targets of `fuzz/`, for a while each.
//!
//! The corpora are the list of targets. What a run grows stays in the target folder: an input worth keeping is
//! committed by hand, named by what it shows.

use std::fs;

use crate::call::{Call, root};
use crate::{Failure, tell};

/// Where a run keeps what it grew and what broke.
const GROWN: &str = "target/fuzz/grown";

pub(crate) fn run(target: Option<&str>, seconds: u32) -> Result<(), Failure> {
    let known = targets()?;
    let chosen = match target {
        None => known,
        Some(name) if known.iter().any(|target| target == name) => vec![name.to_owned()],
        Some(name) => {
            let hint = format!("name one of these: {}", known.join(" "));
            return Err(Failure::usage(format!("there is no fuzz target `{name}`"), hint));
        }
    };
    for target in chosen {
        let grown = root().join(GROWN).join(&target);
        fs::create_dir_all(&grown)
            .map_err(|cause| Failure::new(format!("`{}` cannot be made: {cause}", grown.display()), "see: df -h"))?;
        let call = call(&target, seconds);
        tell(&format!("==> {}", call.shown()));
        call.run().map_err(|failure| Failure { hint: keep(&target), ..failure })?;
    }
    Ok(())
}

/// The targets, by the folders of their corpora.
pub(crate) fn targets() -> Result<Vec<String>, Failure> {
    let folder = root().join("fuzz/corpus");
    let read = || fs::read_dir(&folder)?.map(|entry| Ok(entry?.file_name())).collect::<std::io::Result<Vec<_>>>();
    let names = read().map_err(|cause| {
        Failure::new(format!("`{}` cannot be read: {cause}", folder.display()), "run from a whole checkout: git status")
    })?;
    let mut names: Vec<String> = names.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}

fn call(target: &str, seconds: u32) -> Call {
    Call::line("cargo run --config fuzz/libfuzzer.toml --target-dir target/fuzz --release")
        .and(["--package", "portolan-fuzz", "--features", "libfuzzer", "--"])
        .and([format!("--target={target}"), format!("-max_total_time={seconds}")])
        // an input takes microseconds: ten seconds are a hang, a gigabyte is a leak
        .and(["-timeout=10", "-rss_limit_mb=1024", "-print_final_stats=1"])
        .and([format!("-artifact_prefix={GROWN}/{target}-")])
        .and([format!("{GROWN}/{target}"), format!("fuzz/corpus/{target}")])
}

fn keep(target: &str) -> String {
    format!("fix it, and keep the input by a name that says what it shows: mv {GROWN}/{target}-* fuzz/corpus/{target}/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_corpus_is_a_target_and_others_are_not() {
        let known = targets().unwrap();
        assert!(known.iter().any(|name| name == "websocket"), "{known:?}");
        let failure = run(Some("no-such-target"), 1).expect_err("it is unknown");
        assert_eq!(failure.code, 2);
        assert!(failure.hint.contains(&known.join(" ")), "{}", failure.hint);
    }

    #[test]
    fn a_run_begins_with_the_committed_inputs_and_ends_in_time() {
        let shown = call("websocket", 60).shown();
        assert!(shown.contains("--target=websocket -max_total_time=60 "), "{shown}");
        assert!(shown.ends_with("target/fuzz/grown/websocket fuzz/corpus/websocket"), "{shown}");
    }
}
