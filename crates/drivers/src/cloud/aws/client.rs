//! Makes one call: waits for its turn, signs, sends, and tries again where that is safe.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::DATE;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::credentials::{self, Credentials, CredentialsSource, Keys};
use super::error::{AwsError, Failure, Meaning};
use super::http::{Answer, Endpoint, Http, Request};
use super::limiter::{Limiter, Priority};
use super::options::{AwsOptions, CallReport};
use super::settings::AwsSettings;
use super::sigv4::{Message, Signer};
use super::xml;

/// What we ask of EC2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Action {
    DescribeInstances,
    DescribeInstanceTypes,
    DescribeNetworkInterfaces,
    DescribeSubnets,
    AssignPrivateIpAddresses,
    UnassignPrivateIpAddresses,
}

impl Action {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::DescribeInstances => "DescribeInstances",
            Self::DescribeInstanceTypes => "DescribeInstanceTypes",
            Self::DescribeNetworkInterfaces => "DescribeNetworkInterfaces",
            Self::DescribeSubnets => "DescribeSubnets",
            Self::AssignPrivateIpAddresses => "AssignPrivateIpAddresses",
            Self::UnassignPrivateIpAddresses => "UnassignPrivateIpAddresses",
        }
    }

    const fn is_write(self) -> bool {
        match self {
            Self::AssignPrivateIpAddresses | Self::UnassignPrivateIpAddresses => true,
            Self::DescribeInstances
            | Self::DescribeInstanceTypes
            | Self::DescribeNetworkInterfaces
            | Self::DescribeSubnets => false,
        }
    }
}

/// The parameters of a call.
pub(super) type Parameters = Vec<(String, String)>;

/// Numbers parameters from 1, as in `InstanceId.1`.
pub(super) fn numbered<T: ToString>(name: &str, values: impl IntoIterator<Item = T>) -> Parameters {
    (1..).zip(values).map(|(number, value)| (format!("{name}.{number}"), value.to_string())).collect()
}

pub(super) struct Client {
    http: Http,
    endpoint: Endpoint,
    region: String,
    pub(super) credentials: Credentials,
    pub(super) reads: Limiter,
    pub(super) writes: Limiter,
    call_timeout: Duration,
    /// By how many seconds EC2's clock is ahead of ours.
    clock_offset: AtomicI64,
    pub(super) report: Box<dyn Fn(CallReport) + Send + Sync>,
}

/// Who speaks to which region.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Identity {
    pub(super) source: CredentialsSource,
    pub(super) expires: Option<Timestamp>,
}

impl Client {
    pub(super) async fn new(settings: AwsSettings, options: &AwsOptions) -> Result<Self, AwsError> {
        let http = Http::new();
        let metadata = credentials::metadata(&settings)?;
        let region = credentials::region(&settings, &http, metadata.as_ref()).await?;
        let endpoint = endpoint("AWS_ENDPOINT_URL_EC2", "ec2", settings.ec2_endpoint.as_deref(), &region)?;
        let sts = self::endpoint("AWS_ENDPOINT_URL_STS", "sts", settings.sts_endpoint.as_deref(), &region)?;
        Ok(Self {
            endpoint,
            region,
            credentials: Credentials::new(settings, http.clone(), sts, metadata),
            http,
            reads: Limiter::new(options.reads),
            writes: Limiter::new(options.writes),
            call_timeout: options.call_timeout,
            clock_offset: AtomicI64::new(0),
            report: Box::new(|_| {}),
        })
    }

    pub(super) fn region(&self) -> &str {
        &self.region
    }

    pub(super) fn clock_offset(&self) -> SignedDuration {
        SignedDuration::from_secs(self.clock_offset.load(Ordering::Relaxed))
    }

    pub(super) async fn identity(&self) -> Result<Identity, AwsError> {
        let (source, expires) = self.credentials.source().await?;
        Ok(Identity { source, expires })
    }

    /// Makes a call and gives the body of the answer. What is throttled is tried again, and so is what was not sent;
    /// what was lost only if it changes nothing.
    pub(super) async fn call(
        &self,
        action: Action,
        parameters: &[(String, String)],
        priority: Priority,
    ) -> Result<String, Failure> {
        let limiter = if action.is_write() { &self.writes } else { &self.reads };
        let body = form(action, parameters);
        let (mut throttled, mut failed, mut renewed) = (0, 0, false);
        loop {
            let permit = limiter.acquire(priority).await;
            let keys = self.credentials.keys().await.map_err(Failure::Credentials)?;
            let (started, clock) = (Instant::now(), self.clock_offset());
            let outcome = self.attempt(&body, &keys).await;
            drop(permit);
            let result = outcome.as_ref().map_or_else(|failure| failure.result(action.name()), |_| "Ok");
            (self.report)(CallReport { action: action.name(), result, elapsed: started.elapsed() });
            let failure = match outcome {
                Ok(body) => {
                    limiter.passed();
                    return Ok(body);
                }
                Err(failure) => failure,
            };
            let is_certain = matches!(failure, Failure::NotSent(_)) || !action.is_write();
            match failure.meaning() {
                Meaning::Throttled if throttled < MOST_THROTTLED => {
                    limiter.throttled(started);
                    tokio::time::sleep(backoff(throttled)).await;
                    throttled += 1;
                }
                Meaning::Expired | Meaning::KeysRefused if !renewed => {
                    let is_same = !self.credentials.renew(&keys).await.map_err(Failure::Credentials)?;
                    if failure.meaning() == Meaning::KeysRefused && is_same && self.clock_offset() == clock {
                        return Err(failure);
                    }
                    renewed = true;
                }
                Meaning::Transient if is_certain && failed < MOST_FAILED => {
                    tokio::time::sleep(backoff(failed)).await;
                    failed += 1;
                }
                Meaning::Throttled
                | Meaning::Expired
                | Meaning::KeysRefused
                | Meaning::Denied
                | Meaning::Transient
                | Meaning::LimitExceeded
                | Meaning::NoSuchInterface
                | Meaning::NoSuchInstance
                | Meaning::NoSuchSubnet
                | Meaning::SubnetFull
                | Meaning::InUse
                | Meaning::DryRun
                | Meaning::Unclear => return Err(failure),
            }
        }
    }

    async fn attempt(&self, body: &Bytes, keys: &Arc<Keys>) -> Result<String, Failure> {
        let time = (Timestamp::now() + self.clock_offset()).strftime("%Y%m%dT%H%M%SZ").to_string();
        let mut headers = vec![
            ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
            ("host", self.endpoint.authority()),
            ("x-amz-date", &time),
        ];
        if let Some(token) = &keys.session_token {
            headers.push(("x-amz-security-token", token));
        }
        let signer = Signer {
            access_key_id: &keys.access_key_id,
            secret: &keys.secret,
            time: &time,
            region: &self.region,
            service: "ec2",
        };
        let message = Message { method: "POST", path: "/", query: "", headers: &headers, body };
        let authorization = signer.sign(&message);
        headers.push(("authorization", &authorization));
        let request = Request {
            method: Method::POST,
            endpoint: &self.endpoint,
            path: "/",
            headers: &headers,
            body: body.clone(),
            limit: self.call_timeout,
        };
        let answer = self.http.send(request).await?;
        match xml::refusal(&answer.body) {
            None if answer.status.is_success() => Ok(answer.body),
            Some(failure) if !answer.status.is_success() => {
                if matches!(failure.meaning(), Meaning::Expired | Meaning::KeysRefused) {
                    self.read_clock(&answer);
                }
                Err(failure)
            }
            Some(_) | None if answer.status.is_redirection() => {
                Err(Failure::Lost(format!("EC2 answered {}: redirects are not followed", answer.status)))
            }
            Some(_) | None => Err(Failure::Lost(format!("EC2 answered {}", answer.status))),
        }
    }

    /// Follows the clock of EC2 if it is far from ours.
    fn read_clock(&self, answer: &Answer) {
        let date = answer.headers.get(DATE).and_then(|date| date.to_str().ok());
        if let Some(theirs) = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok()) {
            let ahead = theirs.timestamp().as_second() - Timestamp::now().as_second();
            if ahead.abs_diff(self.clock_offset.load(Ordering::Relaxed)) > CLOCKS_DIFFER {
                self.clock_offset.store(ahead, Ordering::Relaxed);
            }
        }
    }
}

/// Where a service is in a region.
fn endpoint(variable: &'static str, service: &str, set: Option<&str>, region: &str) -> Result<Endpoint, AwsError> {
    if let Some(url) = set {
        return Endpoint::parse(variable, url);
    }
    if !region.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-') {
        let problem = "it is not the name of a region";
        return Err(AwsError::InvalidEndpoint { variable: "AWS_REGION", url: super::error::quoted(region), problem });
    }
    let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    Endpoint::parse(variable, &format!("https://{service}.{region}.{domain}"))
}

fn form(action: Action, parameters: &[(String, String)]) -> Bytes {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("Action", action.name()).append_pair("Version", VERSION).extend_pairs(parameters);
    form.finish().into()
}

/// The pause before another try: random, so that many who failed together do not come back together.
fn backoff(tries: u32) -> Duration {
    let longest = LONGEST_PAUSE.min(SHORTEST_PAUSE * 2_u32.saturating_pow(tries));
    longest.mul_f64(fastrand::f64())
}

const VERSION: &str = "2016-11-15";
const SHORTEST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(20);
/// Seconds by which the clocks may differ.
const CLOCKS_DIFFER: u64 = 60;
/// How often a throttled call is tried again; half a minute in all.
const MOST_THROTTLED: u32 = 10;
/// How often a call that failed in transit is tried again.
const MOST_FAILED: u32 = 3;

#[test]
fn pauses_grow_to_twenty_seconds_and_differ() {
    for tries in 0..40 {
        let longest = if tries >= 7 { 20.0 } else { 0.2 * f64::from(2_u32.pow(tries)) };
        assert!(backoff(tries).as_secs_f64() <= longest, "{tries}");
    }
    let pauses: std::collections::BTreeSet<Duration> = (0..10).map(|_| backoff(20)).collect();
    assert!(pauses.len() > 1);
}

#[test]
fn endpoints_are_those_of_the_region() {
    let authority =
        |region| endpoint("AWS_ENDPOINT_URL_EC2", "ec2", None, region).map(|found| found.authority().to_owned());
    assert_eq!(authority("eu-central-1").as_deref(), Ok("ec2.eu-central-1.amazonaws.com"));
    assert_eq!(authority("cn-north-1").as_deref(), Ok("ec2.cn-north-1.amazonaws.com.cn"));
    assert!(authority("eu/../x@y").is_err());
}
