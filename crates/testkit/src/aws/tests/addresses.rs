//! Rules 1 to 11: who may have which address.

use super::{FOREVER, Lab, ip};

#[tokio::test]
async fn rule_1_an_address_has_one_owner_in_a_subnet() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let (one, two) = (lab.run("m5.large"), lab.run("m5.large"));
    assert_eq!(lab.assign(&one.interface, "10.0.0.50").await.status, 200);
    assert_eq!(lab.assign(&two.interface, "10.0.0.50").await.status, 400);
    assert_eq!(lab.ec2.holder(&lab.subnet, ip(50)), Some(one.interface.clone()));
    // The same address in another VPC is another address.
    let other = lab.ec2.add_subnet("b", "10.0.0.0/24".parse()?);
    let elsewhere = lab.ec2.run(&other, "m5.large", 1).remove(0);
    assert_eq!(lab.assign(&elsewhere.interface, "10.0.0.50").await.status, 200);
    Ok(())
}

#[tokio::test]
async fn rule_2_an_address_of_another_interface_is_refused_with_the_words_of_ec2() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let (one, two) = (lab.run("m5.large"), lab.run("m5.large"));
    lab.assign(&one.interface, "10.0.0.50").await;
    let reply = lab.assign(&two.interface, "10.0.0.50").await;
    assert_eq!((reply.status, reply.code()), (400, "InvalidParameterValue"));
    assert_eq!(reply.texts("Message"), ["[10.0.0.50] assigned, but move is not allowed."]);
    Ok(())
}

#[tokio::test]
async fn rule_3_reassignment_moves_later_seen_and_the_elastic_address_follows() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let (one, two) = (lab.run("m5.large"), lab.run("m5.large"));
    lab.assign(&one.interface, "10.0.0.50").await;
    let public = "203.0.113.9".parse()?;
    lab.ec2.associate(public, &one.interface, ip(50));
    lab.ec2.set_lag(FOREVER);
    assert_eq!(lab.take(&two.interface, "10.0.0.50").await.status, 200);
    assert!(lab.ec2.secondary(&one.interface).is_empty());
    assert_eq!(lab.ec2.elastic(public), Some((two.interface.clone(), ip(50))));
    assert_eq!(lab.shown(&two.interface).await, ["10.0.0.5"], "not yet");
    assert_eq!(lab.shown(&one.interface).await, ["10.0.0.4", "10.0.0.50"], "still");
    lab.ec2.settle();
    assert_eq!(lab.shown(&two.interface).await, ["10.0.0.5", "10.0.0.50"]);
    assert_eq!(lab.shown(&one.interface).await, ["10.0.0.4"]);
    Ok(())
}

#[tokio::test]
async fn rule_4_a_primary_address_is_never_moved_or_unassigned() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let (one, two) = (lab.run("m5.large"), lab.run("m5.large"));
    assert_eq!(lab.take(&two.interface, "10.0.0.4").await.code(), "InvalidParameterValue");
    assert_eq!(lab.unassign(&one.interface, "10.0.0.4").await.code(), "InvalidParameterValue");
    assert_eq!(lab.ec2.holder(&lab.subnet, ip(4)), Some(one.interface));
    Ok(())
}

#[tokio::test]
async fn rule_5_addresses_lie_in_the_subnet_and_are_not_reserved() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let one = lab.run("m5.large");
    for address in ["10.0.1.7", "10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.255", "ten"] {
        let reply = lab.assign(&one.interface, address).await;
        assert_eq!((reply.status, reply.code()), (400, "InvalidParameterValue"), "{address}");
    }
    assert_eq!(lab.assign(&one.interface, "10.0.0.254").await.status, 200);
    Ok(())
}

#[tokio::test]
async fn rule_6_the_instance_type_limits_the_addresses() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    for (size, room) in [("t3.nano", 1_u8), ("t3.small", 3), ("m5.large", 9)] {
        let ran = lab.run(size);
        for number in 0..room {
            let address = ip(100 + room * 10 + number).to_string();
            assert_eq!(lab.assign(&ran.interface, &address).await.status, 200, "{size}");
        }
        let reply = lab.assign(&ran.interface, "10.0.0.50").await;
        assert_eq!((reply.status, reply.code()), (400, "PrivateIpAddressLimitExceeded"), "{size}");
    }
    // A prefix takes the place of an address.
    let ran = lab.run("t3.nano");
    lab.ec2.delegate_prefix(&ran.interface, "10.0.0.64/28".parse()?);
    assert_eq!(lab.assign(&ran.interface, "10.0.0.50").await.code(), "PrivateIpAddressLimitExceeded");
    Ok(())
}

#[tokio::test]
async fn rule_7_count_and_list_exclude_each_other_and_one_is_needed() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let one = lab.run("m5.large");
    let (interface, count) = (("NetworkInterfaceId", &*one.interface), ("SecondaryPrivateIpAddressCount", "2"));
    let both = lab.call("AssignPrivateIpAddresses", &[interface, count, ("PrivateIpAddress.1", "10.0.0.50")]).await;
    assert_eq!(both.code(), "InvalidParameterCombination");
    assert_eq!(lab.call("AssignPrivateIpAddresses", &[interface]).await.code(), "MissingParameter");
    let picked = lab.call("AssignPrivateIpAddresses", &[interface, count]).await;
    assert_eq!(picked.texts("privateIpAddress").len(), 2);
    assert_eq!(lab.ec2.secondary(&one.interface).len(), 2);
    Ok(())
}

#[tokio::test]
async fn rule_8_the_answer_lists_new_addresses_only() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let one = lab.run("m5.large");
    lab.assign(&one.interface, "10.0.0.50").await;
    let parameters = [
        ("NetworkInterfaceId", &*one.interface),
        ("PrivateIpAddress.1", "10.0.0.50"),
        ("PrivateIpAddress.2", "10.0.0.51"),
    ];
    let reply = lab.call("AssignPrivateIpAddresses", &parameters).await;
    assert_eq!(reply.texts("privateIpAddress"), ["10.0.0.51"]);
    Ok(())
}

#[tokio::test]
async fn rule_9_the_same_interface_again_is_a_success() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let one = lab.run("t3.nano");
    for _ in 0..3 {
        let reply = lab.assign(&one.interface, "10.0.0.50").await;
        assert_eq!((reply.status, reply.texts("networkInterfaceId")), (200, vec![&*one.interface]));
    }
    assert_eq!(lab.ec2.secondary(&one.interface), [ip(50)].into());
    Ok(())
}

#[tokio::test]
async fn rule_10_an_absent_address_or_the_primary_cannot_be_unassigned() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let one = lab.run("m5.large");
    lab.assign(&one.interface, "10.0.0.50").await;
    assert_eq!(lab.unassign(&one.interface, "10.0.0.51").await.code(), "InvalidParameterValue");
    assert_eq!(lab.unassign(&one.interface, "10.0.0.4").await.code(), "InvalidParameterValue");
    let none = lab.call("UnassignPrivateIpAddresses", &[("NetworkInterfaceId", &one.interface)]).await;
    assert_eq!(none.code(), "MissingParameter");
    // All or nothing.
    let parameters = [
        ("NetworkInterfaceId", &*one.interface),
        ("PrivateIpAddress.1", "10.0.0.50"),
        ("PrivateIpAddress.2", "10.0.0.51"),
    ];
    assert_eq!(lab.call("UnassignPrivateIpAddresses", &parameters).await.status, 400);
    assert_eq!(lab.ec2.secondary(&one.interface), [ip(50)].into());
    assert_eq!(lab.unassign(&one.interface, "10.0.0.50").await.texts("return"), ["true"]);
    assert!(lab.ec2.secondary(&one.interface).is_empty());
    Ok(())
}

#[tokio::test]
async fn rule_11_a_full_subnet_has_no_address_to_give() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let small = lab.ec2.add_subnet("b", "10.0.9.0/28".parse()?);
    let ran = lab.ec2.run(&small, "m5.large", 1).remove(0);
    for last in 5..=14 {
        lab.ec2.stranger_takes(&small, std::net::Ipv4Addr::new(10, 0, 9, last));
    }
    let parameters = [("NetworkInterfaceId", &*ran.interface), ("SecondaryPrivateIpAddressCount", "1")];
    let reply = lab.call("AssignPrivateIpAddresses", &parameters).await;
    assert_eq!((reply.status, reply.code()), (400, "InsufficientFreeAddressesInSubnet"));
    let subnet = lab.call("DescribeSubnets", &[("SubnetId.1", &small)]).await;
    assert_eq!(subnet.texts("availableIpAddressCount"), ["0"]);
    Ok(())
}
