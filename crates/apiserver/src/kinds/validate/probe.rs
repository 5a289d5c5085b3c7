//! Probes and lifecycle hooks of containers.

use serde_json::Value;

use super::super::json::{list, number, text};
use super::{Faults, quoted};

const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

pub(super) fn lifecycle_and_probes(path: &str, container: &Value, faults: &mut Faults) {
    for moment in ["postStart", "preStop"] {
        if let Some(hook) = container.pointer(&format!("/lifecycle/{moment}")) {
            handler(&format!("{path}.lifecycle.{moment}"), hook, faults);
        }
    }
    for key in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get(key) {
            self::probe(&format!("{path}.{key}"), key, probe, faults);
        }
    }
}

fn probe(path: &str, key: &str, probe: &Value, faults: &mut Faults) {
    handler(path, probe, faults);
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"] {
        faults.not_negative(&format!("{path}.{field}"), &probe[field]);
    }
    let successes = number(probe, "/successThreshold");
    if key != "readinessProbe" && successes != 1 {
        faults.invalid(&format!("{path}.successThreshold"), &successes.to_string(), "must be 1");
    }
}

fn handler(path: &str, handler: &Value, faults: &mut Faults) {
    let mut count = 0;
    for kind in HANDLERS {
        let Some(action) = handler.get(kind) else { continue };
        let path = format!("{path}.{kind}");
        count += 1;
        if count > 1 {
            faults.forbidden(&path, "may not specify more than 1 handler type");
            continue;
        }
        match kind {
            "exec" if list(action, "/command").is_empty() => faults.required(&format!("{path}.command"), ""),
            "httpGet" => {
                if text(action, "/path").is_empty() {
                    faults.required(&format!("{path}.path"), "");
                }
                faults.port_or_name(&format!("{path}.port"), &action["port"]);
                let scheme = text(action, "/scheme");
                if !["HTTP", "HTTPS"].contains(&scheme) {
                    faults.not_supported(&format!("{path}.scheme"), &quoted(scheme), &["HTTP", "HTTPS"]);
                }
            }
            "tcpSocket" | "grpc" => faults.port_or_name(&format!("{path}.port"), &action["port"]),
            _ => {}
        }
    }
    if count == 0 {
        faults.required(path, "must specify a handler type");
    }
}
