//! A second opinion on the wire format. Nothing here stands on rules that moto does not keep.

use portolan_core::ipam::{CloudError, InstanceId, InstanceState, InterfaceId, SubnetId};
use portolan_testkit::aws::REGION;
use portolan_testkit::aws::moto::{Moto, MotoAccount};
use zeroize::Zeroizing;

use super::super::{AwsCloud, AwsOptions, AwsSettings, Cloud};
use super::{ip, unlimited};

fn settings(moto: &Moto, account: &MotoAccount) -> AwsSettings {
    AwsSettings {
        region: Some(REGION.to_owned()),
        access_key_id: Some(account.keys.access_key_id.clone()),
        secret_access_key: Some(Zeroizing::new(account.keys.secret_access_key.clone())),
        ec2_endpoint: Some(moto.endpoint()),
        metadata_disabled: true,
        ..AwsSettings::default()
    }
}

#[tokio::test]
async fn moto_understands_every_call_and_we_its_answers() -> anyhow::Result<()> {
    let moto = Moto::start().await?;
    let account = moto.prepare(120).await?;
    let options = AwsOptions { page_size: 50, ..unlimited() };
    let cloud = AwsCloud::new(settings(&moto, &account), options).await?;

    // A sweep of three pages, then two instances by id, then one that does not exist beside them.
    let mut asked: Vec<InstanceId> = account.instances.iter().map(|id| id.as_str().into()).collect();
    let found = cloud.nodes(&asked).await?;
    assert_eq!((found.nodes.len(), found.unanswered.len()), (120, 0));
    asked.truncate(2);
    assert_eq!(cloud.nodes(&asked).await?.nodes.len(), 2);
    asked.push("i-0123456789abcdef0".into());
    let nodes = cloud.nodes(&asked).await?.nodes;
    assert_eq!(nodes.len(), 2);
    let node = &nodes[0];
    assert_eq!((node.state, &*node.instance_type, node.address_limit), (InstanceState::Running, "m5.large", 10));
    assert_eq!((&*node.zone, &*node.subnet), ("eu-central-1a", &*account.subnet));
    let interface = node.interface.clone().expect("it has one");

    let subnet: SubnetId = account.subnet.as_str().into();
    let seen = cloud.subnets(&[subnet.clone(), "subnet-0123456789abcdef0".into()]).await?;
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].cidr, &*seen[0].zone), ("10.0.0.0/22".parse()?, "eu-central-1a"));
    assert_eq!(seen[0].used.len(), 120, "one primary address each");
    assert!(seen[0].used.contains(&interface.primary));

    let free = (10..250).map(ip).filter(|address| !seen[0].used.contains(address)).take(2).collect::<Vec<_>>();
    assert!(cloud.assign(&interface.id, &free).await.values().all(Result::is_ok));
    assert_eq!(cloud.locate(free[0], &subnet).await?, Some(interface.id.clone()));
    let outcomes = cloud.release(&interface.id, &free[..1]).await;
    assert_eq!(outcomes, [(free[0], Ok(()))].into());
    assert_eq!(cloud.locate(free[0], &subnet).await?, None);
    let node = cloud.nodes(std::slice::from_ref(&node.instance)).await?.nodes.remove(0);
    assert_eq!(node.interface.expect("it has one").secondary, [free[1]].into());

    let unknown: InterfaceId = "eni-0123456789abcdef0".into();
    for outcomes in [cloud.assign(&unknown, &free).await, cloud.release(&unknown, &free).await] {
        assert!(outcomes.values().all(|outcome| *outcome == Err(CloudError::NoSuchInterface)), "{outcomes:?}");
    }

    // It does verify signatures.
    let forged =
        AwsSettings { secret_access_key: Some(Zeroizing::new("forged".to_owned())), ..settings(&moto, &account) };
    let denied = AwsCloud::new(forged, unlimited()).await?.subnets(&[subnet]).await;
    assert_eq!(denied, Err(CloudError::Denied { action: "ec2:DescribeSubnets".into() }));
    Ok(())
}
