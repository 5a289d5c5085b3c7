//! The continue token of paged lists: a revision and a key to start at, in the same wrapping as Kubernetes has it.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Value, json};

use crate::rest::body::json_type;
use crate::rest::syntax;
use crate::status::Failure;

/// Where the next page of a list starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    pub revision: i64,
    /// Key relative to what is listed, not beginning with `/` after decoding.
    pub start: String,
}

const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::RequireNone)
        .with_decode_allow_trailing_bits(true),
);

impl Token {
    /// The text that clients hand back.
    pub fn encode(&self) -> String {
        ENGINE.encode(json!({ "v": "meta.k8s.io/v1", "rv": self.revision, "start": self.start }).to_string())
    }

    /// Reads what a client handed back.
    pub fn decode(text: &str) -> Result<Self, Failure> {
        Self::read(text).map_err(|fault| {
            Failure::bad_request(format!("invalid continue token: continue key is not valid: {fault}"))
        })
    }

    fn read(text: &str) -> Result<Self, String> {
        let bytes = ENGINE.decode(text).map_err(|_| format!("illegal base64 data at input byte {}", bad_byte(text)))?;
        let value: Value = serde_json::from_slice(&bytes)
            .map_err(|error| syntax::fault(&bytes).unwrap_or_else(|| error.to_string()))?;
        if !value.is_object() && !value.is_null() {
            let what = json_type(&value);
            return Err(format!("json: cannot unmarshal {what} into Go value of type storage.continueToken"));
        }
        let version = text_field(&value, "v")?;
        let revision = number_field(&value, "rv")?;
        let start = text_field(&value, "start")?;
        if version != "meta.k8s.io/v1" {
            return Err(format!("server does not recognize this encoded version {version}"));
        }
        if revision == 0 {
            return Err("incorrect encoded start resourceVersion (version meta.k8s.io/v1)".to_owned());
        }
        if start.is_empty() {
            return Err("encoded start key empty (version meta.k8s.io/v1)".to_owned());
        }
        let key = start.strip_prefix('/').unwrap_or(start);
        // Nobody climbs out of what is listed.
        if key.split('/').any(|segment| matches!(segment, "" | "." | "..")) {
            return Err(start.to_owned());
        }
        Ok(Self { revision, start: key.to_owned() })
    }
}

fn text_field<'v>(value: &'v Value, name: &str) -> Result<&'v str, String> {
    let field = &value[name];
    if field.is_null() { Ok("") } else { field.as_str().ok_or_else(|| wrong(json_type(field), name, "string")) }
}

fn number_field(value: &Value, name: &str) -> Result<i64, String> {
    let field = &value[name];
    if field.is_null() {
        return Ok(0);
    }
    field.as_i64().ok_or_else(|| {
        let what = if field.is_number() { format!("number {field}") } else { json_type(field).to_owned() };
        wrong(&what, name, "int64")
    })
}

fn wrong(what: &str, field: &str, wanted: &str) -> String {
    format!("json: cannot unmarshal {what} into Go struct field continueToken.{field} of type {wanted}")
}

/// The place of the first byte that is not base64; of the last one when the length is wrong.
fn bad_byte(text: &str) -> usize {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    text.bytes().position(|byte| !known(byte)).unwrap_or(text.len().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> String {
        let failure = Token::decode(text).unwrap_err();
        assert_eq!((failure.code.as_u16(), failure.reason.as_ref()), (400, "BadRequest"));
        failure.message.strip_prefix("invalid continue token: continue key is not valid: ").unwrap().to_owned()
    }

    #[test]
    fn tokens_survive_the_way_to_the_client_and_back() {
        let token = Token { revision: 344, start: "default/c9\0".to_owned() };
        assert_eq!(Token::decode(&token.encode()), Ok(token));
        let real = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MzQ0LCJzdGFydCI6Ii9jOVx1MDAwMCJ9";
        assert_eq!(Token::decode(real), Ok(Token { revision: 344, start: "c9\0".to_owned() }));
    }

    #[test]
    fn bad_tokens_get_the_words_of_the_real_server() {
        for (text, expected) in [
            ("x", "illegal base64 data at input byte 0"),
            ("!!", "illegal base64 data at input byte 0"),
            ("ab==", "illegal base64 data at input byte 2"),
            ("abcde", "illegal base64 data at input byte 4"),
            ("eyJ2Ijo", "unexpected end of JSON input"),
            ("W10", "json: cannot unmarshal array into Go value of type storage.continueToken"),
            ("e30", "server does not recognize this encoded version "),
            ("eyJ2IjoieCJ9", "server does not recognize this encoded version x"),
            ("eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ", "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"),
            ("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NX0", "encoded start key empty (version meta.k8s.io/v1)"),
            ("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NSwic3RhcnQiOiIuLi94In0", "../x"),
            (
                "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6IngifQ",
                "json: cannot unmarshal string into Go struct field continueToken.rv of type int64",
            ),
        ] {
            assert_eq!(fault(text), expected, "{text}");
        }
    }
}
