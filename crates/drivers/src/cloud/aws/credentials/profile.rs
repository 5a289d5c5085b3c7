//! Shared credentials files, and Secrets mounted as a folder.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::Path;

use zeroize::Zeroizing;

use super::super::error::AwsError;
use super::super::settings::AwsSettings;
use super::keys::Keys;
use super::web_identity::{WebIdentity, session_name};

/// What a profile says.
pub(super) enum Profile {
    Keys(Keys),
    WebIdentity(WebIdentity),
}

/// The values of a profile by their names.
type Section = BTreeMap<String, Zeroizing<String>>;

impl Profile {
    /// The profile that the settings name; none if there is no such file or profile.
    pub(super) async fn read(settings: &AwsSettings) -> Result<Option<Self>, AwsError> {
        let (Some(mut section), origin) = section(settings).await? else { return Ok(None) };
        let invalid =
            |problem: &str| AwsError::InvalidCredentials { origin: origin.clone(), problem: problem.to_owned() };
        if section.contains_key("credential_process") {
            return Err(invalid(
                "`credential_process` is not supported, because no programs are started: write keys, or role_arn with web_identity_token_file",
            ));
        }
        if !section.contains_key("aws_access_key_id")
            && !section.contains_key("web_identity_token_file")
            && ["role_arn", "source_profile", "sso_session", "sso_start_url"]
                .iter()
                .any(|key| section.contains_key(*key))
        {
            return Err(invalid(
                "roles of other profiles and SSO are not supported: write keys, or role_arn with web_identity_token_file",
            ));
        }
        let mut take = |name: &str| section.remove(name);
        if let (Some(file), Some(role)) = (take("web_identity_token_file"), take("role_arn")) {
            return Ok(Some(Self::WebIdentity(WebIdentity {
                token_file: file.as_str().into(),
                role: role.to_string(),
                session_name: take("role_session_name").map_or_else(|| session_name(settings), |name| name.to_string()),
            })));
        }
        match (take("aws_access_key_id"), take("aws_secret_access_key")) {
            (Some(id), Some(secret)) => Ok(Some(Self::Keys(Keys {
                access_key_id: id.to_string(),
                secret,
                session_token: take("aws_session_token"),
                expires: None,
            }))),
            (None, None) => Ok(None),
            (Some(_), None) => Err(invalid("`aws_secret_access_key` is missing")),
            (None, Some(_)) => Err(invalid("`aws_access_key_id` is missing")),
        }
    }
}

/// The region of the profile.
pub(super) async fn region(settings: &AwsSettings) -> Result<Option<String>, AwsError> {
    let (section, _) = section(settings).await?;
    if let Some(region) = section.and_then(|mut section| section.remove("region")) {
        return Ok(Some(region.to_string()));
    }
    let Some(file) = &settings.config_file else { return Ok(None) };
    let Some(text) = read(file).await? else { return Ok(None) };
    let name = name(settings);
    let found = parse(&text, if name == DEFAULT { name.to_owned() } else { format!("profile {name}") }.as_str());
    Ok(found.and_then(|mut section| section.remove("region")).map(|region| region.to_string()))
}

/// The values, and where they were found.
async fn section(settings: &AwsSettings) -> Result<(Option<Section>, String), AwsError> {
    let Some(path) = &settings.shared_credentials_file else { return Ok((None, String::new())) };
    let name = name(settings);
    if !tokio::fs::metadata(path).await.is_ok_and(|found| found.is_dir()) {
        let origin = format!("profile `{name}` of {}", path.display());
        let text = read(path).await?;
        return Ok((text.and_then(|text| parse(&text, name)), origin));
    }
    let origin = format!("the Secret mounted at {}", path.display());
    if let Some(text) = read(&path.join("credentials")).await? {
        return Ok((parse(&text, name), origin));
    }
    let mut section = Section::new();
    for key in ["aws_access_key_id", "aws_secret_access_key", "aws_session_token"] {
        if let Some(text) = read(&path.join(key)).await? {
            section.insert(key.to_owned(), Zeroizing::new(text.trim().to_owned()));
        }
    }
    Ok((Some(section), origin))
}

fn name(settings: &AwsSettings) -> &str {
    settings.profile.as_deref().unwrap_or(DEFAULT)
}

/// None if there is no such file.
async fn read(path: &Path) -> Result<Option<Zeroizing<String>>, AwsError> {
    match tokio::fs::read_to_string(path).await {
        Ok(text) => Ok(Some(Zeroizing::new(text))),
        Err(cause) if matches!(cause.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
        Err(cause) => {
            Err(AwsError::InvalidCredentials { origin: path.display().to_string(), problem: cause.to_string() })
        }
    }
}

/// The section of a name; the last one if there are several.
fn parse(text: &str, name: &str) -> Option<Section> {
    let mut found: Option<Section> = None;
    let mut is_ours = false;
    for line in text.lines().map(str::trim) {
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(header) = line.strip_prefix('[').and_then(|line| line.split(']').next()) {
            is_ours = header.split_whitespace().eq(name.split_whitespace());
            if is_ours {
                found.get_or_insert_default();
            }
        } else if let (true, Some((key, value))) = (is_ours, line.split_once('=')) {
            let value = Zeroizing::new(value.trim().to_owned());
            found.get_or_insert_default().insert(key.trim().to_ascii_lowercase(), value);
        }
    }
    found
}

const DEFAULT: &str = "default";

#[test]
fn sections_are_read_as_aws_writes_them() {
    let text = "# keys\n[default]\naws_access_key_id = A\n\n[ profile  shop ]\nregion=eu-west-1\n; no\n[shop]\nAWS_Access_Key_Id=B = C\n";
    let value =
        |name: &str, key: &str| parse(text, name).and_then(|found| found.get(key).map(|value| value.to_string()));
    assert_eq!(value("default", "aws_access_key_id").as_deref(), Some("A"));
    assert_eq!(value("profile shop", "region").as_deref(), Some("eu-west-1"));
    assert_eq!(value("shop", "aws_access_key_id").as_deref(), Some("B = C"));
    assert!(parse(text, "other").is_none());
}
