//! Runs `scenarios/`: each file is a story (given, when, then) and is told to the real operator, simulated agents and
//! proxies, on an API server in this process and on a paused clock. `scenarios/README.md` has the words a story is
//! written in. A folder is named after its capability.

mod expect;
mod proxies;
mod story;
mod world;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use self::story::Story;
use self::world::World;

/// Makes each file of a capability's folder a test of its name.
macro_rules! stories {
    ($($capability:ident { $($name:ident),* $(,)? })*) => {
        $(
            mod $capability {
                $(
                    #[test]
                    fn $name() -> anyhow::Result<()> {
                        super::tell(stringify!($capability), &stringify!($name).replace('_', "-"))
                    }
                )*
            }
        )*

        const NAMES: &[(&str, &[&str])] = &[$((stringify!($capability), &[$(stringify!($name)),*])),*];
    };
}

stories! {
    egress {
    address_explicit,
    address_mode_default,
    address_mode_limit,
    address_mode_prefer_unallocated,
    address_mode_random,
    bad_object_steps_aside,
    default_gateway_appears,
    default_gateway_twice,
    default_gateways,
    document_example,
    dual_stack_uneven,
    dual_stack,
    events,
    gateway_addresses_reduced,
    gateway_deleted,
    gateway_selector_changed,
    import_epis,
    import_marks,
    no_ready_node,
    node_address,
    node_deleted,
    node_drained,
    node_flaps,
    node_label_enters_selector,
    node_label_leaves_selector,
    node_mode_average,
    node_mode_fewest_nodes,
    node_mode_limit,
    node_not_ready,
    nodes_come_back_together,
    not_allowed,
    overlap_and_priority,
    overlap_of_kinds,
    pods_change,
    policy_created,
    policy_deleted,
    policy_other_gateway,
    pool_empty,
    pool_inside_cluster,
    pools_overlap,
    restart_moves_nothing,
    standby,
    status_is_not_a_wish,
    tunnel_phase,
    }
    mesh {
        bad_object_steps_aside,
        cross_namespace,
        endpoint_refused,
        endpoints_change,
        events,
        generated_objects,
        no_proxy,
        pods_come_and_go,
        port_conflict,
        programmed,
        proxy_away,
        proxy_refuses,
        proxy_restarts,
        restart_changes_nothing,
        rule_order,
        shared_route,
        target_appears,
        unresolved_target,
    }
}

#[test]
fn every_file_is_told() -> anyhow::Result<()> {
    let mut capabilities = BTreeSet::new();
    for entry in std::fs::read_dir(folder(""))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            capabilities.insert(entry.file_name().to_string_lossy().into_owned());
        }
    }
    assert_eq!(capabilities, NAMES.iter().map(|(capability, _)| (*capability).to_owned()).collect());
    for (capability, names) in NAMES {
        let mut files = BTreeSet::new();
        for entry in std::fs::read_dir(folder(capability))? {
            let file = entry?.path();
            files.extend(file.file_stem().map(|name| name.to_string_lossy().replace('-', "_")));
        }
        let named: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        assert_eq!(files, named, "name each file of scenarios/{capability} in `stories!`");
    }
    Ok(())
}

fn folder(capability: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios").join(capability)
}

/// Tells one story. The faults follow from its name; uids, and with them ties, differ from run to run.
fn tell(capability: &str, name: &str) -> anyhow::Result<()> {
    let file = folder(capability).join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
    let story = Story::read(&text).with_context(|| format!("{}", file.display()))?;
    let seed = story.has_faults().then(|| name.bytes().map(u64::from).sum());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(play(capability, &story, seed)).with_context(|| format!("{name}: {}", story.about))
}

async fn play(capability: &str, story: &Story, seed: Option<u64>) -> anyhow::Result<()> {
    let mut world = World::new(capability, seed).await?;
    for object in &story.given {
        world.put(object).await?;
    }
    world.put_tunnels().await?;
    world.put_slices().await?;
    world.start()?;
    for (number, act) in story.acts().enumerate() {
        for step in &act.when {
            world.take(step).await?;
        }
        let wrong = world.compare(&act.then).await?;
        let lines: Vec<String> = wrong.iter().map(|wrong| format!("act {}: {wrong}", number + 1)).collect();
        anyhow::ensure!(lines.is_empty(), "{}", lines.join("\n"));
    }
    world.end().await
}
