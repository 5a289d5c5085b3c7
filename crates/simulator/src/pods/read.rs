//! Pod -> what to start. What cannot be done here is said in words for the pod's status.

use std::collections::BTreeMap;
use std::path::{Component, Path};

use portolan_apiserver::controllers::slim::{self, Pod};

/// What a pod runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) volumes: BTreeMap<String, Volume>,
    pub(super) containers: Vec<Container>,
}

/// What a volume holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Volume {
    Nothing,
    Secret {
        name: String,
        optional: bool,
        /// Files and their keys; none for all keys under their own names.
        files: Option<BTreeMap<String, String>>,
    },
}

/// A container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Container {
    pub(super) name: String,
    /// What follows the word `proxy`.
    pub(super) arguments: Vec<String>,
    pub(super) environment: BTreeMap<String, String>,
    /// Volumes by the path that they are mounted at.
    pub(super) mounts: BTreeMap<String, String>,
}

/// Whether every container of a pod is of this image, of whatever version.
pub(super) fn is_of(pod: &Pod, image: &str) -> bool {
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let same = |one: &slim::Container| {
        let name = one.image.as_deref().unwrap_or_default();
        name == image || name.strip_prefix(image).is_some_and(|version| version.starts_with(':'))
    };
    !containers.is_empty() && containers.iter().all(same)
}

/// Reads what a pod runs, or why it cannot run here.
pub(super) fn read(pod: &Pod) -> Result<Plan, String> {
    let Some(spec) = &pod.spec else { return Err("the pod has no spec".to_owned()) };
    if let Some(first) = spec.init_containers.iter().flatten().next() {
        return Err(format!("init container `{}` does not run here: leave it out", first.name));
    }
    let volumes = spec.volumes.iter().flatten().map(|one| Ok((one.name.clone(), volume(one)?)));
    let volumes: BTreeMap<String, Volume> = volumes.collect::<Result<_, String>>()?;
    let containers = spec.containers.iter().map(|one| container(one, &volumes)).collect::<Result<_, String>>()?;
    Ok(Plan { volumes, containers })
}

fn volume(volume: &slim::Volume) -> Result<Volume, String> {
    let name = &volume.name;
    if volume.empty_dir.is_some() {
        return Ok(Volume::Nothing);
    }
    let Some(secret) = &volume.secret else {
        return Err(format!("volume `{name}` is neither emptyDir nor secret, and no other kind is there here"));
    };
    let files = match &secret.items {
        None => None,
        Some(items) if items.iter().all(|item| is_file_name(&item.path)) => {
            Some(items.iter().map(|item| (item.path.clone(), item.key.clone())).collect())
        }
        Some(_) => return Err(format!("volume `{name}`: paths of items are plain file names here")),
    };
    Ok(Volume::Secret {
        name: secret.secret_name.clone().unwrap_or_default(),
        optional: secret.optional == Some(true),
        files,
    })
}

fn container(container: &slim::Container, volumes: &BTreeMap<String, Volume>) -> Result<Container, String> {
    let name = &container.name;
    let arguments = container.args.as_deref().unwrap_or_default();
    let proxy = arguments.split_first().filter(|(first, _)| *first == "proxy");
    let Some((_, arguments)) = proxy.filter(|_| container.command.as_ref().is_none_or(Vec::is_empty)) else {
        return Err(format!("container `{name}`: only `args: [proxy, ...]` without a command runs here"));
    };
    let mut environment = BTreeMap::new();
    for variable in container.env.iter().flatten() {
        if variable.value_from.is_some() {
            return Err(format!("container `{name}`: variable `{}` needs a plain value here", variable.name));
        }
        environment.insert(variable.name.clone(), variable.value.clone().unwrap_or_default());
    }
    let mut mounts = BTreeMap::new();
    for mount in container.volume_mounts.iter().flatten() {
        let path = &mount.mount_path;
        if mount.sub_path.is_some() || mount.sub_path_expr.is_some() || !is_whole(path) {
            return Err(format!("container `{name}`: {path} is mounted whole or not at all here"));
        }
        if !volumes.contains_key(&mount.name) {
            return Err(format!("container `{name}` mounts volume `{}`, which is not there", mount.name));
        }
        mounts.insert(path.clone(), mount.name.clone());
    }
    Ok(Container { name: name.clone(), arguments: arguments.to_vec(), environment, mounts })
}

/// Whether a file of this name stays where it is put.
pub(super) fn is_file_name(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name)
}

fn is_whole(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    path.starts_with('/') && parts.all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: &Value) -> Pod {
        serde_json::from_value(json!({ "metadata": { "name": "p" }, "spec": spec })).unwrap()
    }

    #[test]
    fn a_sidecar_is_read_with_its_volumes() {
        let pod = pod(&json!({
            "volumes": [
                { "name": "sock", "emptyDir": {} },
                { "name": "token", "secret": { "secretName": "portolan-proxy" } },
                { "name": "one", "secret": { "secretName": "s", "optional": true, "items": [{ "key": "k", "path": "f" }] } },
            ],
            "containers": [{
                "name": "l7mp", "image": "portolan:1", "args": ["proxy", "--api", "0.0.0.0:1234"],
                "env": [{ "name": "A", "value": "b" }],
                "volumeMounts": [{ "name": "sock", "mountPath": "/var/run/sock" }],
            }],
        }));
        assert!(is_of(&pod, "portolan") && !is_of(&pod, "port"));
        let Plan { volumes, containers } = read(&pod).unwrap();
        let secret = |name: &str, optional, files| Volume::Secret { name: name.to_owned(), optional, files };
        assert_eq!(volumes["sock"], Volume::Nothing);
        assert_eq!(volumes["token"], secret("portolan-proxy", false, None));
        assert_eq!(volumes["one"], secret("s", true, Some([("f".to_owned(), "k".to_owned())].into())));
        assert_eq!(containers[0].arguments, ["--api", "0.0.0.0:1234"]);
        assert_eq!(containers[0].environment["A"], "b");
        assert_eq!(containers[0].mounts["/var/run/sock"], "sock");
    }

    #[test]
    fn what_cannot_run_here_is_said() {
        let args = json!(["proxy"]);
        for (spec, word) in [
            (json!({ "containers": [{ "name": "c", "args": ["agent"] }] }), "args: [proxy, ...]"),
            (json!({ "containers": [{ "name": "c" }] }), "args: [proxy, ...]"),
            (json!({ "containers": [{ "name": "c", "command": ["sh"], "args": args }] }), "without a command"),
            (json!({ "initContainers": [{ "name": "i" }], "containers": [] }), "init container `i`"),
            (json!({ "volumes": [{ "name": "v", "hostPath": { "path": "/" } }], "containers": [] }), "volume `v`"),
            (
                json!({ "containers": [{ "name": "c", "args": args, "volumeMounts": [{ "name": "v", "mountPath": "/x" }] }] }),
                "volume `v`, which is not there",
            ),
            (
                json!({
                    "volumes": [{ "name": "v", "emptyDir": {} }],
                    "containers": [{ "name": "c", "args": args, "volumeMounts": [{ "name": "v", "mountPath": "/a/../b" }] }],
                }),
                "mounted whole",
            ),
            (
                json!({ "volumes": [{ "name": "v", "secret": { "items": [{ "key": "k", "path": "../x" }] } }], "containers": [] }),
                "plain file names",
            ),
            (
                json!({ "containers": [{ "name": "c", "args": args, "env": [{ "name": "E", "valueFrom": {} }] }] }),
                "variable `E`",
            ),
        ] {
            let refused = read(&pod(&spec)).unwrap_err();
            assert!(refused.contains(word), "{refused}");
        }
    }
}
