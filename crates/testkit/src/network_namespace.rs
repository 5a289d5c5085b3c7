//! A network of its own: links, addresses, routes and rules that end with the test.
//!
//! It is held by an open file and nothing else: no process, no name under /run, so nothing is left behind however the test
//! ends. Sockets belong to the namespace in which they were opened, whoever uses them later.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, ensure};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};

/// A network namespace.
pub struct NetworkNamespace {
    name: String,
    file: File,
}

impl NetworkNamespace {
    /// Makes one whose only link is loopback.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        let made = std::thread::scope(|scope| scope.spawn(unshare).join());
        let file = made
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .context("a network namespace: are we root?")?;
        let namespace = Self { name: name.to_owned(), file };
        namespace.ip(&["link set lo up"])?;
        Ok(namespace)
    }

    /// The one that a process is in.
    pub fn of_process(name: &str, process: u32) -> anyhow::Result<Self> {
        let file = File::open(format!("/proc/{process}/ns/net")).with_context(|| format!("the network of {name}"))?;
        Ok(Self { name: name.to_owned(), file })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name in a line of `ip`, as long as this exists.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }

    /// Runs a function in it, on a thread of its own.
    pub fn enter<T: Send>(&self, run: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            move_into_link_name_space(self.file.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("a namespace that is held open can be entered");
            run()
        };
        let result = std::thread::scope(|scope| scope.spawn(inside).join());
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Runs lines of `ip`.
    pub fn ip(&self, lines: &[&str]) -> anyhow::Result<()> {
        self.feed(&["ip", "-batch", "-"], &lines.join("\n")).map(drop)
    }

    /// Loads rules of `nft`.
    pub fn nft(&self, rules: &str) -> anyhow::Result<()> {
        self.feed(&["nft", "-f", "-"], rules).map(drop)
    }

    /// Runs a command to its end; a bad exit is an error with what it wrote.
    pub fn run(&self, words: &[&str]) -> anyhow::Result<String> {
        self.feed(words, "")
    }

    /// Sets values under /proc/sys/net.
    pub fn set(&self, settings: &[(&str, &str)]) -> anyhow::Result<()> {
        self.enter(|| {
            settings.iter().try_for_each(|(name, value)| {
                std::fs::write(format!("/proc/sys/net/{name}"), value).with_context(|| format!("setting {name}"))
            })
        })
    }

    fn feed(&self, words: &[&str], input: &str) -> anyhow::Result<String> {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).args(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().context("standard input is a pipe")?;
        // A command that reads nothing may have ended before.
        let written = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = finished(&format!("`{}` in {}", words.join(" "), self.name), &child.wait_with_output()?)?;
        written.with_context(|| format!("`{}` did not read its input", words.join(" ")))?;
        Ok(output)
    }
}

/// The output of a command that went well.
pub(crate) fn finished(what: &str, output: &Output) -> anyhow::Result<String> {
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    ensure!(output.status.success(), "{what} failed ({}): {stderr}{stdout}", output.status);
    Ok(stdout)
}

fn unshare() -> anyhow::Result<File> {
    #[expect(
        deprecated,
        reason = "only one of its flags, to unshare open files, is unsound; a network is not shared so"
    )]
    rustix::thread::unshare(UnshareFlags::NEWNET)?;
    Ok(File::open("/proc/thread-self/ns/net")?)
}
