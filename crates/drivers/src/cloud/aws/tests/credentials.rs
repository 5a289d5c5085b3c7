//! Keys from every source, against STS and the metadata service.

use std::fs;
use std::time::{Duration, Instant};

use portolan_core::ipam::{CloudError, SubnetId};
use portolan_testkit::aws::{FakeEc2, FakeImds, FakeSts};
use zeroize::Zeroizing;

use super::super::{AwsCloud, AwsError, AwsOptions, AwsSettings, Cloud, CredentialsSource};
use super::{settings_of, settings_without_keys, unlimited};

const ROLE: &str = "arn:aws:iam::123456789012:role/portolan";

struct Lab {
    ec2: FakeEc2,
    subnet: SubnetId,
    folder: tempfile::TempDir,
}

impl Lab {
    async fn new() -> anyhow::Result<Self> {
        let ec2 = FakeEc2::start().await?;
        let subnet = ec2.add_subnet("a", "10.0.0.0/24".parse()?).into();
        Ok(Self { ec2, subnet, folder: tempfile::tempdir()? })
    }

    fn file(&self, name: &str, text: &str) -> anyhow::Result<std::path::PathBuf> {
        let path = self.folder.path().join(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    /// Makes one call, and returns where its keys came from.
    async fn source(&self, settings: AwsSettings) -> anyhow::Result<CredentialsSource> {
        let cloud = AwsCloud::new(settings, AwsOptions::default()).await?;
        self.call(&cloud).await?;
        Ok(cloud.probe(None).await?.source)
    }

    async fn call(&self, cloud: &AwsCloud) -> anyhow::Result<()> {
        let found = cloud.subnets(std::slice::from_ref(&self.subnet)).await?;
        anyhow::ensure!(found.len() == 1, "the subnet is not there");
        Ok(())
    }

    /// The refusal of the first call.
    async fn refusal(&self, settings: AwsSettings) -> anyhow::Result<String> {
        let cloud = AwsCloud::new(settings, AwsOptions::default()).await?;
        Ok(self.call(&cloud).await.expect_err("there are no good keys").to_string())
    }

    fn keys_as_profile(&self, name: &str) -> String {
        let keys = self.ec2.own_keys();
        format!(
            "[{name}]\naws_access_key_id = {}\naws_secret_access_key = {}\nregion = eu-central-1\n",
            keys.access_key_id, keys.secret_access_key
        )
    }
}

#[tokio::test]
async fn a_web_identity_is_exchanged_and_its_token_read_each_time() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let sts = FakeSts::start(lab.ec2.keys().clone(), ROLE, "token-1").await?;
    sts.set_lifetime(Duration::from_secs(4));
    let settings = AwsSettings {
        web_identity_token_file: Some(lab.file("token", "token-1\n")?),
        role_arn: Some(ROLE.to_owned()),
        sts_endpoint: Some(sts.endpoint()),
        ..settings_without_keys(&lab.ec2)
    };
    assert_eq!(lab.source(settings.clone()).await?, CredentialsSource::WebIdentity);
    let cloud = AwsCloud::new(settings, unlimited()).await?;
    lab.call(&cloud).await?;
    let before = sts.exchanges();
    // The kubelet rotates the token; keys that were renewed come from the new one.
    lab.file("token", "token-2")?;
    sts.set_token("token-2");
    let started = Instant::now();
    while sts.exchanges() == before && started.elapsed() < Duration::from_mins(1) {
        lab.call(&cloud).await?;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(sts.exchanges() > before);
    Ok(())
}

#[tokio::test]
async fn keys_that_expire_during_a_run_fail_no_call() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let imds = FakeImds::start(lab.ec2.keys().clone(), Some("node-role")).await?;
    imds.set_lifetime(Duration::from_millis(300));
    let settings = AwsSettings {
        metadata_endpoint: Some(imds.endpoint()),
        metadata_disabled: false,
        ..settings_without_keys(&lab.ec2)
    };
    let cloud = AwsCloud::new(settings, unlimited()).await?;
    let before = lab.ec2.keys().issued();
    let started = Instant::now();
    while lab.ec2.keys().issued() < before + 6 {
        lab.call(&cloud).await?;
        assert!(started.elapsed() < Duration::from_mins(2), "keys are not renewed");
    }
    Ok(())
}

#[tokio::test]
async fn keys_are_used_to_their_end_while_sts_is_away() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let sts = FakeSts::start(lab.ec2.keys().clone(), ROLE, "token").await?;
    let settings = AwsSettings {
        web_identity_token_file: Some(lab.file("token", "token")?),
        role_arn: Some(ROLE.to_owned()),
        sts_endpoint: Some(sts.endpoint()),
        ..settings_without_keys(&lab.ec2)
    };
    let cloud = AwsCloud::new(settings.clone(), unlimited()).await?;
    lab.call(&cloud).await?;
    sts.set_failing(Some(500));
    cloud.client.credentials.make_due().await;
    lab.call(&cloud).await?;
    assert_eq!(sts.exchanges(), 1);
    sts.set_failing(None);
    cloud.client.credentials.make_due().await;
    lab.call(&cloud).await?;
    assert_eq!(sts.exchanges(), 2, "it is tried again");
    sts.set_failing(Some(500));
    // Without keys there is nothing to fall back to, and it may go by itself.
    let other = AwsCloud::new(settings, unlimited()).await?;
    assert_eq!(other.subnets(std::slice::from_ref(&lab.subnet)).await, Err(CloudError::Transient));
    Ok(())
}

#[tokio::test]
async fn profiles_and_mounted_secrets_are_read() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let text = format!("[default]\naws_access_key_id=x\n{}", lab.keys_as_profile("shop"));
    let settings = AwsSettings {
        shared_credentials_file: Some(lab.file("credentials-file", &text)?),
        profile: Some("shop".to_owned()),
        region: None,
        ..settings_without_keys(&lab.ec2)
    };
    assert_eq!(lab.source(settings).await?, CredentialsSource::Profile, "with the region of the profile");

    let keys = lab.ec2.own_keys();
    fs::create_dir(lab.folder.path().join("secret"))?;
    lab.file("secret/aws_access_key_id", &keys.access_key_id)?;
    lab.file("secret/aws_secret_access_key", &format!("{}\n", keys.secret_access_key))?;
    let mounted = AwsSettings {
        shared_credentials_file: Some(lab.folder.path().join("secret")),
        ..settings_without_keys(&lab.ec2)
    };
    assert_eq!(lab.source(mounted.clone()).await?, CredentialsSource::Profile);

    // OpenShift's Secrets for web identity have a profile instead.
    let sts = FakeSts::start(lab.ec2.keys().clone(), ROLE, "token").await?;
    let token = lab.file("token", "token")?;
    let text = format!("[default]\nrole_arn = {ROLE}\nweb_identity_token_file = {}\n", token.display());
    lab.file("secret/credentials", &text)?;
    let mounted = AwsSettings { sts_endpoint: Some(sts.endpoint()), ..mounted };
    assert_eq!(lab.source(mounted).await?, CredentialsSource::WebIdentity);
    Ok(())
}

#[tokio::test]
async fn rotated_files_are_read_again_when_their_keys_are_refused() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let path = lab.file("credentials", &lab.keys_as_profile("default"))?;
    let settings = AwsSettings { shared_credentials_file: Some(path), ..settings_without_keys(&lab.ec2) };
    let cloud = AwsCloud::new(settings, unlimited()).await?;
    lab.call(&cloud).await?;
    let fresh = lab.ec2.keys().make();
    lab.ec2.keys().revoke(&lab.ec2.own_keys().access_key_id);
    lab.file(
        "credentials",
        &format!(
            "[default]\naws_access_key_id={}\naws_secret_access_key={}\n",
            fresh.access_key_id, fresh.secret_access_key
        ),
    )?;
    lab.call(&cloud).await?;
    Ok(())
}

#[tokio::test]
async fn the_first_source_that_is_set_up_is_used() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let sts = FakeSts::start(lab.ec2.keys().clone(), ROLE, "token").await?;
    let imds = FakeImds::start(lab.ec2.keys().clone(), Some("node-role")).await?;
    let mut settings = AwsSettings {
        web_identity_token_file: Some(lab.file("token", "token")?),
        role_arn: Some(ROLE.to_owned()),
        sts_endpoint: Some(sts.endpoint()),
        shared_credentials_file: Some(lab.file("credentials", &lab.keys_as_profile("default"))?),
        metadata_endpoint: Some(imds.endpoint()),
        metadata_disabled: false,
        ..settings_of(&lab.ec2)
    };
    assert_eq!(lab.source(settings.clone()).await?, CredentialsSource::Environment);
    settings.access_key_id = None;
    assert_eq!(lab.source(settings.clone()).await?, CredentialsSource::WebIdentity);
    settings.role_arn = None;
    assert_eq!(lab.source(settings.clone()).await?, CredentialsSource::Profile);
    settings.shared_credentials_file = Some(lab.folder.path().join("nothing"));
    assert_eq!(imds.requests(), 0);
    assert_eq!(lab.source(settings).await?, CredentialsSource::Metadata);
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_used_says_what_to_do() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let plain = settings_without_keys(&lab.ec2);
    let profile = |text: &str| -> anyhow::Result<AwsSettings> {
        let path = lab.file("credentials", &format!("[default]\n{text}\n"))?;
        Ok(AwsSettings { shared_credentials_file: Some(path), ..settings_without_keys(&lab.ec2) })
    };
    let refusal = lab.refusal(profile("credential_process = /bin/keys")?).await?;
    assert!(refusal.contains("`credential_process` is not supported"), "{refusal}");
    let refusal = lab.refusal(profile("role_arn = x\nsource_profile = y")?).await?;
    assert!(refusal.contains("roles of other profiles and SSO are not supported"), "{refusal}");
    let refusal = lab.refusal(profile("aws_access_key_id = x")?).await?;
    assert!(refusal.contains("`aws_secret_access_key` is missing"), "{refusal}");
    let refusal = lab.refusal(plain.clone()).await?;
    assert!(refusal.contains("set AWS_ACCESS_KEY_ID"), "{refusal}");

    let sts = FakeSts::start(lab.ec2.keys().clone(), ROLE, "token").await?;
    let identity = |role: &str, file: &str| AwsSettings {
        web_identity_token_file: Some(lab.folder.path().join(file)),
        role_arn: Some(role.to_owned()),
        sts_endpoint: Some(sts.endpoint()),
        ..settings_without_keys(&lab.ec2)
    };
    lab.file("token", "token")?;
    let refusal = lab.refusal(identity("arn:other", "token")).await?;
    assert!(refusal.contains("AccessDenied") && refusal.contains("trusts"), "{refusal}");
    let refusal = lab.refusal(identity(ROLE, "absent")).await?;
    assert!(refusal.contains("mount the service account's token"), "{refusal}");
    Ok(())
}

#[tokio::test]
async fn the_metadata_service_gives_keys_and_region_or_says_why_not() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let imds = FakeImds::start(lab.ec2.keys().clone(), Some("node-role")).await?;
    let settings = |imds: &FakeImds| AwsSettings {
        region: None,
        metadata_endpoint: Some(imds.endpoint()),
        metadata_disabled: false,
        ..settings_without_keys(&lab.ec2)
    };
    let cloud = AwsCloud::new(settings(&imds), AwsOptions::default()).await?;
    assert_eq!(cloud.region(), "eu-central-1");
    lab.call(&cloud).await?;

    imds.set_too_far(true);
    let error = AwsCloud::new(settings(&imds), AwsOptions::default()).await.err();
    assert!(matches!(error, Some(AwsError::NoRegion { .. })), "{error:?}");
    let message = error.map(|error| error.to_string()).unwrap_or_default();
    assert!(message.contains("set AWS_REGION") && message.contains("HttpPutResponseHopLimit"), "{message}");

    let no_role = FakeImds::start(lab.ec2.keys().clone(), None).await?;
    let refusal = lab.refusal(settings(&no_role)).await?;
    assert!(refusal.contains("attach an instance profile"), "{refusal}");
    Ok(())
}

#[tokio::test]
async fn endpoints_without_tls_are_refused_unless_near() -> anyhow::Result<()> {
    let settings = AwsSettings {
        region: Some("eu-central-1".to_owned()),
        ec2_endpoint: Some("http://ec2.example".to_owned()),
        ..AwsSettings::default()
    };
    let error = AwsCloud::new(settings, AwsOptions::default()).await.err().map(|error| error.to_string());
    let message = error.unwrap_or_default();
    assert!(message.starts_with("AWS_ENDPOINT_URL_EC2: `http://ec2.example` cannot be used: plain http"), "{message}");
    Ok(())
}

#[tokio::test]
async fn refused_keys_are_a_denial() -> anyhow::Result<()> {
    let lab = Lab::new().await?;
    let settings = AwsSettings { secret_access_key: Some(Zeroizing::new("wrong".to_owned())), ..settings_of(&lab.ec2) };
    let cloud = AwsCloud::new(settings, unlimited()).await?;
    let denied = CloudError::Denied { action: "ec2:DescribeSubnets".into() };
    assert_eq!(cloud.subnets(std::slice::from_ref(&lab.subnet)).await, Err(denied));
    assert_eq!(lab.ec2.calls().len(), 1, "it is not tried again");
    Ok(())
}

#[test]
fn variables_have_the_names_that_aws_gave_them_and_no_secret_is_printed() {
    let settings = AwsSettings::read(|name| match name {
        "AWS_DEFAULT_REGION" => Some("eu-west-1".to_owned()),
        "AWS_ACCESS_KEY_ID" => Some("AKIA1".to_owned()),
        "AWS_SECRET_ACCESS_KEY" => Some("very-secret".to_owned()),
        "AWS_SESSION_TOKEN" => Some("session-secret".to_owned()),
        "AWS_PROFILE" => Some(String::new()),
        "HOME" => Some("/home/portolan".to_owned()),
        "AWS_EC2_METADATA_DISABLED" => Some("true".to_owned()),
        _ => None,
    });
    assert_eq!(settings.region.as_deref(), Some("eu-west-1"));
    assert_eq!((settings.profile.as_deref(), settings.metadata_disabled), (None, true));
    let file = settings.shared_credentials_file.as_ref().map(|path| path.display().to_string());
    assert_eq!(file.as_deref(), Some("/home/portolan/.aws/credentials"));
    let printed = format!("{settings:?}");
    assert!(printed.contains("AKIA1") && !printed.contains("secret"), "{printed}");
}
