//! Verifies Signature Version 4 as AWS does, from the headers of a request.

use std::time::{Duration, SystemTime};

use http::request::Parts;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use ring::{digest, hmac};

use super::REGION;
use super::keys::{Key, KeyRing};

/// Why a request is refused: an error of EC2.
pub(super) struct Refused {
    pub(super) status: u16,
    pub(super) code: &'static str,
    pub(super) message: String,
}

fn refused<T>(status: u16, code: &'static str, message: impl Into<String>) -> Result<T, Refused> {
    Err(Refused { status, code, message: message.into() })
}

/// Verifies a request to EC2. `now` is the time of the stand-in.
pub(super) fn verify(head: &Parts, body: &[u8], keys: &KeyRing, now: SystemTime) -> Result<Key, Refused> {
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let Some(claim) = Claim::read(header("authorization")) else {
        return refused(403, "MissingAuthenticationToken", "Request is missing Authentication Token");
    };
    let unknown = "AWS was not able to validate the provided access credentials";
    let Some(key) = keys.find(claim.id) else { return refused(401, "AuthFailure", unknown) };
    let time = header("x-amz-date");
    if claim.scope != [time.get(..8).unwrap_or_default(), REGION, "ec2", "aws4_request"] {
        return refused(
            403,
            "SignatureDoesNotMatch",
            format!("Credential should be scoped to {REGION}/ec2, not {:?}", claim.scope),
        );
    }
    for needed in ["host", "x-amz-date"] {
        if !claim.headers.contains(&needed) {
            return refused(403, "SignatureDoesNotMatch", format!("{needed} is not signed"));
        }
    }
    if signature(head, body, &claim, &key.secret, time) != claim.signature {
        return refused(
            403,
            "SignatureDoesNotMatch",
            "The request signature we calculated does not match the signature you provided",
        );
    }
    if !is_near(time, now) {
        return refused(400, "RequestExpired", "Request has expired.");
    }
    if key.token.as_deref().unwrap_or_default() != header("x-amz-security-token") {
        return refused(401, "AuthFailure", unknown);
    }
    if key.token.is_some() && !claim.headers.contains(&"x-amz-security-token") {
        return refused(403, "SignatureDoesNotMatch", "x-amz-security-token is not signed");
    }
    if key.expires.is_some_and(|end| end <= now) {
        return refused(400, "RequestExpired", "Request has expired.");
    }
    Ok(key)
}

/// What the header claims.
struct Claim<'a> {
    id: &'a str,
    scope: Vec<&'a str>,
    headers: Vec<&'a str>,
    signature: &'a str,
}

impl<'a> Claim<'a> {
    fn read(header: &'a str) -> Option<Self> {
        let parts = header.strip_prefix("AWS4-HMAC-SHA256 ")?.split(',').map(str::trim);
        let (mut credential, mut headers, mut signature) = (None, None, None);
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            match name {
                "Credential" => credential = Some(value),
                "SignedHeaders" => headers = Some(value),
                "Signature" => signature = Some(value),
                _ => return None,
            }
        }
        let mut scope: Vec<&str> = credential?.split('/').collect();
        let id = scope.remove(0);
        Some(Self { id, scope, headers: headers?.split(';').collect(), signature: signature? })
    }
}

fn signature(head: &Parts, body: &[u8], claim: &Claim<'_>, secret: &str, time: &str) -> String {
    let mut request = vec![head.method.to_string(), head.uri.path().to_owned()];
    let mut query: Vec<&str> = head.uri.query().unwrap_or_default().split('&').collect();
    query.sort_unstable();
    request.push(query.join("&"));
    for name in &claim.headers {
        let value = head.headers.get(*name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let words: Vec<String> = value.unwrap_or_default().split_whitespace().map(str::to_owned).collect();
        request.push(format!("{name}:{}", words.join(" ")));
    }
    request.extend([String::new(), claim.headers.join(";"), hashed(body)]);
    let scope = claim.scope.join("/");
    let text = ["AWS4-HMAC-SHA256", time, &scope, &hashed(request.join("\n").as_bytes())].join("\n");
    let start = format!("AWS4{secret}").into_bytes();
    let key = claim.scope.iter().fold(start, |key, part| keyed(&key, part));
    lower_hex(&keyed(&key, &text))
}

fn keyed(key: &[u8], text: &str) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes()).as_ref().to_vec()
}

fn hashed(bytes: &[u8]) -> String {
    lower_hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn lower_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat()
}

fn is_near(time: &str, now: SystemTime) -> bool {
    let signed = DateTime::strptime("%Y%m%dT%H%M%SZ", time).ok().and_then(|time| time.to_zoned(TimeZone::UTC).ok());
    let (Some(signed), Ok(now)) = (signed, Timestamp::try_from(now)) else { return false };
    Duration::try_from(now.duration_since(signed.timestamp()).abs()).is_ok_and(|apart| apart <= SKEW)
}

/// How far the clocks may differ.
const SKEW: Duration = Duration::from_mins(5);

/// Signs a request like a client, for the tests of the stand-in itself.
#[cfg(test)]
pub(super) fn authorization(head: &Parts, body: &[u8], key: &Key, time: &str) -> String {
    let mut headers: Vec<&str> = head.headers.keys().map(http::HeaderName::as_str).collect();
    headers.sort_unstable();
    let scope = vec![&time[..8], REGION, "ec2", "aws4_request"];
    let claim = Claim { id: &key.id, scope, headers, signature: "" };
    let signature = signature(head, body, &claim, &key.secret, time);
    format!(
        "AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={signature}",
        key.id,
        claim.scope.join("/"),
        claim.headers.join(";")
    )
}
