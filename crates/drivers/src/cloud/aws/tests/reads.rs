//! Describes: pages, reservations, ids that do not exist, zones that do not answer.

use std::collections::BTreeSet;

use portolan_core::ipam::{CloudError, InstanceId, InstanceState};
use portolan_testkit::aws::{Answered, Ec2Fault, FakeEc2, Ran};

use super::super::{AwsCloud, AwsOptions, Cloud};
use super::{cloud_of, ids, ip, run, settings_of, unlimited};

/// An EC2 with instances in three zones, and a client with small pages.
async fn three_zones(count: usize) -> anyhow::Result<(FakeEc2, AwsCloud, Vec<Ran>)> {
    let ec2 = FakeEc2::start().await?;
    let mut all = Vec::new();
    for (zone, cidr) in [("a", "10.0.0.0/22"), ("b", "10.0.4.0/22"), ("c", "10.0.8.0/22")] {
        let subnet = ec2.add_subnet(zone, cidr.parse()?);
        all.extend(ec2.run(&subnet, "m5.large", count));
    }
    let options = AwsOptions { page_size: 25, ..unlimited() };
    let cloud = AwsCloud::new(settings_of(&ec2), options).await?;
    Ok((ec2, cloud, all))
}

fn actions(ec2: &FakeEc2) -> Vec<String> {
    ec2.calls().into_iter().map(|call| call.action).collect()
}

#[tokio::test]
async fn reservation_with_three_instances_is_read_whole() -> anyhow::Result<()> {
    let ec2 = FakeEc2::start().await?;
    let subnet = ec2.add_subnet("a", "10.0.0.0/24".parse()?);
    let ran = ec2.run(&subnet, "m5.large", 3);
    let report = cloud_of(&ec2).await?.nodes(&ids(&ran)).await?;
    assert_eq!(report.nodes.len(), 3);
    assert!(report.nodes.iter().all(|node| node.state == InstanceState::Pending));
    Ok(())
}

#[tokio::test]
async fn the_interface_with_index_0_is_read_wherever_it_is_listed() -> anyhow::Result<()> {
    let ec2 = FakeEc2::start().await?;
    let subnet = ec2.add_subnet("a", "10.0.0.0/24".parse()?);
    let ran = run(&ec2, &subnet, "m5.large");
    ec2.tag_instance(&ran.instance, "two-interfaces");
    ec2.delegate_prefix(&ran.interface, "10.0.0.64/28".parse()?);
    let cloud = cloud_of(&ec2).await?;
    let node = cloud.nodes(&ids(std::slice::from_ref(&ran))).await?.nodes.remove(0);
    let interface = node.interface.expect("it has one");
    assert_eq!((&*interface.id, interface.primary, interface.prefixes), (&*ran.interface, ran.primary, 1));
    let used = cloud.subnets(&[subnet.as_str().into()]).await?.remove(0).used;
    assert_eq!(used.len(), 17, "the addresses of a prefix are in use");
    assert!(used.contains(&ip(64)) && used.contains(&ip(79)));
    assert_eq!(cloud.locate(ip(70), &subnet.as_str().into()).await?.as_deref(), Some(&*ran.interface));
    Ok(())
}

#[tokio::test]
async fn a_sweep_reads_every_page_and_few_calls_suffice() -> anyhow::Result<()> {
    let (ec2, cloud, ran) = three_zones(40).await?;
    let found = cloud.nodes(&ids(&ran)).await?;
    assert_eq!(found.nodes.len(), 120);
    assert_eq!(actions(&ec2), [vec!["DescribeInstances"; 5], vec!["DescribeInstanceTypes"]].concat());
    ec2.clear_calls();
    let large = AwsCloud::new(settings_of(&ec2), AwsOptions::default()).await?;
    large.nodes(&ids(&ran)).await?;
    large.nodes(&ids(&ran)).await?;
    let expected = ["DescribeInstances", "DescribeInstanceTypes", "DescribeInstances"];
    assert_eq!(actions(&ec2), expected, "one call a sweep; types are asked for once");
    Ok(())
}

#[tokio::test]
async fn a_sweep_sees_stopped_instances_and_asks_by_id_for_those_it_misses() -> anyhow::Result<()> {
    let (ec2, cloud, ran) = three_zones(40).await?;
    ec2.stop(&ran[0].instance);
    ec2.terminate(&ran[1].instance);
    ec2.forget(&ran[2].instance);
    let report = cloud.nodes(&ids(&ran)).await?;
    let state =
        |number: usize| report.nodes.iter().find(|node| *node.instance == *ran[number].instance).map(|node| node.state);
    assert_eq!(state(0), Some(InstanceState::Stopped));
    assert_eq!(state(1), Some(InstanceState::Terminated));
    assert_eq!(state(2), None, "it does not exist any more");
    assert_eq!((report.nodes.len(), report.unanswered.len()), (119, 0));
    Ok(())
}

#[tokio::test]
async fn one_invalid_id_costs_one_more_call_and_no_other_instance() -> anyhow::Result<()> {
    let (ec2, cloud, ran) = three_zones(3).await?;
    let mut asked = ids(&ran);
    asked.insert(4, "i-00000000000000bad".into());
    let report = cloud.nodes(&asked).await?;
    assert_eq!(report.nodes.len(), 9);
    let answered: Vec<Answered> = ec2.calls().into_iter().map(|call| call.answered).collect();
    let refused = Answered::Refused("InvalidInstanceID.NotFound".to_owned());
    assert_eq!(answered, [refused, Answered::Ok, Answered::Ok]);
    Ok(())
}

#[tokio::test]
async fn a_disrupted_zone_is_read_by_id_and_the_others_by_sweep() -> anyhow::Result<()> {
    let (ec2, cloud, ran) = three_zones(40).await?;
    cloud.nodes(&ids(&ran)).await?;
    ec2.disrupt_zone("b", true);
    let report = cloud.nodes(&ids(&ran)).await?;
    assert_eq!((report.nodes.len(), report.unanswered.len()), (120, 0));
    // Calls by id fail, too: what was known of that zone holds, and the others are still read.
    ec2.black_out_zone("b", true);
    let report = cloud.nodes(&ids(&ran)).await?;
    let lost: BTreeSet<InstanceId> = ids(&ran[40..80]).into_iter().collect();
    assert_eq!(report.unanswered, lost);
    assert_eq!(report.nodes.len(), 80);
    Ok(())
}

#[tokio::test]
async fn without_known_zones_a_failed_sweep_is_an_error() -> anyhow::Result<()> {
    let (ec2, cloud, ran) = three_zones(40).await?;
    ec2.disrupt_zone("b", true);
    assert_eq!(cloud.nodes(&ids(&ran)).await, Err(CloudError::Transient));
    Ok(())
}

#[tokio::test]
async fn a_sweep_can_be_limited_to_a_tag() -> anyhow::Result<()> {
    let (ec2, _, ran) = three_zones(40).await?;
    for ran in &ran[..110] {
        ec2.tag_instance(&ran.instance, "kubernetes.io/cluster/shop");
    }
    let options = AwsOptions { tag: Some("kubernetes.io/cluster/shop".to_owned()), ..unlimited() };
    let cloud = AwsCloud::new(settings_of(&ec2), options).await?;
    assert_eq!(cloud.nodes(&ids(&ran)).await?.nodes.len(), 120, "those without it are asked for by id");
    let calls = ec2.calls();
    assert!(calls[0].parameters.contains(&("Filter.2.Name".to_owned(), "tag-key".to_owned())), "{:?}", calls[0]);
    Ok(())
}

#[tokio::test]
async fn limits_come_from_the_table_when_types_may_not_be_read() -> anyhow::Result<()> {
    let ec2 = FakeEc2::start().await?;
    let subnet = ec2.add_subnet("a", "10.0.0.0/24".parse()?);
    ec2.deny("DescribeInstanceTypes", true);
    let ran = [run(&ec2, &subnet, "m5.large"), run(&ec2, &subnet, "x9.unheard")];
    let cloud = cloud_of(&ec2).await?;
    for _ in 0..2 {
        let limits: Vec<u16> = cloud.nodes(&ids(&ran)).await?.nodes.iter().map(|node| node.address_limit).collect();
        assert_eq!(limits, [10, 2]);
    }
    let asked = actions(&ec2).iter().filter(|action| *action == "DescribeInstanceTypes").count();
    assert_eq!(asked, 1, "a denial does not change");
    Ok(())
}

#[tokio::test]
async fn reads_are_tried_again_and_redirects_are_not_followed() -> anyhow::Result<()> {
    let ec2 = FakeEc2::start().await?;
    let subnet = ec2.add_subnet("a", "10.0.0.0/24".parse()?);
    let cloud = cloud_of(&ec2).await?;
    for fault in [Ec2Fault::CutBefore, Ec2Fault::Status(502), Ec2Fault::CutAfterCommit] {
        ec2.fault("DescribeSubnets", fault);
    }
    assert_eq!(cloud.subnets(&[subnet.as_str().into()]).await?.len(), 1);
    for _ in 0..4 {
        ec2.fault("DescribeSubnets", Ec2Fault::Status(302));
    }
    assert_eq!(cloud.subnets(&[subnet.as_str().into()]).await, Err(CloudError::Transient));
    Ok(())
}
