//! Options of create, update and patch.

use super::{Query, checked, dry_run, forbidden, invalid, not_supported};
use crate::rest::text::{is_printable, quote};
use crate::status::{Cause, Failure};

/// How a write is done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOptions {
    pub dry_run: bool,
    /// Empty when the client names none.
    pub field_manager: String,
    pub field_validation: FieldValidation,
    /// Take fields from other managers; apply only.
    pub force: bool,
}

/// What happens to fields that nobody knows, and to fields that stand twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    #[default]
    Warn,
    Strict,
}

/// Which write it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteKind {
    Create,
    Update,
    /// JSON, merge and strategic merge.
    Patch,
    Apply,
}

impl WriteOptions {
    /// Reads the options of a write.
    pub fn parse(query: &Query, kind: WriteKind) -> Result<Self, Failure> {
        let mut faults = Vec::new();
        let manager = query.first("fieldManager").unwrap_or_default();
        let force = query.flag("force");
        match kind {
            WriteKind::Apply if manager.is_empty() => faults.push(Cause {
                reason: "FieldValueRequired",
                message: "Required value: is required for apply patch".to_owned(),
                field: "fieldManager".to_owned(),
            }),
            WriteKind::Patch if force.is_some() => {
                faults.push(forbidden("force", "may not be specified for non-apply patch"));
            }
            WriteKind::Create | WriteKind::Update | WriteKind::Patch | WriteKind::Apply => {}
        }
        manager_faults(manager, &mut faults);
        let dry_run = dry_run(&query.all("dryRun"), &mut faults);
        let validation = query.first("fieldValidation").unwrap_or_default();
        let field_validation = match validation {
            "Ignore" => FieldValidation::Ignore,
            "" | "Warn" => FieldValidation::Warn,
            "Strict" => FieldValidation::Strict,
            other => {
                faults.push(not_supported("fieldValidation", &quote(other), &["", "Ignore", "Strict", "Warn"]));
                FieldValidation::Warn
            }
        };
        let name = match kind {
            WriteKind::Create => "CreateOptions",
            WriteKind::Update => "UpdateOptions",
            WriteKind::Patch | WriteKind::Apply => "PatchOptions",
        };
        checked(name, &faults)?;
        let force = kind == WriteKind::Apply && force.unwrap_or_default();
        Ok(Self { dry_run, field_manager: manager.to_owned(), field_validation, force })
    }
}

fn manager_faults(manager: &str, faults: &mut Vec<Cause>) {
    if manager.len() > 128 {
        faults.push(Cause {
            reason: "FieldValueTooLong",
            message: "Too long: may not be more than 128 bytes".to_owned(),
            field: "fieldManager".to_owned(),
        });
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| !is_printable(*c)) {
        let why = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
        faults.push(invalid("fieldManager", manager, &why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str, kind: WriteKind) -> Result<WriteOptions, Failure> {
        WriteOptions::parse(&Query::parse(query), kind)
    }

    fn faults(query: &str, kind: WriteKind) -> String {
        let failure = read(query, kind).unwrap_err();
        assert_eq!((failure.code.as_u16(), failure.reason.as_ref()), (422, "Invalid"), "{query}");
        failure.message
    }

    #[test]
    fn options_are_read() {
        let options =
            read("dryRun=All&dryRun=All&fieldManager=€&fieldValidation=Strict&force=1", WriteKind::Apply).unwrap();
        let expected = WriteOptions {
            dry_run: true,
            field_manager: "€".to_owned(),
            field_validation: FieldValidation::Strict,
            force: true,
        };
        assert_eq!(options, expected);
        assert_eq!(read("fieldValidation=&force=true", WriteKind::Create), Ok(WriteOptions::default()));
    }

    #[test]
    fn faults_are_those_of_the_real_server() {
        let dry = r#"dryRun: Unsupported value: ["x"]: supported values: "All""#;
        let validation = r#"fieldValidation: Unsupported value: "y": supported values: "", "Ignore", "Strict", "Warn""#;
        assert_eq!(faults("dryRun=x", WriteKind::Create), format!("CreateOptions.meta.k8s.io \"\" is invalid: {dry}"));
        assert_eq!(
            faults("dryRun=All&dryRun=x", WriteKind::Update),
            r#"UpdateOptions.meta.k8s.io "" is invalid: dryRun: Unsupported value: ["All","x"]: supported values: "All""#
        );
        assert_eq!(
            faults("dryRun=x&fieldManager=%01&fieldValidation=y", WriteKind::Create),
            format!(
                "CreateOptions.meta.k8s.io \"\" is invalid: [fieldManager: Invalid value: \"\\x01\": invalid character \
                 U+0001 (at position 0), {dry}, {validation}]"
            )
        );
        assert_eq!(
            faults(&format!("fieldManager={}", "a".repeat(130)), WriteKind::Patch),
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Too long: may not be more than 128 bytes"
        );
        assert_eq!(
            faults("force=x&dryRun=x", WriteKind::Patch),
            format!(
                "PatchOptions.meta.k8s.io \"\" is invalid: [force: Forbidden: may not be specified for non-apply patch, {dry}]"
            )
        );
        assert_eq!(
            faults("force=x", WriteKind::Apply),
            "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch"
        );
    }
}
