//! The client of one region, and what it remembers.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use portolan_core::ipam::{InstanceId, Zone};

use super::client::Client;
use super::error::AwsError;
use super::options::{AwsOptions, CallReport};
use super::settings::AwsSettings;

/// EC2 in one region.
pub struct AwsCloud {
    pub(super) client: Client,
    pub(super) options: AwsOptions,
    pub(super) memory: Memory,
}

impl AwsCloud {
    /// Finds the region. Credentials are fetched with the first call.
    pub async fn new(settings: AwsSettings, options: AwsOptions) -> Result<Self, AwsError> {
        let client = Client::new(settings, &options).await?;
        Ok(Self { client, options, memory: Memory::default() })
    }

    /// Reports every request.
    #[must_use]
    pub fn reporting(mut self, report: impl Fn(CallReport) + Send + Sync + 'static) -> Self {
        self.client.report = Box::new(report);
        self
    }

    /// The region.
    pub fn region(&self) -> &str {
        self.client.region()
    }
}

/// What earlier answers said.
#[derive(Default)]
pub(super) struct Memory {
    /// Addresses per interface by instance type.
    pub(super) limits: Mutex<BTreeMap<Arc<str>, u16>>,
    pub(super) zones: Mutex<BTreeMap<InstanceId, Zone>>,
}
