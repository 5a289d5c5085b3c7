//! The commands of guides, run in order on `portolan up`, and the output that the guides show for them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use portolan_testkit::Binaries;

use crate::program;
use crate::up::Up;

/// How long a command may take to print what its guide shows.
const PATIENCE: Duration = Duration::from_mins(3);

#[test]
fn the_guide_of_egress_is_true() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &[])?;
    up.kubectl("wait egp/web egp/payments --for condition=Ready --timeout 60s")?;
    // the guide says that its node-2 is the node of `web`, whichever that is
    let node = up.kubectl("get egp web -o jsonpath={.status.node}")?;
    follow(&up, "docs/guides/egress.md", &[("node-2", &node)])
}

#[test]
fn the_guide_of_the_mesh_on_a_laptop_is_true() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &[])?;
    // others may run tests on this machine at the same time
    let port = format!("127.0.0.1:{}", 9010 + std::process::id() % 80);
    follow(&up, "docs/guides/mesh-on-a-laptop.md", &[("127.0.0.1:9000", &port)])
}

#[test]
fn the_guide_of_the_ipam_example_runs() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &[])?;
    follow(&up, "examples/ipam/README.md", &[])
}

#[test]
fn the_guide_of_the_mirror_example_runs() -> anyhow::Result<()> {
    let up = Up::start(tempfile::tempdir()?, &["--remotes", "2"])?;
    up.kubectl("wait --for=condition=Ready --timeout=60s rcluster/remote-1 rcluster/remote-2")?;
    follow(&up, "examples/mirror/README.md", &[])
}

/// A command, and the lines that the guide shows below it.
#[derive(Debug, PartialEq)]
struct Step {
    command: String,
    shown: Vec<String>,
}

/// The steps of a guide. A command goes on while a quotation or a here-document is open.
fn steps(guide: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let (mut in_block, mut until_end) = (false, false);
    for line in guide.lines() {
        if line.starts_with("```") {
            in_block = line == "```console";
        } else if in_block && let Some(command) = line.strip_prefix("$ ") {
            until_end = command.ends_with("<<END");
            steps.push(Step { command: command.to_owned(), shown: Vec::new() });
        } else if in_block && let Some(step) = steps.last_mut() {
            if until_end {
                step.command = format!("{}\n{line}", step.command);
                until_end = line != "END";
            } else {
                step.shown.push(line.to_owned());
            }
        }
    }
    steps
}

fn follow(up: &Up, guide: &str, replaced: &[(&str, &str)]) -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join(guide))?;
    let mut shell = Shell::start(up, &root)?;
    for Step { command, shown } in steps(&text) {
        // it runs already, with a kubeconfig of the test's own
        if command.contains("portolan up")
            || command.starts_with("cargo run")
            || command.starts_with("export KUBECONFIG")
        {
            continue;
        }
        let command = swapped(&command, replaced).replace("portolan-remote-1.kubeconfig", "kubeconfig-remote-1");
        let shown: Vec<String> = shown.iter().map(|line| normal(&swapped(line, replaced))).collect();
        let is_read = ["kubectl get ", "kubectl -n shop get ", "remote-1 -n shop get ", "portolan "]
            .iter()
            .any(|word| command.starts_with(word));
        let began = Instant::now();
        loop {
            let (exit, output) = shell.run(&command)?;
            let output: Vec<String> = output.iter().map(|line| normal(line)).collect();
            // `portolan` says no with 1, and a guide may show an error
            let is_error =
                shown.first().is_some_and(|line| line.starts_with("error: ") || line.contains("was refused"));
            let succeeds = is_error || exit == 0 || (exit == 1 && command.starts_with("portolan "));
            if succeeds && (shown.is_empty() || matches(&shown, &output)) {
                break;
            }
            anyhow::ensure!(
                is_read && began.elapsed() < PATIENCE,
                "{guide}: `{command}` exits {exit} and prints\n{}\nThe guide shows\n{}",
                output.join("\n"),
                shown.join("\n")
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    Ok(())
}

/// Exchanges words for each other.
fn swapped(text: &str, words: &[(&str, &str)]) -> String {
    words.iter().fold(text.to_owned(), |text, (one, other)| {
        text.split(one).map(|part| part.replace(other, one)).collect::<Vec<_>>().join(other)
    })
}

/// A line without what differs from run to run: ages, which node, drawn addresses, ports, hashes in names.
fn normal(line: &str) -> String {
    line.split_whitespace().map(normal_word).collect::<Vec<_>>().join(" ")
}

fn normal_word(word: &str) -> String {
    let is_age = word.ends_with(['s', 'm', 'h'])
        && word.starts_with(|first: char| first.is_ascii_digit())
        && word.chars().all(|letter| letter.is_ascii_digit() || "smh".contains(letter));
    if is_age {
        return "AGE".to_owned();
    }
    let bare = word.trim_end_matches([',', ';', ':', '.']);
    if bare.strip_prefix("node-").is_some_and(|rest| rest.len() == 1) {
        return format!("node-N{}", &word[bare.len()..]);
    }
    if let Ok(address) = bare.parse::<Ipv4Addr>() {
        let [a, b, c, _] = address.octets();
        match (a, b, c) {
            (10, 96..=111, _) => return "CLUSTER-IP".to_owned(),
            (10, 6, 32 | 33) => return "CLOUD-IP".to_owned(),
            _ => {}
        }
    }
    if let Some(rest) = word.split_once("127.0.0.1:").map(|(before, _)| before) {
        return format!("{rest}127.0.0.1:PORT");
    }
    match word.rsplit_once('-') {
        Some((name, hash)) if hash.len() >= 10 && hash.chars().all(|letter| letter.is_ascii_alphanumeric()) => {
            format!("{name}-HASH")
        }
        _ => word.to_owned(),
    }
}

/// Whether lines are as shown; `...` matches any lines, or the rest of one.
fn matches(shown: &[String], lines: &[String]) -> bool {
    match (shown.split_first(), lines.split_first()) {
        (None, None) => true,
        (Some((line, rest)), _) if line == "..." => (0..=lines.len()).any(|from| matches(rest, &lines[from..])),
        (Some((line, rest)), Some((seen, others))) => {
            let is_same = match line.strip_suffix("...'").or_else(|| line.strip_suffix("...")) {
                Some(begins) => seen.starts_with(begins.trim_end()),
                None => line == seen,
            };
            is_same && matches(rest, others)
        }
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// One shell for all commands of a guide: variables and aliases stay.
struct Shell {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
}

const DONE: &str = "the command has ended with";

impl Shell {
    /// In a folder with the examples, and with `portolan` and `kubectl` on the path.
    fn start(up: &Up, root: &Path) -> anyhow::Result<Self> {
        let programs = up.folder().join("bin");
        std::fs::create_dir(&programs)?;
        let kubectl: PathBuf = Binaries::locate()?.program("kubectl");
        std::os::unix::fs::symlink(kubectl, programs.join("kubectl"))?;
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_portolan"), programs.join("portolan"))?;
        std::os::unix::fs::symlink(root.join("examples").canonicalize()?, up.folder().join("examples"))?;
        let mut command = program(Path::new("/bin/bash"));
        command.current_dir(up.folder()).env("HOME", up.folder()).env("KUBECONFIG", up.folder().join("kubeconfig"));
        command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn()?;
        let (Some(mut input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            anyhow::bail!("the shell has no pipes");
        };
        writeln!(input, "exec 2>&1; shopt -s expand_aliases")?;
        let (lines, read) = mpsc::channel();
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
        });
        Ok(Self { child, input, output: read })
    }

    /// Its exit code and what it prints.
    fn run(&mut self, command: &str) -> anyhow::Result<(i32, Vec<String>)> {
        // it reads nothing that the shell is yet to read
        writeln!(self.input, "{{\n{command}\n}} </dev/null\necho \"{DONE} $?\"")?;
        self.input.flush()?;
        let end = Instant::now() + PATIENCE;
        let mut lines = Vec::new();
        loop {
            let line = self.output.recv_timeout(end.saturating_duration_since(Instant::now()));
            let line = line.with_context(|| format!("`{command}` does not end; it printed\n{}", lines.join("\n")))?;
            if let Some((before, exit)) = line.split_once(DONE) {
                // output may end without a newline
                lines.extend((!before.is_empty()).then(|| before.to_owned()));
                return Ok((exit.trim().parse()?, lines));
            }
            lines.push(line.trim_end().to_owned());
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn a_guide_is_read_and_compared_as_it_is_meant() {
    let guide = "text\n```console\n$ one\nshown\n$ cat <<END\nbody\nEND\n$ two\n```\n```yaml\n$ not\n```\n";
    let step = |command: &str, shown: &[&str]| Step {
        command: command.to_owned(),
        shown: shown.iter().map(|line| (*line).to_owned()).collect(),
    };
    assert_eq!(steps(guide), [step("one", &["shown"]), step("cat <<END\nbody\nEND", &[]), step("two", &[])]);
    assert_eq!(normal("web   10.100.1.2  node-3  1m5s  dns-q815mp1i8b"), "web CLUSTER-IP node-N AGE dns-HASH");
    assert_eq!(swapped("node-2 node-1", &[("node-2", "node-1")]), "node-1 node-2");
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    assert!(matches(&lines("a\n...\nz"), &lines("a\nb\nc\nz")) && matches(&lines("a b..."), &lines("a bc d")));
    assert!(!matches(&lines("a"), &lines("a\nb")) && !matches(&lines("a\nb"), &lines("a")));
}
