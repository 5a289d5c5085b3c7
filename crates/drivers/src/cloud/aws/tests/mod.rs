//! The client against stand-ins that enforce AWS's rules, and against moto.

use portolan_testkit::aws::{FakeEc2, REGION};
use zeroize::Zeroizing;

use super::{AwsCloud, AwsOptions, AwsSettings};

/// Settings that lead to a stand-in, with keys that it knows.
pub(super) fn settings_of(ec2: &FakeEc2) -> AwsSettings {
    let keys = ec2.own_keys();
    AwsSettings {
        region: Some(REGION.to_owned()),
        access_key_id: Some(keys.access_key_id.clone()),
        secret_access_key: Some(Zeroizing::new(keys.secret_access_key.clone())),
        ec2_endpoint: Some(ec2.endpoint()),
        metadata_disabled: true,
        ..AwsSettings::default()
    }
}

/// A client of a stand-in.
pub(in crate::cloud) async fn cloud_of(ec2: &FakeEc2) -> anyhow::Result<AwsCloud> {
    Ok(AwsCloud::new(settings_of(ec2), AwsOptions::default()).await?)
}
