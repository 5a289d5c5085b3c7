//! Volumes as folders. A Secret that changes is written again, file by file, so that who reads one never sees half of it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Secret;

use super::read::{Plan, Volume, is_file_name};

/// The folder of a pod.
pub(super) struct Folder {
    path: PathBuf,
    /// What secrets put there.
    written: BTreeMap<PathBuf, Vec<u8>>,
}

impl Folder {
    /// Makes the folder.
    pub(super) fn make(path: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&path)?;
        Ok(Self { path, written: BTreeMap::new() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where a volume lies; with a short name, as names of sockets are short.
    pub(super) fn volume(&self, plan: &Plan, name: &str) -> PathBuf {
        let number = plan.volumes.keys().position(|volume| volume == name).unwrap_or_default();
        self.path.join(format!("v{number}"))
    }

    /// Brings the volumes to what their Secrets say; the text says what is missing.
    pub(super) fn fill(&mut self, plan: &Plan, secret: impl Fn(&str) -> Option<Secret>) -> Result<(), String> {
        let mut wanted = BTreeMap::new();
        for (name, volume) in &plan.volumes {
            let folder = self.volume(plan, name);
            std::fs::create_dir_all(&folder).map_err(|error| format!("volume `{name}`: {error}"))?;
            let Volume::Secret { name: of, optional, files } = volume else { continue };
            let Some(secret) = secret(of) else {
                if *optional {
                    continue;
                }
                return Err(format!("volume `{name}`: secret `{of}` is not there: create it"));
            };
            let data = secret.data.unwrap_or_default();
            let all = || data.keys().map(|key| (key.clone(), key.clone())).collect();
            for (file, key) in files.clone().unwrap_or_else(all) {
                match data.get(&key).filter(|_| is_file_name(&file)) {
                    Some(content) => _ = wanted.insert(folder.join(file), content.0.clone()),
                    None if *optional => {}
                    None => return Err(format!("volume `{name}`: secret `{of}` has no key `{key}`: add it")),
                }
            }
        }
        self.write(wanted).map_err(|error| format!("writing secrets failed: {error}"))
    }

    fn write(&mut self, wanted: BTreeMap<PathBuf, Vec<u8>>) -> io::Result<()> {
        for (path, content) in &wanted {
            if self.written.get(path) != Some(content) {
                let half = self.path.join("half");
                std::fs::write(&half, content)?;
                std::fs::rename(&half, path)?;
            }
        }
        for path in self.written.keys().filter(|path| !wanted.contains_key(*path)) {
            std::fs::remove_file(path)?;
        }
        self.written = wanted;
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It lies in a folder that goes at the end anyway.
        std::fs::remove_dir_all(&self.path).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;

    fn secret(data: &[(&str, &str)]) -> Secret {
        let data = data.iter().map(|(key, text)| ((*key).to_owned(), ByteString(text.as_bytes().to_vec()))).collect();
        Secret { data: Some(data), ..Secret::default() }
    }

    #[test]
    fn volumes_follow_their_secrets() {
        let parent = tempfile::tempdir().unwrap();
        let mut folder = Folder::make(parent.path().join("1")).unwrap();
        let token = Volume::Secret { name: "s".to_owned(), optional: false, files: None };
        let volumes = [("sock".to_owned(), Volume::Nothing), ("token".to_owned(), token)].into();
        let plan = Plan { volumes, containers: Vec::new() };
        let missing = folder.fill(&plan, |_| None).unwrap_err();
        assert!(missing.contains("secret `s` is not there"), "{missing}");

        folder.fill(&plan, |_| Some(secret(&[("token", "a"), ("more", "b")]))).unwrap();
        let file = |name: &str| std::fs::read_to_string(folder.volume(&plan, "token").join(name)).ok();
        assert_eq!((file("token").as_deref(), file("more").as_deref()), (Some("a"), Some("b")));
        let at = folder.volume(&plan, "token");

        folder.fill(&plan, |_| Some(secret(&[("token", "c")]))).unwrap();
        let left: Vec<_> = std::fs::read_dir(&at).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(left, ["token"]);
        assert_eq!(std::fs::read_to_string(at.join("token")).unwrap(), "c");
        drop(folder);
        assert!(!at.exists());
    }
}
