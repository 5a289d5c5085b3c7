//! The commands of the README, the guides and the examples, run in order on `portolan up`, and the output that they show.
//!
//! Nothing is left out in silence: what cannot be run on one machine stands in the table of `documents.rs`, with the
//! reason, and a test compares the table with the documents.

mod compare;
mod document;
mod documents;
mod shell;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use self::compare::{in_any_order, matches, normal};
use self::document::{Step, steps};
use self::shell::Shell;

pub(crate) use self::shell::newest_kubectl;

/// How long a command may take to print what its document shows.
const PATIENCE: Duration = Duration::from_mins(3);

/// A document with commands.
#[derive(Debug)]
pub(crate) struct Document {
    /// From the root of the checkout.
    pub(crate) path: &'static str,
    /// What is started before the first command, for a document that does not start it itself.
    pub(crate) server: Option<&'static str>,
    /// Commands that give the reader what the document takes for granted, as soon as the first server runs.
    pub(crate) given: &'static str,
    /// Words that stand for something of the reader's, and what it is here.
    pub(crate) stands_for: &'static [(&'static str, &'static str)],
    /// What it calls the node of policy `web`, which differs from cluster to cluster.
    pub(crate) node_of_web: Option<&'static str>,
    /// Addresses that are the reader's.
    pub(crate) addresses: &'static [&'static str],
    /// Parts of commands that cannot be run here, each with the reason.
    pub(crate) not_here: &'static [(&'static str, &'static str)],
}

impl Document {
    /// A document that says all that is needed.
    pub(crate) const fn at(path: &'static str) -> Self {
        Self { path, server: None, given: "", stands_for: &[], node_of_web: None, addresses: &[], not_here: &[] }
    }

    fn steps(&self) -> anyhow::Result<Vec<Step>> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(self.path);
        Ok(steps(&std::fs::read_to_string(&path).with_context(|| path.display().to_string())?))
    }

    fn is_run(&self, step: &Step) -> bool {
        !self.not_here.iter().any(|(part, _)| step.command.contains(part))
    }

    /// Runs its commands in order.
    pub(crate) fn follow(&self, kubectl: &Path) -> anyhow::Result<()> {
        let mut reader =
            Reader { document: self, shell: Shell::start(kubectl, self.addresses)?, servers: 0, node: None };
        if let Some(command) = self.server {
            reader.start_server(command)?;
        }
        for step in self.steps()?.iter().filter(|step| self.is_run(step)) {
            reader.take(step).with_context(|| {
                let logs = reader.logs().unwrap_or_default();
                format!("{}: `{}`\n{logs}", self.path, step.command)
            })?;
        }
        Ok(())
    }
}

/// Somebody at work with a document.
struct Reader<'a> {
    document: &'a Document,
    shell: Shell,
    servers: usize,
    /// That of policy `web`.
    node: Option<String>,
}

impl Reader<'_> {
    fn take(&mut self, step: &Step) -> anyhow::Result<()> {
        let command = self.own_words(&step.command);
        if is_server(&command) {
            return self.start_server(&command);
        }
        let shown = in_any_order(step.shown.iter().map(|line| normal(&self.own_words(line))).collect());
        // a document may show an error
        let expects_error = shown.iter().any(|line| is_error(line));
        let began = Instant::now();
        loop {
            let (exit, output) = self.shell.run(&command)?;
            let output = in_any_order(output.iter().map(|line| normal(line)).collect());
            // `portolan` says no with 1
            let says_no = exit == 1 && command.starts_with("portolan ") && !output.iter().any(|line| is_error(line));
            if (exit == 0 || says_no || expects_error) && (shown.is_empty() || matches(&shown, &output)) {
                return Ok(());
            }
            // what only reads is repeated until what is shown has come true
            anyhow::ensure!(
                is_read(&command) && began.elapsed() < PATIENCE,
                "it exits {exit} and prints\n{}\nShown is\n{}",
                output.join("\n"),
                shown.join("\n")
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// A text of the document in the reader's own words.
    fn own_words(&self, text: &str) -> String {
        let text = self.document.stands_for.iter().fold(text.to_owned(), |text, (word, own)| text.replace(word, own));
        let (Some(called), Some(node)) = (self.document.node_of_web, &self.node) else { return text };
        let exchanged = text.split(called).map(|part| part.replace(node, called));
        exchanged.collect::<Vec<_>>().join(node)
    }

    fn start_server(&mut self, command: &str) -> anyhow::Result<()> {
        self.servers += 1;
        let log = format!("server-{}.log", self.servers);
        match up_arguments(command) {
            Some(arguments) => self.start_up(arguments, &log)?,
            None => self.shell.start_server(command, &log)?,
        }
        if self.servers == 1 && !self.document.given.is_empty() {
            self.shell.succeed(&format!("(set -e\n{}\n)", self.document.given))?;
        }
        Ok(())
    }

    fn start_up(&mut self, arguments: &str, log: &str) -> anyhow::Result<()> {
        self.shell.start_server(&format!("exec portolan {arguments}"), log)?;
        let log = self.shell.folder().join(log);
        let began = Instant::now();
        while !std::fs::read_to_string(&log).is_ok_and(|log| log.contains("Ctrl-C stops it")) {
            anyhow::ensure!(began.elapsed() < PATIENCE, "no welcome");
            std::thread::sleep(Duration::from_millis(20));
        }
        let kubectl = "kubectl --kubeconfig portolan.kubeconfig";
        self.shell.succeed(&format!("{kubectl} wait egp/web egp/payments --for=condition=Ready --timeout=180s"))?;
        self.node = self.shell.succeed(&format!("{kubectl} get egp web -o jsonpath={{.status.node}}"))?.pop();
        if arguments.contains("--remotes") {
            self.shell.succeed(&format!("{kubectl} wait rcluster --all --for=condition=Ready --timeout=180s"))?;
        }
        Ok(())
    }

    /// The ends of what servers wrote.
    fn logs(&self) -> anyhow::Result<String> {
        let logs = (1..=self.servers).map(|number| {
            let log = std::fs::read_to_string(self.shell.folder().join(format!("server-{number}.log")))?;
            let lines: Vec<&str> = log.lines().collect();
            Ok(lines[lines.len().saturating_sub(20)..].join("\n"))
        });
        Ok(logs.collect::<anyhow::Result<Vec<_>>>()?.join("\n---\n"))
    }
}

/// The words of `portolan` in a command that starts `portolan up`.
fn up_arguments(command: &str) -> Option<&str> {
    let arguments = command.strip_prefix("cargo run --release -- ").or_else(|| command.strip_prefix("portolan "))?;
    arguments.starts_with("up").then_some(arguments)
}

/// Whether it runs until it is stopped, in a shell of its own.
fn is_server(command: &str) -> bool {
    let is_started = command.starts_with("portolan proxy ") || command.starts_with("python3 -m http.server ");
    up_arguments(command).is_some() || (is_started && !command.ends_with('&'))
}

/// Whether it may be repeated: it reads, sends a packet, or applies the same once more.
fn is_read(command: &str) -> bool {
    let mut words = command.split_whitespace();
    let reads = words.any(|word| ["get", "apply"].contains(&word)) && !command.contains(" | ");
    command.starts_with("portolan ") || command.starts_with("python3 ") || reads
}

fn is_error(line: &str) -> bool {
    line.starts_with("error: ") || line.starts_with("TimeoutError: ") || line.contains("was refused")
}

/// Every document of the checkout that has commands to run.
fn documents_with_commands() -> anyhow::Result<Vec<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    let mut folders = vec![root.join("docs"), root.join("examples")];
    let mut files = vec![root.join("README.md")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "md")) {
        let text = std::fs::read_to_string(file)?;
        if text.lines().any(|line| line.trim_start() == "```console") {
            found.push(file.strip_prefix(&root)?.display().to_string());
        }
    }
    found.sort();
    Ok(found)
}

#[test]
fn every_document_with_commands_is_followed_and_every_exception_is_of_a_command() -> anyhow::Result<()> {
    let mut followed: Vec<String> = documents::ALL.iter().map(|document| document.path.to_owned()).collect();
    followed.sort();
    followed.dedup();
    assert_eq!(followed, documents_with_commands()?);
    for document in documents::ALL {
        let steps = document.steps()?;
        for (part, reason) in document.not_here {
            assert!(!reason.is_empty() && steps.iter().any(|step| step.command.contains(part)), "{document:?}: {part}");
        }
        assert!(steps.iter().any(|step| document.is_run(step)), "{} has no command to run", document.path);
    }
    Ok(())
}
