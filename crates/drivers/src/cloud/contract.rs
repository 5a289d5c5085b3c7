//! What every back end does alike: each test runs on the cloud in memory, and on the AWS client with an EC2 stand-in.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::Ipv4Net;
use portolan_core::ipam::{CloudError, CloudNode, InstanceId, InstanceState, InterfaceId, SubnetId};
use portolan_testkit::aws::{FakeEc2, Throttle};

use super::aws::tests::unlimited_cloud_of;
use super::{AwsCloud, Cloud, MemoryCloud};

macro_rules! contract {
    ($($test:ident)*) => {
        mod memory { $(
            #[tokio::test]
            async fn $test() -> anyhow::Result<()> {
                super::$test(super::Lab::Memory(super::MemoryCloud::new())).await
            }
        )* }
        mod aws { $(
            #[tokio::test]
            async fn $test() -> anyhow::Result<()> {
                super::$test(super::Lab::aws().await?).await
            }
        )* }
    };
}

contract! {
    an_instance_is_described_with_its_interface_and_limit
    instances_that_do_not_exist_are_left_out_and_the_others_are_found
    a_subnet_shows_every_address_in_use
    assigned_addresses_are_located_and_assigning_again_changes_nothing
    an_address_of_another_interface_is_in_use_and_its_holder_is_named
    taking_moves_an_address
    a_primary_address_is_neither_taken_nor_released
    addresses_outside_the_subnet_and_reserved_ones_are_refused
    a_full_interface_takes_what_fits
    one_bad_address_does_not_stop_the_others
    releasing_can_be_repeated
    a_stopped_instance_keeps_its_addresses_and_a_terminated_one_frees_them
    an_interface_that_does_not_exist_is_named
}

/// A cloud, and the hands of those who run instances in it.
enum Lab {
    Memory(MemoryCloud),
    Aws(Box<(FakeEc2, AwsCloud)>),
}

impl Lab {
    async fn aws() -> anyhow::Result<Self> {
        let ec2 = FakeEc2::start().await?;
        // Nothing here is about the pace.
        let plenty = Throttle { burst: 1e6, per_second: 1e6 };
        ec2.set_throttle(plenty, plenty);
        let cloud = unlimited_cloud_of(&ec2).await?;
        Ok(Self::Aws(Box::new((ec2, cloud))))
    }

    fn cloud(&self) -> &dyn Cloud {
        match self {
            Self::Memory(memory) => memory,
            Self::Aws(lab) => &lab.1,
        }
    }

    fn subnet(&self, zone: &str, cidr: &str) -> anyhow::Result<SubnetId> {
        let cidr: Ipv4Net = cidr.parse()?;
        Ok(match self {
            Self::Memory(memory) => {
                let id = format!("subnet-{zone}");
                memory.add_subnet(&id, zone, cidr);
                id.into()
            }
            Self::Aws(lab) => lab.0.add_subnet(zone, cidr).into(),
        })
    }

    async fn run(&self, name: &str, instance_type: &str, subnet: &SubnetId) -> anyhow::Result<CloudNode> {
        let id: InstanceId = match self {
            Self::Memory(memory) => memory.run_instance(name, instance_type, subnet)?.instance,
            Self::Aws(lab) => {
                let ran = lab.0.run(subnet, instance_type, 1).remove(0);
                lab.0.boot(&ran.instance);
                ran.instance.into()
            }
        };
        Ok(self.node(&id).await?.expect("it was just started"))
    }

    async fn node(&self, id: &InstanceId) -> anyhow::Result<Option<CloudNode>> {
        Ok(self.cloud().nodes(std::slice::from_ref(id)).await?.nodes.pop())
    }

    fn set_state(&self, id: &InstanceId, state: InstanceState) -> anyhow::Result<()> {
        match (self, state) {
            (Self::Memory(memory), state) => memory.set_state(id, state)?,
            (Self::Aws(lab), InstanceState::Terminated) => lab.0.terminate(id),
            (Self::Aws(lab), InstanceState::Stopped) => lab.0.stop(id),
            (Self::Aws(_), other) => anyhow::bail!("no test needs {other:?}"),
        }
        Ok(())
    }

    fn occupy(&self, subnet: &SubnetId, address: Ipv4Addr) -> anyhow::Result<InterfaceId> {
        Ok(match self {
            Self::Memory(memory) => memory.occupy(subnet, address)?,
            Self::Aws(lab) => lab.0.stranger_takes(subnet, address).into(),
        })
    }
}

fn id_of(node: &CloudNode) -> InterfaceId {
    node.interface.as_ref().expect("it has an interface").id.clone()
}

const fn ip(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, last)
}

async fn pair(lab: &Lab, instance_type: &str) -> anyhow::Result<(SubnetId, CloudNode, CloudNode)> {
    let subnet = lab.subnet("a", "10.0.0.0/24")?;
    let one = lab.run("i-1", instance_type, &subnet).await?;
    let two = lab.run("i-2", instance_type, &subnet).await?;
    Ok((subnet, one, two))
}

async fn an_instance_is_described_with_its_interface_and_limit(lab: Lab) -> anyhow::Result<()> {
    let subnet = lab.subnet("a", "10.0.0.0/24")?;
    let node = lab.run("i-1", "m5.large", &subnet).await?;
    assert_eq!(node.state, InstanceState::Running);
    assert_eq!((&*node.zone, &*node.instance_type, node.address_limit), ("a", "m5.large", 10));
    assert_eq!(node.subnet, subnet);
    let interface = node.interface.expect("it has one");
    assert_eq!((interface.primary, interface.secondary.len(), interface.prefixes), (ip(4), 0, 0));
    Ok(())
}

async fn instances_that_do_not_exist_are_left_out_and_the_others_are_found(lab: Lab) -> anyhow::Result<()> {
    let (_, one, two) = pair(&lab, "m5.large").await?;
    let asked = [one.instance.clone(), "i-00000000000000bad".into(), two.instance.clone()];
    let report = lab.cloud().nodes(&asked).await?;
    let found: BTreeSet<_> = report.nodes.into_iter().map(|node| node.instance).collect();
    assert_eq!(found, BTreeSet::from([one.instance, two.instance]));
    assert!(report.unanswered.is_empty());
    assert!(lab.cloud().nodes(&[]).await?.nodes.is_empty());
    Ok(())
}

async fn a_subnet_shows_every_address_in_use(lab: Lab) -> anyhow::Result<()> {
    let (subnet, one, _) = pair(&lab, "m5.large").await?;
    let other = lab.subnet("b", "10.0.1.0/24")?;
    lab.occupy(&subnet, ip(99))?;
    lab.cloud().assign(&id_of(&one), &[ip(50)]).await.remove(&ip(50)).expect("it was asked for")?;
    let asked = [subnet.clone(), "subnet-0000000000000bad".into(), other.clone()];
    let mut found = lab.cloud().subnets(&asked).await?;
    found.sort_by(|one, two| one.zone.cmp(&two.zone));
    assert_eq!(found.iter().map(|subnet| &subnet.id).collect::<Vec<_>>(), [&subnet, &other]);
    assert_eq!(found[0].used, BTreeSet::from([ip(4), ip(5), ip(50), ip(99)]));
    assert_eq!((&*found[0].zone, found[0].cidr), ("a", "10.0.0.0/24".parse()?));
    assert!(found[1].used.is_empty());
    Ok(())
}

async fn assigned_addresses_are_located_and_assigning_again_changes_nothing(lab: Lab) -> anyhow::Result<()> {
    let (subnet, one, _) = pair(&lab, "m5.large").await?;
    let interface = id_of(&one);
    for _ in 0..2 {
        let outcomes = lab.cloud().assign(&interface, &[ip(50), ip(51)]).await;
        assert_eq!(outcomes, [(ip(50), Ok(())), (ip(51), Ok(()))].into());
    }
    assert_eq!(lab.cloud().locate(ip(50), &subnet).await?, Some(interface));
    assert_eq!(lab.cloud().locate(ip(52), &subnet).await?, None);
    let node = lab.node(&one.instance).await?.expect("it exists");
    assert_eq!(node.interface.expect("it runs").secondary, BTreeSet::from([ip(50), ip(51)]));
    assert!(lab.cloud().assign(&id_of(&one), &[]).await.is_empty());
    Ok(())
}

async fn an_address_of_another_interface_is_in_use_and_its_holder_is_named(lab: Lab) -> anyhow::Result<()> {
    let (subnet, one, two) = pair(&lab, "m5.large").await?;
    let stranger = lab.occupy(&subnet, ip(60))?;
    lab.cloud().assign(&id_of(&one), &[ip(50)]).await;
    for (address, holder) in [(ip(50), id_of(&one)), (ip(60), stranger)] {
        let outcomes = lab.cloud().assign(&id_of(&two), &[address]).await;
        assert_eq!(outcomes, [(address, Err(CloudError::InUse { by: Some(holder) }))].into());
    }
    Ok(())
}

async fn taking_moves_an_address(lab: Lab) -> anyhow::Result<()> {
    let (subnet, one, two) = pair(&lab, "m5.large").await?;
    lab.cloud().assign(&id_of(&one), &[ip(50), ip(51)]).await;
    let outcomes = lab.cloud().take(&id_of(&two), &[ip(50), ip(52)]).await;
    assert_eq!(outcomes, [(ip(50), Ok(())), (ip(52), Ok(()))].into());
    assert_eq!(lab.cloud().locate(ip(50), &subnet).await?, Some(id_of(&two)));
    let old = lab.node(&one.instance).await?.expect("it exists").interface.expect("it runs");
    assert_eq!(old.secondary, BTreeSet::from([ip(51)]));
    Ok(())
}

async fn a_primary_address_is_neither_taken_nor_released(lab: Lab) -> anyhow::Result<()> {
    let (subnet, one, two) = pair(&lab, "m5.large").await?;
    let stranger = lab.occupy(&subnet, ip(60))?;
    for (address, holder) in [(ip(4), id_of(&one)), (ip(60), stranger), (ip(5), id_of(&two))] {
        let outcomes = lab.cloud().take(&id_of(&two), &[address]).await;
        assert_eq!(outcomes, [(address, Err(CloudError::InUse { by: Some(holder) }))].into());
    }
    let outcome = lab.cloud().release(&id_of(&two), &[ip(5)]).await.remove(&ip(5)).expect("it was asked for");
    assert!(
        matches!(&outcome, Err(CloudError::Unknown { code, .. }) if &**code == "InvalidParameterValue"),
        "{outcome:?}"
    );
    assert_eq!(lab.cloud().locate(ip(5), &subnet).await?, Some(id_of(&two)));
    Ok(())
}

async fn addresses_outside_the_subnet_and_reserved_ones_are_refused(lab: Lab) -> anyhow::Result<()> {
    let (_, one, _) = pair(&lab, "m5.large").await?;
    for address in [ip(0), ip(3), ip(255), Ipv4Addr::new(10, 0, 1, 7), Ipv4Addr::new(192, 0, 2, 1)] {
        let outcomes = lab.cloud().assign(&id_of(&one), &[address]).await;
        assert_eq!(outcomes, [(address, Err(CloudError::OutsideSubnet))].into());
    }
    Ok(())
}

async fn a_full_interface_takes_what_fits(lab: Lab) -> anyhow::Result<()> {
    let (_, one, two) = pair(&lab, "t3.small").await?;
    let wanted: Vec<Ipv4Addr> = (50..56).map(ip).collect();
    let outcomes = lab.cloud().assign(&id_of(&one), &wanted).await;
    let (done, refused): (Vec<_>, Vec<_>) = outcomes.into_values().partition(Result::is_ok);
    assert_eq!(done.len(), 3, "four addresses, the primary one included");
    assert!(refused.iter().all(|outcome| *outcome == Err(CloudError::LimitExceeded)), "{refused:?}");
    // The limit holds for moves, too.
    lab.cloud().assign(&id_of(&two), &[ip(60)]).await;
    let outcomes = lab.cloud().take(&id_of(&one), &[ip(60)]).await;
    assert_eq!(outcomes, [(ip(60), Err(CloudError::LimitExceeded))].into());
    Ok(())
}

async fn one_bad_address_does_not_stop_the_others(lab: Lab) -> anyhow::Result<()> {
    let (subnet, one, two) = pair(&lab, "m5.large").await?;
    let stranger = lab.occupy(&subnet, ip(60))?;
    lab.cloud().assign(&id_of(&two), &[ip(61)]).await;
    let outcomes = lab.cloud().assign(&id_of(&one), &[ip(50), ip(60), ip(61), ip(1), ip(51)]).await;
    let expected = [
        (ip(50), Ok(())),
        (ip(51), Ok(())),
        (ip(1), Err(CloudError::OutsideSubnet)),
        (ip(60), Err(CloudError::InUse { by: Some(stranger) })),
        (ip(61), Err(CloudError::InUse { by: Some(id_of(&two)) })),
    ];
    assert_eq!(outcomes, expected.into());
    Ok(())
}

async fn releasing_can_be_repeated(lab: Lab) -> anyhow::Result<()> {
    let (subnet, one, two) = pair(&lab, "m5.large").await?;
    lab.cloud().assign(&id_of(&one), &[ip(50), ip(51)]).await;
    lab.cloud().assign(&id_of(&two), &[ip(52)]).await;
    for _ in 0..2 {
        let outcomes = lab.cloud().release(&id_of(&one), &[ip(50), ip(52)]).await;
        assert_eq!(outcomes, [(ip(50), Ok(())), (ip(52), Ok(()))].into());
    }
    assert_eq!(lab.cloud().locate(ip(50), &subnet).await?, None);
    assert_eq!(lab.cloud().locate(ip(51), &subnet).await?, Some(id_of(&one)));
    assert_eq!(lab.cloud().locate(ip(52), &subnet).await?, Some(id_of(&two)), "it was on another interface");
    Ok(())
}

async fn a_stopped_instance_keeps_its_addresses_and_a_terminated_one_frees_them(lab: Lab) -> anyhow::Result<()> {
    let (subnet, one, two) = pair(&lab, "m5.large").await?;
    lab.cloud().assign(&id_of(&one), &[ip(50)]).await;
    lab.set_state(&one.instance, InstanceState::Stopped)?;
    let stopped = lab.node(&one.instance).await?.expect("it exists");
    assert_eq!(stopped.state, InstanceState::Stopped);
    assert_eq!(stopped.interface.expect("it is kept").secondary, BTreeSet::from([ip(50)]));
    lab.set_state(&one.instance, InstanceState::Terminated)?;
    let terminated = lab.node(&one.instance).await?.expect("it is shown for an hour");
    assert_eq!((terminated.state, terminated.interface), (InstanceState::Terminated, None));
    assert_eq!(lab.cloud().locate(ip(50), &subnet).await?, None);
    let outcomes = lab.cloud().assign(&id_of(&two), &[ip(50)]).await;
    assert_eq!(outcomes, [(ip(50), Ok(()))].into());
    Ok(())
}

async fn an_interface_that_does_not_exist_is_named(lab: Lab) -> anyhow::Result<()> {
    let (_, one, _) = pair(&lab, "m5.large").await?;
    lab.set_state(&one.instance, InstanceState::Terminated)?;
    let expected = Arc::new(Err(CloudError::NoSuchInterface));
    for interface in [id_of(&one), "eni-00000000000000bad".into()] {
        let cloud = lab.cloud();
        for outcomes in [
            cloud.assign(&interface, &[ip(50), ip(51)]).await,
            cloud.take(&interface, &[ip(50)]).await,
            cloud.release(&interface, &[ip(50)]).await,
        ] {
            assert!(outcomes.values().all(|outcome| *outcome == *expected), "{outcomes:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn random_calls_end_alike_on_both() -> anyhow::Result<()> {
    let (memory, aws) = (Lab::Memory(MemoryCloud::new()), Lab::aws().await?);
    let mut names = BTreeMap::new();
    let mut nodes = Vec::new();
    let subnets = (memory.subnet("a", "10.0.0.0/28")?, aws.subnet("a", "10.0.0.0/28")?);
    for (name, instance_type) in [("i-1", "t3.small"), ("i-2", "t3.medium"), ("i-3", "t3.small")] {
        let ours = id_of(&memory.run(name, instance_type, &subnets.0).await?);
        let theirs = id_of(&aws.run(name, instance_type, &subnets.1).await?);
        names.insert(theirs.clone(), ours.clone());
        nodes.push((ours, theirs));
    }
    let (ours, theirs) = (memory.occupy(&subnets.0, ip(9))?, aws.occupy(&subnets.1, ip(9))?);
    names.insert(theirs, ours);
    let mut random = fastrand::Rng::with_seed(11);
    let mut reasons = BTreeSet::new();
    for step in 0..300 {
        let (ours, theirs) = &nodes[random.usize(..nodes.len())];
        let addresses: Vec<Ipv4Addr> = (0..random.usize(1..4)).map(|_| ip(random.u8(..18))).collect();
        let call = random.u8(..4);
        let run = async |cloud: &dyn Cloud, interface: &InterfaceId| match call {
            0 | 1 => cloud.assign(interface, &addresses).await,
            2 => cloud.take(interface, &addresses).await,
            _ => cloud.release(interface, &addresses).await,
        };
        let expected = run(memory.cloud(), ours).await;
        let mut found: super::Outcomes =
            run(aws.cloud(), theirs).await.into_iter().map(|(address, outcome)| (address, wordless(outcome))).collect();
        for outcome in found.values_mut() {
            if let Err(CloudError::InUse { by: Some(by) }) = outcome {
                *by = names[by].clone();
            }
        }
        let expected: super::Outcomes =
            expected.into_iter().map(|(address, outcome)| (address, wordless(outcome))).collect();
        reasons.extend(expected.values().map(|outcome| outcome.as_ref().map_or_else(CloudError::reason, |()| "Ok")));
        assert_eq!(found, expected, "step {step}: {call} {addresses:?} on {ours}");
    }
    let all = ["AddressInUse", "CloudError", "NoCapacity", "Ok", "OutsideSubnet"];
    assert_eq!(reasons.into_iter().collect::<Vec<_>>(), all, "every outcome occurred");
    Ok(())
}

/// Messages differ.
fn wordless(outcome: Result<(), CloudError>) -> Result<(), CloudError> {
    outcome.map_err(|error| match error {
        CloudError::Unknown { code, .. } => CloudError::Unknown { code, message: "".into() },
        other @ (CloudError::Throttled
        | CloudError::InUse { .. }
        | CloudError::LimitExceeded
        | CloudError::OutsideSubnet
        | CloudError::SubnetFull
        | CloudError::NoSuchInterface
        | CloudError::NoSuchInstance
        | CloudError::Denied { .. }
        | CloudError::Transient) => other,
    })
}
