//! Verifies a signed assertion as Google does.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;

use super::{EMAIL, KEY_ID, KNOWN_KEY};

const SCOPES: [&str; 2] =
    ["https://www.googleapis.com/auth/cloud-platform", "https://www.googleapis.com/auth/userinfo.email"];

/// An error says what is wrong with the assertion.
pub(super) fn verify(assertion: &str, audience: &str) -> anyhow::Result<()> {
    let parts: Vec<&str> = assertion.split('.').collect();
    let [header, claims, signature] = parts[..] else { anyhow::bail!("Invalid JWT: it has not three parts") };
    ensure!(!assertion.contains('='), "Invalid JWT: base64url is without padding");
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).context("Invalid JWT: not base64url");
    let key = PrivatePkcs8KeyDer::from_pem_slice(KNOWN_KEY.as_bytes())?;
    let key = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).map_err(|_| anyhow::anyhow!("the stand-in's key"))?;
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref());
    let signed = format!("{header}.{claims}");
    let verified = public.verify(signed.as_bytes(), &decode(signature)?);
    ensure!(verified.is_ok(), "Invalid JWT Signature.");
    let header: Value = serde_json::from_slice(&decode(header)?)?;
    ensure!(header["alg"] == "RS256" && header["typ"] == "JWT", "Invalid JWT: alg and typ");
    ensure!(header["kid"] == KEY_ID, "Invalid JWT: kid names no key of the account");
    let claims: Value = serde_json::from_slice(&decode(claims)?)?;
    ensure!(claims["iss"] == EMAIL, "Invalid grant: account not found");
    ensure!(claims["aud"] == audience, "Invalid JWT: aud is not this endpoint");
    let scopes: Vec<&str> = claims["scope"].as_str().unwrap_or_default().split(' ').collect();
    ensure!(SCOPES.iter().all(|scope| scopes.contains(scope)), "Invalid JWT: scope lacks one of {SCOPES:?}");
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let (issued, expires) = (claims["iat"].as_u64().unwrap_or_default(), claims["exp"].as_u64().unwrap_or_default());
    ensure!(issued <= now && now < expires && expires - issued <= 3600, "Invalid JWT: iat and exp");
    Ok(())
}
