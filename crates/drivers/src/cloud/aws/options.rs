//! How EC2 is used, and what is reported of it.

use std::time::Duration;

use super::limiter::Rate;

/// How EC2 is used.
#[derive(Debug, Clone)]
pub struct AwsOptions {
    /// Only instances with this tag are read when many are asked for, such as `kubernetes.io/cluster/shop`.
    pub tag: Option<String>,
    /// Rate of Describe calls.
    pub reads: Rate,
    /// Rate of calls that change something.
    pub writes: Rate,
    /// A call that takes longer has failed, and may have happened.
    pub call_timeout: Duration,
    /// Instances or interfaces in one answer, 5 to 1000.
    pub page_size: u16,
}

impl Default for AwsOptions {
    /// Half of what EC2 grants an account, which others use, too.
    fn default() -> Self {
        Self {
            tag: None,
            reads: Rate { burst: 50.0, per_second: 10.0 },
            writes: Rate { burst: 25.0, per_second: 4.0 },
            call_timeout: Duration::from_secs(20),
            page_size: 1000,
        }
    }
}

/// One request to EC2, as metrics count it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallReport {
    /// The action, such as `DescribeInstances`.
    pub action: &'static str,
    /// `Ok`, `DryRun`, or the reason of a [`CloudError`].
    pub result: &'static str,
    /// How long it took.
    pub elapsed: Duration,
}
