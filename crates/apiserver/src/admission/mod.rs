//! Admission webhooks: what Mutating- and ValidatingWebhookConfigurations ask for, called as kube-apiserver calls it.
//!
//! ```text
//! configurations -> Hooks (compiled once) -- mutate, one after the other --> object -- validate, all at once --> yes or no
//! rules.rs      which hook is asked                 conditions.rs  matchConditions (CEL)
//! review.rs     the AdmissionReview and its answer  caller.rs      HTTPS, one pool per endpoint
//! ```
//!
//! Texts of failures are those of kube-apiserver 1.36: people and programs know them.

mod caller;
mod conditions;
mod hook;
mod review;
mod rules;
mod selector;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::Value;

use crate::auth::User;
use crate::status::Failure;
pub use caller::{Caller, Resolve, ServiceRef};
pub use conditions::faults;
use hook::{Hook, Target};

/// What is done to the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    /// The word in rules and reviews.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
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
    /// Sets defaults after a webhook's patch.
    pub defaults: Option<&'a (dyn Fn(&mut Value) + Send + Sync)>,
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

    /// Asks the mutating webhooks in order of configuration name; each sees what the one before it made.
    ///
    /// `object` is null for a delete. Warnings are kept when the request is refused, too.
    pub async fn mutate(
        &self,
        attributes: &Attributes<'_>,
        object: &mut Value,
        warnings: &mut Vec<String>,
    ) -> Result<(), Failure> {
        if exempt(attributes) || self.mutating.is_empty() {
            return Ok(());
        }
        // Who would want a second look, and who gets one because another changed the object after it.
        let (mut seen, mut again) = (BTreeSet::new(), BTreeSet::new());
        let mut changed = false;
        for round in 0..2 {
            for (index, hook) in self.mutating.iter().enumerate() {
                let Some(target) = hook.wants(attributes, object)? else { continue };
                if round == 1 && !again.contains(&index) {
                    continue;
                }
                if self.ask(hook, &target, attributes, object, warnings).await? {
                    again.append(&mut seen);
                    changed = true;
                }
                if hook.reinvoke {
                    seen.insert(index);
                }
            }
            if !changed || again.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Asks the validating webhooks, all at once; the first refusal to arrive counts.
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
        let mut calls: FuturesUnordered<_> =
            wanted.iter().map(|(hook, target)| self.call(hook, target, attributes, object)).collect();
        let mut refusal = None;
        while let Some(outcome) = calls.next().await {
            let verdict = outcome.and_then(|mut answer| {
                warnings.append(&mut answer.warnings);
                answer.refusal.map_or(Ok(()), Err)
            });
            if let Err(failure) = verdict {
                refusal.get_or_insert(failure);
            }
        }
        refusal.map_or(Ok(()), Err)
    }

    /// Asks one mutating webhook and applies its patch; says whether the object changed.
    async fn ask(
        &self,
        hook: &Hook,
        target: &Target,
        attributes: &Attributes<'_>,
        object: &mut Value,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Failure> {
        let mut answer = self.call(hook, target, attributes, object).await?;
        warnings.append(&mut answer.warnings);
        if let Some(refusal) = answer.refusal {
            return Err(refusal);
        }
        let Some(patch) = answer.patch else { return Ok(false) };
        if object.is_null() {
            let why = format!(
                "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
                hook.name
            );
            return Err(review::internal(&why));
        }
        let before = object.clone();
        review::apply(&patch, object)?;
        if let Some(defaults) = attributes.defaults {
            defaults(object);
        }
        Ok(*object != before)
    }

    /// One call; a failure to call is no failure when the hook says so.
    async fn call(
        &self,
        hook: &Hook,
        target: &Target,
        attributes: &Attributes<'_>,
        object: &Value,
    ) -> Result<review::Answer, Failure> {
        match self.try_call(hook, target, attributes, object).await {
            Ok(answer) => Ok(answer),
            Err(review::Trouble::Refuse(failure)) => Err(failure),
            Err(review::Trouble::Calling(why)) => {
                let why = format!("failed calling webhook {:?}: {why}", hook.name);
                if hook.ignore_failures {
                    tracing::warn!(
                        webhook = hook.name,
                        why,
                        "a webhook could not be asked; its failurePolicy is Ignore"
                    );
                    return Ok(review::Answer::default());
                }
                Err(review::internal(&why))
            }
        }
    }

    async fn try_call(
        &self,
        hook: &Hook,
        target: &Target,
        attributes: &Attributes<'_>,
        object: &Value,
    ) -> Result<review::Answer, review::Trouble> {
        if attributes.dry_run && hook.side_effects {
            let why = format!("admission webhook {:?} does not support dry run", hook.name);
            return Err(review::Trouble::Refuse(Failure::bad_request(why)));
        }
        let (uid, request) = review::request(hook, target, attributes, object)?;
        let body = self
            .caller
            .post(&hook.endpoint, hook.timeout, request)
            .await
            .map_err(|why| review::Trouble::Calling(format!("failed to call webhook: {why}")))?;
        review::answer(hook, &uid, &body)
    }
}

/// The configurations themselves are never put before a webhook: a broken one could not be mended.
fn exempt(attributes: &Attributes<'_>) -> bool {
    const KINDS: [&str; 6] = [
        "ValidatingWebhookConfiguration",
        "MutatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
    ];
    attributes.group == "admissionregistration.k8s.io" && KINDS.contains(&attributes.kind)
}
