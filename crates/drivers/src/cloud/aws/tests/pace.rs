//! Throttling: what is refused is tried again, more slowly, and the urgent first.

use std::time::{Duration, Instant};

use futures::future::join_all;
use portolan_core::ipam::{CloudError, InterfaceId};
use portolan_testkit::aws::{Answered, Ec2Call, Ec2Fault, FakeEc2, Throttle};

use super::super::{AwsCloud, AwsOptions, Cloud, Rate};
use super::{ids, ip, run, settings_of, unlimited};

const PLENTY: Throttle = Throttle { burst: 1e6, per_second: 1e6 };

#[tokio::test]
async fn a_throttled_call_is_tried_again_until_it_passes() -> anyhow::Result<()> {
    let ec2 = FakeEc2::start().await?;
    let subnet = ec2.add_subnet("a", "10.0.0.0/24".parse()?);
    let one = run(&ec2, &subnet, "m5.large");
    let cloud = AwsCloud::new(settings_of(&ec2), unlimited()).await?;
    for code in ["RequestLimitExceeded", "Throttling", "ThrottlingException"] {
        let fault = Ec2Fault::Error { status: 503, code, message: String::new() };
        ec2.fault("AssignPrivateIpAddresses", fault);
    }
    let outcomes = cloud.assign(&one.interface.into(), &[ip(50)]).await;
    assert_eq!(outcomes, [(ip(50), Ok(()))].into());
    assert_eq!(ec2.calls().len(), 4);
    Ok(())
}

#[tokio::test]
async fn an_account_with_a_tenth_of_the_limits_converges_without_a_storm() -> anyhow::Result<()> {
    let ec2 = FakeEc2::start().await?;
    let subnet = ec2.add_subnet("a", "10.0.0.0/20".parse()?);
    let interfaces: Vec<InterfaceId> = (0..90).map(|_| run(&ec2, &subnet, "m5.large").interface.into()).collect();
    // Fifty times EC2's rates, and a tenth of those for the account: the same ratio, in less time.
    ec2.set_throttle(PLENTY, Throttle { burst: 5.0, per_second: 25.0 });
    let options = AwsOptions { writes: Rate { burst: 25.0, per_second: 200.0 }, ..unlimited() };
    let cloud = AwsCloud::new(settings_of(&ec2), options).await?;
    let started = Instant::now();
    let outcomes = join_all(interfaces.iter().zip(0_u32..).map(|(interface, number)| {
        let (cloud, address) = (&cloud, std::net::Ipv4Addr::from(0x0a00_0800 + number));
        async move { cloud.assign(interface, &[address]).await.into_values().next() }
    }))
    .await;
    assert!(outcomes.iter().all(|outcome| *outcome == Some(Ok(()))), "{outcomes:?}");
    let calls = ec2.calls();
    let refused = calls.iter().filter(|call| matches!(call.answered, Answered::Refused(_))).count();
    assert!(refused >= 1, "the account was throttled");
    println!("{} calls for 90 addresses in {:?}", calls.len(), started.elapsed());
    assert!(calls.len() <= 108, "{} calls for 90 addresses in {:?}", calls.len(), started.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_call_that_is_throttled_for_long_is_given_back() -> anyhow::Result<()> {
    let ec2 = FakeEc2::start().await?;
    let subnet = ec2.add_subnet("a", "10.0.0.0/24".parse()?);
    let one = run(&ec2, &subnet, "m5.large");
    let cloud = AwsCloud::new(settings_of(&ec2), unlimited()).await?;
    // Each further try would wait for up to 20 seconds: the deadline of a caller ends it.
    for _ in 0..40 {
        let fault = Ec2Fault::Error { status: 503, code: "RequestLimitExceeded", message: String::new() };
        ec2.fault("AssignPrivateIpAddresses", fault);
    }
    let interface: InterfaceId = one.interface.clone().into();
    let waited = tokio::time::timeout(Duration::from_millis(500), cloud.assign(&interface, &[ip(50)])).await;
    assert!(waited.is_err() || waited == Ok([(ip(50), Err(CloudError::Throttled))].into()));
    assert!(ec2.calls().len() < 40, "it backs off");
    assert!(ec2.secondary(&one.interface).is_empty());
    Ok(())
}

#[tokio::test]
async fn moves_go_before_assignments_and_those_before_releases() -> anyhow::Result<()> {
    let ec2 = FakeEc2::start().await?;
    let subnet = ec2.add_subnet("a", "10.0.0.0/24".parse()?);
    let one: InterfaceId = run(&ec2, &subnet, "m5.xlarge").interface.into();
    let two: InterfaceId = run(&ec2, &subnet, "m5.xlarge").interface.into();
    let options = AwsOptions { writes: Rate { burst: 2.0, per_second: 8.0 }, ..unlimited() };
    let cloud = AwsCloud::new(settings_of(&ec2), options).await?;
    cloud.assign(&one, &[ip(50), ip(51)]).await;
    // Takes the last token, so that all that follow wait.
    cloud.assign(&one, &[ip(52)]).await;
    ec2.clear_calls();
    let (release, assign, moved) = ([ip(52)], [ip(60)], [ip(50), ip(51)]);
    let (released, assigned, moved) =
        tokio::join!(cloud.release(&one, &release), cloud.assign(&one, &assign), cloud.take(&two, &moved));
    assert!(released.values().chain(assigned.values()).chain(moved.values()).all(Result::is_ok));
    let order: Vec<(String, bool)> =
        ec2.calls().iter().map(|call| (call.action.clone(), call.parameter("AllowReassignment").is_some())).collect();
    let assign = "AssignPrivateIpAddresses".to_owned();
    let expected = [(assign.clone(), true), (assign, false), ("UnassignPrivateIpAddresses".to_owned(), false)];
    assert_eq!(order, expected);
    Ok(())
}

#[tokio::test]
async fn a_thousand_nodes_cost_one_read_a_look_in_steady_state() -> anyhow::Result<()> {
    let ec2 = FakeEc2::start().await?;
    let subnet = ec2.add_subnet("a", "10.0.0.0/20".parse()?);
    let mut ran = ec2.run(&subnet, "m5.4xlarge", 1000);
    let cloud = AwsCloud::new(settings_of(&ec2), AwsOptions::default()).await?;
    assert_eq!(cloud.nodes(&ids(&ran)).await?.nodes.len(), 1000);
    ec2.clear_calls();
    let started = Instant::now();
    assert_eq!(cloud.nodes(&ids(&ran)).await?.nodes.len(), 1000);
    println!("1000 nodes read in {:?}", started.elapsed());
    assert_eq!(ec2.calls().len(), 1);
    // A node whose instance is gone costs another call, by id; no call changes anything.
    ec2.clear_calls();
    let gone = ran.pop().map(|ran| ran.instance).unwrap_or_default();
    ec2.terminate(&gone);
    let mut asked = ids(&ran);
    asked.push(gone.into());
    assert_eq!(cloud.nodes(&asked).await?.nodes.len(), 1000, "it is shown as terminated");
    assert_eq!(ec2.calls().len(), 2);
    assert!(!ec2.calls().iter().any(Ec2Call::is_write));
    Ok(())
}

#[tokio::test]
async fn a_lost_node_costs_one_call_per_receiving_interface() -> anyhow::Result<()> {
    let ec2 = FakeEc2::start().await?;
    let subnet = ec2.add_subnet("a", "10.0.0.0/24".parse()?);
    let nodes: Vec<_> = (0..4).map(|_| run(&ec2, &subnet, "m5.xlarge")).collect();
    let cloud = AwsCloud::new(settings_of(&ec2), AwsOptions::default()).await?;
    let addresses: Vec<_> = (50..64).map(ip).collect();
    let lost: InterfaceId = nodes[0].interface.as_str().into();
    assert!(cloud.assign(&lost, &addresses).await.values().all(Result::is_ok));
    cloud.nodes(&ids(&nodes)).await?;
    ec2.clear_calls();
    ec2.set_latency(Duration::from_millis(200));
    ec2.set_lag(Duration::from_secs(1));
    let started = Instant::now();
    let moved = join_all(addresses.chunks(5).zip(&nodes[1..]).map(|(part, node)| {
        let (cloud, interface) = (&cloud, InterfaceId::from(node.interface.as_str()));
        async move { cloud.take(&interface, part).await }
    }))
    .await;
    assert!(moved.iter().flat_map(std::collections::BTreeMap::values).all(Result::is_ok), "{moved:?}");
    let writes = ec2.calls().iter().filter(|call| call.is_write()).count();
    assert_eq!((writes, ec2.calls().len()), (3, 3));
    // As a controller looks: until a describe shows all.
    loop {
        let seen = cloud.nodes(&ids(&nodes[1..])).await?.nodes;
        let shown: usize =
            seen.iter().filter_map(|node| node.interface.as_ref()).map(|interface| interface.secondary.len()).sum();
        if shown == 14 {
            break;
        }
        assert!(started.elapsed() < Duration::from_mins(1), "only {shown} are shown");
    }
    println!("14 addresses of a lost node are elsewhere, and seen there, after {:?}", started.elapsed());
    assert_eq!(ec2.violations(), Vec::<String>::new());
    Ok(())
}
