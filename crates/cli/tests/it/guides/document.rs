//! Reads the commands of a document, and what it shows below them.

/// A command, and the lines that the document shows below it.
#[derive(Debug, PartialEq)]
pub(super) struct Step {
    pub(super) command: String,
    pub(super) shown: Vec<String>,
}

/// The steps of a document: the commands of its `console` blocks, and an apply for each `yaml` block with whole objects.
pub(super) fn steps(text: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let fence = line.trim_start();
        let indentation = line.len() - fence.len();
        if !fence.starts_with("```") {
            continue;
        }
        let block = lines.by_ref().take_while(|line| line.trim_start() != "```");
        let block: Vec<&str> = block.map(|line| line.get(indentation..).unwrap_or_default()).collect();
        match fence {
            "```console" => steps.extend(commands(&block)),
            "```yaml" if block.first().is_some_and(|line| line.starts_with("apiVersion: ")) => {
                let command = format!("kubectl apply -f - <<END\n{}\nEND", block.join("\n"));
                steps.push(Step { command, shown: Vec::new() });
            }
            _ => {}
        }
    }
    steps
}

fn commands(block: &[&str]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in block {
        match steps.last_mut() {
            Some(step) if step.shown.is_empty() && is_open(&step.command) => {
                step.command = format!("{}\n{line}", step.command);
            }
            last => match (line.strip_prefix("$ "), last) {
                (Some(command), _) => steps.push(Step { command: command.to_owned(), shown: Vec::new() }),
                (None, Some(step)) => step.shown.push((*line).to_owned()),
                (None, None) => {}
            },
        }
    }
    steps
}

/// Whether a command goes on in the next line: a here-document, a quotation, a loop, a backslash.
fn is_open(command: &str) -> bool {
    if command.lines().next().is_some_and(|line| line.ends_with("<<END")) {
        return !command.ends_with("\nEND");
    }
    let code: Vec<&str> = command.lines().map(without_comment).collect();
    let count = |mark: char| code.iter().map(|line| line.matches(mark).count()).sum::<usize>();
    let begun = code.iter().filter(|line| line.ends_with("; do")).count();
    let done = code.iter().filter(|line| line.trim_start().starts_with("done")).count();
    count('"') % 2 == 1 || count('\'') % 2 == 1 || begun > done || command.ends_with('\\')
}

/// A comment stands behind two spaces.
fn without_comment(line: &str) -> &str {
    line.split("  # ").next().unwrap_or_default().trim_end()
}

#[test]
fn commands_of_several_lines_and_objects_are_read_as_they_are_meant() {
    let text = "text\n```console\n$ one  # it's a comment\nshown\n$ cat <<END\nbody\nEND\n$ two \\\n    more\n```\n\
                1. item\n\n   ```console\n   $ for n in 1 2; do\n     three\n   done\n   $ four 'a\n   b'\n   ```\n\
                ```yaml\napiVersion: v1\nkind: A\n```\n```yaml\n- part\n```\n```\n$ not\n```\n";
    let found: Vec<(String, Vec<String>)> = steps(text).into_iter().map(|step| (step.command, step.shown)).collect();
    let expected = [
        ("one  # it's a comment", vec!["shown"]),
        ("cat <<END\nbody\nEND", vec![]),
        ("two \\\n    more", vec![]),
        ("for n in 1 2; do\n  three\ndone", vec![]),
        ("four 'a\nb'", vec![]),
        ("kubectl apply -f - <<END\napiVersion: v1\nkind: A\nEND", vec![]),
    ];
    let expected =
        expected.map(|(command, shown)| (command.to_owned(), shown.into_iter().map(str::to_owned).collect()));
    assert_eq!(found, expected);
}
