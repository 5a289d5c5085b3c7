//! The client against stand-ins that enforce AWS's rules, and against moto.

mod credentials;
mod moto;
mod pace;
mod probe;
mod reads;
mod writes;

use std::net::Ipv4Addr;

use portolan_core::ipam::InstanceId;
use portolan_testkit::aws::{FakeEc2, REGION, Ran};
use zeroize::Zeroizing;

use super::{AwsCloud, AwsOptions, AwsSettings, Rate};

/// Settings that lead to a stand-in, without keys.
pub(super) fn settings_without_keys(ec2: &FakeEc2) -> AwsSettings {
    AwsSettings {
        region: Some(REGION.to_owned()),
        ec2_endpoint: Some(ec2.endpoint()),
        metadata_disabled: true,
        ..AwsSettings::default()
    }
}

/// Settings that lead to a stand-in, with keys that it knows.
pub(super) fn settings_of(ec2: &FakeEc2) -> AwsSettings {
    let keys = ec2.own_keys();
    AwsSettings {
        access_key_id: Some(keys.access_key_id.clone()),
        secret_access_key: Some(Zeroizing::new(keys.secret_access_key.clone())),
        ..settings_without_keys(ec2)
    }
}

/// A client of a stand-in.
async fn cloud_of(ec2: &FakeEc2) -> anyhow::Result<AwsCloud> {
    Ok(AwsCloud::new(settings_of(ec2), AwsOptions::default()).await?)
}

/// A client of a stand-in that never waits for its turn.
pub(in crate::cloud) async fn unlimited_cloud_of(ec2: &FakeEc2) -> anyhow::Result<AwsCloud> {
    Ok(AwsCloud::new(settings_of(ec2), unlimited()).await?)
}

/// Options with which nothing waits for its turn.
fn unlimited() -> AwsOptions {
    let rate = Rate { burst: 1e6, per_second: 1e6 };
    AwsOptions { reads: rate, writes: rate, ..AwsOptions::default() }
}

/// A running instance.
fn run(ec2: &FakeEc2, subnet: &str, instance_type: &str) -> Ran {
    let ran = ec2.run(subnet, instance_type, 1).remove(0);
    ec2.boot(&ran.instance);
    ran
}

fn ids(ran: &[Ran]) -> Vec<InstanceId> {
    ran.iter().map(|ran| ran.instance.as_str().into()).collect()
}

const fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}
