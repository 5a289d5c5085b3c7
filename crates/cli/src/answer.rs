//! Answers on stdout: a table, or JSON or YAML of the same.

use portolan_control::answers::{Answer, Column, Unanswered};
use serde_json::{Map, Value};

use crate::outcome::{Exit, Failure};
use crate::printer::Printer;

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A table
    Table,
    /// A table with every column
    Wide,
    /// A JSON list, one object per row
    Json,
    /// The same as YAML
    Yaml,
}

/// The flag that chooses the format.
#[derive(Debug, clap::Args)]
pub(crate) struct FormatArgs {
    /// Write the answer like this
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table", help_heading = "Output")]
    output: Format,
}

/// Runs a question to its end: the rows on stdout, the sentence that sums them up on stderr.
pub(crate) fn show(
    answer: impl Future<Output = Result<Result<Answer, Unanswered>, Failure>>,
    format: &FormatArgs,
    printer: &Printer,
) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|cause| {
        Failure::new(Exit::No, format!("starting failed: {cause}"), "see the limits of this shell: ulimit -a")
    })?;
    let answer = runtime.block_on(answer)?.map_err(untold)?;
    printer.data(&text(&answer, format.output)?)?;
    for warning in &answer.warnings {
        printer.note(&format!("warning: {warning}"));
    }
    printer.note(&answer.summary);
    Ok(if answer.yes { Exit::Yes } else { Exit::No })
}

fn untold(why: Unanswered) -> Failure {
    let what = why.to_string();
    match why {
        Unanswered::Unclear { hint, .. } => Failure::new(Exit::Usage, what, hint),
        Unanswered::NotFound { hint, .. } => Failure::new(Exit::No, what, hint),
        Unanswered::Unreachable { .. } => {
            Failure::new(Exit::Unreachable, what, "see whether the cluster answers: kubectl get --raw /readyz")
        }
    }
}

fn text(answer: &Answer, format: Format) -> Result<String, Failure> {
    let defect = |cause: String| {
        Failure::new(Exit::No, cause, "this is a defect of portolan, please report it with: portolan --version")
    };
    match format {
        Format::Table => Ok(table(answer, false)),
        Format::Wide => Ok(table(answer, true)),
        Format::Json => serde_json::to_string_pretty(&answer.rows)
            .map(|text| text + "\n")
            .map_err(|cause| defect(cause.to_string())),
        Format::Yaml => serde_saphyr::to_string(&answer.rows).map_err(|cause| defect(cause.to_string())),
    }
}

/// Columns as wide as their widest cell, two blanks apart; nothing at all without rows.
fn table(answer: &Answer, wide: bool) -> String {
    if answer.rows.is_empty() {
        return String::new();
    }
    let columns: Vec<&Column> = answer.columns.iter().filter(|column| wide || !column.wide).collect();
    let heading = columns.iter().map(|column| column.title.to_owned()).collect();
    let mut lines: Vec<Vec<String>> = vec![heading];
    lines.extend(answer.rows.iter().map(|row| columns.iter().map(|column| cell(row, column.key)).collect()));
    let widths: Vec<usize> = (0..columns.len())
        .map(|place| lines.iter().map(|line| line[place].chars().count()).max().unwrap_or_default())
        .collect();
    let mut text = String::new();
    for line in lines {
        let padded: Vec<String> = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    text
}

fn cell(row: &Map<String, Value>, key: &str) -> String {
    match row.get(key) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample() -> Answer {
        const COLUMNS: &[Column] = &[
            Column { key: "what", title: "WHAT", wide: false },
            Column { key: "count", title: "COUNT", wide: false },
            Column { key: "why", title: "WHY", wide: true },
        ];
        let row = |what: &str, count: Value| {
            let Value::Object(row) = json!({ "what": what, "count": count, "why": "so" }) else { unreachable!() };
            row
        };
        Answer {
            columns: COLUMNS,
            rows: vec![row("address", json!(12)), row("a", Value::Null)],
            summary: String::new(),
            yes: true,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn a_table_lines_up_and_a_wide_one_shows_more() {
        assert_eq!(text(&sample(), Format::Table).unwrap(), "WHAT     COUNT\naddress  12\na        -\n");
        assert_eq!(
            text(&sample(), Format::Wide).unwrap(),
            "WHAT     COUNT  WHY\naddress  12     so\na        -      so\n"
        );
    }

    #[test]
    fn json_and_yaml_say_the_same() {
        let json: Value = serde_json::from_str(&text(&sample(), Format::Json).unwrap()).unwrap();
        let yaml: Value = serde_saphyr::from_str(&text(&sample(), Format::Yaml).unwrap()).unwrap();
        assert_eq!(json, yaml);
        assert_eq!(json[0]["count"], 12);
    }
}
