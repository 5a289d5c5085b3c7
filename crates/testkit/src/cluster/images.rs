//! The images that every node of a cluster has: the sandbox of pods, and the test app.

use std::path::Path;

use crate::image::Image;

/// The sandbox of every pod.
pub(super) const PAUSE: &str = "docker.io/library/portolan-pause:1";
/// Echo servers and senders: see `portolan-testapp`.
pub const TEST_APP: &str = "docker.io/library/portolan-testapp:1";

/// Archives of both, made of the test app's program.
pub(super) fn archives(test_app: &Path) -> anyhow::Result<Vec<Vec<u8>>> {
    let app = Image::of_program(TEST_APP, test_app)?;
    let mut pause = app.clone();
    PAUSE.clone_into(&mut pause.name);
    pause.entrypoint.push("pause".to_owned());
    Ok(vec![pause.archive()?, app.archive()?])
}
