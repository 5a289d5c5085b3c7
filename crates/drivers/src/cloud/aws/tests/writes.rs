//! Assign, take and release: what is sent, and what a refusal means.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use portolan_core::ipam::CloudError;
use portolan_testkit::aws::{Answered, Ec2Call, Ec2Fault, FakeEc2, Ran};

use super::super::{AwsCloud, AwsOptions, CallReport, Cloud};
use super::{cloud_of, ip, run, settings_of, unlimited};

async fn two_nodes() -> anyhow::Result<(FakeEc2, AwsCloud, Ran, Ran)> {
    let ec2 = FakeEc2::start().await?;
    let subnet = ec2.add_subnet("a", "10.0.0.0/24".parse()?);
    let (one, two) = (run(&ec2, &subnet, "m5.xlarge"), run(&ec2, &subnet, "m5.xlarge"));
    let cloud = AwsCloud::new(settings_of(&ec2), unlimited()).await?;
    Ok((ec2, cloud, one, two))
}

fn writes(ec2: &FakeEc2) -> Vec<Ec2Call> {
    ec2.calls().into_iter().filter(Ec2Call::is_write).collect()
}

#[tokio::test]
async fn addresses_of_one_interface_share_a_call() -> anyhow::Result<()> {
    let (ec2, cloud, one, two) = two_nodes().await?;
    let addresses: Vec<_> = (50..64).map(ip).collect();
    let outcomes = cloud.assign(&one.interface.as_str().into(), &addresses).await;
    assert!(outcomes.values().all(Result::is_ok), "{outcomes:?}");
    let outcomes = cloud.take(&two.interface.as_str().into(), &addresses).await;
    assert!(outcomes.values().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(ec2.secondary(&two.interface).len(), 14);
    let seen: Vec<_> = writes(&ec2).iter().map(|call| call.parameter("AllowReassignment").is_some()).collect();
    assert_eq!(seen, [false, true], "only a move may take addresses from others");
    assert_eq!(ec2.violations(), Vec::<String>::new());
    Ok(())
}

#[tokio::test]
async fn the_message_of_a_refusal_decides_nothing() -> anyhow::Result<()> {
    let (ec2, cloud, one, two) = two_nodes().await?;
    cloud.assign(&two.interface.as_str().into(), &[ip(60)]).await;
    let lie =
        |message: &str| Ec2Fault::Error { status: 400, code: "InvalidParameterValue", message: message.to_owned() };
    let interface = one.interface.as_str().into();
    for message in ["[10.0.0.1] assigned, but move is not allowed.", "insufficient free addresses", "", "outside"] {
        ec2.fault("AssignPrivateIpAddresses", lie(message));
        let outcome = cloud.assign(&interface, &[ip(60)]).await.remove(&ip(60));
        let expected = CloudError::InUse { by: Some(two.interface.as_str().into()) };
        assert_eq!(outcome, Some(Err(expected)), "{message}");
    }
    // Nothing explains it: the code and the words go on.
    ec2.fault("AssignPrivateIpAddresses", lie("move is not allowed"));
    let outcome = cloud.assign(&interface, &[ip(61)]).await.remove(&ip(61));
    let expected = CloudError::Unknown { code: "InvalidParameterValue".into(), message: "move is not allowed".into() };
    assert_eq!(outcome, Some(Err(expected)));
    Ok(())
}

#[tokio::test]
async fn every_code_has_its_meaning() -> anyhow::Result<()> {
    let (ec2, cloud, one, _) = two_nodes().await?;
    let denied = || CloudError::Denied { action: "ec2:AssignPrivateIpAddresses".into() };
    for (status, code, expected) in [
        (400, "PrivateIpAddressLimitExceeded", CloudError::LimitExceeded),
        (400, "InvalidNetworkInterfaceID.NotFound", CloudError::NoSuchInterface),
        (400, "InsufficientFreeAddressesInSubnet", CloudError::SubnetFull),
        (403, "UnauthorizedOperation", denied()),
        (401, "AuthFailure", denied()),
        (500, "InternalError", CloudError::Transient),
        (503, "Unavailable", CloudError::Transient),
        (400, "Blocked", CloudError::Unknown { code: "Blocked".into(), message: "words".into() }),
    ] {
        ec2.fault("AssignPrivateIpAddresses", Ec2Fault::Error { status, code, message: "words".to_owned() });
        let outcomes = cloud.assign(&one.interface.as_str().into(), &[ip(50)]).await;
        assert_eq!(outcomes, [(ip(50), Err(expected))].into(), "{code}");
    }
    Ok(())
}

#[tokio::test]
async fn a_write_that_got_lost_is_not_repeated_because_it_may_have_happened() -> anyhow::Result<()> {
    let (ec2, cloud, one, _) = two_nodes().await?;
    let interface = one.interface.as_str().into();
    for (fault, is_done) in
        [(Ec2Fault::CutBefore, false), (Ec2Fault::Status(500), false), (Ec2Fault::CutAfterCommit, true)]
    {
        ec2.clear_calls();
        ec2.fault("AssignPrivateIpAddresses", fault.clone());
        let outcomes = cloud.assign(&interface, &[ip(50), ip(51)]).await;
        assert!(outcomes.values().all(|outcome| *outcome == Err(CloudError::Transient)), "{fault:?}: {outcomes:?}");
        assert_eq!(writes(&ec2).len(), 1, "{fault:?}");
        assert_eq!(ec2.secondary(&one.interface).len(), if is_done { 2 } else { 0 }, "{fault:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_lost() -> anyhow::Result<()> {
    let (ec2, _, one, _) = two_nodes().await?;
    let options = AwsOptions { call_timeout: Duration::from_millis(200), ..unlimited() };
    let cloud = AwsCloud::new(settings_of(&ec2), options).await?;
    ec2.fault("AssignPrivateIpAddresses", Ec2Fault::Slow(Duration::from_mins(5)));
    let outcomes = cloud.assign(&one.interface.as_str().into(), &[ip(50)]).await;
    assert_eq!(outcomes, [(ip(50), Err(CloudError::Transient))].into());
    assert_eq!(ec2.secondary(&one.interface), [ip(50)].into(), "it happened");
    Ok(())
}

#[tokio::test]
async fn a_stale_describe_neither_releases_nor_loses_an_address() -> anyhow::Result<()> {
    let (ec2, cloud, one, _) = two_nodes().await?;
    let interface = one.interface.as_str().into();
    cloud.assign(&interface, &[ip(50)]).await;
    ec2.set_lag(Duration::from_hours(1000));
    // EC2 has released it, and reads still show it: the second call is not taken for done.
    assert_eq!(cloud.release(&interface, &[ip(50)]).await, [(ip(50), Ok(()))].into());
    assert_eq!(cloud.release(&interface, &[ip(50)]).await, [(ip(50), Err(CloudError::Transient))].into());
    ec2.settle();
    assert_eq!(cloud.release(&interface, &[ip(50)]).await, [(ip(50), Ok(()))].into());
    Ok(())
}

#[tokio::test]
async fn addresses_of_others_on_our_interface_stay() -> anyhow::Result<()> {
    let (ec2, cloud, one, _) = two_nodes().await?;
    ec2.others_assign(&one.interface, &[ip(90), ip(91)]);
    let interface = one.interface.as_str().into();
    cloud.assign(&interface, &[ip(50)]).await;
    cloud.release(&interface, &[ip(50)]).await;
    assert_eq!(ec2.secondary(&one.interface), [ip(90), ip(91)].into());
    Ok(())
}

#[tokio::test]
async fn every_request_is_reported_with_its_result() -> anyhow::Result<()> {
    let (ec2, cloud, one, _) = two_nodes().await?;
    let reports = Arc::new(Mutex::new(Vec::new()));
    let sink = reports.clone();
    let cloud = cloud.reporting(move |CallReport { action, result, elapsed }| {
        assert!(elapsed < Duration::from_mins(1));
        sink.lock().push((action, result));
    });
    ec2.deny("UnassignPrivateIpAddresses", true);
    let interface = one.interface.as_str().into();
    cloud.assign(&interface, &[ip(50)]).await;
    cloud.release(&interface, &[ip(50)]).await;
    ec2.fault("AssignPrivateIpAddresses", Ec2Fault::CutBefore);
    cloud.assign(&interface, &[ip(51)]).await;
    let expected = [
        ("AssignPrivateIpAddresses", "Ok"),
        ("UnassignPrivateIpAddresses", "CloudDenied"),
        ("AssignPrivateIpAddresses", "CloudUnavailable"),
    ];
    assert_eq!(*reports.lock(), expected);
    Ok(())
}

#[tokio::test]
async fn an_unreachable_endpoint_is_transient() -> anyhow::Result<()> {
    let ec2 = FakeEc2::start().await?;
    let cloud = cloud_of(&ec2).await?;
    drop(ec2);
    let outcomes = cloud.release(&"eni-1".into(), &[ip(50)]).await;
    assert_eq!(outcomes, [(ip(50), Err(CloudError::Transient))].into());
    Ok(())
}

#[tokio::test]
async fn the_log_of_the_stand_in_shows_what_was_refused() -> anyhow::Result<()> {
    let (ec2, cloud, one, two) = two_nodes().await?;
    cloud.assign(&one.interface.as_str().into(), &[ip(50)]).await;
    cloud.assign(&two.interface.as_str().into(), &[ip(50), ip(51)]).await;
    let answered: Vec<Answered> = writes(&ec2).into_iter().map(|call| call.answered).collect();
    let refused = || Answered::Refused("InvalidParameterValue".to_owned());
    assert_eq!(answered, [Answered::Ok, refused(), refused(), Answered::Ok], "together, then one by one");
    Ok(())
}
