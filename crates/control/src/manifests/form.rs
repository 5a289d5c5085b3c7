//! The two forms of a generated file: plain, and as a template of the chart.

use crate::runtime::capability::Capability;

/// Which of the two forms a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// For `kubectl apply`: release `portolan` in namespace `portolan`, every capability.
    Plain,
    /// A template of the Helm chart.
    Chart,
}

/// The first line of every generated file.
pub(super) const NOTICE: &str = "Written by `cargo xtask manifests`: changes made here are lost.";

impl Form {
    pub(super) fn notice(self) -> String {
        match self {
            Self::Plain => format!("# {NOTICE}\n"),
            Self::Chart => format!("{{{{- /* {NOTICE} */}}}}\n"),
        }
    }

    /// The prefix of names.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Plain => "portolan",
            Self::Chart => "{{ include \"portolan.name\" . }}",
        }
    }

    pub(super) const fn namespace(self) -> &'static str {
        match self {
            Self::Plain => "portolan",
            Self::Chart => "{{ .Release.Namespace }}",
        }
    }

    /// The labels of an object.
    pub(super) const fn labels(self) -> &'static str {
        match self {
            Self::Plain => {
                "  labels:\n    app.kubernetes.io/name: portolan\n    app.kubernetes.io/component: operator\n"
            }
            Self::Chart => "  labels:\n    {{- include \"portolan.labels\" . | nindent 4 }}\n",
        }
    }

    /// Lines that the chart renders only under a condition.
    pub(super) fn only_if(self, condition: &str, lines: &str) -> String {
        match self {
            Self::Plain => lines.to_owned(),
            Self::Chart => format!("{{{{- if {condition} }}}}\n{lines}{{{{- end }}}}\n"),
        }
    }

    /// Lines of one capability.
    pub(super) fn only_with(self, capability: &Capability, lines: &str) -> String {
        self.only_if(&format!("has \"{}\" .Values.capabilities", capability.name), lines)
    }
}

/// `metadata` of an object; one without a namespace belongs to the cluster.
pub(super) fn metadata(form: Form, name: &str, namespaced: bool) -> String {
    let namespace = if namespaced { format!("  namespace: {}\n", form.namespace()) } else { String::new() };
    format!("metadata:\n  name: {name}\n{namespace}{}", form.labels())
}
