//! The flags of capabilities as values of the chart. A flag and its value have one name: `--mesh-adopt-legacy` is
//! `mesh.adoptLegacy`; `--egress-no-ipv4` is `egress.ipv4`, which is true unless the flag is given. Flags that name a
//! file, a folder or a port of their own have no value: these would have to be mounted or published first.

use clap::{Arg, ArgAction};
use serde_json::{Value, json};

use super::form::NOTICE;
use crate::runtime::capability::{Capability, default_names, names};

/// A flag, and how its value is written.
struct Setting {
    /// Where it is in the values: `mesh.adoptLegacy`.
    path: Vec<String>,
    long: String,
    env: String,
    help: String,
    form: SettingForm,
}

enum SettingForm {
    /// A flag without a value; the chart's value is its opposite when its name has `no`.
    Switch {
        opposite: bool,
    },
    Bool {
        default: bool,
    },
    List,
    Number {
        default: String,
    },
    Text {
        default: String,
        choices: Vec<String>,
    },
}

impl Setting {
    fn of(capability: &Capability, arg: &Arg) -> Option<Self> {
        let takes = |what: &str| arg.get_value_names().is_some_and(|names| names.iter().any(|name| name == what));
        if ["FILE", "DIR", "ADDR:PORT"].into_iter().any(takes) || arg.get_id() == "help" {
            return None;
        }
        let long = arg.get_long()?.to_owned();
        let defaults: Vec<String> =
            arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
        let default = defaults.join(",");
        let choices: Vec<String> = arg.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
        #[expect(clippy::wildcard_enum_match_arm, reason = "clap adds actions; others take one value")]
        let form = match arg.get_action() {
            ArgAction::SetTrue => SettingForm::Switch { opposite: is_opposite(&long) },
            ArgAction::Append => SettingForm::List,
            _ if arg.get_value_delimiter().is_some() => SettingForm::List,
            _ if takes("NUMBER") => SettingForm::Number { default },
            _ if choices == ["true", "false"] => SettingForm::Bool { default: default == "true" },
            _ => SettingForm::Text { default, choices },
        };
        Some(Self {
            path: path(capability, &long),
            env: arg.get_env()?.to_string_lossy().into_owned(),
            help: arg.get_help().map(ToString::to_string).unwrap_or_default(),
            long,
            form,
        })
    }

    /// The value's default, in YAML.
    fn default(&self) -> String {
        match &self.form {
            SettingForm::Switch { opposite } => opposite.to_string(),
            SettingForm::Bool { default } => default.to_string(),
            SettingForm::List => "[]".to_owned(),
            SettingForm::Text { default, .. } if default.is_empty() => "\"\"".to_owned(),
            SettingForm::Number { default } | SettingForm::Text { default, .. } => default.clone(),
        }
    }

    /// The environment variable, when the value is not its default.
    fn environment(&self) -> String {
        let path = format!(".Values.{}", self.path.join("."));
        let (condition, value) = match &self.form {
            SettingForm::Switch { opposite: true } => (format!("not {path}"), "\"true\"".to_owned()),
            SettingForm::Bool { default: true } => (format!("not {path}"), "\"false\"".to_owned()),
            SettingForm::Switch { opposite: false } | SettingForm::Bool { default: false } => {
                (path, "\"true\"".to_owned())
            }
            SettingForm::List => (path.clone(), format!("{{{{ join \",\" {path} | quote }}}}")),
            SettingForm::Number { default } => {
                (format!("ne (toString {path}) \"{default}\""), format!("{{{{ toString {path} | quote }}}}"))
            }
            SettingForm::Text { default, .. } => {
                (format!("and {path} (ne {path} \"{default}\")"), format!("{{{{ {path} | quote }}}}"))
            }
        };
        format!("{{{{- if {condition} }}}}\n- name: {}\n  value: {value}\n{{{{- end }}}}\n", self.env)
    }

    /// The value's schema.
    fn schema(&self) -> Value {
        let described = format!("{} (--{})", self.help, self.long);
        match &self.form {
            SettingForm::Switch { opposite: true } => {
                json!({ "type": "boolean", "description": format!("false sets --{}: {}", self.long, self.help) })
            }
            SettingForm::Switch { opposite: false } | SettingForm::Bool { .. } => {
                json!({ "type": "boolean", "description": described })
            }
            SettingForm::Number { .. } => json!({ "type": "integer", "description": described }),
            SettingForm::List => json!({ "type": "array", "items": { "type": "string" }, "description": described }),
            SettingForm::Text { choices, .. } if choices.is_empty() => {
                json!({ "type": "string", "description": described })
            }
            SettingForm::Text { choices, .. } => json!({ "enum": choices, "description": described }),
        }
    }

    /// The comment above the value.
    fn comment(&self) -> String {
        match &self.form {
            SettingForm::Switch { opposite: true } => format!("false sets --{}: {}", self.long, self.help),
            SettingForm::Text { choices, .. } if !choices.is_empty() => {
                format!("{}: {} (--{})", self.help, choices.join(", "), self.long)
            }
            SettingForm::Switch { .. }
            | SettingForm::Bool { .. }
            | SettingForm::List
            | SettingForm::Number { .. }
            | SettingForm::Text { .. } => {
                format!("{} (--{})", self.help, self.long)
            }
        }
    }
}

fn settings(capability: &Capability) -> Vec<Setting> {
    capability.flags().iter().filter_map(|arg| Setting::of(capability, arg)).collect()
}

fn is_opposite(long: &str) -> bool {
    long.split('-').any(|word| word == "no")
}

/// Flags with the capability's name in front are in its section, others at the top.
fn path(capability: &Capability, long: &str) -> Vec<String> {
    match long.strip_prefix(&format!("{}-", capability.name)) {
        Some(rest) => vec![in_camel_case(capability.name), in_camel_case(rest)],
        None => vec![in_camel_case(long)],
    }
}

/// A name as Helm's templates can write it.
fn in_camel_case(text: &str) -> String {
    let mut words = text.split('-').filter(|word| *word != "no").map(str::to_owned);
    let first = words.next().unwrap_or_default();
    words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
}

/// Where the chart has the value of a flag.
pub(super) fn value_path(capability: &Capability, long: &str) -> String {
    path(capability, long).join(".")
}

/// A template with the environment variables of capabilities.
pub fn environment(table: &[&Capability]) -> String {
    let all = default_names(table).join(",");
    let lines: String =
        table.iter().flat_map(|capability| settings(capability)).map(|setting| setting.environment()).collect();
    format!(
        "{{{{- /* {NOTICE} */}}}}\n{{{{- define \"portolan.capabilities\" -}}}}\n\
         {{{{- if ne (join \",\" .Values.capabilities) \"{all}\" }}}}\n- name: PORTOLAN_CAPABILITIES\n  \
         value: {{{{ join \",\" .Values.capabilities | quote }}}}\n{{{{- end }}}}\n{lines}{{{{- end }}}}\n"
    )
}

/// The values file with the flags of capabilities: each is in a region of its own, and what is outside of regions stays.
pub fn values(table: &[&Capability], current: &str) -> String {
    let mut text = current.to_owned();
    let all = format!(
        "# The capabilities that run. The roles follow.\ncapabilities: [{}]\n",
        default_names(table).join(", ")
    );
    text = with_region(&text, "capabilities", "", &all);
    for capability in table {
        let settings = settings(capability);
        let lines = |nested: bool, indent: &str| -> String {
            let here = settings.iter().filter(|setting| (setting.path.len() > 1) == nested);
            let line = |setting: &Setting| {
                let name = setting.path.last().cloned().unwrap_or_default();
                format!("{indent}# {}\n{indent}{name}: {}\n", setting.comment(), setting.default())
            };
            here.map(line).collect()
        };
        let (top, nested) = (lines(false, ""), lines(true, "  "));
        if !top.is_empty() {
            text = with_region(&text, &format!("flags that {} shares", capability.name), "", &top);
        }
        if !nested.is_empty() {
            let heading = format!("{}:\n", in_camel_case(capability.name));
            if !text.contains(&format!("\n{heading}")) {
                text.push('\n');
                text.push_str(&heading);
            }
            text = with_region(&text, &format!("flags of {}", capability.name), "  ", &nested);
        }
    }
    text
}

/// Replaces the lines between the marks of a region; a region that is missing is added at the end.
fn with_region(text: &str, name: &str, indent: &str, lines: &str) -> String {
    let begin = format!("{indent}# BEGIN {name} ({})\n", "cargo xtask manifests");
    let end = format!("{indent}# END {name}\n");
    let region = format!("{begin}{lines}{end}");
    match (text.find(&begin), text.find(&end)) {
        (Some(from), Some(to)) if from < to => {
            format!("{}{region}{}", &text[..from], &text[to + end.len()..])
        }
        _ => format!("{text}{region}"),
    }
}

/// The schema of the values with the flags of capabilities; what is not a flag stays.
pub fn schema(table: &[&Capability], current: &str) -> Result<String, serde_json::Error> {
    let mut schema: Value = serde_json::from_str(current)?;
    let properties = &mut schema["properties"];
    properties["capabilities"]["items"] = json!({ "enum": names(table) });
    for capability in table {
        for setting in settings(capability) {
            let mut place = &mut *properties;
            if let [section, _] = &setting.path[..] {
                if place.get(section).is_none() {
                    place[section] = json!({ "type": "object", "additionalProperties": false, "properties": {} });
                }
                place = &mut place[section]["properties"];
            }
            let name = setting.path.last().map(String::as_str).unwrap_or_default();
            let mut wanted = setting.schema();
            // a rule that only people can write, such as a pattern, is kept
            if let Some(written) =
                place.get(name).filter(|written| written["type"].is_string() && written["type"] == wanted["type"])
            {
                let described = wanted["description"].take();
                wanted = written.clone();
                wanted["description"] = described;
            }
            place[name] = wanted;
        }
    }
    Ok(serde_json::to_string_pretty(&schema)? + "\n")
}
