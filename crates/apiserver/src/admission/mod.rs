//! Admission webhooks of Mutating- and ValidatingWebhookConfigurations, called as kube-apiserver calls them.
//!
//! ```text
//! configurations -> Hooks (compiled once) -- mutate, one after the other --> object -- validate, all at once --> yes or no
//! hook.rs       which webhook is called
//! review.rs     the AdmissionReview and its answer
//! caller.rs     HTTPS, connections are kept
//! ```

mod attributes;
mod caller;
mod hook;
mod review;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::future::join_all;
use serde_json::Value;

use crate::status::Failure;
pub use attributes::{Attributes, Operation};
pub use caller::Caller;
use hook::{Hook, Target};

/// All webhooks of all configurations, compiled.
pub struct Hooks {
    mutating: Vec<Hook>,
    validating: Vec<Hook>,
    caller: Arc<Caller>,
}

impl Hooks {
    /// Compiles configurations; done again when one changes. The caller with its connections is kept.
    pub fn new(mutating: &[Value], validating: &[Value], caller: Arc<Caller>) -> Self {
        Self { mutating: hook::all(mutating), validating: hook::all(validating), caller }
    }

    /// Whether there are no webhooks.
    pub fn is_empty(&self) -> bool {
        self.mutating.is_empty() && self.validating.is_empty()
    }

    /// Calls the mutating webhooks in order of configuration name, each once, with the result of the one before.
    ///
    /// `object` is null for a delete. Warnings are kept when the request is refused, too.
    pub async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        warnings: &mut Vec<String>,
    ) -> Result<(), Failure> {
        if exempt(attributes) {
            return Ok(());
        }
        for hook in &self.mutating {
            let Some(target) = hook.wants(attributes, object)? else { continue };
            let mut answer = self.call(hook, &target, attributes, object).await?;
            warnings.append(&mut answer.warnings);
            if let Some(refusal) = answer.refusal {
                return Err(refusal);
            }
            if let Some(patch) = answer.patch {
                review::apply(&patch, object)?;
            }
        }
        Ok(())
    }

    /// Calls the validating webhooks concurrently; the first denial in order is returned.
    pub async fn validate(
        &self,
        attributes: &Attributes<'_>,
        object: &Value,
        warnings: &mut Vec<String>,
    ) -> Result<(), Failure> {
        if exempt(attributes) {
            return Ok(());
        }
        let mut wanted = Vec::new();
        for hook in &self.validating {
            if let Some(target) = hook.wants(attributes, object)? {
                wanted.push((hook, target));
            }
        }
        let calls = wanted.iter().map(|(hook, target)| self.call(hook, target, attributes, object));
        let mut verdict = Ok(());
        for outcome in join_all(calls).await {
            let refusal = match outcome {
                Ok(mut answer) => {
                    warnings.append(&mut answer.warnings);
                    answer.refusal
                }
                Err(failure) => Some(failure),
            };
            verdict = verdict.and(refusal.map_or(Ok(()), Err));
        }
        verdict
    }

    /// One call; a failed call is ignored if the webhook's failurePolicy is Ignore.
    async fn call(
        &self,
        hook: &Hook,
        target: &Target,
        attributes: &Attributes<'_>,
        object: &Value,
    ) -> Result<review::Answer, Failure> {
        if attributes.dry_run && hook.side_effects {
            return Err(Failure::bad_request(format!("admission webhook {:?} does not support dry run", hook.name)));
        }
        let called = async {
            let (uid, request) = review::request(hook, target, attributes, object)?;
            let body = self.caller.post(&hook.endpoint, hook.timeout, request).await?;
            review::answer(hook, &uid, &body)
        };
        match called.await {
            Ok(answer) => Ok(answer),
            Err(why) if hook.ignore_failures => {
                tracing::warn!(webhook = hook.name, why, "calling a webhook failed; its failurePolicy is Ignore");
                Ok(review::Answer::default())
            }
            Err(why) => Err(review::internal(&format!("failed calling webhook {:?}: {why}", hook.name))),
        }
    }
}

/// Webhook configurations are never sent to webhooks: a broken one could not be repaired.
fn exempt(attributes: &Attributes<'_>) -> bool {
    attributes.group == "admissionregistration.k8s.io"
}
