//! The Secret in which all replicas find the same authority.
//!
//! It is read by name alone and written under its resource version: the first writer wins, the others adopt what
//! they find. Serving keys are not in it; each replica signs its own.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::{Api, Client};
use portolan_certs::CertificateAuthority;
use serde::{Deserialize, Serialize};

use super::rotation::{Authority, Stage};
use super::{Error, Purpose};

const CURRENT: [&str; 2] = ["ca.crt", "ca.key"];
const NEXT: [&str; 2] = ["next-ca.crt", "next-ca.key"];
const OLD: &str = "old-ca.crt";
const ROTATION: &str = "rotation.json";

type Data = BTreeMap<String, ByteString>;

/// One Secret, by name.
pub struct Store {
    api: Api<Secret>,
    name: String,
    what: String,
    purpose: Purpose,
}

/// What a read found.
pub struct Found {
    secret: Secret,
    /// None when the Secret is empty, or damaged beyond use.
    pub authority: Option<Authority>,
}

/// What the certificates do not say about themselves.
#[derive(Serialize, Deserialize)]
struct Rotation {
    current: About,
    stage: StageRecord,
}

#[derive(Serialize, Deserialize)]
struct About {
    name: String,
    made: Timestamp,
    expires: Timestamp,
}

#[derive(Serialize, Deserialize)]
enum StageRecord {
    Steady,
    Announced { next: About, since: Option<Timestamp> },
    Retiring { since: Timestamp },
}

impl Store {
    pub fn new(client: Client, namespace: &str, name: &str, purpose: Purpose) -> Self {
        let what = format!("Secret `{namespace}/{name}`");
        Self { api: Api::namespaced(client, namespace), name: name.to_owned(), what, purpose }
    }

    /// Reads the Secret; what is not ours is an error, what is ours but damaged is not.
    pub async fn read(&self) -> Result<Option<Found>, Error> {
        let read = self.api.get_opt(&self.name).await;
        let Some(mut secret) = read.map_err(|cause| Error::request("reading", &self.what, cause))? else {
            return Ok(None);
        };
        let data = secret.data.take().unwrap_or_default();
        if !data.is_empty() && !data.contains_key(ROTATION) {
            return Err(Error::ForeignSecret { what: self.what.clone() });
        }
        let authority = from_data(&data);
        if authority.is_none() && !data.is_empty() {
            tracing::warn!(secret = self.what, "the authority in this Secret is damaged and will be replaced");
        }
        Ok(Some(Found { secret, authority }))
    }

    /// Writes the authority unless someone else wrote meanwhile, and tells whether it did.
    pub async fn write(&self, found: Option<Found>, authority: &Authority) -> Result<bool, Error> {
        let params = PostParams { field_manager: Some(self.purpose.manager.to_owned()), ..PostParams::default() };
        let data = Some(to_data(authority)?);
        let exists = found.is_some();
        let written = if let Some(Found { mut secret, .. }) = found {
            secret.metadata.managed_fields = None;
            self.api.replace(&self.name, &params, &Secret { data, ..secret }).await
        } else {
            let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
            let secret =
                Secret { metadata, data, type_: Some(self.purpose.secret_type.to_owned()), ..Secret::default() };
            self.api.create(&params, &secret).await
        };
        match written {
            Ok(_) => Ok(true),
            // Made or changed meanwhile (409), or deleted meanwhile (404).
            Err(kube::Error::Api(status)) if status.code == 409 || (exists && status.is_not_found()) => {
                tracing::debug!(secret = self.what, %status, "someone else was faster");
                Ok(false)
            }
            Err(cause) => Err(Error::request("writing", &self.what, cause)),
        }
    }
}

/// Deletes the Secret of an authority that nobody needs any more; what is not ours stays.
pub async fn delete_authority(
    client: &Client,
    namespace: &str,
    name: &str,
    purpose: Purpose,
) -> Result<(), kube::Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    match api.get_opt(name).await? {
        Some(secret) if secret.type_.as_deref() == Some(purpose.secret_type) => {
            match api.delete(name, &DeleteParams::default()).await {
                Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
                other => other.map(drop),
            }
        }
        Some(_) | None => Ok(()),
    }
}

fn to_data(authority: &Authority) -> Result<Data, Error> {
    let Authority { current, stage } = authority;
    let mut entries = vec![(CURRENT[0], &current.certificate), (CURRENT[1], &current.key)];
    let record = match stage {
        Stage::Steady => StageRecord::Steady,
        Stage::Announced { next, since } => {
            entries.extend([(NEXT[0], &next.certificate), (NEXT[1], &next.key)]);
            StageRecord::Announced { next: about(next), since: *since }
        }
        Stage::Retiring { old, since } => {
            entries.push((OLD, old));
            StageRecord::Retiring { since: *since }
        }
    };
    let rotation = serde_json::to_vec(&Rotation { current: about(current), stage: record })
        .map_err(|cause| Error::Record { cause })?;
    let texts = entries.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes())));
    Ok(texts.chain([(ROTATION.to_owned(), ByteString(rotation))]).collect())
}

fn from_data(data: &Data) -> Option<Authority> {
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    let ca = |About { name, made, expires }, [certificate, key]: [&str; 2]| {
        Some(CertificateAuthority { name, made, expires, certificate: text(certificate)?, key: text(key)? })
    };
    let Rotation { current, stage } = serde_json::from_slice(&data.get(ROTATION)?.0).ok()?;
    let stage = match stage {
        StageRecord::Steady => Stage::Steady,
        StageRecord::Announced { next, since } => Stage::Announced { next: ca(next, NEXT)?, since },
        StageRecord::Retiring { since } => Stage::Retiring { old: text(OLD)?, since },
    };
    Some(Authority { current: ca(current, CURRENT)?, stage })
}

fn about(ca: &CertificateAuthority) -> About {
    About { name: ca.name.clone(), made: ca.made, expires: ca.expires }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::authority::{Facts, Schedule};

    const TEST: Purpose = Purpose { name: "test-ca", secret_type: "test", manager: "test" };

    #[test]
    fn what_is_written_is_read_back_at_every_stage() {
        for (stage, authority) in stages() {
            let data = to_data(&authority).unwrap();
            let back = from_data(&data).unwrap();
            assert_eq!((back.stage.name(), back.bundle()), (stage, authority.bundle()));
            assert!(back.current.works(back.current.made), "{stage}");
            assert_eq!(to_data(&back).unwrap(), data, "{stage}");
        }
    }

    #[test]
    fn a_secret_that_lacks_any_of_its_keys_is_damaged_but_never_a_panic() {
        for (stage, authority) in stages() {
            let data = to_data(&authority).unwrap();
            for key in data.keys() {
                let mut damaged = data.clone();
                damaged.remove(key);
                assert!(from_data(&damaged).is_none(), "{stage} without {key}");
                damaged.insert(key.clone(), ByteString(vec![0xff, 0xfe]));
                assert!(from_data(&damaged).is_none(), "{stage} with garbage in {key}");
            }
        }
    }

    fn stages() -> Vec<(&'static str, Authority)> {
        let schedule = Schedule::default();
        let mut now = Timestamp::now();
        let mut authority = Authority::new(now, TEST, &schedule).unwrap();
        let mut stages = vec![(authority.stage.name(), authority.clone())];
        for _ in 0..3 {
            authority = authority.step(now, Facts { published: true, rotate: true }, TEST, &schedule).unwrap().unwrap();
            stages.push((authority.stage.name(), authority.clone()));
            now += schedule.settle;
        }
        stages
    }
}
