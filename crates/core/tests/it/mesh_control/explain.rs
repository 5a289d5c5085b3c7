//! Which step decided over each name, told in the order of the object.

use portolan_core::mesh::control::Resolver;
use portolan_core::mesh::control::types::MeshKind;

use super::build::{Builder, name};

#[test]
fn every_name_is_told_with_the_step_that_decided() {
    let text = r"
VirtualService v: {selector: {}, listener: {protocol: UDP, port: 1}, rules: [{action: {route: {destination: t, ingress: [s, {spec: {protocol: Echo}}], egress: [w, nobody]}}}, {action: {route: r}}, {action: {route: gone}}]}
VirtualService s: {selector: {matchLabels: {app: worker}}, listener: {protocol: UDP, port: 2}}
Target t: {selector: {}, cluster: {linkedVirtualService: s}}
Route r: {destination: t}";
    let world = Builder::default().proxy("p", "a", "10.0.0.1").service("w", "worker", &[("UDP", 9)]).objects(text);
    let resolver = Resolver::new(world.world);
    let told = |kind, of: &str| {
        let lines = resolver.explain(kind, &name(of)).into_iter();
        let line = |one: portolan_core::mesh::control::ResolvedReference| {
            let step = one.step.map(|step| format!(" ({step})")).unwrap_or_default();
            format!("{} {}{step}: {}", one.path, one.name.unwrap_or_default(), one.meaning)
        };
        lines.map(line).collect::<Vec<_>>()
    };
    assert_eq!(
        told(MeshKind::VirtualService, "v"),
        [
            "rules[0].route.destination t (1): Target default/t",
            "rules[0].route.ingress[0] s (2): VirtualService default/s: Target default/s is generated",
            "rules[0].route.ingress[1] : an inline Target",
            "rules[0].route.egress[0] w (3): Service default/w, through a generated VirtualService: Target default/w is generated",
            "rules[0].route.egress[1] nobody (4): RefNotFound: `nobody`: Target, VirtualService or Service `nobody` does not exist in namespace `default`: create it, or correct the name",
            "rules[1].route r: Route default/r",
            "rules[1].route.destination t (1): Target default/t",
            "rules[2].route gone: RefNotFound: `gone`: Route `gone` does not exist in namespace `default`: create it, or correct the name",
        ]
    );
    assert_eq!(told(MeshKind::Target, "t"), ["linkedVirtualService s (2): VirtualService default/s"]);
}
