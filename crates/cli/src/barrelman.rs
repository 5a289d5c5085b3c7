//! The command line of Barrelman: its containers start unchanged, with its flags in Go's form (one dash or two, `-flag
//! value` or `-flag=value`).

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The words as `portolan operator` understands them, and what was ignored of them.
pub(crate) fn translated(words: Vec<OsString>) -> (Vec<OsString>, Vec<String>) {
    let is_barrelman = words.first().is_some_and(|word| Path::new(word).file_stem() == Some(OsStr::new("barrelman")));
    let command = words.iter().skip(1).position(|word| !word.to_string_lossy().starts_with('-'));
    let is_operator = command.is_some_and(|place| words[place + 1] == *"operator");
    if !is_barrelman && !is_operator {
        return (words, Vec::new());
    }
    let mut all = words.into_iter();
    let mut translated: Vec<OsString> = all.by_ref().take(1).collect();
    let mut rest = Translation::default();
    rest.read(all);
    if is_barrelman {
        translated.extend(["operator", "--capabilities", "mirror"].map(Into::into));
        if !rest.listens {
            translated.push("--admin-listen=0.0.0.0:9193".into());
        }
    }
    translated.extend(rest.words);
    let warnings = match &rest.ignored[..] {
        [] => Vec::new(),
        ignored => vec![format!("ignored, as logs go to stderr in any case: {}", ignored.join(", "))],
    };
    (translated, warnings)
}

#[derive(Default)]
struct Translation {
    words: Vec<OsString>,
    listens: bool,
    ignored: Vec<String>,
}

impl Translation {
    fn read(&mut self, mut words: impl Iterator<Item = OsString>) {
        while let Some(word) = words.next() {
            let text = word.to_string_lossy().into_owned();
            let Some((name, given)) = flag(&text) else {
                self.words.push(word);
                continue;
            };
            if let Some(known) = SWITCHES.iter().find(|known| **known == name) {
                self.switch(known, given);
            } else if VALUES.contains(&name) {
                match given.map(str::to_owned).or_else(|| Some(words.next()?.to_string_lossy().into_owned())) {
                    Some(value) => self.value(name, &value),
                    // The parser says what is missing.
                    None => self.words.push(format!("--{name}").into()),
                }
            } else {
                self.words.push(word);
            }
        }
    }

    fn switch(&mut self, name: &str, given: Option<&str>) {
        if name != "nodeportsvc" {
            self.ignored.push(format!("-{name}"));
            return;
        }
        let value = match given.unwrap_or("true") {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => "true",
            "0" | "f" | "F" | "false" | "FALSE" | "False" => "false",
            other => other,
        };
        self.words.push(format!("--mirror-nodeportsvc={value}").into());
    }

    fn value(&mut self, name: &str, value: &str) {
        let (to, value) = match name {
            "listen-address" => {
                self.listens = true;
                // Go listens on all addresses if none is named.
                ("admin-listen", if value.starts_with(':') { format!("0.0.0.0{value}") } else { value.to_owned() })
            }
            "local-kubeconfig" | "local-context" if value.is_empty() => return,
            "local-kubeconfig" => ("kubeconfig", value.to_owned()),
            "local-context" => ("context", value.to_owned()),
            "v" => {
                let level = match value.parse().unwrap_or(0) {
                    0..=2 => "info",
                    3..=4 => "debug",
                    _ => "trace",
                };
                ("log-level", level.to_owned())
            }
            name if KLOG_VALUES.contains(&name) => return self.ignored.push(format!("-{name}")),
            name => {
                self.words.push(format!("--mirror-{name}={value}").into());
                return;
            }
        };
        self.words.push(format!("--{to}={value}").into());
    }
}

/// The name of a flag in Go's form, and its value if it is in the same word.
fn flag(text: &str) -> Option<(&str, Option<&str>)> {
    let name = text.strip_prefix("--").or_else(|| text.strip_prefix('-'))?;
    let (name, value) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
    (!name.is_empty()).then_some((name, value))
}

const VALUES: &[&str] = &[
    "listen-address",
    "local-kubeconfig",
    "local-context",
    "remote-project",
    "remote-zone",
    "remote-cluster-name",
    "resync-period",
    "nec-workers",
    "sc-workers",
    "ignore-namespace",
    "v",
    "log_backtrace_at",
    "log_dir",
    "log_file",
    "log_file_max_size",
    "stderrthreshold",
    "vmodule",
];
const KLOG_VALUES: &[&str] =
    &["log_backtrace_at", "log_dir", "log_file", "log_file_max_size", "stderrthreshold", "vmodule"];
const SWITCHES: &[&str] = &[
    "nodeportsvc",
    "add_dir_header",
    "alsologtostderr",
    "logtostderr",
    "one_output",
    "skip_headers",
    "skip_log_headers",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> (String, Vec<String>) {
        let (words, warnings) = translated(line.split(' ').map(OsString::from).collect());
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        (words.join(" "), warnings)
    }

    #[test]
    fn an_old_containers_arguments_are_those_of_the_operator() {
        let line = "/bin/barrelman -v 3 -logtostderr -remote-project=p -remote-cluster-name c -nodeportsvc \
                    -ignore-namespace -kube-system --resync-period 1h30m";
        let (words, warnings) = of(line);
        let want = "/bin/barrelman operator --capabilities mirror --admin-listen=0.0.0.0:9193 --log-level=debug \
                    --mirror-remote-project=p --mirror-remote-cluster-name=c --mirror-nodeportsvc=true \
                    --mirror-ignore-namespace=-kube-system --mirror-resync-period=1h30m";
        assert_eq!((words.as_str(), warnings.len()), (want, 1));
    }

    #[test]
    fn the_operator_takes_them_and_other_commands_are_left_alone() {
        let (words, _) = of("portolan operator -listen-address :9000 -local-kubeconfig= -nodeportsvc=F --quiet");
        assert_eq!(words, "portolan operator --admin-listen=0.0.0.0:9000 --mirror-nodeportsvc=false --quiet");
        assert_eq!(of("portolan send -v udp://x").0, "portolan send -v udp://x");
        assert_eq!(of("portolan up").0, "portolan up");
    }
}
