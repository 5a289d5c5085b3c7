//! Adds objects as clients write them to the configuration; inline objects become separate ones.

use std::sync::Arc;

use portolan_core::mesh::Predicate;
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_128;

use super::json::{Json, Object as Fields, object};
use super::kind::Kind;
use super::refusal::Refusal;
use super::spec;
use super::state::{Meta, Object, State};
use super::types::{
    Action, Listener, ListenerOptions, ListenerSpec, Matching, Name, ObjectId, Retry, RewriteStep, Route, Rule,
    RuleList, UdpMode,
};

/// Writes objects into a copy of the configuration.
pub struct Writer<'a> {
    pub state: &'a mut State,
    pub owner: Option<Name>,
    /// Existing objects are replaced; else they are refused.
    pub replace: bool,
}

/// Whether an object is at the top level or inside another.
#[derive(Clone, Copy)]
pub(super) enum Nesting<'a> {
    Top,
    /// Inside another one; a name that it lacks begins like this.
    Inside(&'a str),
}

/// An object on its way in.
pub(super) struct Draft<'a> {
    pub kind: Kind,
    pub fields: &'a Fields,
    pub name: Name,
    pub id: ObjectId,
    auto: bool,
    written: u128,
}

/// The outcome of opening an object for writing.
pub(super) enum Opened<'a> {
    /// The very same was written before.
    Unchanged(Name),
    Draft(Draft<'a>),
}

impl Writer<'_> {
    /// Adds or replaces an object of any kind but endpoints. Returns its name.
    pub fn write(&mut self, kind: Kind, given: Option<&Json>) -> Result<Name, Refusal> {
        self.write_at(kind, given, Nesting::Top)
    }

    /// Inserts a rule, by name or inline, into a rulelist.
    pub fn insert_rule(&mut self, list: &str, position: &str, rule: Option<&Json>) -> Result<(), Refusal> {
        let before = self.rulelist_of(list)?;
        let at = position.parse().ok().filter(|at| *at <= before.rules.len());
        let Some(at) = at else {
            let content = format!("Cannot insert rule at position {position} into rulelist");
            return Err(Refusal::bad(content));
        };
        let rule = self.rule_item(list, rule)?;
        let mut rules = before.rules.clone();
        rules.insert(at, rule);
        self.edit_rulelist(&before, rules)
    }

    /// Takes a rule out of a rulelist, by position or by name.
    pub fn remove_rule(&mut self, list: &str, which: &str) -> Result<(), Refusal> {
        let before = self.rulelist_of(list)?;
        let at = match which.parse::<i64>() {
            Ok(position) => usize::try_from(position)
                .ok()
                .filter(|at| *at < before.rules.len())
                .ok_or_else(|| Refusal::missing(format!("Cannot delete rule at position {which} from rulelist")))?,
            Err(_) => before
                .rules
                .iter()
                .position(|rule| &**rule == which)
                .ok_or_else(|| Refusal::missing(format!("No rule {which} on rulelist {list}")))?,
        };
        let mut rules = before.rules.clone();
        rules.remove(at);
        self.edit_rulelist(&before, rules)
    }

    pub(super) fn open<'a>(
        &mut self,
        kind: Kind,
        given: Option<&'a Json>,
        place: Nesting<'_>,
    ) -> Result<Opened<'a>, Refusal> {
        let cannot = |why: &str| Refusal::bad(format!("Cannot add {}: {why}", kind.noun()));
        let Some(given @ Json::Object(fields)) = given else {
            return Err(cannot("An object (a set of key-value pairs) is expected"));
        };
        let limits = &self.state.snapshot.admin.limits;
        let named = match fields.get("name") {
            None => None,
            Some(Json::String(name)) if is_name(name) && name.len() > limits.name => {
                let why = format!("Property name is invalid: longer than {} bytes (admin.limits.name)", limits.name);
                return Err(Refusal { limit: Some("name"), ..cannot(&why) });
            }
            Some(Json::String(name)) if is_name(name) => Some(Name::from(name.as_str())),
            Some(_) => return Err(cannot("Property name is invalid")),
        };
        if named.is_none() && matches!(place, Nesting::Top) && kind != Kind::Endpoint {
            return Err(cannot("Property name is required"));
        }
        let mut text = Vec::new();
        given.write_sorted(&mut text);
        let (written, size) = (xxh3_128(&text), text.len());
        if size > limits.object {
            let content =
                format!("Cannot add {}: larger than {} bytes (admin.limits.object)", kind.noun(), limits.object);
            return Err(Refusal::limit("object", content));
        }
        if let Some((name, meta)) = named.as_ref().and_then(|name| Some((name, self.state.meta(kind, name)?))) {
            // an inline object replaces only an inline one of the same owner; endpoints of a
            // cluster that is written are not found here
            let inline = matches!(place, Nesting::Inside(_)) && kind != Kind::Endpoint;
            let mine = self.replace && (!inline || (meta.auto && meta.owner == self.owner));
            if !mine {
                let content = format!("Cannot add {}: {} \"{name}\" already defined", kind.noun(), kind.title());
                return Err(Refusal::conflict(content));
            }
            if meta.written == Some(written) && meta.owner == self.owner {
                return Ok(Opened::Unchanged(Arc::clone(name)));
            }
            let (id, auto) = (meta.id, meta.auto && matches!(place, Nesting::Inside(_)));
            return Ok(Opened::Draft(Draft { kind, fields, name: Arc::clone(name), id, auto, written }));
        }
        if self.state.count(kind) >= limits.objects {
            let content =
                format!("Cannot add {}: at most {} are allowed (admin.limits.objects)", kind.noun(), limits.objects);
            return Err(Refusal::limit("objects", content));
        }
        let auto = matches!(place, Nesting::Inside(_)) || named.is_none();
        let name = match (named, place) {
            (Some(name), _) => name,
            (None, Nesting::Inside(parent)) => self.state.make_name(kind, parent)?,
            (None, Nesting::Top) => return Err(cannot("Property name is required")),
        };
        Ok(Opened::Draft(Draft { kind, fields, name, id: self.state.fresh_id(), auto, written }))
    }

    pub(super) fn meta(&self, draft: &Draft<'_>, view: Fields, warnings: Vec<String>) -> Meta {
        for warning in &warnings {
            tracing::warn!(kind = draft.kind.noun(), name = &*draft.name, warning);
        }
        Meta {
            id: draft.id,
            auto: draft.auto,
            owner: self.owner.clone(),
            generation: self.state.snapshot.generation + 1,
            written: Some(draft.written),
            view: Arc::new(view),
            warnings,
            cluster: None,
        }
    }

    pub(super) fn write_at(&mut self, kind: Kind, given: Option<&Json>, place: Nesting<'_>) -> Result<Name, Refusal> {
        let draft = match self.open(kind, given, place)? {
            Opened::Unchanged(name) => return Ok(name),
            Opened::Draft(draft) => draft,
        };
        match kind {
            Kind::Listener => self.listener(&draft)?,
            Kind::Cluster => self.cluster(&draft)?,
            Kind::RuleList => self.rulelist(&draft)?,
            Kind::Rule => self.rule(&draft)?,
            Kind::Route => self.route(&draft)?,
            Kind::Endpoint => return Err(Refusal::bad("Cannot add endpoint: a cluster is required")),
        }
        Ok(draft.name)
    }

    fn listener(&mut self, draft: &Draft<'_>) -> Result<(), Refusal> {
        let given = draft.object("spec")?;
        let rules = draft.required("rules")?;
        if !matches!(rules, Json::Array(_) | Json::String(_)) {
            return Err(draft.invalid("rules"));
        }
        let shown = draft.fields.get("options").cloned().unwrap_or_else(|| object([("track", 0_u64.into())]));
        let options: ListenerOptions = draft.options(&shown)?;
        let mut typed = spec::listener(given, &self.state.snapshot.admin)?;
        apply_mode(&mut typed, options.mode)?;
        let rules = match rules.as_str() {
            Some(name) => Name::from(name),
            None => self.inline_rulelist(&draft.name, rules)?,
        };
        let mut view = Fields::default();
        view.set("name", &*draft.name);
        view.set("spec", given.clone());
        view.set("rules", &*rules);
        view.set("options", shown);
        let listener = Listener {
            id: draft.id,
            name: Arc::clone(&draft.name),
            spec: typed,
            rules,
            options,
            loopback_only: false,
            given: given.clone(),
        };
        let meta = self.meta(draft, view, Vec::new());
        self.state.store(Object::Listener(Arc::new(listener)), meta);
        Ok(())
    }

    fn inline_rulelist(&mut self, listener: &Name, rules: &Json) -> Result<Name, Refusal> {
        let given = object([("rules", rules.clone())]);
        self.write_at(Kind::RuleList, Some(&given), Nesting::Inside(listener))
    }

    fn rulelist(&mut self, draft: &Draft<'_>) -> Result<(), Refusal> {
        let items = draft.required("rules")?.as_array().ok_or_else(|| draft.invalid("rules"))?;
        self.check_length(items.len())?;
        let mut rules = Vec::with_capacity(items.len());
        for item in items {
            rules.push(self.rule_item(&draft.name, Some(item))?);
        }
        let meta = self.meta(draft, rulelist_view(&draft.name, &rules), Vec::new());
        let list = RuleList { id: draft.id, name: Arc::clone(&draft.name), rules };
        self.state.store(Object::RuleList(Arc::new(list)), meta);
        Ok(())
    }

    fn rule_item(&mut self, list: &str, item: Option<&Json>) -> Result<Name, Refusal> {
        match item {
            Some(Json::String(name)) => Ok(name.as_str().into()),
            Some(Json::Object(_)) => self.write_at(Kind::Rule, item, Nesting::Inside(list)),
            _ => Err(Refusal::bad("Cannot add rule to rulelist: Invalid rule")),
        }
    }

    fn rulelist_of(&self, list: &str) -> Result<Arc<RuleList>, Refusal> {
        let found = self.state.snapshot.rulelists.get(list).cloned();
        found.ok_or_else(|| Refusal::missing(format!("No such rule list: {list}")))
    }

    fn edit_rulelist(&mut self, before: &RuleList, rules: Vec<Name>) -> Result<(), Refusal> {
        self.check_length(rules.len())?;
        let Some(mut meta) = self.state.meta(Kind::RuleList, &before.name).cloned() else { return Ok(()) };
        meta.generation = self.state.snapshot.generation + 1;
        meta.written = None;
        meta.view = Arc::new(rulelist_view(&before.name, &rules));
        self.state.store(Object::RuleList(Arc::new(RuleList { rules, ..before.clone() })), meta);
        Ok(())
    }

    fn check_length(&self, rules: usize) -> Result<(), Refusal> {
        let most = self.state.snapshot.admin.limits.rules_per_list;
        if rules <= most {
            return Ok(());
        }
        let content = format!("Cannot add RuleList: at most {most} rules are allowed (admin.limits.rules_per_list)");
        Err(Refusal::limit("rules_per_list", content))
    }

    fn rule(&mut self, draft: &Draft<'_>) -> Result<(), Refusal> {
        let given = draft.object("action")?;
        let mut warnings = Vec::new();
        let always = object([("match", "*".into())]);
        let (matching, shown) = match draft.fields.get("match") {
            None | Some(Json::String(_)) => (Matching::Always, always),
            Some(predicate) if *predicate == always => (Matching::Always, always),
            Some(predicate) => (self.matching(predicate, &mut warnings)?, predicate.clone()),
        };
        let mut action = Action::default();
        let mut view = Fields::default();
        if let Some(rewrite) = given.get("rewrite") {
            let steps = rewrite.read::<Vec<RewriteStep>>().map_err(|_| draft.invalid("action.rewrite"))?;
            action.rewrite = steps;
            view.set("rewrite", rewrite.clone());
        }
        if let Some(apply) = given.get("apply") {
            let list = apply.as_str().ok_or_else(|| draft.invalid("action.apply"))?;
            action.apply = Some(list.into());
            view.set("apply", list);
        }
        if let Some(route) = given.get("route") {
            let route = match (route.as_str(), route.as_object()) {
                (Some(name), _) => Name::from(name),
                (None, Some(_)) => self.write_at(Kind::Route, Some(route), Nesting::Inside(&draft.name))?,
                (None, None) => return Err(Refusal::bad("Cannot add rule: Invalid route")),
            };
            view.set("route", &*route);
            action.route = Some(route);
        }
        let Json::Object(view) = object([("name", (&*draft.name).into()), ("match", shown), ("action", view.into())])
        else {
            return Ok(());
        };
        let meta = self.meta(draft, view, warnings);
        let rule = Rule { id: draft.id, name: Arc::clone(&draft.name), matching, action };
        self.state.store(Object::Rule(Arc::new(rule)), meta);
        Ok(())
    }

    fn route(&mut self, draft: &Draft<'_>) -> Result<(), Refusal> {
        let destination = match (draft.fields.get("destination"), draft.fields.get("cluster")) {
            (Some(destination), _) => self.stage(destination, &draft.name, "Invalid destination")?,
            (None, Some(cluster)) => self.stage(cluster, &draft.name, "Invalid cluster")?,
            (None, None) => return Err(Refusal::bad("Cannot add route: Invalid destination")),
        };
        let ingress = self.chain(draft, "ingress")?;
        let egress = self.chain(draft, "egress")?;
        let mut warnings = Vec::new();
        let (retry, shown) = retry(draft, &mut warnings)?;
        let names = |names: &[Name]| Json::Array(names.iter().map(|name| (&**name).into()).collect());
        let mut view = Fields::default();
        view.set("name", &*draft.name);
        view.set("destination", &*destination);
        view.set("ingress", names(&ingress));
        view.set("egress", names(&egress));
        view.set("retry", shown);
        let meta = self.meta(draft, view, warnings);
        let route = Route { id: draft.id, name: Arc::clone(&draft.name), destination, ingress, egress, retry };
        self.state.store(Object::Route(Arc::new(route)), meta);
        Ok(())
    }

    fn chain(&mut self, draft: &Draft<'_>, side: &str) -> Result<Vec<Name>, Refusal> {
        let Some(given) = draft.fields.get(side) else { return Ok(Vec::new()) };
        let items = given.as_array().ok_or_else(|| draft.invalid(side))?;
        let parent = format!("{}-{side}", draft.name);
        items.iter().map(|item| self.stage(item, &parent, "Invalid cluster")).collect()
    }

    fn stage(&mut self, given: &Json, parent: &str, wrong: &str) -> Result<Name, Refusal> {
        match (given.as_str(), given.as_object()) {
            (Some(name), _) if !name.is_empty() => Ok(name.into()),
            (_, Some(_)) => self.write_at(Kind::Cluster, Some(given), Nesting::Inside(parent)),
            _ => Err(Refusal::bad(format!("Cannot add route: {wrong}"))),
        }
    }

    fn matching(&self, predicate: &Json, warnings: &mut Vec<String>) -> Result<Matching, Refusal> {
        let limits = &self.state.snapshot.admin.limits;
        let value = predicate.to_value();
        let nodes = count_nodes(&value);
        if nodes > limits.predicate_nodes {
            let content = format!("Cannot add rule: match has {nodes} parts, more than admin.limits.predicate_nodes");
            return Err(Refusal::limit("predicate_nodes", content));
        }
        let longest = longest_regex(&value);
        if longest > limits.regex {
            let content = format!(
                "Cannot add rule: the regular expression has {longest} bytes, {} are allowed (admin.limits.regex)",
                limits.regex
            );
            return Err(Refusal::limit("regex", content));
        }
        if let Err(fault) = Predicate::compile(Some(&value)) {
            warnings.push(fault.to_string());
            return Ok(Matching::Never);
        }
        Ok(Matching::When(value))
    }
}

impl<'a> Draft<'a> {
    pub(super) fn required(&self, key: &str) -> Result<&'a Json, Refusal> {
        let missing = || Refusal::bad(format!("Cannot add {}: Property {key} is required", self.kind.noun()));
        self.fields.get(key).ok_or_else(missing)
    }

    pub(super) fn object(&self, key: &str) -> Result<&'a Json, Refusal> {
        let value = self.required(key)?;
        if value.as_object().is_some() { Ok(value) } else { Err(self.invalid(key)) }
    }

    pub(super) fn options<T: serde::de::DeserializeOwned>(&self, given: &Json) -> Result<T, Refusal> {
        if given.as_object().is_none() {
            return Err(self.invalid("options"));
        }
        given.read().map_err(|path| self.invalid(&format!("options.{path}")))
    }

    pub(super) fn invalid(&self, key: &str) -> Refusal {
        Refusal::bad(format!("Cannot add {}: Property {key} is invalid", self.kind.noun()))
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(char::is_whitespace)
}

/// `options.mode` applies unless `spec.options.mode` is set.
fn apply_mode(spec: &mut ListenerSpec, mode: Option<UdpMode>) -> Result<(), Refusal> {
    let transport = if let ListenerSpec::JsonSocket(transport) = spec { transport } else { spec };
    if let ListenerSpec::Udp(udp) = transport { udp.apply_mode(mode) } else { Ok(()) }
}

fn rulelist_view(name: &str, rules: &[Name]) -> Fields {
    let mut view = Fields::default();
    view.set("name", name);
    view.set("rules", Json::Array(rules.iter().map(|rule| (&**rule).into()).collect()));
    view
}

/// Each field has its own default.
fn retry(draft: &Draft<'_>, warnings: &mut Vec<String>) -> Result<(Retry, Json), Refusal> {
    let default = Retry::default();
    let Some(given) = draft.fields.get("retry") else {
        return Ok((
            default,
            retry_view("never".into(), u64::from(default.num_retries).into(), default.timeout.into()),
        ));
    };
    if given.as_object().is_none() {
        return Err(draft.invalid("retry"));
    }
    let retry: Retry = given.read().map_err(|path| draft.invalid(&format!("retry.{path}")))?;
    let on = given.get("retry_on").cloned().unwrap_or_else(|| "never".into());
    if !on.as_str().is_some_and(|word| super::strict::RETRY_ON.contains(&word)) {
        warnings.push("unknown retry.retry_on: retries are disabled".to_owned());
    }
    Ok((retry, retry_view(on, u64::from(retry.num_retries).into(), retry.timeout.into())))
}

fn retry_view(on: Json, retries: Json, timeout: Json) -> Json {
    object([("retry_on", on), ("num_retries", retries), ("timeout", timeout)])
}

fn longest_regex(predicate: &Value) -> usize {
    let own = predicate.get("value").and_then(Value::as_str).filter(|_| predicate["op"] == "matches");
    let parts = predicate.get("apply").and_then(Value::as_array).into_iter().flatten();
    parts.map(longest_regex).chain(own.map(str::len)).max().unwrap_or(0)
}

fn count_nodes(predicate: &Value) -> usize {
    let parts = predicate.get("apply").and_then(Value::as_array);
    1 + parts.map_or(0, |parts| parts.iter().map(count_nodes).sum())
}
