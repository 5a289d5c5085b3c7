//! moto, a second opinion on EC2's wire format: signatures, XML and paging. It keeps few of EC2's rules, so tests of
//! behaviour stand on [`FakeEc2`](super::FakeEc2) instead.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{REGION, StaticKeys};
use crate::Program;
use crate::binaries::cache_folder;

const REQUIREMENTS: &str = include_str!("moto-requirements.txt");

/// A running moto; ends when dropped.
pub struct Moto {
    _program: Program,
    _folder: tempfile::TempDir,
    address: String,
}

/// What a test finds in moto.
#[derive(Debug, Clone)]
pub struct MotoAccount {
    /// Keys of a user who may do everything.
    pub keys: StaticKeys,
    /// A subnet.
    pub subnet: String,
    /// Instances in it.
    pub instances: Vec<String>,
}

impl Moto {
    /// Starts moto on a free port. It verifies signatures.
    pub async fn start() -> anyhow::Result<Self> {
        let home = cache_folder()?.join("moto");
        let found = std::fs::read_to_string(home.join("requirements.txt")).unwrap_or_default();
        ensure!(found == REQUIREMENTS, "moto is not there, or another version: run `cargo xtask setup`");
        let folder = tempfile::tempdir()?;
        let arguments = [
            format!("PYTHONPATH={}", home.join("packages").display()),
            "PYTHONDONTWRITEBYTECODE=1".to_owned(),
            "INITIAL_NO_AUTH_ACTION_COUNT=0".to_owned(),
            // Nothing of the machine's own account is read.
            "AWS_EC2_METADATA_DISABLED=true".to_owned(),
        ];
        let words = ["python3", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"].map(str::to_owned);
        let arguments: Vec<String> = arguments.into_iter().chain(words).collect();
        let mut program = Program::start("moto", "/usr/bin/env".as_ref(), &arguments, folder.path())?;
        let started = Instant::now();
        let address = loop {
            let log = program.log_tail();
            if let Some(address) =
                log.split("Running on http://").nth(1).and_then(|rest| rest.split_whitespace().next())
            {
                break address.to_owned();
            }
            ensure!(program.ended()?.is_none(), "moto ended at once:\n{log}");
            ensure!(started.elapsed() < LONGEST_START, "moto did not start within {LONGEST_START:?}:\n{log}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        Ok(Self { _program: program, _folder: folder, address })
    }

    /// Where it is.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes a user with keys, and a subnet with instances. From then on, every call is verified.
    pub async fn prepare(&self, instances: usize) -> anyhow::Result<MotoAccount> {
        self.post("/moto-api/reset-auth", None, "1000").await?;
        self.call("iam", "Action=CreateUser&Version=2010-05-08&UserName=portolan").await?;
        let policy = r#"{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}"#;
        let form: String = form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("Action", "PutUserPolicy"), ("Version", "2010-05-08"), ("UserName", "portolan")])
            .extend_pairs([("PolicyName", "all"), ("PolicyDocument", policy)])
            .finish();
        self.call("iam", &form).await?;
        let made = self.call("iam", "Action=CreateAccessKey&Version=2010-05-08&UserName=portolan").await?;
        let keys = StaticKeys {
            access_key_id: first(&made, "AccessKeyId")?,
            secret_access_key: first(&made, "SecretAccessKey")?,
        };
        let vpc = self.call("ec2", "Action=CreateVpc&Version=2016-11-15&CidrBlock=10.0.0.0%2F16").await?;
        let vpc = first(&vpc, "vpcId")?;
        let form = format!(
            "Action=CreateSubnet&Version=2016-11-15&VpcId={vpc}&CidrBlock=10.0.0.0%2F22&AvailabilityZone={REGION}a"
        );
        let subnet = first(&self.call("ec2", &form).await?, "subnetId")?;
        let form = format!(
            "Action=RunInstances&Version=2016-11-15&ImageId=ami-12345678&InstanceType=m5.large&SubnetId={subnet}\
             &MinCount={instances}&MaxCount={instances}"
        );
        let ran = self.call("ec2", &form).await?;
        let instances = all(&ran, "instanceId").map(str::to_owned).collect();
        self.post("/moto-api/reset-auth", None, "0").await?;
        Ok(MotoAccount { keys, subnet, instances })
    }

    async fn call(&self, service: &str, form: &str) -> anyhow::Result<String> {
        self.post("/", Some(service), form).await
    }

    async fn post(&self, path: &str, service: Option<&str>, body: &str) -> anyhow::Result<String> {
        let scope = service.map_or(String::new(), |service| {
            format!(
                "Authorization: AWS4-HMAC-SHA256 Credential=AKIAX/20260101/{REGION}/{service}/aws4_request, \
                 SignedHeaders=host, Signature=0\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            )
        });
        let request = format!(
            "POST {path} HTTP/1.0\r\nHost: {}\r\n{scope}Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        let exchange = async {
            let mut stream = TcpStream::connect(&self.address).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            anyhow::Ok(answer)
        };
        let answer = tokio::time::timeout(LONGEST_CALL, exchange).await.context("moto did not answer")??;
        let (head, body) = answer.split_once("\r\n\r\n").context("moto answered no HTTP")?;
        ensure!(head.contains(" 200 "), "moto refused a call: {answer}");
        Ok(body.to_owned())
    }
}

fn first(body: &str, name: &str) -> anyhow::Result<String> {
    all(body, name).next().map(str::to_owned).with_context(|| format!("moto's answer has no {name}: {body}"))
}

fn all<'a>(body: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let parts: Vec<&str> = body.split(&*open).skip(1).filter_map(|part| part.split(&*close).next()).collect();
    parts.into_iter()
}

/// Python takes its time on a busy machine.
const LONGEST_START: Duration = Duration::from_mins(2);
const LONGEST_CALL: Duration = Duration::from_mins(1);
