//! Query results on stdout: a table and its summary, or the same as JSON or YAML.

use portolan_control::query::Section;
use portolan_control::runtime::query::{Column, QueryError, QueryResult, Row, row};
use serde_json::{Value, json};

use crate::outcome::{Exit, Failure};
use crate::printer::Printer;

/// How a result is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A table
    Table,
    /// A table with every column
    Wide,
    /// A JSON object: ok, summary, warnings, rows
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

/// Prints a result: rows and summary on stdout, warnings on stderr.
pub(crate) fn show(result: &QueryResult, format: &FormatArgs, printer: &Printer) -> Result<Exit, Failure> {
    printer.data(&text(result, format.output)?)?;
    warn(result, printer);
    Ok(if result.yes { Exit::Yes } else { Exit::No })
}

/// Prints the results of several capabilities: a summary and a table for each, or one document with a section for each.
pub(crate) fn show_all(sections: &[Section], format: &FormatArgs, printer: &Printer) -> Result<Exit, Failure> {
    if let [Section { result, .. }] = sections {
        return show(result, format, printer);
    }
    printer.data(&text_of_all(sections, format.output)?)?;
    for section in sections {
        warn(&section.result, printer);
    }
    Ok(if is_yes(sections) { Exit::Yes } else { Exit::No })
}

fn warn(result: &QueryResult, printer: &Printer) {
    for warning in &result.warnings {
        printer.note(&format!("warning: {warning}"));
    }
}

/// Whether all is well with what is installed.
fn is_yes(sections: &[Section]) -> bool {
    let mut installed = sections.iter().filter(|section| section.installed).peekable();
    installed.peek().is_some() && installed.all(|section| section.result.yes)
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
        Format::Json | Format::Yaml => {
            let parts = sections.iter().map(|Section { capability, installed, result }| {
                let mut part = document(result);
                part.insert("capability".to_owned(), json!(capability));
                part.insert("installed".to_owned(), json!(installed));
                part
            });
            let whole = json!({ "ok": is_yes(sections), "capabilities": parts.collect::<Vec<_>>() });
            return serialized(&whole, format);
        }
    };
    let mut text = String::new();
    let mut after_table = false;
    for Section { capability, result, .. } in sections {
        let table = table(result, is_wide);
        if after_table || !(table.is_empty() || text.is_empty()) {
            text.push('\n');
        }
        after_table = !table.is_empty();
        text += &[capability, ": ", &result.summary, "\n", &table].concat();
    }
    Ok(text)
}

fn text(result: &QueryResult, format: Format) -> Result<String, Failure> {
    match format {
        Format::Table => Ok(format!("{}{}\n", table(result, false), result.summary)),
        Format::Wide => Ok(format!("{}{}\n", table(result, true), result.summary)),
        Format::Json | Format::Yaml => serialized(&Value::Object(document(result)), format),
    }
}

/// A result as JSON: `ok` is the exit code.
fn document(result: &QueryResult) -> Row {
    let QueryResult { columns: _, rows, summary, yes, warnings } = result;
    row([("ok", json!(yes)), ("summary", json!(summary)), ("warnings", json!(warnings)), ("rows", json!(rows))])
}

fn serialized(document: &Value, format: Format) -> Result<String, Failure> {
    let text = if format == Format::Yaml {
        serde_saphyr::to_string(document).map_err(|cause| cause.to_string())
    } else {
        serde_json::to_string_pretty(document).map(|text| text + "\n").map_err(|cause| cause.to_string())
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
        Some(Value::Object(part)) => ratio(part).unwrap_or_else(|| Value::Object(part.clone()).to_string()),
        Some(other) => other.to_string(),
    }
}

/// How many of all, as `portolan_control::runtime::query::part` writes it.
fn ratio(part: &Row) -> Option<String> {
    let total = part.get("total")?;
    let (_, count) = part.iter().find(|(key, _)| *key != "total")?;
    (part.len() == 2).then(|| format!("{count}/{total}"))
}

#[cfg(test)]
mod tests {
    use portolan_control::runtime::query::{column, part, wide};

    use super::*;

    fn sample() -> QueryResult {
        const COLUMNS: &[Column] = &[column("what", "WHAT"), column("count", "COUNT"), wide("why", "WHY")];
        QueryResult {
            columns: COLUMNS,
            rows: vec![
                row([("what", json!("address")), ("count", json!(12)), ("why", json!("so"))]),
                row([("what", json!("a")), ("count", part("used", 2, 7)), ("why", Value::Null)]),
            ],
            summary: "all is well".to_owned(),
            yes: true,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn a_table_lines_up_ends_with_its_summary_and_a_wide_one_shows_more() {
        assert_eq!(text(&sample(), Format::Table).unwrap(), "WHAT     COUNT\naddress  12\na        2/7\nall is well\n");
        assert_eq!(
            text(&sample(), Format::Wide).unwrap(),
            "WHAT     COUNT  WHY\naddress  12     so\na        2/7    -\nall is well\n"
        );
        let nothing = QueryResult { rows: Vec::new(), ..sample() };
        assert_eq!(text(&nothing, Format::Table).unwrap(), "all is well\n");
    }

    #[test]
    fn several_capabilities_are_several_tables_or_one_document() {
        let section = |capability, rows: bool, installed| {
            let mut result = sample();
            result.rows.retain(|_| rows);
            Section { capability, installed, result: QueryResult { yes: installed, ..result } }
        };
        let sections = [
            section("a", false, true),
            section("egress", true, true),
            section("ipam", false, false),
            section("mesh", true, true),
        ];
        let table = "WHAT     COUNT\naddress  12\na        2/7\n";
        assert_eq!(
            text_of_all(&sections, Format::Table).unwrap(),
            format!("a: all is well\n\negress: all is well\n{table}\nipam: all is well\n\nmesh: all is well\n{table}")
        );
        let json: Value = serde_json::from_str(&text_of_all(&sections, Format::Json).unwrap()).unwrap();
        assert_eq!(json["ok"], true, "what is not installed is not wrong");
        assert_eq!(json["capabilities"][3]["capability"], "mesh");
        assert_eq!(json["capabilities"][3]["rows"].as_array().map(Vec::len), Some(2));
        assert_eq!(json["capabilities"][2]["installed"], false);
        assert!(!is_yes(&sections[2..3]), "nothing is installed");
    }

    #[test]
    fn json_and_yaml_say_the_same_and_numbers_are_numbers() {
        let json: Value = serde_json::from_str(&text(&sample(), Format::Json).unwrap()).unwrap();
        let yaml: Value = serde_saphyr::from_str(&text(&sample(), Format::Yaml).unwrap()).unwrap();
        assert_eq!(json, yaml);
        assert_eq!((&json["ok"], &json["summary"]), (&json!(true), &json!("all is well")));
        assert_eq!((&json["rows"][0]["count"], &json["rows"][1]["count"]["used"]), (&json!(12), &json!(2)));
    }
}
