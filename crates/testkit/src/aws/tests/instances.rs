//! Rules 12 to 17, less throttling: instances, and what describes show.

use super::{FOREVER, Lab, ip};

#[tokio::test]
async fn rule_12_termination_frees_addresses_and_stopping_keeps_them() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let (one, two) = (lab.run("m5.large"), lab.run("m5.large"));
    lab.assign(&one.interface, "10.0.0.50").await;
    lab.ec2.stop(&one.instance);
    assert_eq!(lab.assign(&two.interface, "10.0.0.50").await.status, 400, "a stopped instance keeps it");
    lab.ec2.terminate(&one.instance);
    assert_eq!(lab.assign(&one.interface, "10.0.0.51").await.code(), "InvalidNetworkInterfaceID.NotFound");
    assert_eq!(lab.assign(&two.interface, "10.0.0.50").await.status, 200);
    let shown = lab.call("DescribeInstances", &[("InstanceId.1", &one.instance)]).await;
    assert_eq!(shown.texts("name"), ["terminated"]);
    assert!(shown.texts("networkInterfaceId").is_empty());
    lab.ec2.forget(&one.instance);
    let gone = lab.call("DescribeInstances", &[("InstanceId.1", &one.instance)]).await;
    assert_eq!(gone.code(), "InvalidInstanceID.NotFound");
    Ok(())
}

#[tokio::test]
async fn rule_13_instances_start_pending() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let ran = lab.ec2.run(&lab.subnet, "m5.large", 1).remove(0);
    assert_eq!(lab.call("DescribeInstances", &[]).await.texts("name"), ["pending"]);
    lab.ec2.boot(&ran.instance);
    assert_eq!(lab.call("DescribeInstances", &[]).await.texts("name"), ["running"]);
    Ok(())
}

#[tokio::test]
async fn rule_14_filters_match_any_address_and_pages_have_the_size_asked_for() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let ran: Vec<_> = (0..12).map(|_| lab.run("m5.large")).collect();
    lab.assign(&ran[3].interface, "10.0.0.50").await;
    for address in ["10.0.0.7", "10.0.0.50"] {
        let filter = [("Filter.1.Name", "addresses.private-ip-address"), ("Filter.1.Value.1", address)];
        let found = lab.call("DescribeNetworkInterfaces", &filter).await;
        assert_eq!(found.texts("networkInterfaceId"), [&*ran[3].interface], "{address}");
    }
    for (action, item) in [("DescribeNetworkInterfaces", "networkInterfaceId"), ("DescribeInstances", "instanceType")] {
        let (mut sizes, mut token) = (Vec::new(), None::<String>);
        loop {
            let mut parameters = vec![("MaxResults", "5")];
            parameters.extend(token.as_deref().map(|token| ("NextToken", token)));
            let page = lab.call(action, &parameters).await;
            sizes.push(page.texts(item).len());
            token = page.texts("nextToken").first().map(|token| (*token).to_owned());
            if token.is_none() {
                break;
            }
        }
        assert_eq!(sizes, [5, 5, 2], "{action}");
    }
    let both = [("InstanceId.1", &*ran[0].instance), ("MaxResults", "5")];
    assert_eq!(lab.call("DescribeInstances", &both).await.code(), "InvalidParameterCombination");
    assert_eq!(lab.call("DescribeInstances", &[("MaxResults", "2")]).await.code(), "InvalidParameterValue");
    let unknown = [("Filter.1.Name", "colour"), ("Filter.1.Value.1", "red")];
    assert_eq!(lab.call("DescribeInstances", &unknown).await.code(), "InvalidParameterValue");
    Ok(())
}

#[tokio::test]
async fn rule_15_a_reservation_holds_several_instances() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    lab.ec2.run(&lab.subnet, "m5.large", 3);
    lab.ec2.run(&lab.subnet, "m5.large", 1);
    let shown = lab.call("DescribeInstances", &[]).await;
    assert_eq!(shown.texts("reservationId").len(), 2);
    let sizes: Vec<usize> =
        shown.texts("instancesSet").iter().map(|set| set.matches("<instanceType>").count()).collect();
    assert_eq!(sizes, [3, 1]);
    Ok(())
}

#[tokio::test]
async fn rule_17_reads_lag_behind_writes_each_interface_by_its_own_time() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let (one, two) = (lab.run("m5.large"), lab.run("m5.large"));
    lab.ec2.set_lag(FOREVER);
    lab.assign(&one.interface, "10.0.0.50").await;
    assert_eq!(lab.shown(&one.interface).await, ["10.0.0.4"]);
    assert_eq!(lab.ec2.secondary(&one.interface), [ip(50)].into(), "it was done");
    lab.ec2.set_lag(std::time::Duration::ZERO);
    lab.assign(&two.interface, "10.0.0.51").await;
    assert_eq!(lab.shown(&two.interface).await, ["10.0.0.5", "10.0.0.51"]);
    assert_eq!(lab.shown(&one.interface).await, ["10.0.0.4"], "its own time");
    // Writes see the truth.
    assert_eq!(lab.assign(&two.interface, "10.0.0.50").await.status, 400);
    // Later changes are never seen before earlier ones.
    lab.assign(&one.interface, "10.0.0.52").await;
    assert_eq!(lab.shown(&one.interface).await, ["10.0.0.4"]);
    lab.ec2.settle();
    assert_eq!(lab.shown(&one.interface).await, ["10.0.0.4", "10.0.0.50", "10.0.0.52"]);
    Ok(())
}
