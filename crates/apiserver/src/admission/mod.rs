//! Admission webhooks: what Mutating- and ValidatingWebhookConfigurations ask for, called as kube-apiserver calls it.
//!
//! ```text
//! configurations -> Hooks (compiled once) -- mutate, one after the other --> object -- validate, all at once --> yes or no
//! hook.rs       which hook is asked
//! review.rs     the AdmissionReview and its answer
//! caller.rs     HTTPS, connections are kept
//! ```

mod caller;
mod hook;
mod review;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use futures::future::join_all;
use serde_json::Value;

use crate::auth::User;
use crate::status::Failure;
pub use caller::Caller;
use hook::{Hook, Target};

/// What is done to the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    /// The word in rules and reviews.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// A request as admission sees it.
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    pub operation: Operation,
    /// Empty for the core group.
    pub group: &'a str,
    pub version: &'a str,
    /// The kind of the body: `Scale` for the subresource `scale`.
    pub kind: &'a str,
    /// The plural.
    pub resource: &'a str,
    /// Empty for the object itself.
    pub subresource: &'a str,
    pub name: &'a str,
    /// Empty for cluster-wide objects; a Namespace is in itself.
    pub namespace: &'a str,
    pub user: &'a User,
    pub old: Option<&'a Value>,
    /// `CreateOptions` and their kin, with kind and apiVersion.
    pub options: &'a Value,
    pub dry_run: bool,
    /// Labels of the namespace named above; none when there is no such namespace.
    pub namespace_labels: Option<&'a Value>,
    /// All served versions of the resource, for matchPolicy Equivalent.
    pub versions: &'a [String],
}

/// All webhooks of all configurations, ready to be asked.
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

    /// Whether nobody is to be asked.
    pub fn is_empty(&self) -> bool {
        self.mutating.is_empty() && self.validating.is_empty()
    }

    /// Asks the mutating webhooks in order of configuration name, each once; each sees what the one before it made.
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

    /// Asks the validating webhooks, all at once; the refusal of the first in order counts.
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

    /// One call; a failure to call is no failure when the hook says so.
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
                tracing::warn!(webhook = hook.name, why, "a webhook could not be asked; its failurePolicy is Ignore");
                Ok(review::Answer::default())
            }
            Err(why) => Err(review::internal(&format!("failed calling webhook {:?}: {why}", hook.name))),
        }
    }
}

/// The configurations themselves are never put before a webhook: a broken one could not be mended.
fn exempt(attributes: &Attributes<'_>) -> bool {
    attributes.group == "admissionregistration.k8s.io"
}
