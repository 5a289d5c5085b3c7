//! The shared libraries that a program needs, as the dynamic linker finds them.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail, ensure};

/// The paths of the libraries and of the linker itself; none for a static program.
pub(super) fn needed_by(program: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).env("LC_ALL", "C").output().context("starting `ldd` failed")?;
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if text.contains("not a dynamic executable") || text.contains("statically linked") {
        return Ok(Vec::new());
    }
    ensure!(output.status.success(), "`ldd {}` failed: {text}", program.display());
    parse(&text)
}

/// Lines are `name => /path (address)`, `/path (address)` for the linker, and `linux-vdso.so.1 (address)`.
fn parse(text: &str) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for line in text.lines() {
        if line.contains("not found") {
            bail!("a library is missing: {}", line.trim());
        }
        found.extend(line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_and_the_kernels_own_library_is_not() {
        let text = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\t\
                    /lib64/ld-linux-x86-64.so.2 (0x00007f)\n";
        let paths = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(parse(text).unwrap(), paths);
        assert!(parse("\tlibssl.so.3 => not found\n").unwrap_err().to_string().contains("libssl.so.3"));
    }
}
