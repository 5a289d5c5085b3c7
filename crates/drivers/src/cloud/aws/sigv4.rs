//! Signature Version 4, as AWS publishes it.
//!
//! A signature covers the method, the path, the query, the listed headers and the body, with a key that is derived from
//! the secret for one day, region and service.

use std::fmt::Write as _;

use ring::digest::{SHA256, digest};
use ring::hmac::{HMAC_SHA256, Key, Tag, sign as hmac};

/// What is signed.
pub(super) struct Message<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    /// In canonical form: sorted and percent-encoded.
    pub(super) query: &'a str,
    /// Names in lower case, each once; `host` and `x-amz-date` among them.
    pub(super) headers: &'a [(&'a str, &'a str)],
    pub(super) body: &'a [u8],
}

/// Who signs, when and for what.
pub(super) struct Signer<'a> {
    pub(super) access_key_id: &'a str,
    pub(super) secret: &'a str,
    /// Like `20150830T123600Z`, the same as in the header `x-amz-date`.
    pub(super) time: &'a str,
    pub(super) region: &'a str,
    pub(super) service: &'a str,
}

impl Signer<'_> {
    /// The value of the header `authorization`.
    pub(super) fn sign(&self, message: &Message<'_>) -> String {
        let mut headers = message.headers.to_vec();
        headers.sort_unstable();
        let names: Vec<&str> = headers.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let day = self.time.get(..8).unwrap_or_default();
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let text = format!("{ALGORITHM}\n{}\n{scope}\n{}", self.time, sha256(&canonical(message, &headers, &names)));
        let signature = hex(hmac(&self.key(day), text.as_bytes()).as_ref());
        format!("{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={signature}", self.access_key_id)
    }

    fn key(&self, day: &str) -> Key {
        let secret = zeroize::Zeroizing::new(format!("AWS4{}", self.secret));
        let next = |tag: Tag, part: &str| hmac(&Key::new(HMAC_SHA256, tag.as_ref()), part.as_bytes());
        let tag = hmac(&Key::new(HMAC_SHA256, secret.as_bytes()), day.as_bytes());
        let tag = next(next(next(tag, self.region), self.service), "aws4_request");
        Key::new(HMAC_SHA256, tag.as_ref())
    }
}

fn canonical(message: &Message<'_>, headers: &[(&str, &str)], names: &str) -> Vec<u8> {
    let mut text = format!("{}\n{}\n{}\n", message.method, message.path, message.query);
    for (name, value) in headers {
        text.extend([name, ":", value.trim(), "\n"]);
    }
    text.extend(["\n", names, "\n", &sha256(message.body)]);
    text.into_bytes()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes any text");
        text
    })
}

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The examples of AWS's documentation and test suite; both use these keys and this time.
#[cfg(test)]
mod tests {
    use super::*;

    const TIME: &str = "20150830T123600Z";
    const TOKEN: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeo\
                         IYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5V\
                         SXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yj\
                         c8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";

    fn signature(service: &str, message: &Message<'_>) -> String {
        let signer = Signer {
            access_key_id: "AKIDEXAMPLE",
            secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
            time: TIME,
            region: "us-east-1",
            service,
        };
        signer.sign(message)
    }

    #[test]
    fn signatures_are_those_of_the_test_suite_of_aws() {
        let date = ("x-amz-date", TIME);
        let host = ("host", "example.amazonaws.com");
        let form = ("content-type", "application/x-www-form-urlencoded");
        for (name, method, headers, body, expected) in [
            (
                "get-vanilla",
                "GET",
                &[host, date][..],
                "",
                "SignedHeaders=host;x-amz-date, \
                 Signature=5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "post-vanilla",
                "POST",
                &[date, host],
                "",
                "SignedHeaders=host;x-amz-date, \
                 Signature=5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                "post-x-www-form-urlencoded",
                "POST",
                &[form, host, date],
                "Param1=value1",
                "SignedHeaders=content-type;host;x-amz-date, \
                 Signature=ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
            (
                "post-sts-header-before",
                "POST",
                &[host, date, ("x-amz-security-token", TOKEN)],
                "",
                "SignedHeaders=host;x-amz-date;x-amz-security-token, \
                 Signature=85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
            ),
        ] {
            let message = Message { method, path: "/", query: "", headers, body: body.as_bytes() };
            let credential = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request";
            assert_eq!(signature("service", &message), format!("{credential}, {expected}"), "{name}");
        }
    }

    #[test]
    fn the_signature_is_that_of_the_example_in_the_general_reference() {
        let message = Message {
            method: "GET",
            path: "/",
            query: "Action=ListUsers&Version=2010-05-08",
            headers: &[
                ("content-type", "application/x-www-form-urlencoded; charset=utf-8"),
                ("host", "iam.amazonaws.com"),
                ("x-amz-date", TIME),
            ],
            body: b"",
        };
        let expected = "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, \
                        SignedHeaders=content-type;host;x-amz-date, \
                        Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7";
        assert_eq!(signature("iam", &message), expected);
    }
}
