//! Runs `scenarios/`: each file is a story (given, when, then) and is told to the real operator and simulated agents,
//! on an API server in this process and on a paused clock. `scenarios/README.md` has the words a story is written in.

mod expect;
mod story;
mod world;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use self::story::Story;
use self::world::World;

/// Makes each file of `scenarios/egress` a test of its name.
macro_rules! stories {
    ($($name:ident),* $(,)?) => {
        mod egress {
            $(
                #[test]
                fn $name() -> anyhow::Result<()> {
                    super::tell(&stringify!($name).replace('_', "-"))
                }
            )*
        }

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

stories! {
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

#[test]
fn every_file_is_told() -> anyhow::Result<()> {
    let mut files = BTreeSet::new();
    for entry in std::fs::read_dir(folder())? {
        let file = entry?.path();
        files.extend(file.file_stem().map(|name| name.to_string_lossy().replace('-', "_")));
    }
    assert_eq!(files, NAMES.iter().map(|name| (*name).to_owned()).collect(), "name each file in `stories!`");
    Ok(())
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios/egress")
}

/// Tells one story. The faults follow from its name; uids, and with them ties, differ from run to run.
fn tell(name: &str) -> anyhow::Result<()> {
    let file = folder().join(format!("{name}.yaml"));
    let text = std::fs::read_to_string(&file).with_context(|| format!("{}", file.display()))?;
    let story = Story::read(&text).with_context(|| format!("{}", file.display()))?;
    let seed = story.has_faults().then(|| name.bytes().map(u64::from).sum());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    runtime.block_on(play(&story, seed)).with_context(|| format!("{name}: {}", story.about))
}

async fn play(story: &Story, seed: Option<u64>) -> anyhow::Result<()> {
    let mut world = World::new(seed).await?;
    for object in &story.given {
        world.put(object).await?;
    }
    world.put_tunnels().await?;
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
