//! Container images without a container engine: one layer, written as an OCI archive that `ctr images import`,
//! `skopeo` and `docker load` read.
//!
//! The same files give the same bytes: entries are sorted, owned by root and dated 1970.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, ensure};
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

mod libraries;
pub mod sbom;

/// The user that programs of our images run as, unless a pod says otherwise.
pub const USER: u32 = 65532;

/// The files and settings of an image.
#[derive(Debug, Clone, Default)]
pub struct Image {
    /// The full name with its tag, such as `docker.io/library/portolan:0.1.0`.
    pub name: String,
    /// What is run, with its first words.
    pub entrypoint: Vec<String>,
    /// Labels of the image, as in <https://specs.opencontainers.org/image-spec/annotations/>.
    pub labels: BTreeMap<String, String>,
    files: BTreeMap<PathBuf, File>,
}

#[derive(Debug, Clone)]
struct File {
    content: Vec<u8>,
    mode: u32,
}

impl Image {
    /// An image of one program, stripped, with the shared libraries that it needs and what the resolver of glibc reads.
    pub fn of_program(name: &str, program: &Path) -> anyhow::Result<Self> {
        let file_name = program.file_name().context("a program has a file name")?;
        let inside = Path::new("/usr/bin").join(file_name);
        let mut image =
            Self { name: name.to_owned(), entrypoint: vec![inside.display().to_string()], ..Self::default() };
        image.add(&inside, stripped(program)?, 0o755);
        for library in libraries::needed_by(program)? {
            let content = fs::read(&library).with_context(|| format!("reading {} failed", library.display()))?;
            image.add(&library, content, 0o755);
        }
        image.add(Path::new("/etc/nsswitch.conf"), "hosts: files dns\n".into(), 0o644);
        image.add(Path::new("/etc/passwd"), format!("portolan:x:{USER}:{USER}::/:/sbin/nologin\n").into(), 0o644);
        image.add(Path::new("/etc/group"), format!("portolan:x:{USER}:\n").into(), 0o644);
        Ok(image)
    }

    /// Adds a file at an absolute path.
    pub fn add(&mut self, path: &Path, content: Vec<u8>, mode: u32) {
        let path = path.strip_prefix("/").unwrap_or(path).to_owned();
        self.files.insert(path, File { content, mode });
    }

    /// The bytes of the OCI archive.
    pub fn archive(&self) -> anyhow::Result<Vec<u8>> {
        let layer = self.layer()?;
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let config = json!({
            "architecture": architecture,
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": { "User": format!("{USER}:{USER}"), "Entrypoint": self.entrypoint, "Labels": self.labels },
            "rootfs": { "type": "layers", "diff_ids": [digest_of(&layer)] },
            "history": [{ "created": "1970-01-01T00:00:00Z", "created_by": "cargo xtask image" }],
        });
        let config = serde_json::to_vec(&config)?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
            "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
            "annotations": self.labels,
        });
        let manifest = serde_json::to_vec(&manifest)?;
        let mut listed = descriptor("application/vnd.oci.image.manifest.v1+json", &manifest);
        let tag = self.name.rsplit(':').next().unwrap_or_default();
        listed["annotations"] = json!({
            "io.containerd.image.name": self.name,
            "org.opencontainers.image.ref.name": tag,
        });
        listed["platform"] = json!({ "architecture": architecture, "os": "linux" });
        let index = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.index.v1+json",
            "manifests": [listed],
        });
        let mut archive = BTreeMap::from([
            (PathBuf::from("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
            (PathBuf::from("index.json"), serde_json::to_vec(&index)?),
        ]);
        for blob in [layer, config, manifest] {
            archive.insert(Path::new("blobs/sha256").join(hex_digest(&blob)), blob);
        }
        let files = archive.into_iter().map(|(path, content)| (path, File { content, mode: 0o644 })).collect();
        tar(&files)
    }

    fn layer(&self) -> anyhow::Result<Vec<u8>> {
        tar(&self.files)
    }
}

/// The program without symbols.
fn stripped(program: &Path) -> anyhow::Result<Vec<u8>> {
    let stripped = tempfile::NamedTempFile::new()?;
    let mut strip = Command::new("strip");
    let status = strip.args(["--strip-all", "-o"]).arg(stripped.path()).arg(program).status();
    let status = status.context("starting `strip` failed: it is in Debian's package binutils")?;
    ensure!(status.success(), "stripping {} failed ({status})", program.display());
    Ok(fs::read(stripped.path())?)
}

/// An archive of files and of the folders above them.
fn tar(files: &BTreeMap<PathBuf, File>) -> anyhow::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut folders: Vec<&Path> = files.keys().flat_map(|path| path.ancestors().skip(1)).collect();
    folders.retain(|folder| !folder.as_os_str().is_empty());
    folders.sort_unstable();
    folders.dedup();
    for folder in folders {
        let mut header = header(0o755, 0);
        header.set_entry_type(tar::EntryType::Directory);
        archive.append_data(&mut header, format!("{}/", folder.display()), &[][..])?;
    }
    for (path, File { content, mode }) in files {
        archive.append_data(&mut header(*mode, content.len()), path, content.as_slice())?;
    }
    Ok(archive.into_inner()?)
}

fn header(mode: u32, size: usize) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_mode(mode);
    header.set_size(size as u64);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn descriptor(media_type: &str, blob: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest_of(blob), "size": blob.len() })
}

/// The digest of a blob as OCI writes it.
pub fn digest_of(blob: &[u8]) -> String {
    format!("sha256:{}", hex_digest(blob))
}

fn hex_digest(blob: &[u8]) -> String {
    digest(&SHA256, blob).as_ref().iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").expect("a string takes what is written");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Image {
        let mut image = Image { name: "example.org/a:1".into(), entrypoint: vec!["/b".into()], ..Image::default() };
        image.add(Path::new("/usr/bin/b"), b"two".to_vec(), 0o755);
        image.add(Path::new("/a"), b"one".to_vec(), 0o644);
        image
    }

    #[test]
    fn the_same_files_give_the_same_archive() {
        assert_eq!(image().archive().unwrap(), image().archive().unwrap());
        let mut other = image();
        other.add(Path::new("/a"), b"One".to_vec(), 0o644);
        assert_ne!(image().archive().unwrap(), other.archive().unwrap());
    }

    #[test]
    fn every_blob_is_named_by_its_digest_and_the_index_leads_to_the_layer() {
        let bytes = image().archive().unwrap();
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut content = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut content).unwrap();
            files.insert(entry.path().unwrap().display().to_string(), content);
        }
        let read = |name: &str| serde_json::from_slice::<Value>(&files[name]).unwrap();
        let blob = |descriptor: &Value| {
            let name = descriptor["digest"].as_str().unwrap().replace("sha256:", "blobs/sha256/");
            assert_eq!(descriptor["size"], files[&name].len());
            assert_eq!(descriptor["digest"], digest_of(&files[&name]));
            files[&name].clone()
        };
        let listed = &read("index.json")["manifests"][0];
        assert_eq!(listed["annotations"]["io.containerd.image.name"], "example.org/a:1");
        let manifest: Value = serde_json::from_slice(&blob(listed)).unwrap();
        let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
        let layer = blob(&manifest["layers"][0]);
        assert_eq!(config["rootfs"]["diff_ids"][0], digest_of(&layer));
        assert_eq!(config["config"]["User"], "65532:65532");
        let paths: Vec<String> = tar::Archive::new(layer.as_slice())
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        assert_eq!(paths, ["usr/", "usr/bin/", "a", "usr/bin/b"]);
    }
}
