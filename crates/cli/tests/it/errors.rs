use crate::{Ran, portolan};

#[test]
fn a_command_that_this_version_lacks_says_so_and_exits_2() {
    let error = "the node agent is not part of this version";
    assert_eq!(portolan("agent"), told(error, "see what this version has: portolan --version"));
}

#[test]
fn flags_that_contradict_each_other_are_refused_before_a_cluster_is_asked() {
    let error = "--egress-no-ipv4 and --egress-no-ipv6 together leave no address family";
    let ran = portolan("operator --egress-no-ipv4 --egress-no-ipv6 --kubeconfig none");
    assert_eq!(ran, told(error, "see its usage: portolan operator --help"));
}

#[test]
fn words_that_are_not_understood_are_explained_with_a_command_to_paste() {
    for (line, error, hint) in [
        ("", "no command given", "see its usage: portolan --help"),
        ("sail", "`sail` is not a command", "see its usage: portolan --help"),
        ("operater", "`operater` is not a command", "did you mean `operator`? See portolan --help"),
        ("up --fast", "`--fast` is not an argument of this command", "see its usage: portolan up --help"),
        (
            "crds --outputdir x",
            "`--outputdir` is not an argument of this command",
            "did you mean `--output-dir`? See portolan crds --help",
        ),
        ("crds --output-dir", "`--output-dir <DIR>` needs a value", "see its usage: portolan crds --help"),
        ("completions", "`<SHELL>` is missing", "see its usage: portolan completions --help"),
        (
            "operator --capabilities egres",
            "`egres` is not a value of `--capabilities <NAME>`: use egress, gateway, gateway-client, ipam, mesh, mirror",
            "did you mean `egress`? See portolan operator --help",
        ),
        (
            "proxy",
            "neither a configuration nor --api is given",
            "pass a file with -c, a configuration with --inline, or an address with --api",
        ),
        (
            "proxy -l loud",
            "`loud` is not a value of `--log-level <LEVEL>`: use silly, verbose, info, notice, warn, error, silent",
            "see its usage: portolan proxy --help",
        ),
        ("-q -q up", "the argument '--quiet' cannot be used multiple times", "see its usage: portolan up --help"),
    ] {
        assert_eq!(portolan(line), told(error, hint), "{line}");
    }
}

#[test]
fn quiet_silences_notes_but_not_errors() {
    let unreachable = "status egress --kubeconfig none";
    assert!(portolan(unreachable).stderr.starts_with("error: no cluster configured"));
    assert_eq!(portolan(&format!("{unreachable} -q")), portolan(unreachable), "an error is not a note");
    assert_eq!(portolan(unreachable).exit, Some(3));
    assert_ne!(portolan("agent -q").stderr, "");
}

#[test]
fn an_api_server_that_does_not_respond_is_named_with_the_cause() -> anyhow::Result<()> {
    let reserved = portolan_testkit::ReservedAddress::new()?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("kubeconfig");
    let server = format!("http://{}", reserved.address());
    std::fs::write(
        &path,
        format!(
            "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{server: '{server}'}}}}], \
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}], users: [{{name: u, user: {{}}}}]}}"
        ),
    )?;
    for command in ["status egress", "why policy web", "doctor"] {
        let Ran { exit, stdout, stderr } = portolan(&format!("{command} --kubeconfig {}", path.display()));
        assert_eq!((exit, stdout.as_str()), (Some(3), ""), "{stderr}");
        assert!(stderr.contains(&server) && stderr.contains("Connection refused"), "{stderr}");
        assert_eq!(stderr.matches("Connection refused").count(), 1, "{stderr}");
    }
    Ok(())
}

/// A run that printed an error in our form, and nothing else.
fn told(error: &str, hint: &str) -> Ran {
    Ran { exit: Some(2), stdout: String::new(), stderr: format!("error: {error}\n\nhint: {hint}\n") }
}
