//! Rules 16 and 18 to 23: how calls are checked, throttled, cut and recorded.

use std::time::{Duration, Instant};

use jiff::SignedDuration;

use super::{Lab, ip};
use crate::aws::{Answered, Ec2Fault, Throttle};
use crate::faults::Phase;

#[tokio::test]
async fn rule_16_each_action_has_a_bucket_and_the_rest_is_refused() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let one = lab.run("m5.large");
    let slow = Throttle { burst: 3.0, per_second: 0.000_001 };
    lab.ec2.set_throttle(slow, slow);
    for _ in 0..3 {
        assert_eq!(lab.call("DescribeSubnets", &[]).await.status, 200);
    }
    let reply = lab.call("DescribeSubnets", &[]).await;
    assert_eq!((reply.status, reply.code()), (503, "RequestLimitExceeded"));
    assert_eq!(lab.call("DescribeInstances", &[]).await.status, 200, "another action");
    assert_eq!(lab.assign(&one.interface, "10.0.0.50").await.status, 200, "a write");
    lab.ec2.set_throttle(Throttle { burst: 1.0, per_second: 1e6 }, slow);
    for _ in 0..20 {
        assert_eq!(lab.call("DescribeSubnets", &[]).await.status, 200, "tokens come back");
    }
    Ok(())
}

#[tokio::test]
async fn rule_18_dry_runs_tell_what_is_allowed_and_writes_have_none() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let one = lab.run("m5.large");
    let reply = lab.call("DescribeInstances", &[("DryRun", "true")]).await;
    assert_eq!((reply.status, reply.code()), (412, "DryRunOperation"));
    lab.ec2.deny("DescribeInstances", true);
    let reply = lab.call("DescribeInstances", &[("DryRun", "true")]).await;
    assert_eq!((reply.status, reply.code()), (403, "UnauthorizedOperation"));
    let parameters = [("NetworkInterfaceId", &*one.interface), ("PrivateIpAddress.1", "10.0.0.50"), ("DryRun", "true")];
    for action in ["AssignPrivateIpAddresses", "UnassignPrivateIpAddresses"] {
        assert_eq!(lab.call(action, &parameters).await.code(), "UnknownParameter", "{action}");
    }
    assert!(lab.ec2.secondary(&one.interface).is_empty());
    Ok(())
}

#[tokio::test]
async fn rule_19_permissions_hold_per_action_tag_and_subnet() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let (one, two) = (lab.run("m5.large"), lab.run("m5.large"));
    lab.ec2.deny("AssignPrivateIpAddresses", true);
    let reply = lab.assign(&one.interface, "10.0.0.50").await;
    assert_eq!((reply.status, reply.code()), (403, "UnauthorizedOperation"));
    assert_eq!(lab.call("DescribeInstances", &[]).await.status, 200);
    lab.ec2.deny("AssignPrivateIpAddresses", false);
    lab.ec2.require_tag(Some("kubernetes.io/cluster/shop"));
    lab.ec2.tag_interface(&two.interface, "kubernetes.io/cluster/shop");
    assert_eq!(lab.assign(&one.interface, "10.0.0.50").await.code(), "UnauthorizedOperation");
    assert_eq!(lab.assign(&two.interface, "10.0.0.50").await.status, 200);
    lab.ec2.require_tag(None);
    lab.ec2.require_subnets(Some(&["subnet-other"]));
    assert_eq!(lab.assign(&two.interface, "10.0.0.51").await.code(), "UnauthorizedOperation");
    lab.ec2.require_subnets(Some(&[&lab.subnet]));
    assert_eq!(lab.assign(&two.interface, "10.0.0.51").await.status, 200);
    Ok(())
}

#[tokio::test]
async fn rule_20_signatures_are_checked_and_clocks_and_tokens_too() -> anyhow::Result<()> {
    let mut lab = Lab::new().await?;
    assert_eq!(lab.call("DescribeInstances", &[]).await.status, 200);
    for (minutes, code) in [(-6, "RequestExpired"), (6, "RequestExpired"), (-4, ""), (4, "")] {
        lab.clock_ahead = SignedDuration::from_mins(minutes);
        assert_eq!(lab.call("DescribeInstances", &[]).await.code(), code, "{minutes} minutes");
    }
    lab.clock_ahead = SignedDuration::ZERO;
    let good = lab.key.clone();
    lab.key.secret.push('x');
    assert_eq!(lab.call("DescribeInstances", &[]).await.code(), "SignatureDoesNotMatch");
    lab.key = good.clone();
    lab.key.id.push('x');
    assert_eq!(lab.call("DescribeInstances", &[]).await.code(), "AuthFailure");
    lab.key = lab.ec2.keys().issue(Some(Duration::from_mins(1)));
    assert_eq!(lab.call("DescribeInstances", &[]).await.status, 200);
    lab.key.token = None;
    assert_eq!(lab.call("DescribeInstances", &[]).await.code(), "AuthFailure", "the token is missing");
    lab.key = lab.ec2.keys().issue(Some(Duration::ZERO));
    assert_eq!(lab.call("DescribeInstances", &[]).await.code(), "RequestExpired", "the token has ended");
    Ok(())
}

#[tokio::test]
async fn rule_21_faults_follow_a_script() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let one = lab.run("m5.large");
    let assign = "AssignPrivateIpAddresses";
    let parameters = [("NetworkInterfaceId", &*one.interface), ("PrivateIpAddress.1", "10.0.0.50")];
    lab.ec2.fault(assign, Ec2Fault::CutBefore);
    lab.ec2.fault(assign, Ec2Fault::Status(500));
    let error = Ec2Fault::Error { status: 503, code: "Unavailable", message: "later".to_owned() };
    lab.ec2.fault(assign, error);
    lab.ec2.fault(assign, Ec2Fault::CutAfterCommit);
    lab.ec2.fault(assign, Ec2Fault::Slow(Duration::from_millis(200)));
    assert!(lab.try_call(assign, &parameters).await.is_err());
    assert_eq!(lab.call(assign, &parameters).await.status, 500);
    assert_eq!(lab.call(assign, &parameters).await.code(), "Unavailable");
    assert!(lab.ec2.secondary(&one.interface).is_empty(), "none of these was done");
    assert!(lab.try_call(assign, &parameters).await.is_err());
    assert_eq!(lab.ec2.secondary(&one.interface), [ip(50)].into(), "this one was");
    let started = Instant::now();
    assert_eq!(lab.call(assign, &parameters).await.status, 200);
    assert!(started.elapsed() >= Duration::from_millis(200));
    // A caller that was killed gets no more answers.
    for (phase, address, is_done, is_heard) in [
        (Phase::BeforeSend, "10.0.0.60", false, false),
        (Phase::AfterCommit, "10.0.0.61", true, false),
        (Phase::AfterAnswer, "10.0.0.62", true, true),
    ] {
        let killed = lab.ec2.kill_at_write(1, phase);
        let parameters = [("NetworkInterfaceId", &*one.interface), ("PrivateIpAddress.1", address)];
        assert_eq!(lab.try_call(assign, &parameters).await.is_ok(), is_heard, "{phase:?}");
        killed.await?;
        assert_eq!(lab.ec2.secondary(&one.interface).contains(&address.parse()?), is_done, "{phase:?}");
        assert!(lab.try_call("DescribeInstances", &[]).await.is_err(), "{phase:?}");
        lab.ec2.revive();
    }
    Ok(())
}

#[tokio::test]
async fn rule_22_strangers_take_addresses_at_random() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let one = lab.run("m5.large");
    lab.ec2.set_strangers(1.0);
    let mut counts = std::collections::BTreeSet::new();
    for _ in 0..60 {
        lab.call("DescribeSubnets", &[]).await;
        counts.insert(lab.ec2.strangers().len());
    }
    assert!(counts.len() > 2, "they come and go: {counts:?}");
    lab.ec2.set_strangers(0.0);
    let stranger = lab.ec2.stranger_takes(&lab.subnet, first_free(&lab));
    let address = lab.shown(&stranger).await.remove(0);
    assert_eq!(lab.assign(&one.interface, &address).await.code(), "InvalidParameterValue");
    lab.ec2.stranger_leaves(&stranger);
    assert_eq!(lab.assign(&one.interface, &address).await.status, 200);
    Ok(())
}

fn first_free(lab: &Lab) -> std::net::Ipv4Addr {
    (10..250).map(ip).find(|address| lab.ec2.holder(&lab.subnet, *address).is_none()).expect("few are taken")
}

#[tokio::test]
async fn rule_23_every_call_is_recorded_and_the_rules_are_checked() -> anyhow::Result<()> {
    let mut lab = Lab::new().await?;
    let one = lab.run("m5.large");
    lab.ec2.fault("DescribeSubnets", Ec2Fault::CutBefore);
    assert!(lab.try_call("DescribeSubnets", &[]).await.is_err());
    lab.assign(&one.interface, "10.0.0.50").await;
    lab.unassign(&one.interface, "10.0.0.51").await;
    let calls = lab.ec2.calls();
    let seen: Vec<_> =
        calls.iter().map(|call| (call.action.as_str(), call.is_write(), call.answered.clone())).collect();
    let refused = Answered::Refused("InvalidParameterValue".to_owned());
    assert_eq!(
        seen,
        [
            ("DescribeSubnets", false, Answered::Cut),
            ("AssignPrivateIpAddresses", true, Answered::Ok),
            ("UnassignPrivateIpAddresses", true, refused),
        ]
    );
    assert_eq!(calls[1].parameter("PrivateIpAddress.1"), Some("10.0.0.50"));
    assert!(lab.ec2.violations().is_empty());
    // A rule that is broken behind the back of the API is found.
    lab.ec2.delegate_prefix(&one.interface, "10.0.0.48/28".parse()?);
    lab.ec2.others_assign(&one.interface, &[ip(70)]);
    assert!(lab.ec2.violations().is_empty());
    let two = lab.run("m5.large");
    lab.breaks_rules = true;
    lab.ec2.delegate_prefix(&two.interface, "10.0.0.64/28".parse()?);
    let found = lab.ec2.violations();
    assert!(found.iter().any(|rule| rule.contains("10.0.0.70 is on several interfaces")), "{found:?}");
    Ok(())
}
