//! Finds Envoy, and checks that it is new enough.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::timeout;

use super::options::ProcessOptions;
use super::spawn::{Program, Spawner};
use crate::envoy::State;

/// The oldest Envoy that units are tested to need.
const OLDEST: (u32, u32) = (1, 30);
const VERSION_TIMEOUT: Duration = Duration::from_secs(30);
const HINT: &str = "install Envoy 1.30 or newer, or name it: --envoy-binary";

/// Programs that were found and may be started.
#[derive(Debug, Clone)]
pub(super) struct Programs {
    pub(super) envoy: PathBuf,
    pub(super) setpriv: PathBuf,
}

/// Looks for the programs until they are found, then never again.
#[derive(Default)]
pub(super) struct Finder {
    found: Mutex<Option<Programs>>,
}

impl Finder {
    pub(super) async fn find(&self, options: &ProcessOptions, spawner: &Spawner) -> Result<Programs, State> {
        let mut found = self.found.lock().await;
        if let Some(programs) = &*found {
            return Ok(programs.clone());
        }
        let programs = locate(options)?;
        check_version(&version(&programs, &options.folder, spawner).await?, &programs.envoy)?;
        Ok(found.insert(programs).clone())
    }
}

fn locate(options: &ProcessOptions) -> Result<Programs, State> {
    let on_path = |name: &str| options.search_path.iter().map(|folder| folder.join(name)).find(|path| path.is_file());
    let missing = |what: String| State::Missing(what.into());
    let envoy = match &options.binary {
        Some(path) if path.is_file() => path.clone(),
        Some(path) => return Err(missing(format!("`{}` is not there: {HINT}", path.display()))),
        None => on_path("envoy").ok_or_else(|| missing(format!("no `envoy` in the search path: {HINT}")))?,
    };
    let setpriv = on_path("setpriv");
    let setpriv = setpriv.ok_or_else(|| missing("no `setpriv` in the search path: install util-linux".to_owned()))?;
    let absolute =
        |path: PathBuf| std::path::absolute(&path).map_err(|cause| missing(format!("`{}`: {cause}", path.display())));
    Ok(Programs { envoy: absolute(envoy)?, setpriv: absolute(setpriv)? })
}

/// What the program says to be.
async fn version(programs: &Programs, folder: &Path, spawner: &Spawner) -> Result<String, State> {
    let Programs { envoy, setpriv } = programs;
    let failed = |why: String| State::Missing(format!("`{} --version` failed: {why}: {HINT}", envoy.display()).into());
    let program = Program { setpriv, path: envoy, arguments: vec!["--version".into()], folder, log: None };
    let child = spawner.spawn(program).await.map_err(|cause| failed(cause.to_string()))?;
    let ended = timeout(VERSION_TIMEOUT, child.wait_with_output()).await;
    let output = ended.map_err(|_| failed("it does not end".to_owned()))?.map_err(|cause| failed(cause.to_string()))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        return Err(failed(format!("{}: {}", output.status, words.trim())));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn check_version(answer: &str, path: &Path) -> Result<(), State> {
    let path = path.display();
    match parse_version(answer) {
        Some(version) if version >= OLDEST => Ok(()),
        Some((major, minor)) => Err(State::TooOld(format!("`{path}` is version {major}.{minor}: {HINT}").into())),
        None => Err(State::Missing(format!("`{path} --version` names no version: {HINT}").into())),
    }
}

/// Reads `envoy  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL`.
fn parse_version(answer: &str) -> Option<(u32, u32)> {
    let version = answer.split_once("version:")?.1.split('/').nth(1)?;
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_envoy_is_too_old_and_no_envoy_is_missing() {
        let path = Path::new("/opt/envoy");
        let says = |version| format!("\n/opt/envoy  version: 0123abcd/{version}/Clean/RELEASE/BoringSSL\n\n");
        for good in ["1.30.0", "1.40.0", "2.0.0", "1.41.0-dev"] {
            assert_eq!(check_version(&says(good), path), Ok(()), "{good}");
        }
        for old in ["1.29.12", "0.99.0"] {
            let state = check_version(&says(old), path);
            assert!(matches!(&state, Err(State::TooOld(why)) if why.contains("--envoy-binary")), "{state:?}");
        }
        assert!(matches!(check_version("GNU nano, version 7.2", path), Err(State::Missing(_))));
    }

    #[test]
    fn the_named_program_comes_before_the_search_path() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, "").unwrap();
            path
        };
        let (envoy, own, _) = (file("envoy"), file("own-envoy"), file("setpriv"));
        let mut options = ProcessOptions {
            binary: None,
            search_path: vec!["/nowhere".into(), folder.path().to_owned()],
            folder: folder.path().to_owned(),
            drain: Duration::ZERO,
        };
        assert_eq!(locate(&options).unwrap().envoy, envoy);
        options.binary = Some(own.clone());
        assert_eq!(locate(&options).unwrap().envoy, own);
        options.binary = Some(folder.path().join("gone"));
        assert!(matches!(locate(&options), Err(State::Missing(why)) if why.contains("gone")));
        options = ProcessOptions { binary: None, search_path: Vec::new(), ..options };
        assert!(matches!(locate(&options), Err(State::Missing(why)) if why.contains("install Envoy")));
    }
}
