//! What AWS's own tools read from the environment.

use std::fmt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

/// Settings by the names of AWS's variables. Whoever owns the environment fills them in.
#[derive(Clone, Default)]
pub struct AwsSettings {
    /// `AWS_REGION`, or else `AWS_DEFAULT_REGION`.
    pub region: Option<String>,
    /// `AWS_ACCESS_KEY_ID`.
    pub access_key_id: Option<String>,
    /// `AWS_SECRET_ACCESS_KEY`.
    pub secret_access_key: Option<Zeroizing<String>>,
    /// `AWS_SESSION_TOKEN`.
    pub session_token: Option<Zeroizing<String>>,
    /// `AWS_WEB_IDENTITY_TOKEN_FILE`.
    pub web_identity_token_file: Option<PathBuf>,
    /// `AWS_ROLE_ARN`.
    pub role_arn: Option<String>,
    /// `AWS_ROLE_SESSION_NAME`.
    pub role_session_name: Option<String>,
    /// `AWS_SHARED_CREDENTIALS_FILE`: a file, or the folder of a mounted Secret.
    pub shared_credentials_file: Option<PathBuf>,
    /// `AWS_CONFIG_FILE`.
    pub config_file: Option<PathBuf>,
    /// `AWS_PROFILE`.
    pub profile: Option<String>,
    /// `AWS_ENDPOINT_URL_EC2`.
    pub ec2_endpoint: Option<String>,
    /// `AWS_ENDPOINT_URL_STS`.
    pub sts_endpoint: Option<String>,
    /// `AWS_EC2_METADATA_SERVICE_ENDPOINT`.
    pub metadata_endpoint: Option<String>,
    /// `AWS_EC2_METADATA_DISABLED`.
    pub metadata_disabled: bool,
}

// Secrets are in no log.
impl fmt::Debug for AwsSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsSettings")
            .field("region", &self.region)
            .field("access_key_id", &self.access_key_id)
            .field("role_arn", &self.role_arn)
            .field("profile", &self.profile)
            .field("ec2_endpoint", &self.ec2_endpoint)
            .finish_non_exhaustive()
    }
}

impl AwsSettings {
    /// True if somebody says where AWS is, or who we are to it.
    pub const fn is_set_up(&self) -> bool {
        self.region.is_some()
            || self.access_key_id.is_some()
            || self.role_arn.is_some()
            || self.profile.is_some()
            || self.ec2_endpoint.is_some()
    }

    /// Reads the variables with a function. Empty ones count as not set.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let path = |name: &str| set(name).map(PathBuf::from);
        let home = path("HOME");
        let in_home = |name: &str| home.as_deref().map(|home| Path::new(home).join(".aws").join(name));
        Self {
            region: set("AWS_REGION").or_else(|| set("AWS_DEFAULT_REGION")),
            access_key_id: set("AWS_ACCESS_KEY_ID"),
            secret_access_key: set("AWS_SECRET_ACCESS_KEY").map(Zeroizing::new),
            session_token: set("AWS_SESSION_TOKEN").map(Zeroizing::new),
            web_identity_token_file: path("AWS_WEB_IDENTITY_TOKEN_FILE"),
            role_arn: set("AWS_ROLE_ARN"),
            role_session_name: set("AWS_ROLE_SESSION_NAME"),
            shared_credentials_file: path("AWS_SHARED_CREDENTIALS_FILE").or_else(|| in_home("credentials")),
            config_file: path("AWS_CONFIG_FILE").or_else(|| in_home("config")),
            profile: set("AWS_PROFILE"),
            ec2_endpoint: set("AWS_ENDPOINT_URL_EC2"),
            sts_endpoint: set("AWS_ENDPOINT_URL_STS"),
            metadata_endpoint: set("AWS_EC2_METADATA_SERVICE_ENDPOINT"),
            metadata_disabled: set("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")),
        }
    }
}
