//! Who we are to the cloud, and what that allows.

use jiff::SignedDuration;
use portolan_drivers::cloud::aws::{Access, CredentialsSource, PermissionProbe, ProbedAction};

use super::finding::Finding;
use super::snapshot::Snapshot;
use crate::runtime::doctor::Check;

const CREDENTIALS: &str = "credentials";
const PERMISSIONS: &str = "permissions";

/// AWS refuses requests once clocks differ by five minutes.
const CLOCK: SignedDuration = SignedDuration::from_secs(60);

/// The credentials are valid and allow every action.
pub(super) fn credentials(snapshot: &Snapshot) -> Vec<Finding> {
    let Some(access) = &snapshot.access else {
        let seen = "the cloud was not read: what its interfaces have and what is allowed there is not known";
        let advice = "give credentials, as the operator has them: AWS_REGION, AWS_PROFILE or AWS_ACCESS_KEY_ID";
        return vec![Check::warn(CREDENTIALS, "", seen, advice).into()];
    };
    let checks = match access {
        Ok(probe) => vec![identity(probe), permissions(probe)],
        Err(problem) => {
            let advice = "set AWS_REGION, and AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY";
            vec![Check::fail(CREDENTIALS, "", problem, advice)]
        }
    };
    checks.into_iter().map(Finding::from).collect()
}

fn identity(probe: &PermissionProbe) -> Check {
    let PermissionProbe { region, source, expires, clock_offset, reads_per_second, writes_per_second, .. } = probe;
    let source = match source {
        CredentialsSource::Environment => "the environment",
        CredentialsSource::WebIdentity => "a web identity token",
        CredentialsSource::Profile => "a profile",
        CredentialsSource::Metadata => "the role of the instance",
    };
    let until = expires.map(|at| format!(", valid until {at}")).unwrap_or_default();
    let seen = format!(
        "region {region}, credentials from {source}{until}; at most {reads_per_second} reads and {writes_per_second} \
         writes a second"
    );
    if clock_offset.abs() < CLOCK {
        return Check::ok(CREDENTIALS, seen);
    }
    let seen = format!("the clock of AWS is ahead of ours by {} s; {seen}", clock_offset.as_secs());
    Check::warn(CREDENTIALS, "", seen, "set the clock of this machine: AWS refuses requests that are 5 minutes off")
}

fn permissions(probe: &PermissionProbe) -> Check {
    let of = |matches: fn(&Access) -> bool| -> Vec<&str> {
        let probed = probe.actions.iter().filter(|probed| matches(&probed.access));
        probed.map(|ProbedAction { action, .. }| action.as_str()).collect()
    };
    let denied = of(|access| *access == Access::Denied);
    if !denied.is_empty() {
        let advice = format!("add this to the policy of the role: {}", policy(&denied));
        return Check::fail(PERMISSIONS, "", format!("not allowed: {}", denied.join(", ")), advice);
    }
    let unknown = of(|access| matches!(access, Access::Unknown(_)));
    if !unknown.is_empty() {
        return Check::warn(PERMISSIONS, "", format!("could not be found out: {}", unknown.join(", ")), "repeat it");
    }
    Check::ok(PERMISSIONS, format!("{} actions are allowed", probe.actions.len()))
}

/// The statement of a policy that allows these actions.
fn policy(actions: &[&str]) -> String {
    let actions = actions.iter().map(|action| format!("\"{action}\"")).collect::<Vec<_>>().join(",");
    format!(r#"{{"Effect":"Allow","Action":[{actions}],"Resource":"*"}}"#)
}
