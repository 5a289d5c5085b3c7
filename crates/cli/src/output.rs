//! Query results on stdout: a table, or the same as JSON or YAML.

use portolan_control::query::Section;
use portolan_control::runtime::query::{Column, QueryError, QueryResult, Row};
use serde_json::Value;

use crate::outcome::{Exit, Failure};
use crate::printer::Printer;

/// How a result is written.
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
    /// Output format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table", help_heading = "Output")]
    output: Format,
}

/// Runs a query to its end.
pub(crate) fn ask<T>(query: impl Future<Output = Result<Result<T, QueryError>, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|cause| {
        Failure::new(Exit::No, format!("starting failed: {cause}"), "check the limits of this shell: ulimit -a")
    })?;
    runtime.block_on(query)?.map_err(failure)
}

/// Prints a result: its rows on stdout, warnings and the summary on stderr.
pub(crate) fn show(result: &QueryResult, format: &FormatArgs, printer: &Printer) -> Result<Exit, Failure> {
    printer.data(&text(result, format.output)?)?;
    for warning in &result.warnings {
        printer.note(&format!("warning: {warning}"));
    }
    printer.note(&result.summary);
    Ok(if result.yes { Exit::Yes } else { Exit::No })
}

/// Prints the results of several capabilities: a table for each, or one list whose rows name their capability.
pub(crate) fn show_all(sections: &[Section], format: &FormatArgs, printer: &Printer) -> Result<Exit, Failure> {
    if let [Section { result, .. }] = sections {
        return show(result, format, printer);
    }
    printer.data(&text_of_all(sections, format.output)?)?;
    for Section { capability, result } in sections {
        for warning in &result.warnings {
            printer.note(&format!("warning: {warning}"));
        }
        printer.note(&format!("{capability}: {}", result.summary));
    }
    Ok(if sections.iter().all(|section| section.result.yes) { Exit::Yes } else { Exit::No })
}

fn failure(error: QueryError) -> Failure {
    let what = error.to_string();
    match error {
        QueryError::Invalid { hint, .. } => Failure::new(Exit::Usage, what, hint),
        QueryError::NotFound { hint, .. } => Failure::new(Exit::No, what, hint),
        QueryError::Unreachable { .. } => {
            Failure::new(Exit::Unreachable, what, "check that the cluster responds: kubectl get --raw /readyz")
        }
    }
}

fn text_of_all(sections: &[Section], format: Format) -> Result<String, Failure> {
    let is_wide = match format {
        Format::Table => false,
        Format::Wide => true,
        Format::Json | Format::Yaml => return serialized(&named_rows(sections), format),
    };
    let tables = sections.iter().map(|section| table(&section.result, is_wide)).filter(|table| !table.is_empty());
    Ok(tables.collect::<Vec<_>>().join("\n"))
}

/// Every row with its capability.
fn named_rows(sections: &[Section]) -> Vec<Row> {
    let mut rows = Vec::new();
    for Section { capability, result } in sections {
        rows.extend(result.rows.iter().cloned().map(|mut row| {
            row.insert("capability".to_owned(), (*capability).into());
            row
        }));
    }
    rows
}

fn text(result: &QueryResult, format: Format) -> Result<String, Failure> {
    match format {
        Format::Table => Ok(table(result, false)),
        Format::Wide => Ok(table(result, true)),
        Format::Json | Format::Yaml => serialized(&result.rows, format),
    }
}

fn serialized(rows: &[Row], format: Format) -> Result<String, Failure> {
    let text = if format == Format::Yaml {
        serde_saphyr::to_string(&rows).map_err(|cause| cause.to_string())
    } else {
        serde_json::to_string_pretty(rows).map(|text| text + "\n").map_err(|cause| cause.to_string())
    };
    text.map_err(|cause| {
        Failure::new(Exit::No, cause, "this is a bug: please report it with the output of portolan --version")
    })
}

/// Columns as wide as their widest cell, two spaces apart; empty without rows.
fn table(result: &QueryResult, wide: bool) -> String {
    if result.rows.is_empty() {
        return String::new();
    }
    let columns: Vec<&Column> = result.columns.iter().filter(|column| wide || !column.wide).collect();
    let heading = columns.iter().map(|column| column.title.to_owned()).collect();
    let mut lines: Vec<Vec<String>> = vec![heading];
    lines.extend(result.rows.iter().map(|row| columns.iter().map(|column| cell(row, column.key)).collect()));
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

fn cell(row: &Row, key: &str) -> String {
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

    fn sample() -> QueryResult {
        const COLUMNS: &[Column] = &[
            Column { key: "what", title: "WHAT", wide: false },
            Column { key: "count", title: "COUNT", wide: false },
            Column { key: "why", title: "WHY", wide: true },
        ];
        let row = |what: &str, count: Value| {
            let Value::Object(row) = json!({ "what": what, "count": count, "why": "so" }) else { unreachable!() };
            row
        };
        QueryResult {
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
    fn several_capabilities_are_several_tables_or_one_list() {
        let sections = ["egress", "mesh"].map(|capability| Section { capability, result: sample() });
        let table = "WHAT     COUNT\naddress  12\na        -\n";
        assert_eq!(text_of_all(&sections, Format::Table).unwrap(), format!("{table}\n{table}"));
        let json: Value = serde_json::from_str(&text_of_all(&sections, Format::Json).unwrap()).unwrap();
        assert_eq!((json.as_array().map(Vec::len), &json[3]["capability"]), (Some(4), &json!("mesh")));
    }

    #[test]
    fn json_and_yaml_say_the_same() {
        let json: Value = serde_json::from_str(&text(&sample(), Format::Json).unwrap()).unwrap();
        let yaml: Value = serde_saphyr::from_str(&text(&sample(), Format::Yaml).unwrap()).unwrap();
        assert_eq!(json, yaml);
        assert_eq!(json[0]["count"], 12);
    }
}
