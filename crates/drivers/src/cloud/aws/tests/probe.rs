//! What `doctor` asks: who we are, and what we may do.

use jiff::SignedDuration;
use portolan_testkit::aws::FakeEc2;

use super::super::{Access, Cloud, CredentialsSource};
use super::{cloud_of, ids, ip, run};

#[tokio::test]
async fn each_permission_is_probed_and_nothing_changes() -> anyhow::Result<()> {
    let ec2 = FakeEc2::start().await?;
    let subnet = ec2.add_subnet("a", "10.0.0.0/24".parse()?);
    let ran = run(&ec2, &subnet, "m5.large");
    let cloud = cloud_of(&ec2).await?;
    for with_secondary in [false, true] {
        if with_secondary {
            cloud.assign(&ran.interface.as_str().into(), &[ip(50)]).await;
        }
        let before = ec2.secondary(&ran.interface);
        let node = cloud.nodes(&ids(std::slice::from_ref(&ran))).await?.nodes.remove(0);
        let probe = cloud.probe(node.interface.as_ref()).await?;
        assert_eq!((&*probe.region, probe.source), ("eu-central-1", CredentialsSource::Environment));
        let actions: Vec<&str> = probe.actions.iter().map(|probed| probed.action.as_str()).collect();
        let expected = [
            "ec2:DescribeInstances",
            "ec2:DescribeInstanceTypes",
            "ec2:DescribeNetworkInterfaces",
            "ec2:DescribeSubnets",
            "ec2:AssignPrivateIpAddresses",
            "ec2:UnassignPrivateIpAddresses",
        ];
        assert_eq!(actions, expected);
        assert!(probe.actions.iter().all(|probed| probed.access == Access::Allowed), "{probe:?}");
        assert_eq!(ec2.secondary(&ran.interface), before);
    }
    Ok(())
}

#[tokio::test]
async fn what_is_denied_is_named() -> anyhow::Result<()> {
    let ec2 = FakeEc2::start().await?;
    let subnet = ec2.add_subnet("a", "10.0.0.0/24".parse()?);
    let ran = run(&ec2, &subnet, "m5.large");
    let cloud = cloud_of(&ec2).await?;
    let node = cloud.nodes(&ids(&[ran])).await?.nodes.remove(0);
    for denied in ["DescribeSubnets", "AssignPrivateIpAddresses", "UnassignPrivateIpAddresses"] {
        ec2.deny(denied, true);
        let probe = cloud.probe(node.interface.as_ref()).await?;
        let found: Vec<String> = probe
            .actions
            .into_iter()
            .filter(|probed| probed.access == Access::Denied)
            .map(|probed| probed.action)
            .collect();
        assert_eq!(found, [format!("ec2:{denied}")]);
        ec2.deny(denied, false);
    }
    Ok(())
}

#[tokio::test]
async fn a_clock_that_is_wrong_is_followed_and_reported() -> anyhow::Result<()> {
    let ec2 = FakeEc2::start().await?;
    let subnet = ec2.add_subnet("a", "10.0.0.0/24".parse()?);
    let cloud = cloud_of(&ec2).await?;
    for minutes in [20, -90] {
        ec2.set_clock_ahead(SignedDuration::from_mins(minutes));
        assert_eq!(cloud.subnets(&[subnet.as_str().into()]).await?.len(), 1, "no call fails");
        let offset = cloud.probe(None).await?.clock_offset;
        let apart = (offset - SignedDuration::from_mins(minutes)).abs();
        assert!(apart <= SignedDuration::from_secs(30), "{offset:?}");
    }
    Ok(())
}
