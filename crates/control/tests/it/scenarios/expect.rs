//! Compares what is with what should be, and says every difference.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::Value;

use super::story::{Conditions, GatewayWord, ObjectWord, PolicyWord, ProxyWord, Then};
use super::world::World;

impl World {
    /// Everything that is otherwise.
    pub(super) async fn compare(&mut self, then: &Then) -> anyhow::Result<Vec<String>> {
        let mut wrong = Vec::new();
        let policies = self.policies().await?;
        for (name, word) in &then.policies {
            match policies.get(name) {
                Some(policy) => policy_differs(name, &policy.data["status"], word, &mut wrong),
                None => wrong.push(format!("policy {name} is not there")),
            }
        }
        for (name, word) in &then.gateways {
            match self.find(&format!("EgressGateway {name}")).await? {
                Some(gateway) => gateway_differs(name, &gateway.data["status"], word, &mut wrong),
                None => wrong.push(format!("gateway {name} is not there")),
            }
        }
        for (what, word) in &then.objects {
            match self.find(what).await? {
                Some(object) => object_differs(what, &object.data["status"], word, &mut wrong),
                None => wrong.push(format!("{what} is not there")),
            }
        }
        for (pod, word) in &then.proxies {
            match self.proxy_config(pod)? {
                Some(config) => proxy_differs(pod, &config, word, &mut wrong),
                None => wrong.push(format!("pod {pod} has no proxy that runs")),
            }
        }
        self.ledger_differs(then, &mut wrong).await?;
        for (kind, part, wanted) in [
            ("AddressClaim", "/spec/egress", &then.claims),
            ("EgressTunnel", "/status", &then.tunnels),
            (
                "EgressClusterInfo",
                "/status",
                &then.cluster_info.iter().map(|info| ("default".to_owned(), info.clone())).collect(),
            ),
        ] {
            for (name, fields) in wanted {
                let found = self.find(&format!("{kind} {name}")).await?;
                let is = found.as_ref().and_then(|object| object.data.pointer(part)).cloned().unwrap_or_default();
                part_differs(&format!("{kind} {name}"), &is, fields, &mut wrong);
            }
        }
        for (policy, pods) in &then.slices {
            differs(&format!("pods in the slices of {policy}"), &self.sliced(policy).await?, pods, &mut wrong);
        }
        if let Some(load) = &then.load {
            differs("load", &loads(&policies), load, &mut wrong);
        }
        if let Some(shares) = &then.shares {
            differs("shares", &shared(&policies), shares, &mut wrong);
        }
        for (objects, wanted) in [(&then.absent, false), (&then.present, true)] {
            for what in objects {
                if self.find(what).await?.is_some() != wanted {
                    wrong.push(format!("{what} is {}there", if wanted { "not " } else { "still " }));
                }
            }
        }
        if !then.events.is_empty() {
            let sent = self.events().await?;
            wrong.extend(
                then.events
                    .iter()
                    .filter(|reason| !sent.contains(reason))
                    .map(|reason| format!("no event {reason} among {sent:?}")),
            );
        }
        if let Some(wanted) = then.idle_writes {
            differs("idle_writes", &self.idle_writes().await?, &wanted, &mut wrong);
        }
        Ok(wrong)
    }

    async fn ledger_differs(&self, then: &Then, wrong: &mut Vec<String>) -> anyhow::Result<()> {
        let ledger = self.ledger().await?;
        if let Some(wanted) = &then.ledger {
            let same =
                |(address, node): (&String, &String)| ledger.get(address).is_some_and(|is| word_matches(is, node));
            if ledger.len() != wanted.len() || !wanted.iter().all(same) {
                wrong.push(format!("ledger is {ledger:?}, not {wanted:?}"));
            }
        }
        if let Some(nodes) = &then.moved_only_from {
            for (address, before) in self.remembered.iter().filter(|(_, before)| !nodes.contains(before)) {
                if ledger.get(address) != Some(before) {
                    wrong.push(format!("{address} went from {before} to {:?} without a cause", ledger.get(address)));
                }
            }
            for (address, before) in self.remembered.iter().filter(|(_, before)| nodes.contains(before)) {
                if ledger.get(address) == Some(before) {
                    wrong.push(format!("{address} is still on {before}"));
                }
            }
        }
        Ok(())
    }

    /// Policies of both kinds; those of the cluster have no slash in their name.
    async fn policies(&self) -> anyhow::Result<BTreeMap<String, DynamicObject>> {
        let mut policies = BTreeMap::new();
        for policy in self.all("EgressPolicy").await? {
            policies.insert(format!("{}/{}", policy.namespace().unwrap_or_default(), policy.name_any()), policy);
        }
        policies.extend(self.all("EgressClusterPolicy").await?.into_iter().map(|policy| (policy.name_any(), policy)));
        Ok(policies)
    }

    async fn sliced(&self, policy: &str) -> anyhow::Result<Vec<String>> {
        let (namespace, name) = policy.split_once('/').unwrap_or_default();
        let mut pods = Vec::new();
        for slice in self.all("EgressEndpointSlice").await? {
            if slice.namespace().as_deref() == Some(namespace)
                && slice.labels().get("spidernet.io/policy-name").is_some_and(|of| of == name)
            {
                let endpoints = slice.data["endpoints"].as_array().cloned().unwrap_or_default();
                pods.extend(endpoints.iter().filter_map(|endpoint| Some(endpoint["pod"].as_str()?.to_owned())));
            }
        }
        pods.sort();
        Ok(pods)
    }

    async fn events(&self) -> anyhow::Result<Vec<String>> {
        let api = kube::Api::<k8s_openapi::api::events::v1::Event>::all(self.client.clone());
        let events = api.list(&kube::api::ListParams::default()).await?;
        Ok(events.into_iter().filter_map(|event| event.reason).collect())
    }
}

fn policy_differs(name: &str, status: &Value, word: &PolicyWord, wrong: &mut Vec<String>) {
    let PolicyWord { ipv4, ipv6, node, conditions } = word;
    let fields = [
        ("ipv4", &status["eip"]["ipv4"], ipv4),
        ("ipv6", &status["eip"]["ipv6"], ipv6),
        ("node", &status["node"], node),
    ];
    for (field, is, wanted) in fields {
        let is = is.as_str().filter(|is| !is.is_empty()).unwrap_or("none");
        if let Some(wanted) = wanted.as_ref().filter(|wanted| !word_matches(is, wanted)) {
            wrong.push(format!("policy {name}: {field} is {is}, not {wanted}"));
        }
    }
    conditions_differ(&format!("policy {name}"), status, conditions, wrong);
}

fn gateway_differs(name: &str, status: &Value, word: &GatewayWord, wrong: &mut Vec<String>) {
    let GatewayWord { nodes, phases, ipv4_free, ipv6_free, policies, conditions } = word;
    let about = format!("gateway {name}");
    let listed = || status["nodeList"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(wanted) = nodes {
        let is: BTreeMap<String, BTreeMap<String, Vec<String>>> =
            listed().map(|node| (text(&node["name"]), entries(node))).collect();
        differs(&format!("{about}: nodes"), &is, wanted, wrong);
    }
    if let Some(wanted) = phases {
        let is: BTreeMap<String, String> = listed().map(|node| (text(&node["name"]), text(&node["status"]))).collect();
        differs(&format!("{about}: phases"), &is, wanted, wrong);
    }
    for (family, wanted) in [("ipv4", ipv4_free), ("ipv6", ipv6_free)] {
        let number = |what: &str| status["ipUsage"][format!("{family}{what}")].as_i64().unwrap_or_default();
        if let Some(wanted) = wanted {
            differs(
                &format!("{about}: {family}_free"),
                &format!("{}/{}", number("Free"), number("Total")),
                wanted,
                wrong,
            );
        }
    }
    if let Some(wanted) = policies {
        differs(&format!("{about}: policies"), &status["policyCount"].as_i64().unwrap_or_default(), wanted, wrong);
    }
    conditions_differ(&about, status, conditions, wrong);
}

fn object_differs(what: &str, status: &Value, word: &ObjectWord, wrong: &mut Vec<String>) {
    let ObjectWord { proxies, endpoints, generated, conditions } = word;
    if let Some(wanted) = proxies {
        let is = status["proxies"]["summary"].as_str().unwrap_or("none").to_owned();
        differs(&format!("{what}: proxies"), &is, wanted, wrong);
    }
    if let Some(wanted) = endpoints {
        differs(&format!("{what}: endpoints"), &status["endpoints"].as_i64().unwrap_or_default(), wanted, wrong);
    }
    if let Some(wanted) = generated {
        differs(&format!("{what}: generated"), &texts(&status["generated"]), wanted, wrong);
    }
    conditions_differ(what, status, conditions, wrong);
}

fn proxy_differs(pod: &str, config: &Value, word: &ProxyWord, wrong: &mut Vec<String>) {
    let ProxyWord { listeners, endpoints } = word;
    let all = |kind: &str| config[kind].as_array().cloned().unwrap_or_default();
    let named = |kind: &str, name: &Value| all(kind).into_iter().find(|one| one["name"] == *name).unwrap_or_default();
    let addresses = |cluster: &Value| -> Vec<String> {
        let endpoints = cluster["endpoints"].as_array().cloned().unwrap_or_default();
        endpoints.iter().filter_map(|one| Some(one["spec"]["address"].as_str()?.to_owned())).collect()
    };
    if let Some(wanted) = listeners {
        let destination = |rule: &Value| {
            let route = named("routes", &named("rules", rule)["action"]["route"]);
            let cluster = named("clusters", &route["destination"]);
            let protocol = cluster["spec"]["protocol"].as_str().unwrap_or("nothing").to_owned();
            let mut words: Vec<String> = vec![protocol];
            words.extend(addresses(&cluster).into_iter().filter(|address| !address.starts_with('<')));
            words[1..].sort();
            words.join(" ")
        };
        let is: BTreeMap<String, Vec<String>> = all("listeners")
            .iter()
            .map(|listener| {
                let spec = &listener["spec"];
                let rules = named("rulelists", &listener["rules"])["rules"].as_array().cloned().unwrap_or_default();
                let name = format!("{} {}", spec["protocol"].as_str().unwrap_or_default(), spec["port"]);
                (name, rules.iter().map(destination).collect())
            })
            .collect();
        differs(&format!("proxy {pod}: listeners"), &is, wanted, wrong);
    }
    if let Some(wanted) = endpoints {
        let mut is: Vec<String> = all("clusters").iter().flat_map(addresses).collect();
        is.retain(|address| !address.starts_with('<'));
        is.sort();
        is.dedup();
        differs(&format!("proxy {pod}: endpoints"), &is, wanted, wrong);
    }
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|text| Some(text.as_str()?.to_owned())).collect()
}

/// The addresses of one node in a gateway's status, each with its policies.
fn entries(node: &Value) -> BTreeMap<String, Vec<String>> {
    let mut entries = BTreeMap::new();
    for entry in node["eips"].as_array().into_iter().flatten() {
        let halves: Vec<&str> =
            ["ipv4", "ipv6"].iter().filter_map(|half| entry[half].as_str()).filter(|half| !half.is_empty()).collect();
        let address = if halves.is_empty() { "node address".to_owned() } else { halves.join(" ") };
        let policies = entry["policies"].as_array().into_iter().flatten().map(|policy| {
            let (namespace, name) =
                (policy["namespace"].as_str().unwrap_or_default(), policy["name"].as_str().unwrap_or_default());
            if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
        });
        entries.insert(address, policies.collect());
    }
    entries
}

fn conditions_differ(about: &str, status: &Value, wanted: &Conditions, wrong: &mut Vec<String>) {
    let Conditions { accepted, resolved_refs, programmed, ready, says } = wanted;
    let find =
        |kind: &str| status["conditions"].as_array().into_iter().flatten().find(|condition| condition["type"] == kind);
    let text = |condition: Option<&Value>, field: &str| {
        condition.and_then(|condition| condition[field].as_str()).unwrap_or_default().to_owned()
    };
    let kinds = [("Accepted", accepted), ("ResolvedRefs", resolved_refs), ("Programmed", programmed), ("Ready", ready)];
    for (kind, wanted) in kinds {
        let is = find(kind);
        let (truth, reason, message) = (text(is, "status"), text(is, "reason"), text(is, "message"));
        let same = match wanted {
            None => continue,
            Some(Value::Bool(wanted)) => truth == if *wanted { "True" } else { "False" },
            Some(Value::String(wanted)) => truth == "False" && reason == *wanted,
            Some(Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_)) => false,
        };
        if !same {
            wrong.push(format!(
                "{about}: {kind} is {truth} {reason} ({message}), not {}",
                wanted.clone().unwrap_or_default()
            ));
        }
    }
    let unmet = kinds.iter().filter_map(|(kind, _)| find(kind)).find(|condition| condition["status"] != "True");
    let message = text(find("Ready").or(unmet), "message");
    if let Some(says) = says.as_ref().filter(|says| !message.contains(*says)) {
        wrong.push(format!("{about}: says `{message}`, not `{says}`"));
    }
}

fn word_matches(is: &str, wanted: &str) -> bool {
    match wanted {
        "any" => is != "none",
        wanted => is == wanted,
    }
}

/// How many policies each node serves, by gateway, the busiest first.
fn loads(policies: &BTreeMap<String, DynamicObject>) -> BTreeMap<String, Vec<usize>> {
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    for policy in policies.values() {
        if let Some(node) = policy.data["status"]["node"].as_str().filter(|node| !node.is_empty()) {
            let gateway = policy.data["spec"]["egressGatewayName"].as_str().unwrap_or_default();
            *counts.entry((gateway.to_owned(), node.to_owned())).or_default() += 1;
        }
    }
    let mut loads: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for ((gateway, _), count) in counts {
        loads.entry(gateway).or_default().push(count);
    }
    for load in loads.values_mut() {
        load.sort_unstable_by(|a, b| b.cmp(a));
    }
    loads
}

fn shared(policies: &BTreeMap<String, DynamicObject>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for policy in policies.values() {
        let eip = &policy.data["status"]["eip"];
        if let Some(address) = eip["ipv4"].as_str().or_else(|| eip["ipv6"].as_str()) {
            *counts.entry(address.to_owned()).or_default() += 1;
        }
    }
    counts
}

/// Every field that is wanted must be there; a wanted null must not.
fn part_differs(about: &str, is: &Value, wanted: &Value, wrong: &mut Vec<String>) {
    if let (Value::Object(is), Value::Object(wanted)) = (is, wanted) {
        for (field, wanted) in wanted {
            part_differs(&format!("{about}: {field}"), is.get(field).unwrap_or(&Value::Null), wanted, wrong);
        }
    } else if is != wanted {
        wrong.push(format!("{about} is {is}, not {wanted}"));
    }
}

fn differs<T: PartialEq + std::fmt::Debug>(about: &str, is: &T, wanted: &T, wrong: &mut Vec<String>) {
    if is != wanted {
        wrong.push(format!("{about} is {is:?}, not {wanted:?}"));
    }
}
